package proxy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// Health says when an upstream is passed over. With checks, only they decide: a
// request that fails brings the next check forward. Otherwise failures of requests
// in a row do (no connection, or one that broke before there was an answer; a slow
// or a bad answer is no failure).
type Health struct {
	// Path is asked for with GET, below the upstream's URL; a status of 200 to
	// 399 is good. These checks come beside the pool's k requests. Empty: no
	// checks. Then an unhealthy upstream gets one request every Interval, and
	// is healthy again once that is answered; when all are unhealthy, they all get
	// requests.
	Path string
	// Interval between two checks of a gateway, default 5 s.
	Interval time.Duration
	// Timeout of a check, default 2 s.
	Timeout time.Duration
	// UnhealthyAfter is how many failures in a row make an upstream unhealthy,
	// default 3. Two good checks in a row make it healthy again.
	UnhealthyAfter int
	// SlowStart is how long an upstream that is healthy again, or new beside others, takes
	// to get its whole share of the requests. It begins with a tenth. 0: none.
	SlowStart time.Duration
}

// healthyAfter is how many good checks in a row make an upstream healthy again.
const healthyAfter = 2

func (h Health) withDefaults() Health {
	h.Interval = cmp.Or(h.Interval, admission.DefaultHealthInterval)
	h.Timeout = cmp.Or(h.Timeout, admission.DefaultHealthTimeout)
	h.UnhealthyAfter = cmp.Or(h.UnhealthyAfter, admission.DefaultUnhealthyAfter)
	return h
}

// check returns what is wrong with h.
func (h Health) check() []string {
	var msgs []string
	if h.Path != "" && h.Path[0] != '/' {
		msgs = append(msgs, fmt.Sprintf("health path %q does not begin with a slash", h.Path))
	}
	if h.Interval < 0 || h.Timeout < 0 || h.SlowStart < 0 {
		msgs = append(msgs, "negative time in the health checks")
	}
	if h.UnhealthyAfter < 0 {
		msgs = append(msgs, "negative number in the health checks")
	}
	return msgs
}

func (h Health) checks() bool { return h.Path != "" }

// health is what is known of an upstream. It is guarded by balancer.mu.
type health struct {
	bad      bool
	requests int       // that failed, in a row
	errors   int       // answers of 500 to 599, in a row
	failed   int       // checks that failed, in a row
	good     int       // checks that did not, in a row, while it is bad
	again    time.Time // when a bad one without checks may be tried
}

// verdict is what a request says about its upstream.
type verdict uint8

const (
	verdictNone   verdict = iota // nothing: the client left, the slot was lost, the answer was slow, no upgrade
	verdictGood                  // it answered
	verdictError                 // it answered that it failed, with 500 to 599
	verdictFailed                // no connection, or it broke before the answer
)

// eligible reports whether the upstream may get a request.
func (s *health) eligible(cfg Health) bool {
	return !s.bad || !cfg.checks() && !time.Now().Before(s.again)
}

// request notes what a request has shown. It reports whether the upstream has become
// healthy or unhealthy.
func (s *health) request(v verdict, cfg Health) (changed bool) {
	switch v {
	case verdictGood, verdictError:
		s.requests = 0
		if s.bad && !cfg.checks() {
			s.bad = false
			return true
		}
	case verdictFailed:
		if cfg.checks() {
			return false
		}
		s.requests++
		s.again = time.Now().Add(cfg.Interval)
		return s.failing(s.requests, cfg)
	case verdictNone:
	}
	return false
}

// doubtful reports whether a check is to come at once, after a request with this verdict.
func (s *health) doubtful(v verdict, cfg Health) bool {
	switch v {
	case verdictFailed:
		return true
	case verdictError:
		s.errors++
		return cfg.checks() && s.errors%cfg.UnhealthyAfter == 0
	case verdictGood:
		s.errors = 0
	case verdictNone:
	}
	return false
}

// check notes the result of a check. It reports whether the upstream has become healthy
// or unhealthy.
func (s *health) check(ok bool, cfg Health) (changed bool) {
	if !ok {
		s.good = 0
		s.failed++
		return s.failing(s.failed, cfg)
	}
	s.failed = 0
	if s.bad {
		if s.good++; s.good >= healthyAfter {
			*s = health{}
			return true
		}
	}
	return false
}

func (s *health) failing(times int, cfg Health) (changed bool) {
	if s.bad || times < cfg.UnhealthyAfter {
		return false
	}
	s.bad, s.good = true, 0
	return true
}
