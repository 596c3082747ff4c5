package pace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func begin(p *Pacer) *Flow {
	f := new(Flow)
	f.Begin(p)
	return f
}

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
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		}
	}()
	return got
}

// TestRateIsSetMeanwhile: a new rate holds at once, except for the bytes that a transfer moves in a
// few milliseconds.
func TestRateIsSetMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		const transfers, pace, rate = 20, 200_000, 200 << 10
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var moved atomic.Int64
		var all sync.WaitGroup
		for range transfers {
			f := begin(&p)
			defer f.Stop()
			all.Go(func() {
				for ctx.Err() == nil {
					n, err := f.Take(ctx, 1<<20)
					if err != nil {
						return
					}
					for ; n > 0; n -= 200 { // as the upstream sends
						time.Sleep(200 * time.Second / pace)
						moved.Add(200)
					}
				}
			})
		}
		time.Sleep(2 * time.Second)
		if got := moved.Load(); got < transfers*pace*2*9/10 {
			t.Errorf("%d bytes in 2 s without a rate", got)
		}
		p.Set(transfers, rate/transfers)
		moved.Store(0)
		time.Sleep(time.Second)
		if got, most := moved.Load(), rate+Burst(rate, transfers)+transfers*(least+200); got > most {
			t.Errorf("%d bytes in the second after the rate was set; at most %d", got, most)
		}
		cancel()
		all.Wait()
	})
}

// TestUnpacedGrows: without a rate, a fast transfer takes more and more at once.
func TestUnpacedGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := begin(new(Pacer))
		defer f.Stop()
		for range 5 {
			if _, err := f.Take(t.Context(), most); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := f.Take(t.Context(), most); err != nil || got != most {
			t.Errorf("takes %d, %v", got, err)
		}
		f.Return(most - 1)
		time.Sleep(time.Second)
		if got, err := f.Take(t.Context(), most); err != nil || got > most/20 {
			t.Errorf("takes %d after a second, %v", got, err)
		}
	})
}

// TestFair: transfers get equal parts. A slow transfer takes what it can, and the others get the rest.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		const rate, each = 8 << 20, 2 << 20
		p.Set(4, each)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []*atomic.Int64
		for i := range 4 {
			f := begin(&p)
			defer f.Stop()
			pause := time.Duration(0)
			if i == 3 {
				pause = 50 * time.Millisecond
			}
			got = append(got, draw(ctx, f, pause))
		}
		time.Sleep(time.Second)
		slow := float64(got[3].Load())
		cancel()
		if most := 20 * chunk(each); slow < 0.9*most || slow > 1.1*most {
			t.Errorf("a slow one got %.0f, of %.0f that it can take", slow, most)
		}
		for i, g := range got[:3] {
			if had, part := float64(g.Load()), (rate-slow)/3; had < 0.98*part || had > 1.02*part {
				t.Errorf("transfer %d got %.0f, its part is %.0f", i, had, part)
			}
		}
	})
}

// TestLatecomer: a transfer that begins later gets only its part, and nothing for the time before.
func TestLatecomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		const each = 2 << 20
		p.Set(2, each)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got [2]*atomic.Int64
		for i := range got {
			f := begin(&p)
			defer f.Stop()
			got[i] = draw(ctx, f, 0)
			time.Sleep(time.Second)
		}
		cancel()
		if first, late := float64(got[0].Load()), float64(got[1].Load()); late > 1.05*each || first < 2.95*each {
			t.Errorf("the first one got %.0f, the latecomer %.0f", first, late)
		}
	})
}

// TestSooner: a transfer that waits for a small share gets its part of a larger share as soon as the
// larger one is set.
func TestSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tokens := range []int{0, 1} {
			var p Pacer
			p.Set(tokens, 1<<10)
			ctx, cancel := context.WithCancel(t.Context())
			f := begin(&p)
			got := draw(ctx, f, 0)
			time.Sleep(310 * time.Millisecond)
			before := got.Load()
			const each = 50 << 20
			p.Set(1, each)
			time.Sleep(20 * time.Millisecond)
			if had := got.Load() - before; float64(had) < 0.9*each*0.018 {
				t.Errorf("%d bytes in 20 ms after %d tokens of 1 KiB/s became one of 50 MiB/s", had, tokens)
			}
			cancel()
			f.Stop()
			synctest.Wait()
		}
	})
}

// TestSmall: a transfer with the smallest part that a token may have moves something several times a
// second, and asks for more.
func TestSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Int64
		p := Pacer{OnShort: func() { short.Add(1) }}
		p.Set(1, 1<<10)
		ctx, cancel := context.WithCancel(t.Context())
		f := begin(&p)
		got := draw(ctx, f, 0)
		for range 10 {
			before := got.Load()
			time.Sleep(slow + tick)
			if got.Load() == before {
				t.Errorf("nothing in %v", slow+tick)
			}
		}
		if had := got.Load(); had > 10*(1<<10)*26/100+Burst(1<<10, 1) {
			t.Errorf("%d bytes in 2.5 s, the rate is 1 KiB/s", had)
		}
		if n := short.Load(); n < 8 {
			t.Errorf("it told %d times in 2.5 s that the share is short", n)
		}
		cancel()
		f.Stop()
		synctest.Wait()
	})
}

// TestOrder: the waiting transfer that has had the least is next.
func TestOrder(t *testing.T) {
	var p Pacer
	p.Set(0, 1<<20)
	order := make(chan int, 3)
	for i, had := range []float64{3 << 20, 1 << 20, 2 << 20} {
		f := begin(&p)
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
		p.account.Set(p.clock(), 1, 1e-9)
		p.account.credit = 1
		p.serve()
		p.account.Set(p.clock(), 0, 1e-9)
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
		f := begin(&p)
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
	f := begin(&p)
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

// TestNil: a nil Flow does not wait.
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
	f := begin(&p)
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
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		p := Pacer{OnShort: func() { told.Add(1) }}
		p.Set(1, 1<<20)
		for pause, want := range map[time.Duration]int64{0: 9, 20 * time.Millisecond: 0} {
			f := begin(&p)
			ctx, cancel := context.WithCancel(t.Context())
			draw(ctx, f, pause)
			time.Sleep(shortEvery + tick) // from here on it is judged by this transfer alone
			before := told.Load()
			time.Sleep(10 * shortEvery)
			if n := told.Load() - before; n < want || n > want+2 {
				t.Errorf("a transfer that takes something each %v: told %d times in %v", pause, n, 10*shortEvery)
			}
			cancel()
			f.Stop()
			synctest.Wait()
		}
	})
}

// TestConcurrent has everything happen at once, for the race detector.
func TestConcurrent(t *testing.T) {
	var p Pacer
	p.Set(2, 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				f := begin(&p)
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
