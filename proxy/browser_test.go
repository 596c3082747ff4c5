package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// places are Tickets that wait in the line of a semaphore. They wait for a hundredth of
// the time that they are told to.
type places struct {
	*semaphore

	mu      sync.Mutex
	all     map[string]*place
	err     error            // of TestTicket
	refusal error            // of RequestTicket
	keep    time.Duration    // of the last one
	last    int              // number of it
	ending  admission.Ending // of those that are unknown
}

type place struct {
	leave   context.CancelFunc
	granted chan struct{}
	slot    Slot
	used    bool
	ended   bool
}

func (p *places) RequestTicket(_ context.Context, req admission.Request, ttl time.Duration, _ string) (admission.Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal != nil {
		return admission.Ticket{}, p.refusal
	}
	p.last++
	id := fmt.Sprintf("place-%d", p.last)
	ctx, cancel := context.WithCancel(context.Background())
	pl := &place{leave: cancel, granted: make(chan struct{})}
	p.all[id], p.keep = pl, ttl
	p.semaphore.mu.Lock()
	before := len(p.line)
	p.semaphore.mu.Unlock()
	req.Wait = -1
	go func() {
		slot, err := p.Acquire(ctx, req)
		if err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if pl.slot = slot; pl.ended {
			slot.Release()
		}
		close(pl.granted)
	}()
	p.await(p.now(), before+1)
	return admission.Ticket{ID: id, Pool: req.Pool}, nil
}

func (p *places) find(id string) (*place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch pl := p.all[id]; {
	case p.err != nil:
		return nil, p.err
	case pl != nil:
		return pl, nil
	case p.ending != "":
		return nil, &admission.EndedError{How: p.ending}
	default:
		return nil, admission.ErrUnknownTicket
	}
}

func (p *places) TestTicket(ctx context.Context, id string, _ bool, wait time.Duration) (admission.Ticket, error) {
	pl, err := p.find(id)
	if err != nil {
		return admission.Ticket{}, err
	}
	select {
	case <-pl.granted:
	case <-time.After(wait / 100):
	case <-ctx.Done():
	}
	select {
	case <-pl.granted:
		return admission.Ticket{ID: id, Pool: "p", Granted: true}, nil
	default:
	}
	return admission.Ticket{ID: id, Pool: "p", Position: 7, ETA: 150 * time.Second}, ctx.Err()
}

func (p *places) EndTicket(_ context.Context, id string) error {
	pl, err := p.find(id)
	if err != nil {
		return err
	}
	pl.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !pl.ended && pl.slot != nil && !pl.used {
		pl.slot.Release()
	}
	pl.ended = true
	return nil
}

func (p *places) RedeemTicket(_ context.Context, _, id string, _ admission.Holder) (Slot, error) {
	pl, err := p.find(id)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl.used {
		return nil, admission.ErrTicketUsed
	}
	pl.used = true
	return pl.slot, nil
}

// browsing is a gateway with one slot and a page, and an upstream that a test drives.
type browsing struct {
	*gateway
	up     *gate
	places *places
}

func newBrowsing(t *testing.T) *browsing {
	t.Helper()
	b := &browsing{up: newGate()}
	b.gateway = newGateway(t, 1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.up.pass(r)
		_, _ = io.WriteString(w, "the answer to "+r.URL.Path)
	}), func(c *Config) {
		b.places = &places{semaphore: c.Admitter.(*semaphore), all: make(map[string]*place)}
		c.Tickets = b.places
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		page, err := NewPage(time.Minute, "")
		if err != nil {
			t.Fatal(err)
		}
		c.Pools[0].Page = page
		c.Pools[0].QueueTimeout = patience
	})
	t.Cleanup(func() { // who is still in line leaves it
		for id := range b.places.all {
			_ = b.places.EndTicket(t.Context(), id)
		}
	})
	return b
}

const accepts = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// visit asks as a browser does, with cookies, and returns the answer and its body.
func (b *browsing) visit(path string, header ...string) (*http.Response, string) {
	b.t.Helper()
	res := b.do(b.request("GET", path, append([]string{"Accept", accepts}, header...)...))
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, string(body)
}

