package peers

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// fileSize is not a multiple of anything.
const fileSize = 3<<20 + 12345

// pattern is what files and streams are made of: no part of it looks like
// another.
var pattern = func() []byte {
	b := make([]byte, fileSize)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(b) // never fails
	return b
}()

// stream is the pattern again and again, so many bytes of it.
type stream struct{ at, left int64 }

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), s.left)], pattern[s.at%fileSize:])
	s.at, s.left = s.at+int64(n), s.left-int64(n)
	return n, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum reads r to its end.
func sum(r io.Reader) (bytes int64, crc string, err error) {
	h := crc32.New(castagnoli)
	bytes, err = io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 64<<10))
	return bytes, fmt.Sprintf("%08x", h.Sum32()), err
}

// account is what the upstream says of a body it got.
func account(bytes int64, crc string) string { return fmt.Sprintf("%d bytes, %s", bytes, crc) }

// newUpstream serves what an upstream has to offer.
func newUpstream() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Unix(1e9, 0), io.NewSectionReader(patternReader{}, 0, fileSize))
	})
	mux.HandleFunc("/flood", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		_, _ = io.Copy(w, &stream{left: n})
	})
	mux.HandleFunc("/drain", func(w http.ResponseWriter, r *http.Request) {
		bytes, crc, err := sum(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, account(bytes, crc))
	})
	mux.HandleFunc("/ws", webSocket)
	mux.HandleFunc("/events", events)
	return mux
}

type patternReader struct{}

func (patternReader) ReadAt(p []byte, at int64) (int, error) {
	n := copy(p, pattern[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// echo sends the body back with the trailer that came after it, early hints before
// and a sum behind.
func echo(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs no such thing
	w.Header().Set("Link", "</style.css>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Trailer", "X-Sum, X-Got")
	h := crc32.New(castagnoli)
	_, _ = io.Copy(w, io.TeeReader(r.Body, h))
	w.Header().Set("X-Sum", fmt.Sprintf("%08x", h.Sum32()))
	w.Header().Set("X-Got", r.Trailer.Get("X-Sent"))
}

// webSocket sends every message back.
func webSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(1 << 20)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if c.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// events sends one event, and the next ones when the client has asked for them at
// another address.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		fmt.Fprintf(w, "data: %d\n\n", i)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	<-r.Context().Done() // until the client has seen enough
}
