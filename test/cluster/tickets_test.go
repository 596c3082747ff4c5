package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/chordring"
	"github.com/kgate/kgate/internal/demo"
	"github.com/kgate/kgate/internal/timing"
)

const ticketsPath = "/.kgate/tickets"

// ticket is one of the ticket API, as it says it is.
type ticket struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Fence string `json:"fence"`

	number int // in the order of the requests
	use    Use // of its slot
}

// seen notes what a gateway has said of the ticket, and when it was asked.
func (tk *ticket) seen(now ticket, asked time.Time) {
	tk.ID, tk.State, tk.Fence = now.ID, now.State, now.Fence
	switch {
	case tk.State != "granted":
		tk.use.Asked = asked
	case tk.use.Began.IsZero():
		tk.use.Fence, tk.use.Began = tk.Fence, time.Now()
	}
}

// office asks for tickets and about them at gateways' admin addresses, as a
// client that knows nothing but the documents.
type office struct {
	http     *http.Client
	gateways []*Gateway
	next     int   // place of the gateway that is asked next
	uses     []Use // of slots that were given back
}

func newOffice(t *testing.T, gateways []*Gateway) *office {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &office{http: &http.Client{Transport: transport, Timeout: patience}, gateways: gateways}
}

// call asks one gateway.
func (o *office) call(g *Gateway, method, path string, body any, want int) (tk ticket, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return tk, err
	}
	req, err := http.NewRequest(method, "http://"+g.Admin+ticketsPath+path, bytes.NewReader(data))
	if err != nil {
		return tk, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := o.http.Do(req)
	if err != nil {
		return tk, err
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		return tk, err
	}
	if res.StatusCode != want {
		return tk, fmt.Errorf("%s %s at %s: %s: %s", method, path, g.Name, res.Status, strings.TrimSpace(text.String()))
	}
	if want == http.StatusNoContent {
		return tk, nil
	}
	return tk, json.Unmarshal(text.Bytes(), &tk)
}

// any returns one gateway after the other.
func (o *office) any() *Gateway {
	o.next++
	return o.gateways[o.next%len(o.gateways)]
}

func (o *office) request(t *testing.T, pool string, ttl time.Duration) ticket {
	t.Helper()
	tk := ticket{use: Use{Asked: time.Now()}}
	now, err := o.call(o.any(), http.MethodPost, "", map[string]any{"pool": pool, "ttl": ttl.String()}, http.StatusCreated)
	if err != nil {
		t.Fatal(err)
	}
	tk.seen(now, tk.use.Asked)
	return tk
}

// test asks any gateway about a ticket.
func (o *office) test(tk *ticket) error {
	asked := time.Now()
	now, err := o.call(o.any(), http.MethodGet, "/"+tk.ID, nil, http.StatusOK)
	if err == nil {
		tk.seen(now, asked)
	}
	return err
}

func (o *office) release(t *testing.T, tk *ticket) {
	t.Helper()
	tk.use.Ended = time.Now()
	o.uses = append(o.uses, tk.use)
	if _, err := o.call(o.any(), http.MethodDelete, "/"+tk.ID, nil, http.StatusNoContent); err != nil {
		t.Error(err)
	}
}

// neighbours returns the places of two gateways of which one follows the other
// on the ring.
func neighbours(gateways []*Gateway) (int, int) {
	var names []string
	for _, g := range gateways {
		names = append(names, g.Name)
	}
	successors := chordring.New(names).Successors(names[0], 1)
	return 0, slices.Index(names, successors[0])
}

