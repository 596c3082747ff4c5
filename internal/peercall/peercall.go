// Package peercall asks other gateways: JSON over HTTP, and several of them at once.
package peercall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// Do sends a request to the gateway of that name. Over TLS no other gets it, or can answer
// it: addresses come from gossip, in which every gateway can say what it likes of others.
func Do(client *http.Client, req *http.Request, name string) (*http.Response, error) {
	var wrong error
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { // in this goroutine, before anything is sent
		if wrong = peercert.OfConn(info.Conn, name); wrong != nil {
			_ = info.Conn.Close()
		}
	}}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if wrong == nil {
		return resp, err
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	return nil, fmt.Errorf("%s: %w", req.URL.Host, wrong)
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
	resp, err := Do(client, req, to.Name)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
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
