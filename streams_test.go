package kgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/proxy"
)

// frames is an upstream that speaks HTTP/2 in the clear, frame by frame, and counts the
// streams that are open: from their HEADERS to a reset, or until it is about to end them.
// One whose request goes on after its answer is open.
type frames struct {
	settings []http2.Setting

	mu      sync.Mutex
	open    map[stream]bool
	early   map[stream]bool // that are answered when their bodies begin
	refused bool
	most    int
	streams int
	conns   int
	last    uint32 // the greatest number of a stream
}

// stream is one of a connection.
type stream struct {
	*http2.Framer
	id uint32
}

// serveFrames serves connections, and returns the address.
func serveFrames(t *testing.T, settings ...http2.Setting) (f *frames, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f = &frames{settings: settings, open: make(map[stream]bool), early: make(map[stream]bool)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				f.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return f, l.Addr().String()
}

func (f *frames) serve(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = fr.WriteSettings(f.settings...)
	f.mu.Lock()
	f.conns++
	f.mu.Unlock()
	for {
		frame, err := fr.ReadFrame()
		f.mu.Lock()
		if err != nil {
			maps.DeleteFunc(f.open, func(s stream, _ bool) bool { return s.Framer == fr })
			f.mu.Unlock()
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = fr.WritePing(true, frame.Data)
		case *http2.RSTStreamFrame:
			delete(f.open, stream{fr, frame.StreamID})
		case *http2.MetaHeadersFrame:
			s := stream{fr, frame.StreamID}
			f.open[s] = true
			f.streams++
			f.last = max(f.last, s.id)
			f.most = max(f.most, len(f.open))
			f.answer(s, frame.PseudoValue("path"), frame.StreamEnded())
		case *http2.DataFrame:
			if s := (stream{fr, frame.StreamID}); f.early[s] {
				delete(f.early, s)
				f.answer(s, "/", frame.StreamEnded())
			}
		}
		f.mu.Unlock()
	}
}

// answer answers a request as its path says.
func (f *frames) answer(s stream, path string, whole bool) {
	header := func(status string, end bool) {
		var b bytes.Buffer
		_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: status})
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end})
	}
	end := func() {
		if whole {
			delete(f.open, s)
		}
	}
	switch path {
	case "/silent":
	case "/early": // once the request's body has begun
		f.early[s] = true
	case "/half":
		header("200", false)
		_ = s.WriteData(s.id, false, []byte("some"))
	case "/refused":
		if f.refused = !f.refused; f.refused {
			delete(f.open, s)
			_ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream)
			return
		}
		end()
		header("200", true)
	case "/hinted": // and then refused
		header("103", false)
		delete(f.open, s)
		_ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream)
	case "/enough": // of the request
		header("200", false)
		_ = s.WriteData(s.id, true, []byte("enough"))
		delete(f.open, s)
		_ = s.WriteRSTStream(s.id, http2.ErrCodeNo)
	case "/going":
		end()
		_ = s.WriteGoAway(s.id, http2.ErrCodeNo, nil)
		header("200", true)
	default:
		end()
		header("200", true)
	}
}

// inClear returns a transport that speaks HTTP/2 without TLS.
func inClear() *http.Transport {
	base := &http.Transport{Protocols: new(http.Protocols)}
	base.Protocols.SetUnencryptedHTTP2(true)
	return base
}

