package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
)

// Errors. Those of tickets are also package kgate's.
var (
	// ErrConfig: the program is wrong: its Config, or what it calls.
	ErrConfig = errors.New("client: bad configuration")
	// ErrUnreachable: no gateway answers at any address.
	ErrUnreachable = errors.New("client: no gateway answers")
	// ErrUnavailable: the gateways that answer cannot serve the call now.
	ErrUnavailable = errors.New("client: no gateway can do it now")
	// ErrBusy: no slot is free now (TryAcquire), or the pool has as many tickets
	// as it may.
	ErrBusy = errors.New("client: busy")
	// ErrRefused: the gateway rejects the request: of an unknown pool, say.
	ErrRefused = errors.New("client: refused")
	// ErrToken is an ErrRefused: the gateway requires its admin token, and Config.Token is not it.
	ErrToken = fmt.Errorf("%w: the gateway requires its admin token", ErrRefused)
	// ErrTicketEnded: the ticket was cancelled, has expired, was lost, or never was.
	ErrTicketEnded = admission.ErrTicketEnded
	// ErrTicketWaiting: the ticket has no slot yet.
	ErrTicketWaiting = admission.ErrTicketWaiting
	// ErrTicketUsed: the ticket's slot is in use, or was.
	ErrTicketUsed = admission.ErrTicketUsed
)

// errNoTicket is for callers whom a panic far below would tell nothing.
var errNoTicket = fmt.Errorf("%w: this Ticket has no ID: take the one that RequestTicket or Client.Ticket returns", ErrConfig)

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
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrToken, host)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", ErrBusy, problem.Detail)
	case code == http.StatusGone, code == http.StatusNotFound && resp.Request.Method != http.MethodPost:
		return &admission.EndedError{How: admission.Ending(problem.Reason)}
	case code == http.StatusConflict:
		return ErrTicketUsed
	default:
		return fmt.Errorf("%w: %s answers %d: %s", ErrRefused, host, resp.StatusCode, problem.Detail)
	}
}
