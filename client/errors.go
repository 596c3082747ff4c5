package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kgate/kgate/internal/problems"
)

// Errors.
var (
	// ErrConfig: the Config is wrong.
	ErrConfig = errors.New("client: bad configuration")
	// ErrUnreachable: no gateway answers at any address.
	ErrUnreachable = errors.New("client: no gateway answers")
	// ErrUnavailable: the gateways that answer cannot serve the call now.
	ErrUnavailable = errors.New("client: no gateway can do it now")
	// ErrBusy: no slot is free now (TryAcquire), or the pool has as many tickets
	// as it may.
	ErrBusy = errors.New("client: busy")
	// ErrRefused: the gateway rejects the request: an unknown pool, or no admin token where
	// one is required.
	ErrRefused = errors.New("client: refused")
	// ErrGone: the ticket or slot has ended. GoneError says why.
	ErrGone = errors.New("client: the ticket has ended")
)

// GoneError says why a ticket or slot has ended; it is an ErrGone.
type GoneError struct {
	// Reason as the gateway gives it: released, cancelled, expired, hold-max or lost;
	// empty where no gateway knows of the ticket.
	Reason string
}

func (e *GoneError) Error() string {
	if e.Reason == "" {
		return ErrGone.Error() + ": no gateway knows of it"
	}
	return fmt.Sprintf("%v: %s", ErrGone, e.Reason)
}

// Is makes every GoneError an ErrGone.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

// answerError is the error that a gateway answered with.
func answerError(host string, resp *http.Response, body []byte) error {
	var problem problems.Details
	known := json.Unmarshal(body, &problem) == nil && strings.HasPrefix(problem.Type, problems.TypeBase)
	problem.Detail = cmp.Or(problem.Detail, resp.Status)
	switch code := resp.StatusCode; {
	case !known && (code == http.StatusGone || code == http.StatusNotFound):
		// It may be of a proxy that has lost its gateway, and a slot is not to be
		// given up for that.
		return &failure{kind: ErrUnreachable, text: host + " answers " + resp.Status + ", not as a kgate does"}
	case code >= 500:
		return &failure{kind: ErrUnavailable, text: host + ": " + problem.Detail}
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", ErrBusy, problem.Detail)
	case code == http.StatusGone, code == http.StatusNotFound && resp.Request.Method != http.MethodPost:
		return &GoneError{Reason: problem.Reason}
	default:
		return fmt.Errorf("%w: %s answers %d: %s", ErrRefused, host, resp.StatusCode, problem.Detail)
	}
}
