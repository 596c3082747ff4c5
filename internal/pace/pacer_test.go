package pace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// draw has a flow take as much as it gets until ctx ends, each time after pause.
func draw(ctx context.Context, f *Flow, pause time.Duration) *atomic.Int64 {
	got := new(atomic.Int64)
	go func() {
		for {
			n, err := f.Take(ctx, 1<<20)
			if err != nil {
				return
			}
			got.Add(int64(n))
			if pause > 0 {
				time.Sleep(pause)
			}
		}
	}()
	return got
}

// TestFair: transfers get about equal parts, and who is slow leaves the rest to the others.
func TestFair(t *testing.T) {
	var p Pacer
	const rate = 8 << 20
	p.Set(4, rate/4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []*atomic.Int64
	for i := range 4 {
		f := p.Join()
		defer f.Stop()
		pause := time.Duration(0)
		if i == 3 {
			pause = 50 * time.Millisecond
		}
		got = append(got, draw(ctx, f, pause))
	}
	time.Sleep(500 * time.Millisecond)
	cancel()
	for i := 1; i < 3; i++ {
		if a, b := got[0].Load(), got[i].Load(); a > 2*b || b > 2*a {
			t.Errorf("two equal transfers got %d and %d", a, b)
		}
	}
	if slow := got[3].Load(); slow == 0 || slow > got[0].Load()/2 {
		t.Errorf("a slow one got %d, others %d", slow, got[0].Load())
	}
}

// TestOrder: of those that wait, who has had the least is next.
func TestOrder(t *testing.T) {
	var p Pacer
	p.Set(0, 1<<20)
	order := make(chan int, 3)
	for i, had := range []float64{3 << 20, 1 << 20, 2 << 20} {
		f := p.Join()
		defer f.Stop()
		f.finish = had
		go func() {
			_, _ = f.Take(t.Context(), 1)
			order <- i
		}()
		for p.waits() <= i {
			time.Sleep(time.Millisecond)
		}
	}
	for _, want := range []int{1, 2, 0} {
		p.mu.Lock() // one byte at a time
		p.account.Set(clock(), 1, 1e-9)
		p.account.credit = 1
		p.serve()
		p.account.Set(clock(), 0, 1e-9)
		p.mu.Unlock()
		if got := <-order; got != want {
			t.Errorf("transfer %d is next, not %d", got, want)
		}
	}
}

func (p *Pacer) waits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// TestStop: a transfer that waits ends when it is stopped, when its context ends, and when
// the pace is lifted.
func TestStop(t *testing.T) {
	var p Pacer
	p.Set(0, 1<<20)
	for name, end := range map[string]func(*Flow, context.CancelFunc){
		"stop":    func(f *Flow, _ context.CancelFunc) { f.Stop() },
		"context": func(_ *Flow, cancel context.CancelFunc) { cancel() },
	} {
		f := p.Join()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := f.Take(ctx, 1)
			done <- err
		}()
		time.Sleep(time.Millisecond)
		end(f, cancel)
		if err := <-done; !errors.Is(err, errStopped) {
			t.Errorf("%s: %v", name, err)
		}
		f.Stop()
		f.Stop()
		cancel()
	}
	f := p.Join()
	defer f.Stop()
	done := make(chan int)
	go func() {
		n, _ := f.Take(t.Context(), 7)
		done <- n
	}()
	time.Sleep(time.Millisecond)
	p.Set(0, 0)
	if n := <-done; n != 7 {
		t.Errorf("%d bytes when the rate was taken away", n)
	}
	if n := p.Totals().Transfers; n != 1 || len(p.waiting) != 0 {
		t.Errorf("%d transfers, %d wait", n, len(p.waiting))
	}
}

// TestNil: what has no pace is not held up.
func TestNil(t *testing.T) {
	var f *Flow
	if n, err := f.Take(nil, 1<<30); n != 1<<30 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	f.Return(1)
	f.Stop()
}

// TestValid: without the right to move anything nothing moves.
func TestValid(t *testing.T) {
	var valid atomic.Bool
	p := Pacer{Valid: valid.Load}
	p.Set(1, 1<<30)
	f := p.Join()
	defer f.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := f.Take(ctx, 1); !errors.Is(err, errStopped) {
		t.Errorf("%v", err)
	}
	valid.Store(true)
	if _, err := f.Take(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestShort: the pacer tells that the share is short while a transfer waits for it, and not
// while none does.
func TestShort(t *testing.T) {
	var told atomic.Int64
	p := Pacer{OnShort: func() { told.Add(1) }}
	p.Set(1, 1<<20)
	f := p.Join()
	ctx, cancel := context.WithCancel(t.Context())
	draw(ctx, f, 0)
	deadline := time.Now().Add(10 * time.Second)
	for told.Load() < 2 {
		if time.Now().After(deadline) {
			t.Fatal("it never told")
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	f.Stop()
	slow := p.Join()
	defer slow.Stop()
	before := told.Load()
	ctx, cancel = context.WithCancel(t.Context())
	draw(ctx, slow, 20*time.Millisecond)
	time.Sleep(2 * shortEvery)
	cancel()
	if n := told.Load() - before; n > 1 { // one may have been under way
		t.Errorf("it told %d times of a slow transfer", n)
	}
}

// TestConcurrent has everything happen at once, for the race detector.
func TestConcurrent(t *testing.T) {
	var p Pacer
	p.Set(2, 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				f := p.Join()
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				n, _ := f.Take(ctx, 8<<10)
				f.Return(n / 2)
				cancel()
				f.Stop()
			}
		})
	}
	for i := range 200 {
		p.Set(i%3, float64(i%2*1<<20))
		_ = p.Totals()
	}
	wg.Wait()
	if got := p.Totals(); got.Transfers != 0 {
		t.Errorf("%d transfers are left", got.Transfers)
	}
}