// TestTransportStreams: when a request over HTTP/2 is over for the program, it is over on
// the wire: at no time are two open. Net/http's Transport lets the program go on while the
// reset is still to be written.
func TestTransportStreams(t *testing.T) {
	f, addr := serveFrames(t)
	var standing atomic.Uint64
	standing.Store(1)
	client := http.Client{Transport: newFenced(inClear(), standing.Load)}
	defer client.CloseIdleConnections()
	slot := slotUnder(t, &standing)
	const rounds = 300
	paths := []string{"/silent", "/half", "/going", "/refused", "/enough", "/whole"}
	for i := range rounds {
		path := paths[i%len(paths)]
		ctx, cancel := context.WithCancel(slot)
		body, upload := io.Reader(nil), io.Closer(io.NopCloser(nil))
		if path == "/silent" && i%4 == 0 || path == "/half" && i%4 == 1 || path == "/enough" && i%4 == 2 {
			body, upload = io.Pipe()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/silent" {
			time.AfterFunc(time.Duration(i)*2*time.Microsecond, cancel)
		}
		res, err := client.Do(req)
		switch {
		case err != nil && (path != "/silent" || !errors.Is(err, context.Canceled)):
			t.Errorf("%s: %v", path, err)
		case err == nil:
			if i%2 == 0 {
				cancel()
			}
			_ = res.Body.Close()
		}
		cancel()
		_ = upload.Close()
	}
	standing.Store(2)
	req, err := http.NewRequestWithContext(slotUnder(t, &standing), http.MethodGet, "http://"+addr, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := client.Do(req); err != nil {
		t.Errorf("under the next lease: %v", err)
	} else {
		_ = res.Body.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most != 1 || f.streams < rounds/2 {
		t.Errorf("of %d streams %d were open at once", f.streams, f.most)
	}
}

// TestTransportAnswered: a request that the server has begun to answer is not sent again.
func TestTransportAnswered(t *testing.T) {
	f, addr := serveFrames(t)
	var standing atomic.Uint64
	standing.Store(1)
	rt := newFenced(inClear(), standing.Load)
	defer (&http.Client{Transport: rt}).CloseIdleConnections()
	if err := do(slotUnder(t, &standing), rt, http.MethodPost, "http://"+addr+"/hinted", nil); err == nil {
		t.Error("there is an answer")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams != 1 {
		t.Errorf("sent %d times", f.streams)
	}
}

// TestTransportEndsWithSlot: when what uses a slot has ended, so that the slot may go to the
// next request, its stream is closed on the wire: whether the answer has come or not.
func TestTransportEndsWithSlot(t *testing.T) {
	f, addr := serveFrames(t)
	var standing atomic.Uint64
	standing.Store(1)
	client := http.Client{Transport: newFenced(inClear(), standing.Load)}
	defer client.CloseIdleConnections()
	var asking sync.WaitGroup
	defer asking.Wait()
	for i := range 300 {
		slot := slotUnder(t, &standing)
		path := []string{"/half", "/silent", "/whole"}[i%3]
		body, upload := io.Reader(nil), io.Closer(io.NopCloser(nil))
		if i%2 == 0 {
			body, upload = io.Pipe()
		}
		req, err := http.NewRequestWithContext(slot, http.MethodPost, "http://"+addr+path, body)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		asking.Go(func() {
			res, err := client.Do(req)
			close(answered)
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
			}
			if path != "/whole" && !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", path, err)
			}
		})
		if path == "/half" {
			<-answered
		} else {
			time.Sleep(time.Duration(i) * 2 * time.Microsecond)
		}
		proxy.HeldIn(slot).End(ErrLost)
		_ = upload.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most != 1 || f.streams < 200 {
		t.Errorf("of %d streams %d were open at once", f.streams, f.most)
	}
}

// TestTransportNeverClosed: an answer without a body has ended though nobody closes it, and
// the requests after it end only with their own streams.
func TestTransportNeverClosed(t *testing.T) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		f, addr := serveFrames(t)
		var standing atomic.Uint64
		standing.Store(1)
		rt := newFenced(inClear(), standing.Load)
		slot := slotUnder(t, &standing)
		req, err := http.NewRequestWithContext(slot, method, "http://"+addr, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() // when all is looked at
		for i := range 300 {
			ctx, cancel := context.WithCancel(slot)
			time.AfterFunc(time.Duration(i)*2*time.Microsecond, cancel)
			if err := do(ctx, rt, http.MethodGet, "http://"+addr+"/silent", nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		(&http.Client{Transport: rt}).CloseIdleConnections()
		f.mu.Lock()
		if f.most != 1 {
			t.Errorf("after %s, of %d streams %d were open at once", method, f.streams, f.most)
		}
		f.mu.Unlock()
	}
}

// do sends a request, reads the answer and closes it.
func do(ctx context.Context, rt http.RoundTripper, method, url string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// TestTransportSingleUse: with DisableKeepAlives a connection serves one request.
func TestTransportSingleUse(t *testing.T) {
	f, addr := serveFrames(t)
	var standing atomic.Uint64
	standing.Store(1)
	base := inClear()
	base.DisableKeepAlives = true
	rt := newFenced(base, standing.Load)
	slot := slotUnder(t, &standing)
	for range 3 {
		if err := do(slot, rt, http.MethodGet, "http://"+addr, nil); err != nil {
			t.Error(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns != 3 || f.last > 1 {
		t.Errorf("%d connections for %d requests, with streams up to %d", f.conns, f.streams, f.last)
	}
}

// TestTransportKeepsNothing: of answers that were read to their end and never closed, and
// of hosts whose connections are closed, nothing is kept.
func TestTransportKeepsNothing(t *testing.T) {
	_, addr := serveFrames(t)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "some")
	}))
	defer plain.Close()
	var standing atomic.Uint64
	standing.Store(1)
	for url, base := range map[string]*http.Transport{"http://" + addr + "/enough": inClear(), "http://" + addr: inClear(), plain.URL: {}} {
		rt := newFenced(base, standing.Load)
		ctx := &counted{Context: slotUnder(t, &standing), done: make(chan struct{})}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close() // when all is looked at
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		if n := ctx.n.Load(); n != 0 {
			t.Errorf("%s: %d contexts are kept", url, n)
		}
		rt.CloseIdleConnections()
		if n := len(rt.clients); n != 0 {
			t.Errorf("%s: %d servers are kept", url, n)
		}
	}
}

// counted is a context that counts what waits for its end.
type counted struct {
	context.Context
	done chan struct{} // not the Context's, of which package context would make use
	n    atomic.Int64
}

// Done implements context.Context.
func (c *counted) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context asks for.
func (c *counted) AfterFunc(func()) func() bool {
	c.n.Add(1)
	return func() bool {
		c.n.Add(-1)
		return true
	}
}

// stuck is the body of a server's request whose client sends a little and then nothing:
// Close waits for Read, and Read for the client.
type stuck struct {
	mu     sync.Mutex
	sent   bool
	client context.Context
}

// Read implements io.Reader.
func (s *stuck) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sent {
		s.sent = true
		return copy(p, "some"), nil
	}
	<-s.client.Done()
	return 0, io.ErrUnexpectedEOF
}

// Close implements io.Closer.
func (s *stuck) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil
}

// TestTransportStuckUpload: a request ends at once, though its body waits for somebody, and
// does not end others on the same connection.
func TestTransportStuckUpload(t *testing.T) {
	_, addr := serveFrames(t)
	h2 := "http://" + addr
	h1 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		case "/broken":
			_, _ = r.Body.Read(make([]byte, 1))
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	defer h1.Close()
	for name, c := range map[string]struct {
		url    string
		cancel bool
	}{
		"HTTP/1, cancelled": {h1.URL, true},
		"HTTP/1, answered":  {h1.URL + "/early", false},
		"HTTP/1, broken":    {h1.URL + "/broken", false},
		"HTTP/2, cancelled": {h2 + "/silent", true},
		"HTTP/2, answered":  {h2 + "/early", false},
		"HTTP/2, enough":    {h2 + "/enough", false},
	} {
		t.Run(name, func(t *testing.T) {
			client, leave := context.WithTimeout(t.Context(), closesWithin+2*time.Second)
			defer leave()
			var standing atomic.Uint64
			standing.Store(1)
			base := new(http.Transport)
			if strings.HasPrefix(c.url, h2) {
				base = inClear()
			}
			rt := newFenced(base, standing.Load)
			defer (&http.Client{Transport: rt}).CloseIdleConnections()
			slot, giveUp := context.WithCancel(slotUnder(t, &standing))
			other := make(chan error, 1)
			if base.Protocols != nil {
				go func() { other <- do(another(slot), rt, http.MethodGet, h2+"/silent", nil) }()
			} else {
				other <- nil
			}
			ctx, cancel := context.WithCancel(slot)
			defer cancel()
			if c.cancel {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			began := time.Now()
			err := do(ctx, rt, http.MethodPost, c.url, &stuck{client: client})
			if took := time.Since(began); took > closesWithin || (err == nil) == (c.cancel || strings.HasSuffix(c.url, "/broken")) {
				t.Errorf("%v after %v", err, took)
			}
			giveUp()
			if err := <-other; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("another request has ended: %v", err)
			}
		})
	}
}

// closesWithin is less than the time after which a connection is closed whose stream is not.
const closesWithin = 4 * time.Second
