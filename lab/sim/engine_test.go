package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kgate/kgate/lab/sim"
)

// uniform delays messages by up to its value.
type uniform time.Duration

func (u uniform) Delay(_, _ int, r *rand.Rand) time.Duration {
	return time.Duration(r.Int64N(int64(u)))
}
func (uniform) Steady() bool { return false }

// steady delays every message alike.
type steady time.Duration

func (s steady) Delay(_, _ int, _ *rand.Rand) time.Duration { return time.Duration(s) }
func (steady) Steady() bool                                 { return true }

// recorder writes down what happens.
type recorder struct {
	*sim.Engine
	got  []string
	then func(node int, t sim.Timer)
}

func record(seed uint64, nodes int, n sim.Network) *recorder {
	r := new(recorder)
	r.Engine = sim.New(seed, nodes, n, r)
	return r
}

func (r *recorder) Deliver(to, from int, m any) {
	r.got = append(r.got, fmt.Sprintf("%v %d->%d %v", r.Now(), from, to, m))
}

func (r *recorder) Due(node int, t sim.Timer) {
	r.got = append(r.got, fmt.Sprintf("%v %d timer %d", r.Now(), node, t.Arg))
	if r.then != nil {
		r.then(node, t)
	}
}

func (r *recorder) run(until time.Duration) {
	for r.Step(until) {
	}
}

func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(r.got, want) {
		t.Errorf("got\n%q\nwant\n%q", r.got, want)
	}
	r.got = nil
}

// Events come in order of time, and of one instant in the order they were made.
func TestOrder(t *testing.T) {
	var e recorder
	e.Engine = sim.New(1, 2, steady(time.Second), &e)
	r := rand.New(rand.NewPCG(1, 1))
	type due struct {
		at  time.Duration
		arg uint64
	}
	var want []due
	for i := range uint64(5000) {
		at := time.Duration(r.IntN(300)) * time.Second
		want = append(want, due{at, i})
		e.After(sim.World, at, sim.Timer{Arg: i})
	}
	slices.SortStableFunc(want, func(a, b due) int { return int(a.at - b.at) })
	e.run(time.Hour)
	for i, w := range want {
		if got := fmt.Sprintf("%v -1 timer %d", w.at, w.arg); e.got[i] != got {
			t.Fatalf("event %d is %q, want %q", i, e.got[i], got)
		}
	}
}

// Between two living nodes messages keep their order, whatever the delays and
// the cuts and spikes on the way.
func TestLinksKeepOrder(t *testing.T) {
	for seed := range uint64(200) {
		last := make(map[[2]int]int)
		var e *sim.Engine
		e = sim.New(seed, 3, uniform(50*time.Millisecond), handlers{
			deliver: func(to, from int, m any) {
				if n := m.(int); n <= last[[2]int{from, to}] {
					t.Fatalf("seed %d: %d->%d got %d after %d", seed, from, to, n, last[[2]int{from, to}])
				} else {
					last[[2]int{from, to}] = n
				}
			},
			due: func(_ int, tm sim.Timer) {
				r := e.Rand()
				a, b := r.IntN(3), r.IntN(3)
				switch {
				case a == b:
				case tm.Kind == 1:
					e.Cut(a, b)
				case tm.Kind == 2:
					e.Heal(a, b)
				case tm.Kind == 3:
					e.Slow(a, b, time.Duration(r.IntN(100))*time.Millisecond)
				case tm.Kind == 4:
					e.Pause(a)
				case tm.Kind == 5:
					e.Resume(a)
				default:
					e.Send(a, b, int(tm.Arg))
				}
			},
		})
		for i := range uint64(2000) {
			kind := uint8(e.Rand().IntN(60))
			e.After(sim.World, time.Duration(i)*time.Millisecond, sim.Timer{Kind: kind, Arg: i + 1})
		}
		for e.Step(time.Hour) {
		}
	}
}

type handlers struct {
	deliver func(to, from int, m any)
	due     func(node int, t sim.Timer)
}

func (h handlers) Deliver(to, from int, m any) { h.deliver(to, from, m) }
func (h handlers) Due(n int, t sim.Timer)      { h.due(n, t) }

// A cut link holds back and loses nothing; the other direction goes on.
func TestCutHoldsBack(t *testing.T) {
	e := record(1, 2, steady(time.Second))
	e.Cut(0, 1)
	e.Send(0, 1, "a")
	e.Send(1, 0, "b")
	e.run(10 * time.Second)
	e.expect(t, "1s 1->0 b")
	e.Send(0, 1, "c")
	e.run(10500 * time.Millisecond)
	e.Heal(0, 1)
	e.run(20 * time.Second)
	e.expect(t, "10.5s 0->1 a", "11s 0->1 c")
}

// What a node holds back is lost with it; what it has got onto the wire is not,
// and what was meant for it reaches no later life.
func TestLoss(t *testing.T) {
	e := record(1, 3, steady(time.Second))
	e.Cut(0, 1)
	e.Send(0, 1, "held")
	e.run(2 * time.Second)
	e.Send(0, 2, "on the wire")
	e.Send(2, 0, "to the dead")
	e.After(0, time.Minute, sim.Timer{Arg: 1})
	e.Kill(0)
	e.Heal(0, 1)
	e.Start(0)
	e.Send(2, 0, "to the new")
	e.run(time.Hour)
	e.expect(t, "3s 0->2 on the wire", "3s 2->0 to the new")
}

// A paused node takes in nothing, and everything when it goes on.
func TestPause(t *testing.T) {
	e := record(1, 2, steady(time.Second))
	e.Pause(1)
	e.Send(0, 1, "a")
	e.After(1, 2*time.Second, sim.Timer{Arg: 7})
	e.run(5 * time.Second)
	e.expect(t)
	e.Resume(1)
	e.run(6 * time.Second)
	slices.Sort(e.got)
	e.expect(t, "5s 0->1 a", "5s 1 timer 7")
}

// A timer runs by its node's clock.
func TestClockRate(t *testing.T) {
	e := record(1, 2, steady(time.Second))
	e.SetRate(0, 2)
	e.SetRate(1, 0.5)
	e.StepWall(1, time.Hour)
	e.After(0, 8*time.Second, sim.Timer{Arg: 1})
	e.After(1, 8*time.Second, sim.Timer{Arg: 2})
	e.run(time.Minute)
	e.expect(t, "4s 0 timer 1", "16s 1 timer 2")
	if e.Clock(0) != 2*time.Minute || e.Clock(1) != 30*time.Second || e.Wall(1) != time.Hour+30*time.Second {
		t.Errorf("clocks %v, %v, wall %v", e.Clock(0), e.Clock(1), e.Wall(1))
	}
	e.SetRate(0, 1)
	e.run(2 * time.Minute)
	if e.Clock(0) != 3*time.Minute {
		t.Errorf("a clock that was fast shows %v", e.Clock(0))
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			var e *sim.Engine
			e = sim.New(1, 1, steady(1), handlers{due: func(_ int, t sim.Timer) {
				e.After(sim.World, time.Duration(r.IntN(1000)), t)
			}})
			for i := range size {
				e.After(sim.World, time.Duration(i), sim.Timer{})
			}
			b.ReportAllocs()
			for b.Loop() {
				e.Step(1 << 62)
			}
		})
	}
}