// TestTickets has many tickets in line, kills two neighbours of five gateways,
// which with two replicas is as much as can be borne, and looks whether every
// ticket is still there, and in its place.
func TestTickets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	const (
		k   = 20
		ttl = 5 * time.Minute
	)
	lease := Lease(time.Second)
	waiting := Count(t, "KGATE_TICKETS", 200, 1000)
	_, url := ServeUpstream(t, &demo.Upstream{})
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url, Lease: lease, TicketTTL: ttl})
	o := newOffice(t, c.Gateways)
	tickets := make([]*ticket, 0, k+waiting)
	began := time.Now()
	for i := range k + waiting {
		tk := o.request(t, PoolName, ttl)
		tk.number = i
		tickets = append(tickets, &tk)
	}
	t.Logf("%d tickets in %v", len(tickets), time.Since(began).Round(time.Millisecond))
	askAll(t, o, tickets)
	held := make(map[string]string)
	for _, tk := range tickets {
		if tk.State == "granted" {
			held[tk.ID] = tk.Fence
		}
	}
	if len(held) != k {
		t.Fatalf("%d of %d tickets are granted, k is %d", len(held), len(tickets), k)
	}

	a, b := neighbours(c.Gateways)
	lost := time.Now()
	for _, i := range []int{a, b} {
		if err := c.Gateways[i].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	o.gateways = nil
	for i, g := range c.Gateways {
		if i != a && i != b {
			o.gateways = append(o.gateways, g)
		}
	}
	askAll(t, o, tickets)
	what := fmt.Sprintf("%s and %s killed: all %d tickets answer", c.Gateways[a].Name, c.Gateways[b].Name, len(tickets))
	timing.Within(t, what, time.Since(lost), Whole(lease))
	for _, tk := range tickets {
		if fence, was := held[tk.ID]; was && (tk.State != "granted" || tk.Fence != fence) || !was && tk.State != "waiting" {
			t.Errorf("ticket %d, fence %q before, is now %s, fence %q", tk.number, fence, tk.State, tk.Fence)
		}
	}
	drain(t, o, tickets, k)
	CheckHistory(t, PoolName, k, o.uses)
}

// askAll asks about every ticket until a gateway knows it.
func askAll(t *testing.T, o *office, tickets []*ticket) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, tk := range tickets {
		if err := Await(ctx, func() error { return o.test(tk) }); err != nil {
			t.Fatalf("ticket %d: %v", tk.number, err)
		}
	}
}

