package haproxy

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// newUpstream has an address for each thing that a request may be doing when its
// slot is lost. Requests under /long last until their connection is closed.
func newUpstream() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	mux.HandleFunc("/long/unanswered", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/long/silent", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "the beginning")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/long/stream", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			fmt.Fprintln(w, time.Now())
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	})
	mux.HandleFunc("/long/socket", func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		if both.Flush() == nil {
			_, _ = io.Copy(io.Discard, both)
		}
	})
	return mux
}
