package admission

// Outcome says how a request ended, as metrics and logs name it. Every request has
// exactly one.
type Outcome string

// The outcomes of requests that were not refused; for refusals see [Reason.Outcome].
const (
	// OutcomeNone: the request neither got a slot nor waited for one. No route
	// matched, it was malformed, it got a ticket, or its own ticket was not valid.
	OutcomeNone Outcome = ""
	// OutcomeAdmitted: admitted and answered by the upstream, whatever the status;
	// also if the client went away, or the slot was lost or held for too long,
	// during the answer.
	OutcomeAdmitted Outcome = "admitted"
	// OutcomeClientGone: the client left before it was admitted.
	OutcomeClientGone Outcome = "client_gone"
	// OutcomeUpstreamError: admitted, but the upstream could not be reached, did not
	// answer in time (hold.max and hold.idle included), or broke off its answer.
	OutcomeUpstreamError Outcome = "upstream_error"
)

// String returns the outcome's name.
func (o Outcome) String() string {
	if o == OutcomeNone {
		return "none"
	}
	return string(o)
}

// Refused reports whether the request was refused.
func (o Outcome) Refused() bool {
	for i := range reasons {
		if reasons[i].outcome == o {
			return true
		}
	}
	return false
}

// Outcomes returns the outcomes of requests that reached a pool.
func Outcomes() []Outcome {
	all := []Outcome{OutcomeAdmitted, OutcomeClientGone, OutcomeUpstreamError}
	for _, r := range reasons {
		all = append(all, r.outcome)
	}
	return all
}

// WaitOutcomes returns the outcomes of requests that may have waited.
func WaitOutcomes() []Outcome {
	all := []Outcome{OutcomeAdmitted, OutcomeClientGone}
	for _, r := range reasons {
		if r.waits {
			all = append(all, r.outcome)
		}
	}
	return all
}