// drain releases slots as they are granted, until the line is empty, and counts
// who was overtaken.
func drain(t *testing.T, o *office, waiting []*ticket, k int) {
	t.Helper()
	const ahead = 100 // as far as may be overtaken, and a little more
	var order []int
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for len(waiting) > 0 {
		var granted, rest []*ticket
		err := Await(ctx, func() error {
			granted, rest = nil, nil
			for i, tk := range waiting {
				if i < ahead && tk.State != "granted" {
					if err := o.test(tk); err != nil {
						return fmt.Errorf("ticket %d: %w", tk.number, err)
					}
				}
				if tk.State == "granted" {
					granted = append(granted, tk)
				} else {
					rest = append(rest, tk)
				}
			}
			if len(granted) < min(k, len(waiting)) {
				return fmt.Errorf("%d tickets are granted, %d wait; k is %d", len(granted), len(rest), k)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(granted) > k {
			t.Errorf("%d slots are granted, k is %d", len(granted), k)
		}
		slices.SortFunc(granted, func(a, b *ticket) int { return compareFences(a.Fence, b.Fence) })
		for _, tk := range granted {
			order = append(order, tk.number)
			o.release(t, tk)
		}
		waiting = rest
	}
	inversions, farthest := 0, 0
	for i, n := range order {
		farthest = max(farthest, n-i)
		for _, later := range order[i+1:] {
			if later < n {
				inversions++
			}
		}
	}
	t.Logf("%d slots in turn: %d pairs in another order than asked for, the farthest was %d places early", len(order), inversions, farthest)
	if farthest > ahead/2 && Soak() { // it grows with the delay between gateways, and so with what else a machine does
		t.Errorf("a ticket was %d places early", farthest)
	}
}

func compareFences(a, b string) int {
	x, errA := parseGrant(a)
	y, errB := parseGrant(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(x.number, y.number), cmp.Compare(x.serial, y.serial))
}

// TestTicketThatNobodyKnows kills a gateway that has just joined, and with it the two
// that have copies of its ticket. The next one on the ring has been there all the time, but
// was no successor: nobody may give the ticket's slot away.
func TestTicketThatNobodyKnows(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const k = 4
	lease := Lease(time.Second)
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 60*time.Millisecond) }))
	judge.Keep()
	c := Start(t, Options{Gateways: 5, K: k, Upstream: url, Lease: lease})
	o := newOffice(t, c.Gateways)
	tk := o.request(t, PoolName, time.Minute) // the pool has tickets from now on
	o.release(t, &tk)
	fresh := c.Launch(t)
	var names []string
	for _, g := range c.Gateways {
		names = append(names, g.Name)
	}
	lost := []*Gateway{fresh}
	for _, successor := range chordring.New(names).Successors(fresh.Name, 2) {
		lost = append(lost, c.Gateways[slices.Index(names, successor)])
	}
	o.gateways = []*Gateway{fresh}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := Await(ctx, func() (err error) {
		tk, err = o.call(fresh, http.MethodPost, "", map[string]any{"pool": PoolName, "ttl": "1m"}, http.StatusCreated)
		return err
	})
	if err == nil {
		err = Await(ctx, func() error { return o.granted(&tk) })
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	StartLoad(t, c.Gateways, LoadOptions{Clients: k})
	Span(t, lease/2) // the slots are in use everywhere
	for _, g := range lost {
		if err := g.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	Span(t, Whole(lease)+2*time.Second)
	most := 0
	for _, a := range judge.Since(began) {
		most = max(most, a.InFlight)
	}
	if most != k-1 {
		t.Errorf("at most %d requests were in flight beside the ticket, k is %d", most, k)
	}
}

// TestExecOutlivesGateway kills the gateway at which a command has got its slot.
func TestExecOutlivesGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	_, url := ServeUpstream(t, &demo.Upstream{})
	lease := Lease(time.Second)
	c := Start(t, Options{K: 1, Upstream: url, Lease: lease})
	end := filepath.Join(t.TempDir(), "end") // what the command waits for
	var admins []string
	for _, g := range c.Gateways {
		admins = append(admins, "http://"+g.Admin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t), "exec", "--pool", PoolName, "--admin", strings.Join(admins, ","), "--",
		"sh", "-c", `echo begun; until [ -e "$0" ]; do sleep 0.1; done; echo done`, end)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, plainEnv()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := Await(ctx, func() error {
		if !strings.Contains(out.String(), "begun") {
			return fmt.Errorf("the command has not begun: %s", out.String())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Gateways[0].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Nobody else gets the slot.
	expect(t, 75, nil, "exec", "--pool", PoolName, "--wait", (lease + 2*time.Second).String(), "--admin", admins[1], "--", "echo", "stolen")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.Contains(out.String(), "done") {
		t.Errorf("%v: %s", err, out.String())
	}
	// It is free now.
	expect(t, 0, nil, "exec", "--pool", PoolName, "--wait", "30s", "--admin", admins[2], "--", "true")
}

// lockedBuffer is what a running process has said so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSlotsOutliveAll kills all gateways while a slot is held through a ticket:
// it stays counted, and its holder keeps it, until its time to live is over.
func TestSlotsOutliveAll(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	const (
		k    = 2
		late = 2 * time.Second // after the end of the ttl at most
	)
	lease := Lease(time.Second)
	ttl := max(2*lease, 4*time.Second) // all are back before
	judge, _, url := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hold(r, 60*time.Millisecond) }))
	judge.Keep()
	c := Start(t, Options{K: k, Upstream: url, Durable: true, Lease: lease})
	o := newOffice(t, c.Gateways)
	renewed := time.Now()
	tk := o.request(t, PoolName, ttl)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := Await(ctx, func() error { return o.granted(&tk) }); err != nil {
		t.Fatal(err)
	}
	fence := tk.Fence
	for _, g := range c.Gateways {
		if err := g.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range c.Gateways {
		if _, err := g.Wait(patience); err != nil {
			t.Fatal(err)
		}
		c.Restart(t, i)
	}
	began := time.Now()
	if err := c.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	ready := time.Since(began)
	o.gateways = c.Gateways
	load := StartLoad(t, c.Gateways, LoadOptions{Clients: 2})
	if err := Await(ctx, func() error { return o.granted(&tk) }); err != nil || tk.Fence != fence {
		t.Errorf("the slot had the fence %q, now %q: %v", fence, tk.Fence, err)
	}
	tested := time.Now() // asking keeps it no longer than a ttl from now
	judge.AwaitInFlight(t, "the slot is free", tested, k, ttl+late)
	load.Stop()
	first, total := time.Duration(-1), 0
	for _, a := range judge.Since(began) {
		total++
		if first < 0 && a.InFlight == k {
			first = a.At.Sub(renewed)
		}
	}
	t.Logf("ready again after %v; %d requests; all slots were in use %v after the ticket was asked for, its ttl is %v", ready.Round(time.Millisecond), total, first.Round(time.Millisecond), ttl)
	if total == 0 || first < ttl {
		t.Errorf("%d requests; all slots were in use after %v, before the ttl was over", total, first)
	}
}

// granted asks about a ticket that should hold a slot.
func (o *office) granted(tk *ticket) error {
	err := o.test(tk)
	if err == nil && tk.State != "granted" {
		err = fmt.Errorf("the ticket is %s", tk.State)
	}
	return err
}
