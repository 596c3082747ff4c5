package abuse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/test/cluster"
)

// parsed is what a message says.
type parsed struct {
	first  string // method and target, or status
	host   string
	fields []string // that go on, sorted
	body   string
	length int // of the message
}

// errShort says that more is to come, or that the message has no end.
var errShort = errors.New("not whole")

var limits = http1.Limits{Bytes: 16 << 10, Fields: 200}

// parse reads a message by the head table: a request, or an answer to method.
func parse(raw, method string) (p parsed, err error) {
	var h http1.Head
	var f http1.Framing
	read, framing := h.Request, h.RequestFraming
	if method != "" {
		read, framing = h.Response, func() (http1.Framing, error) { return h.ResponseFraming(method) }
	}
	n, err := read([]byte(raw), limits)
	if n > 0 {
		f, err = framing()
	}
	if err == nil && n == 0 {
		err = errShort
	}
	if err != nil {
		return p, err
	}
	text := h.Text()
	if p.first = h.StatusIn(text)[:min(3, len(text))]; method == "" {
		p.first = string(h.Method()) + " " + h.TargetIn(text)
	}
	p.host, p.length = h.AuthorityIn(text), n
	named := make(map[string]bool)
	for i := range h.Len() {
		if h.ID(i) == http1.Connection {
			for name := range strings.SplitSeq(h.ValueIn(text, i), ",") {
				named[strings.ToLower(strings.Trim(name, " \t"))] = true
			}
		}
	}
	for i := range h.Len() {
		name, value := h.NameIn(text, i), h.ValueIn(text, i)
		if goesOn(name) && !named[strings.ToLower(name)] {
			p.fields = append(p.fields, strings.ToLower(name)+": "+value)
		}
	}
	slices.Sort(p.fields)
	rest := strings.NewReader(raw[n:])
	in := http1.NewInput(rest, limits.Bytes)
	var b http1.Body
	b.Reset(in, f, limits)
	body, err := io.ReadAll(&b)
	p.body = string(body)
	if err == nil {
		p.length = len(raw) - rest.Len() - in.Len()
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort
	}
	return p, err
}

// goesOn reports whether a field goes on, as it is.
func goesOn(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Content-Length", "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Forwarded", "Via", "Proxy", "Alt-Svc", "Date", "Server-Timing", "Expect":
		return false
	}
	return !ofGateway.MatchString("\n" + name)
}

// ofGateway is what only the gateway says, however it is spelled.
var ofGateway = regexp.MustCompile(`(?i)\n(kgate|x[^a-z0-9]forwarded)[^a-z0-9]`)

// mutants is how many there are in each direction.
func mutants() int {
	if soak() {
		return 100_000
	}
	return 2_000
}

// TestMutantsOfRequests: of whatever is made of a request, the upstream sees what package http1 reads, in
// the one form that no two readers read differently, or nothing.
func TestMutantsOfRequests(t *testing.T) {
	u := newRawUpstream(t)
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: u.url(), Name: "mutants"})
	r := rand.New(rand.NewPCG(29, 6))
	passed, refused, short := 0, 0, 0
	for range mutants() {
		sent := mutate(r, seedRequests)
		want, err := parse(sent, "")
		if errors.Is(err, errShort) {
			short++
			continue
		}
		if err == nil {
			sent = sent[:want.length]
		}
		status := statusOf(t, c.Gateways[0].HTTP, sent, patience)
		seen := slices.DeleteFunc(u.take(), func(s sighting) bool { return !s.whole }) // one that broke off is seen late
		switch {
		case len(seen) == 0:
			if status/100 == 2 && !strings.HasPrefix(want.first, "OPTIONS *") {
				t.Errorf("%q: the client got %d, and the upstream saw nothing", sent, status)
			}
			refused++
		case err != nil, len(seen) > 1:
			t.Errorf("%q: refused by %v, and the upstream saw %d requests, first\n%q", sent, err, len(seen), seen[0].raw)
		default:
			passed++
			if err := same(seen[0].raw, want); err != nil {
				t.Errorf("%q: %v: the upstream saw\n%q", sent, err, seen[0].raw)
			}
		}
	}
	t.Logf("%d passed, %d were refused, %d not whole", passed, refused, short)
}

// TestMutantsAgainstNetHTTP: what net/http refuses package http1 refuses, in both directions; and where
// both take a message it ends at the same byte.
func TestMutantsAgainstNetHTTP(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(29, 8))
	for range 30 * mutants() {
		method, seeds := "", seedRequests
		if r.IntN(2) == 0 {
			method, seeds = http.MethodGet, seedAnswers
		}
		raw := mutate(r, seeds)
		want, err := parse(raw, method)
		if err != nil {
			continue
		}
		if body, rest, err := readByNetHTTP(raw, method); err != nil && !strings.Contains(err.Error(), "parse ") || err == nil && (body != want.body || len(raw)-rest != want.length) {
			t.Errorf("%q: package http1 reads %d bytes with the body %q, net/http %d bytes with the body %q, %v", raw, want.length, want.body, len(raw)-rest, body, err)
		}
	}
}

// readByNetHTTP returns the body of a message, and how many bytes stand behind it. An error that
// begins with "parse" is net/url's: targets are judged elsewhere.
func readByNetHTTP(raw, method string) (string, int, error) {
	br := bufio.NewReader(strings.NewReader(raw))
	var body io.ReadCloser
	if method == "" {
		req, err := http.ReadRequest(br)
		if err != nil {
			return "", 0, err
		}
		body = req.Body
	} else {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return "", 0, err
		}
		if body = res.Body; res.StatusCode == http.StatusSwitchingProtocols {
			body = http.NoBody // a tunnel
		}
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	rest, _ := io.ReadAll(br)
	return string(got), len(rest), err
}

