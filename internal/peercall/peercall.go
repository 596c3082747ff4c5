// Package peercall asks other gateways: JSON over HTTP, and several of them at once.
package peercall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// JSON asks the gateway at addr, host:port. The question becomes the body, unless it is
// nil; the answer is decoded into answer. Answers of more than limit bytes, and those
// with another status than 200, are errors.
func JSON(ctx context.Context, client *http.Client, method, addr, path string, question, answer any, limit int64) error {
	var body io.Reader = http.NoBody
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s: %.200s", addr, resp.Status, data)
	case int64(len(data)) > limit:
		return fmt.Errorf("%s answers with more than %d bytes", addr, limit)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", addr, path, err)
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
