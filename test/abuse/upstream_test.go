package abuse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// probe is the path of the request that tells when everything before it has
// reached the upstream: the pool has one slot.
const probe = "/probe"

// rawUpstream answers requests and keeps the bytes of each.
type rawUpstream struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	seen  []sighting
}

// sighting is what the upstream saw of one request.
type sighting struct {
	raw string
	// whole: it came to its end. An upstream cannot take another for a request.
	whole bool
}

func newRawUpstream(t *testing.T) *rawUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &rawUpstream{listener: l}
	u.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns = append(u.conns, c)
			u.mu.Unlock()
			u.wg.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		u.mu.Lock()
		for _, c := range u.conns {
			_ = c.Close()
		}
		u.mu.Unlock()
		u.wg.Wait()
	})
	return u
}

func (u *rawUpstream) url() string { return "http://" + u.listener.Addr().String() }

// serve takes in one request after the other. Whatever has come beyond the end
// of one, before it is answered, is kept as part of it, where strict finds it.
func (u *rawUpstream) serve(c net.Conn) {
	defer c.Close()
	var raw bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &raw))
	for {
		req, err := http.ReadRequest(r)
		if err == nil && req.Header.Get("Expect") != "" {
			_, err = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		u.mu.Lock()
		if raw.Len() > 0 {
			u.seen = append(u.seen, sighting{raw.String(), err == nil})
		}
		u.mu.Unlock()
		raw.Reset()
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

// take returns what has come since the last time, up to the probe.
func (u *rawUpstream) take() []sighting {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := slices.DeleteFunc(u.seen, func(s sighting) bool { return strings.HasPrefix(s.raw, "GET "+probe+" ") })
	u.seen = nil
	return seen
}

// strict returns why raw is not one request, in the one form that no two parsers
// can read differently.
func strict(raw string) error {
	head, body, complete := strings.Cut(raw, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	switch {
	case !complete:
		return errors.New("the head does not end")
	case strings.Contains(head, "\x00") || strings.Contains(lines[0], "\t") || strings.ContainsAny(strings.Join(lines, ""), "\r\n"):
		return errors.New("control characters in the head")
	case len(strings.Split(lines[0], " ")) != 3:
		return errors.New("a request line that is not three words")
	}
	length, chunked := "", false
	hosts := 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || name == "" || strings.ContainsAny(name, " \t") || strings.TrimSpace(value) != value {
			return fmt.Errorf("a header line that can be read in two ways: %q", line)
		}
		switch strings.ToLower(name) {
		case "host":
			hosts++
		case "content-length":
			if length != "" {
				return errors.New("two lengths")
			}
			length = value
		case "transfer-encoding":
			if chunked || value != "chunked" {
				return fmt.Errorf("transfer encoding %q", value)
			}
			chunked = true
		}
	}
	switch {
	case hosts != 1:
		return fmt.Errorf("%d hosts", hosts)
	case chunked && length != "":
		return errors.New("a length and chunks")
	case chunked:
		return strictChunks(body)
	case length == "" && body != "", length != "" && strconv.Itoa(len(body)) != length:
		return fmt.Errorf("length %q, %d bytes of body", length, len(body))
	}
	return nil
}

// strictChunks is strict for a chunked body: sizes without extensions, and
// nothing behind the last one but trailers.
func strictChunks(body string) error {
	for {
		line, rest, ok := strings.Cut(body, "\r\n")
		size, err := strconv.ParseUint(line, 16, 31)
		if !ok || err != nil || size > 0 && (len(rest) < int(size)+2 || rest[size:size+2] != "\r\n") {
			return fmt.Errorf("chunk %q", line)
		}
		if size > 0 {
			body = rest[size+2:]
			continue
		}
		for rest != "" {
			line, rest, ok = strings.Cut(rest, "\r\n")
			if !ok {
				return fmt.Errorf("trailer %q", line)
			}
			if line == "" && rest != "" {
				return fmt.Errorf("%q behind the end", rest)
			}
		}
		return nil
	}
}
