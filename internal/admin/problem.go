package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 4 << 10

// statuses maps errors to HTTP, in one place.
var statuses = []struct {
	err    error
	status int
}{
	{ErrInvalid, http.StatusBadRequest},
	{ErrUnknown, http.StatusNotFound},
	{ErrConflict, http.StatusConflict},
	{ErrTooMany, http.StatusTooManyRequests},
	{admission.ErrTTL, http.StatusBadRequest},
	{admission.ErrUnknownPool, http.StatusNotFound},
	{admission.ErrUnknownTicket, http.StatusNotFound},
	{admission.ErrTicketUsed, http.StatusConflict},
	{admission.QueueFull, http.StatusTooManyRequests},
	{admission.ErrElsewhere, http.StatusServiceUnavailable},
	{ErrUnavailable, http.StatusServiceUnavailable},
	{errContentType, http.StatusUnsupportedMediaType},
	{errTooLarge, http.StatusRequestEntityTooLarge},
}

func statusOf(err error) int {
	if ended := (*admission.EndedError)(nil); errors.As(err, &ended) {
		return http.StatusGone
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	if reason := admission.Reason(""); errors.As(err, &reason) {
		return reason.Status()
	}
	return http.StatusInternalServerError
}

// failed answers with an error of Tickets or Control.
func failed(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	if cause := context.Cause(r.Context()); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)) {
		if !errors.Is(cause, ErrUnavailable) {
			return // the client has left
		}
		err = cause // the gateway ends
	}
	status := statusOf(err)
	detail := err.Error()
	for _, class := range []error{ErrInvalid, ErrUnknown, ErrConflict, ErrTooMany, ErrUnavailable} { // the status says it
		detail = strings.TrimPrefix(detail, class.Error()+": ")
	}
	if errors.Is(err, admission.ErrElsewhere) { // the log has the reason
		detail = admission.ErrElsewhere.Error()
	}
	switch status {
	case http.StatusInternalServerError:
		log.Error("request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		detail = "the gateway could not do it; its log says why"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	problem(w, r, status, detail, err)
}

// problem answers with an error: as RFC 9457 for the paths of an API or if the client asks for it,
// else as one line. An EndedError among the causes adds its reason.
func problem(w http.ResponseWriter, r *http.Request, status int, detail string, causes ...error) {
	accept := r.Header.Get("Accept")
	api := strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, TicketsPath)
	if !api && !strings.Contains(accept, "json") {
		problems.WriteLine(w, status, detail)
		return
	}
	d := problems.Details{Status: status, Detail: strings.TrimPrefix(detail, "kgate: ")}
	if ended := (*admission.EndedError)(nil); errors.As(errors.Join(causes...), &ended) {
		d.Reason = string(ended.How)
	}
	problems.WriteJSON(w, d)
}

var (
	errContentType = errors.New("the body must be JSON, with Content-Type: application/json")
	errTooLarge    = errors.New("the body is too large")
)

// readJSON reads a small JSON document strictly.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errContentType
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("more than one document")
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return fmt.Errorf("%w: more than %d bytes", errTooLarge, large.Limit)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	return fmt.Errorf("%w: the body: %w", ErrInvalid, err)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	problem(w, r, http.StatusNotFound, "there is nothing at this path; see /, /api/v1/status, /metrics, /healthz, /readyz")
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	problem(w, r, http.StatusMethodNotAllowed, "only GET and HEAD are allowed here")
}

// methods serves one path.
type methods map[string]http.HandlerFunc

// ServeHTTP implements http.Handler.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if h := m[method]; h != nil {
		h(w, r)
		return
	}
	allow := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	w.Header().Set("Allow", allow)
	problem(w, r, http.StatusMethodNotAllowed, "only "+allow+" are allowed here")
}
