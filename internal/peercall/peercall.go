// Package peercall asks other gateways: JSON over HTTP, and several of them at once.
package peercall

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/kgate/kgate/internal/peercert"
)

// To is whom a call is for.
type To struct {
	Name string
	Addr string // host:port
}

// Reached is the error of a call that failed although the gateway was there, as its certificate
// has shown. Without TLS nobody knows who was there.
type Reached struct{ Err error }

func (r Reached) Error() string { return r.Err.Error() }

// Unwrap returns what went wrong.
func (r Reached) Unwrap() error { return r.Err }

// Through returns an error of a call over conn, whose other end is the right one as far as can
// be told, as [Reached] if it can.
func Through(conn net.Conn, err error) error {
	if _, secure := conn.(*tls.Conn); secure && err != nil {
		return Reached{err}
	}
	return err
}

// Do sends a request to the gateway of that name. Over TLS no other gets it, or can answer
// it: addresses come from gossip, in which every gateway can say what it likes of others.
func Do(client *http.Client, req *http.Request, name string) (*http.Response, error) {
	resp, _, err := do(client, req, name)
	return resp, err
}

// do returns the connection as well; nil: no right one was there.
func do(client *http.Client, req *http.Request, name string) (resp *http.Response, over net.Conn, err error) {
	var wrong error
	trace := &httptrace.ClientTrace{ // in this goroutine
		GetConn: func(string) { over = nil }, // again, if the one before had just been closed
		GotConn: func(info httptrace.GotConnInfo) { // before anything is sent
			if wrong = peercert.OfConn(info.Conn, name); wrong != nil {
				_ = info.Conn.Close()
				return
			}
			over = info.Conn
		},
	}
	resp, err = client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if wrong == nil {
		return resp, over, Through(over, err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	return nil, nil, fmt.Errorf("%s: %w", req.URL.Host, wrong)
}

// JSON asks a gateway. The question becomes the body, unless it is nil; the answer is
// decoded into answer. Answers of more than limit bytes, and those with another status
// than 200, are errors.
func JSON(ctx context.Context, client *http.Client, method string, to To, path string, question, answer any, limit int64) error {
	var body io.Reader = http.NoBody
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+to.Addr+path, body)
	if err != nil {
		return err
	}
	resp, over, err := do(client, req, to.Name)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return Through(over, read(resp, to, path, answer, limit))
}

// read decodes the answer of a gateway.
func read(resp *http.Response, to To, path string, answer any, limit int64) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s: %.200s", to.Addr, resp.Status, data)
	case int64(len(data)) > limit:
		return fmt.Errorf("%s answers with more than %d bytes", to.Addr, limit)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", to.Addr, path, err)
	}
	return nil
}

// Each calls do with each element of all and its index, as many at a time as atOnce
// says, and returns when all calls have.
func Each[T any](all []T, atOnce int, do func(int, T)) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, v := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i, v)
		})
	}
	wg.Wait()
}
