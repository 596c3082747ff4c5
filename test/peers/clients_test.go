package peers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/kgate/kgate/test/cluster"
)

// testCurl sends a file through every gateway in every way, and gets it back.
func testCurl(t *testing.T, w *world) {
	cluster.Need(t, "curl", "curl")
	flags := map[mode][]string{
		modes[0]: {"--http1.1"}, modes[1]: {"--http2-prior-knowledge"}, modes[2]: {"--http1.1"}, modes[3]: {"--http2"},
	}
	for i, g := range w.Gateways {
		for m, flags := range flags {
			out := filepath.Join(t.TempDir(), "out")
			// A body of this size makes curl ask for 100 Continue.
			got := run(t, "curl", append(flags, "-sS", "--max-time", "20", "--cacert", w.ca, "-T", w.body, "-o", out,
				"-w", "%{response_code} HTTP/%{http_version}", m.url(g, "/echo"))...)
			want := "200 HTTP/1.1"
			if m.http2 {
				want = "200 HTTP/2"
			}
			if got != want {
				t.Errorf("gateway %d, %s: %q, want %q", i+1, m.name, got, want)
			}
			if back, err := os.ReadFile(out); err != nil || !bytes.Equal(back, pattern) {
				t.Errorf("gateway %d, %s: %d bytes back, %v", i+1, m.name, len(back), err)
			}
		}
	}
}

// testNghttp has a look at the frames.
func testNghttp(t *testing.T, w *world) {
	cluster.Need(t, "nghttp", "nghttp2-client")
	for _, m := range []mode{modes[1], modes[3]} {
		out := run(t, "nghttp", "-nv", "--timeout=20", "--no-dep", "--data="+w.body, "--trailer=x-sent: late", m.url(w.Gateways[0], "/echo"))
		for _, want := range []string{
			":status: 103", "link: </style.css>; rel=preload", ":status: 200", `server-timing: kgate;desc="queue"`,
			"x-got: late", fmt.Sprintf("x-sum: %08x", crc32.Checksum(pattern, castagnoli)),
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", m.name, want, tail(out))
			}
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

var h2loadCounts = regexp.MustCompile(`requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)

// testH2load overloads the three gateways at once: every request is answered, the
// upstream is never over k and gets to it.
func testH2load(t *testing.T, w *world) {
	cluster.Need(t, "h2load", "nghttp2-client")
	var wg sync.WaitGroup
	for i, g := range w.Gateways {
		for _, m := range modes[1:] {
			wg.Go(func() {
				args := []string{"-n", "300", "-c", "5", "-m", "20", m.url(g, "/hold")}
				if !m.http2 {
					args = append(args, "--h1")
				}
				out := run(t, "h2load", args...)
				if got := h2loadCounts.FindStringSubmatch(out); got == nil || got[3] != "300" {
					t.Errorf("gateway %d, %s: %s", i+1, m.name, tail(out))
				}
			})
		}
	}
	wg.Wait()
	if _, most, _ := w.judge.Counts(); most != k {
		t.Errorf("most in flight at the upstream %d, want %d", most, k)
	}
}

// testGoClient: early hints and trailers in both directions, in every way, through
// every gateway.
func testGoClient(t *testing.T, w *world) {
	for i, g := range w.Gateways {
		for _, m := range modes {
			hints := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					if code == http.StatusEarlyHints && h.Get("Link") != "" {
						hints++
					}
					return nil
				},
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url(g, "/echo"), &stream{left: fileSize})
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = -1 // with trailers
			req.Trailer = http.Header{"X-Sent": {"late"}}
			res, err := w.client(t, m).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			bytes, crc, err := sum(res.Body)
			_ = res.Body.Close()
			if err != nil || bytes != fileSize || hints != 1 || res.Trailer.Get("X-Sum") != crc || res.Trailer.Get("X-Got") != "late" {
				t.Errorf("gateway %d, %s: %d bytes, %v, %d hints, trailer %v", i+1, m.name, bytes, err, hints, res.Trailer)
			}
		}
	}
}

// testRanges compares parts of a file, to the byte.
func testRanges(t *testing.T, w *world) {
	clients := make([]*http.Client, len(modes))
	for i, m := range modes {
		clients[i] = w.client(t, m)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		from := random.IntN(fileSize)
		to := from + random.IntN(min(fileSize-from, 1<<random.IntN(22)))
		m := i % len(modes)
		checkRange(t, clients[m], modes[m].url(w.Gateways[i%3], "/file"), from, to)
	}
	checkRange(t, clients[0], modes[0].url(w.Gateways[0], "/file"), fileSize-1, fileSize-1)

	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, modes[0].url(w.Gateways[0], "/file"), nil)
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-", fileSize))
	res, err := clients[0].Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("a range behind the end: %s", res.Status)
	}
}

func checkRange(t *testing.T, c *http.Client, url string, from, to int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to))
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusPartialContent || !bytes.Equal(b, pattern[from:to+1]) ||
		res.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", from, to, fileSize) {
		t.Errorf("%d-%d: %s, %d bytes, %v, %v", from, to, res.Status, len(b), err, res.Header)
	}
}

// testWebSocket: messages of every size come back, compressed and not, over every
// gateway at once.
func testWebSocket(t *testing.T, w *world) {
	var wg sync.WaitGroup
	for i, g := range w.Gateways {
		for _, m := range []mode{modes[0], modes[2]} {
			wg.Go(func() {
				if err := echoMessages(t.Context(), w.client(t, m), m.url(g, "/ws")); err != nil {
					t.Errorf("gateway %d, %s: %v", i+1, m.name, err)
				}
			})
		}
	}
	wg.Wait()
}

func echoMessages(ctx context.Context, client *http.Client, url string) error {
	c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(1 << 20)
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Server-Timing") == "" {
		return fmt.Errorf("got %s, %v", res.Status, res.Header)
	}
	for size := 1; size < 1<<20; size *= 3 {
		kind, text := websocket.MessageBinary, pattern[:size]
		if size < 1000 {
			kind, text = websocket.MessageText, bytes.Repeat([]byte("é"), size)
		}
		if err := c.Write(ctx, kind, text); err != nil {
			return err
		}
		gotKind, got, err := c.Read(ctx)
		if err != nil || gotKind != kind || !bytes.Equal(got, text) {
			return fmt.Errorf("a message of %d bytes: %d back, %w", len(text), len(got), err)
		}
	}
	if err := c.Ping(c.CloseRead(ctx)); err != nil {
		return err
	}
	return c.Close(websocket.StatusNormalClosure, "")
}

// testEvents: each event comes when it is sent, though the answer goes on.
func testEvents(t *testing.T, w *world) {
	for _, m := range modes {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url(w.Gateways[1], "/events"), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.client(t, m).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		for i := range 3 {
			lines.Scan()
			if want := fmt.Sprintf("data: %d", i); lines.Text() != want {
				t.Errorf("%s: %q, %v; want %q", m.name, lines.Text(), lines.Err(), want)
			}
			lines.Scan()
		}
		cancel()
		_ = res.Body.Close()
	}
}