// start asks in the background.
func (b *browsing) start(path string, header ...string) <-chan string {
	b.t.Helper()
	req := b.request("GET", path, header...)
	done := make(chan string, 1)
	go func() {
		res, err := b.client.Do(req)
		if err != nil {
			done <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		done <- fmt.Sprint(res.StatusCode, " ", string(body))
	}()
	return done
}

// cookieOf returns what the browser sends after an answer.
func cookieOf(t *testing.T, res *http.Response) string {
	t.Helper()
	cookies := res.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got the cookies %v", res.Header["Set-Cookie"])
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

// TestWaitingPage: a browser is served in the order in which it came, between clients
// that wait on their connections.
func TestWaitingPage(t *testing.T) {
	b := newBrowsing(t)
	first := b.start("/1")
	b.up.awaitEntered(t)
	res, page := b.visit("/2?a=b")
	if res.StatusCode != 503 || !strings.Contains(page, "<strong>7</strong>") || !strings.Contains(page, "about 3 minutes") {
		t.Fatalf("got %v %s", res.Status, page)
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8", "Retry-After": "10", "Content-Security-Policy": pagePolicy,
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if b.places.keep != time.Minute {
		t.Errorf("a place is kept for %v", b.places.keep)
	}
	if rec := b.records.next(t); rec.Outcome != admission.OutcomeNone || rec.Status != 503 {
		t.Errorf("record %+v", rec)
	}
	last := b.start("/3")
	b.sem.await(1, 2)
	cookie := "theme=dark; " + cookieOf(t, res) + "; lang=en"
	if res, page = b.visit("/2?a=b", "Cookie", cookie); res.StatusCode != 503 || !strings.Contains(page, "<strong>7</strong>") {
		t.Errorf("when it comes back it gets %v %s", res.Status, page)
	}
	if res, page = b.visit("/2?a=b", "Cookie", cookie, "Prefer", "kgate-place, wait=1"); res.StatusCode != 200 || res.Header.Get(placeHeader) == "" || !strings.Contains(page, "<strong>7</strong>") {
		t.Errorf("its script gets %v %s", res.Status, page)
	}
	b.sem.await(1, 2)

	b.up.proceed <- struct{}{}
	if got := <-first; got != "200 the answer to /1" {
		t.Error(got)
	}
	if res, _ = b.visit("/2?a=b", "Cookie", cookie, "Prefer", "kgate-place, wait=10"); res.StatusCode != 204 || res.Header.Get(placeHeader) == "" {
		t.Errorf("when its turn has come the script gets %v %v", res.Status, res.Header)
	}
	second := b.start("/2?a=b", "Accept", accepts, "Cookie", cookie)
	r := b.up.awaitEntered(t)
	if got := r.Header["Cookie"]; r.URL.Path != "/2" || len(got) != 1 || got[0] != "theme=dark; lang=en" {
		t.Errorf("the upstream got %s with the cookies %q", r.URL, got)
	}
	b.up.proceed <- struct{}{}
	if got := <-second; got != "200 the answer to /2" {
		t.Error(got)
	}
	if r := b.up.awaitEntered(t); r.URL.Path != "/3" {
		t.Errorf("then comes %s", r.URL)
	}
	b.up.proceed <- struct{}{}
	if got := <-last; got != "200 the answer to /3" {
		t.Error(got)
	}
}

// TestFreeSlotNoPage: nobody is shown a page who does not have to wait.
func TestFreeSlotNoPage(t *testing.T) {
	b := newBrowsing(t)
	close(b.up.proceed)
	res, body := b.visit("/")
	if res.StatusCode != 200 || body != "the answer to /" || len(res.Cookies()) != 0 || len(b.places.all) != 0 {
		t.Errorf("got %v %s, %d tickets", res.Status, body, len(b.places.all))
	}
}

// TestPageIsForPeople: everybody else waits as without a page, or not at all.
func TestPageIsForPeople(t *testing.T) {
	b := newBrowsing(t)
	first := b.start("/1")
	b.up.awaitEntered(t)
	for name, header := range map[string][]string{
		"no preference":           {},
		"curl":                    {"Accept", "*/*"},
		"an API":                  {"Accept", "application/json, text/html;q=0.5"},
		"no HTML":                 {"Accept", "text/html;q=0, */*"},
		"fetch":                   {"Accept", accepts, "Sec-Fetch-Dest", "empty"},
		"a frame":                 {"Accept", accepts, "Sec-Fetch-Dest", "iframe"},
		"XMLHttpRequest":          {"Accept", accepts, "X-Requested-With", "XMLHttpRequest"},
		"the rest of a download":  {"Accept", accepts, "Range", "bytes=100-"},
		"who says how long to be": {"Accept", accepts, "Prefer", "wait=5"},
	} {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := b.client.Do(b.request("GET", "/", header...).WithContext(ctx)); err == nil {
				t.Errorf("%s: got %v", name, res.Status)
				_ = res.Body.Close()
			}
		}()
		b.sem.await(1, 1)
		leave()
		<-done
		b.sem.await(1, 0)
	}
	res := b.do(b.request("HEAD", "/", "Accept", accepts, "Prefer", "wait=0"))
	_ = res.Body.Close()
	for _, header := range [][]string{{"Sec-Purpose", "prefetch;prerender"}, {"Purpose", "prefetch"}, {"X-Moz", "prefetch"}} {
		if res, page := b.visit("/", header...); res.StatusCode != 503 || res.Header.Get("Kgate-Refusal") != "timeout" || strings.Contains(page, "<") {
			t.Errorf("%s: got %v %s", header, res.Status, page)
		}
	}
	if len(b.places.all) != 0 {
		t.Errorf("%d tickets", len(b.places.all))
	}
	close(b.up.proceed)
	<-first
}

// TestPlaceIsItsOwn: a place is that of one browser and one URL, and is used once.
func TestPlaceIsItsOwn(t *testing.T) {
	b := newBrowsing(t)
	first := b.start("/1")
	b.up.awaitEntered(t)
	mine, _ := b.visit("/a") // place-1
	cookie := cookieOf(t, mine)
	for name, header := range map[string][]string{
		"without the cookie":  {},
		"with a guess":        {"Cookie", strings.Replace(cookie, "place-1", "place-0", 1)},
		"with a broken value": {"Cookie", strings.Replace(cookie, "place-1", "\"", 1)},
	} {
		res, page := b.visit("/a", header...)
		if got := cookieOf(t, res); res.StatusCode != 503 || got == cookie || strings.Contains(page, "given up") {
			t.Errorf("%s: got %v, %s", name, res.Status, got)
		}
		if res, _ := b.visit("/a", append(header, "Prefer", "kgate-place")...); res.StatusCode != 409 {
			t.Errorf("%s: the script got %v", name, res.Status)
		}
	}
	if res, _ := b.visit("/b", "Cookie", cookie); cookieOf(t, res) == cookie {
		t.Error("the place counts for another URL")
	}
	close(b.up.proceed)
	<-first
	if res, body := b.visit("/a", "Cookie", cookie); res.StatusCode != 200 || body != "the answer to /a" {
		t.Errorf("got %v %s", res.Status, body)
	}
	b.up.awaitEntered(t)
	if res, _ := b.visit("/a", "Cookie", cookie, "Prefer", "kgate-place"); res.StatusCode != 204 { // it is there, as long as nobody has released it
		t.Errorf("the script of another window got %v", res.Status)
	}
	if res, _ := b.visit("/a", "Cookie", cookie); res.StatusCode != 503 || cookieOf(t, res) == cookie {
		t.Errorf("with a place that was used: %v", res.Status)
	}
	b.places.mu.Lock()
	delete(b.places.all, "place-1")
	b.places.ending = admission.EndExpired
	b.places.mu.Unlock()
	if res, page := b.visit("/a", "Cookie", cookie); res.StatusCode != 503 || cookieOf(t, res) == cookie || !strings.Contains(page, "given up") {
		t.Errorf("with a place that has expired: %v %s", res.Status, page)
	}
}

// TestPlaceIsKept: while nobody can say where the ticket is, the browser keeps it.
func TestPlaceIsKept(t *testing.T) {
	b := newBrowsing(t)
	first := b.start("/1")
	b.up.awaitEntered(t)
	res, _ := b.visit("/")
	cookie := cookieOf(t, res)
	b.places.mu.Lock()
	b.places.err = admission.ErrElsewhere
	b.places.mu.Unlock()
	if res, page := b.visit("/", "Cookie", cookie); res.StatusCode != 503 || cookieOf(t, res) != cookie || !strings.Contains(page, "not known just now") {
		t.Errorf("got %v %s", res.Status, page)
	}
	if res, _ := b.visit("/", "Cookie", cookie, "Prefer", "kgate-place"); res.StatusCode != 503 || len(res.Cookies()) > 0 {
		t.Errorf("its script got %v", res.Status)
	}
	b.places.mu.Lock()
	b.places.err, b.places.refusal = nil, &admission.Refusal{Reason: admission.ClientLimit}
	b.places.mu.Unlock()
	other := b.start("/2", "Accept", accepts)
	b.sem.await(1, 2) // as without a page
	close(b.up.proceed)
	<-first
	if res, _ := b.visit("/", "Cookie", cookie); res.StatusCode != 200 {
		t.Errorf("got %v", res.Status)
	}
	if got := <-other; got != "200 the answer to /2" {
		t.Error(got)
	}
}

// TestPlaceCookie: a page's script cannot read it, other sites cannot send it, and it
// does not leave TLS.
func TestPlaceCookie(t *testing.T) {
	b := newBrowsing(t)
	first := b.start("/1")
	b.up.awaitEntered(t)
	for proto, secure := range map[string]bool{"http": false, "https": true} {
		res, _ := b.visit("/", "X-Forwarded-Proto", proto)
		c := res.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != secure || c.Path != "/" || c.MaxAge != 120 || c.Domain != "" {
			t.Errorf("%s: %s", proto, res.Header.Get("Set-Cookie"))
		}
	}
	close(b.up.proceed)
	<-first
}

// TestManyPlaces: a browser that has many places gets no further page, but may come back
// to those that it has.
func TestManyPlaces(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		b := newBrowsing(t)
		first := b.start("/1")
		b.up.awaitEntered(t)
		res, _ := b.visit("/a")
		cookie := cookieOf(t, res)
		for i := range maxPlaces - 1 {
			cookie += fmt.Sprintf("; %s%d=x", placeCookiePrefix, i)
		}
		if res, page := b.visit("/a", "Cookie", cookie); res.StatusCode != 503 || !strings.Contains(page, "<strong>7</strong>") {
			t.Errorf("its own place: %v", res.Status)
		}
		next := b.start("/b", "Accept", accepts, "Cookie", cookie)
		time.Sleep(20 * minWait) // it has tried to get a slot without a place
		b.sem.await(1, 2)
		b.places.mu.Lock()
		if n := len(b.places.all); n != 1 {
			t.Errorf("it has %d places", n)
		}
		b.places.mu.Unlock()
		if err := b.places.EndTicket(t.Context(), "place-1"); err != nil {
			t.Fatal(err)
		}
		close(b.up.proceed)
		if got := <-next; got != "200 the answer to /b" {
			t.Errorf("one more: %s", got)
		}
		<-first
	})
}

// TestOwnPage: a page that cannot be shown, or would never come back, is an error.
func TestOwnPage(t *testing.T) {
	for text, want := range map[string]string{
		"<head>{{.Head}}</head>{{.Position}} {{.Wait}} {{.Seconds}} {{.Keep}} {{.Renewed}}": "",
		"":                         "",
		"<p>{{.Position}}</p>":     "lacks {{.Head}}",
		"{{.Head}}{{.Place}}":      "cannot be shown",
		"{{.Head}}{{if .Wait}}":    "no template",
		"<title>{{.Head}}</title>": "lacks {{.Head}}",
	} {
		_, err := NewPage(time.Minute, text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := NewPage(0, ""); err == nil {
		t.Error("a place may be kept for no time at all")
	}
}

// TestInWords: waits are rounded up.
func TestInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "", time.Second: "a few seconds", 30 * time.Second: "about 30 seconds", time.Minute: "about 60 seconds", 90 * time.Second: "about 2 minutes", 140 * time.Second: "about 2 minutes",
		99 * time.Minute: "about 99 minutes", 2 * time.Hour: "about 2 hours",
	} {
		if got := inWords(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