// same returns how what the upstream saw is not what the client has said.
func same(raw string, want parsed) error {
	if err := strict(raw); err != nil {
		return err
	}
	got, err := parse(raw, "")
	if err != nil {
		return err
	}
	method, target, _ := strings.Cut(want.first, " ")
	gotMethod, gotTarget, _ := strings.Cut(got.first, " ")
	switch {
	case method != gotMethod:
		return fmt.Errorf("method %q", gotMethod)
	case !sameTarget(gotTarget, target):
		return fmt.Errorf("target %q", gotTarget)
	case want.host != got.host && want.host != "":
		return fmt.Errorf("host %q", got.host)
	case !slices.Equal(got.fields, want.fields):
		return fmt.Errorf("fields %q, want %q", got.fields, want.fields)
	case got.body != want.body:
		return fmt.Errorf("body %q", got.body)
	case len(ofGateway.FindAllString(headOf(raw), -1)) != 4:
		return errors.New("not the gateway's four fields")
	}
	return nil
}

// sameTarget reports whether got is want, but for bytes that may not stand in a path.
func sameTarget(got, want string) bool {
	if i := strings.Index(want, "://"); i > 0 && want[0] != '/' {
		rest := want[i+3:]
		want = "/"
		if j := strings.IndexAny(rest, "/?"); j >= 0 {
			want = rest[j:]
		}
	}
	if strings.HasPrefix(want, "?") {
		want = "/" + want
	}
	if got == want {
		return true
	}
	a, _ := url.PathUnescape(got)
	b, _ := url.PathUnescape(want)
	return a == b || want == got
}

// statusOf sends a message, and returns the status of the answer; 0: there is none.
func statusOf(t *testing.T, addr, sent string, within time.Duration) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	_, err = io.WriteString(conn, sent)
	must(t, err)
	method, _, _ := strings.Cut(sent, " ")
	br := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			if within == patience && !errors.Is(err, io.EOF) && !isReset(err) {
				t.Fatalf("after %q: %v", sent, err)
			}
			return 0
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode >= 200 {
			return res.StatusCode
		}
	}
}

// answering is an upstream that answers each request with the bytes that are set, and closes.
type answering struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	answer   string
}

func newAnswering(t *testing.T) *answering {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	a := &answering{listener: l}
	a.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.wg.Go(func() { a.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); a.wg.Wait() })
	return a
}

func (a *answering) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	a.mu.Lock()
	answer := a.answer
	a.mu.Unlock()
	_, _ = io.WriteString(conn, answer)
}

// TestMutantsOfAnswers: of whatever is made of an answer, the client sees what package http1 reads, in the
// one form that no two readers read differently, or 502, or an answer that breaks off.
func TestMutantsOfAnswers(t *testing.T) {
	u := newAnswering(t)
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: "http://" + u.listener.Addr().String(), Name: "mutants"})
	r := rand.New(rand.NewPCG(29, 7))
	passed, refused, broken := 0, 0, 0
	for range mutants() {
		sent := mutate(r, seedAnswers)
		want, err := parse(sent, http.MethodGet)
		if err == nil && want.first < "200" {
			continue // another answer is to follow
		}
		u.mu.Lock()
		u.answer = sent
		u.mu.Unlock()
		raw := rawAnswer(t, c.Gateways[0].HTTP, patience)
		got, gotErr := parse(raw, http.MethodGet)
		switch {
		case gotErr != nil:
			broken++
			if err == nil || !errors.Is(gotErr, errShort) {
				t.Errorf("%q (%v): the client got what it cannot read: %v\n%q", sent, err, gotErr, raw)
			}
		case got.first == "502" && want.first != "502":
			refused++
		case err != nil && len(want.body) > 0 && got.body == want.body && strings.Contains(raw, "\r\nConnection: close"):
			broken++
		case err != nil:
			t.Errorf("%q is refused by %v, and the client got\n%q", sent, err, raw)
		default:
			passed++
			if got.first != want.first || got.body != want.body || !slices.Equal(got.fields, want.fields) || strings.Contains(strings.ToLower(headOf(raw)), "\nkgate-") || strictAnswer(raw) != nil {
				t.Errorf("%q: %v: the client got\n%q\nfields %q, want %q", sent, strictAnswer(raw), raw, got.fields, want.fields)
			}
		}
	}
	t.Logf("%d passed, %d were refused, %d broken off", passed, refused, broken)
}

// headOf returns the head of a message.
func headOf(raw string) string {
	head, _, _ := strings.Cut(raw, "\r\n\r\n")
	return head
}

// strictAnswer is strict for an answer.
func strictAnswer(raw string) error {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	_, head, _ = strings.Cut(head, "\r\n")
	head = strings.ReplaceAll("\r\n"+head, "\r\nHost:", "\r\nX-Host:")
	if !strings.Contains(head, "\r\nTransfer-Encoding") {
		body, head = "", strings.ReplaceAll(head, "\r\nContent-Length", "\r\nX-Length")
	}
	return strict("GET / HTTP/1.1\r\nHost: h" + head + "\r\n\r\n" + body)
}

// rawAnswer returns the bytes that a GET gets.
func rawAnswer(t *testing.T, addr string, within time.Duration) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(within))
	_, err = io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: kgate.test\r\nConnection: close\r\n\r\n")
	must(t, err)
	var b bytes.Buffer
	if _, err := io.Copy(&b, conn); err != nil && !isReset(err) && within == patience {
		t.Fatal(err)
	}
	return b.String()
}
