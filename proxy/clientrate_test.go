package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// drip is a body that comes with some bytes now and then.
type drip struct {
	ctx         context.Context
	every       time.Duration
	bytes, left int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	if err := pause(d.ctx, d.every); err != nil {
		return 0, err
	}
	n := min(d.bytes, d.left, len(p))
	d.left -= n
	return n, nil
}

func (d *drip) Close() error { return nil }

// taker is a RoundTripper that takes some time over each piece of the body and
// then answers.
type taker struct{ each time.Duration }

func (u taker) RoundTrip(req *http.Request) (*http.Response, error) {
	b := make([]byte, 1000)
	for {
		n, err := req.Body.Read(b)
		if n == 0 && err != nil && err != io.EOF {
			return nil, err
		}
		if err != nil {
			break
		}
		if err := pause(req.Context(), u.each); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// TestMinUpload: a body that comes too slowly ends the request, also one that
// does not come at all; one that the upstream is slow to take does not.
func TestMinUpload(t *testing.T) {
	const least = 100 // bytes per second
	for name, tt := range map[string]struct {
		idle   time.Duration
		client drip
		taker  taker
		status int
		hold   time.Duration
	}{
		"fast enough":                       {0, drip{every: time.Second, bytes: 120, left: 7200}, taker{}, 200, time.Minute},
		"a byte per second":                 {0, drip{every: time.Second, bytes: 1, left: 6000}, taker{}, 408, 10 * time.Second},
		"a byte per second, over idle":      {20 * time.Second, drip{every: time.Second, bytes: 1, left: 6000}, taker{}, 408, 20 * time.Second},
		"silent":                            {0, drip{every: time.Hour, bytes: 100, left: 6000}, taker{}, 408, 10 * time.Second},
		"one burst, then silent":            {0, drip{every: time.Hour, bytes: 1000, left: 6000}, taker{}, 408, 10 * time.Second},
		"a slow upstream":                   {0, drip{every: time.Millisecond, bytes: 10, left: 600}, taker{each: time.Second}, 200, time.Minute + 60*time.Millisecond},
		"a slow upstream and a slow client": {0, drip{every: time.Second, bytes: 10, left: 600}, taker{each: time.Second}, 408, 19 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := newRecorder()
				h, err := New(Config{
					Admitter: newSemaphore(t, 1), Observer: records, Routes: []Route{{Pool: "p"}},
					Pools: []Pool{{Name: "p", Upstreams: []*url.URL{{Scheme: "http", Host: "h"}}, HoldIdle: tt.idle, MinUpload: least}},
				})
				if err != nil {
					t.Fatal(err)
				}
				h.current.Load().balancers["p"].backends[0].requests = without{tt.taker}
				// The server ends a read that is under way; here the context does.
				ctx, cancel := context.WithTimeout(t.Context(), tt.hold+time.Millisecond)
				defer cancel()
				tt.client.ctx = ctx
				serve(h, httptest.NewRecorder(), httptest.NewRequest("PUT", "/", &tt.client))
				if rec := records.next(t); rec.Status != tt.status || rec.Hold.Round(2*time.Millisecond) < tt.hold || rec.Hold > tt.hold+time.Second {
					t.Errorf("record %+v, want %d after %v", rec, tt.status, tt.hold)
				}
			})
		})
	}
}

// slowReader is a client's ResponseWriter that takes some time over each piece.
type slowReader struct {
	*httptest.ResponseRecorder
	ctx  context.Context
	each time.Duration
}

func (w *slowReader) Write(p []byte) (int, error) {
	if err := pause(w.ctx, w.each); err != nil {
		return 0, err
	}
	return len(p), nil
}

// dripping is an upstream whose answer comes as a drip does.
type dripping struct{ drip }

func (u dripping) RoundTrip(req *http.Request) (*http.Response, error) {
	u.ctx = req.Context()
	return &http.Response{
		StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: int64(u.left), Body: &u.drip, Request: req,
	}, nil
}

// TestMinDownload: an answer that is taken too slowly ends the request; one that the
// upstream is slow to send does not.
func TestMinDownload(t *testing.T) {
	const least = 100 // bytes per second
	for name, tt := range map[string]struct {
		idle     time.Duration
		upstream drip
		each     time.Duration
		aborted  bool
		hold     time.Duration
	}{
		"fast enough":                  {0, drip{bytes: 120, left: 7200}, time.Second, false, time.Minute},
		"a byte per second":            {0, drip{bytes: 1, left: 6000}, time.Second, true, 10 * time.Second},
		"a byte per second, over idle": {20 * time.Second, drip{bytes: 1, left: 6000}, time.Second, true, 20 * time.Second},
		"takes nothing":                {0, drip{bytes: 100, left: 6000}, time.Hour, true, 10 * time.Second},
		"a slow upstream":              {0, drip{every: time.Second, bytes: 1, left: 60}, time.Millisecond, false, time.Minute + 60*time.Millisecond},
		"both are slow":                {0, drip{every: time.Second, bytes: 10, left: 600}, time.Second, true, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := newRecorder()
				h, err := New(Config{
					Admitter: newSemaphore(t, 1), Observer: records, Routes: []Route{{Pool: "p"}},
					Pools: []Pool{{Name: "p", Upstreams: []*url.URL{{Scheme: "http", Host: "h"}}, HoldIdle: tt.idle, MinDownload: least}},
				})
				if err != nil {
					t.Fatal(err)
				}
				h.current.Load().balancers["p"].backends[0].requests = without{dripping{tt.upstream}}
				// The server ends a write that is under way; here the context does.
				ctx, cancel := context.WithTimeout(t.Context(), tt.hold+time.Millisecond)
				defer cancel()
				r := httptest.NewRequest("GET", "/", http.NoBody)
				serve(h, &slowReader{httptest.NewRecorder(), ctx, tt.each}, r)
				rec := records.next(t)
				if rec.Aborted != tt.aborted || rec.Hold.Round(2*time.Millisecond) < tt.hold || rec.Hold > tt.hold+time.Second {
					t.Errorf("record %+v, want aborted %v after %v", rec, tt.aborted, tt.hold)
				}
			})
		})
	}
}
