package membership

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/kmutex"
)

// in is a view that has one gateway's incarnation, by boot; node 0: nobody.
func in(boot string, node uint64, lost ...Lost) *View {
	v := &View{Number: 1, Lease: time.Second, Lost: lost}
	if node != 0 {
		v.Members = []Member{{Node: kmutex.Node(node), Name: "a", Boot: boot}}
	}
	return v
}

var second = lease.Terms{Lease: time.Second}

// granted has a incarnation of a member get its first lease.
func granted(t *testing.T) *incarnation {
	t.Helper()
	tn := newIncarnation("x", time.Now)
	tn.follow(in("x", 7), "a", second)
	r, due, _ := tn.renewal()
	if !due || r.Node != 7 || !tn.answered(r, nil) {
		t.Fatalf("%+v, %v: no standing", r, due)
	}
	if s := *tn.standing.Load(); s.Node != 7 || !s.Valid(time.Now()) || time.Until(s.Until) != 900*time.Millisecond {
		t.Fatalf("standing %+v", s)
	}
	return tn
}

func stands(tn *incarnation) bool { return tn.standing.Load().Valid(time.Now()) }

func TestIncarnationEnds(t *testing.T) {
	for name, end := range map[string]func(*incarnation) bool{
		"the view has it lost": func(tn *incarnation) bool {
			return tn.follow(in("", 0, Lost{Node: 7, Name: "a", Boot: "x"}), "a", second)
		},
		"the view has it not":  func(tn *incarnation) bool { return tn.follow(in("", 0), "a", second) },
		"the view has another": func(tn *incarnation) bool { return tn.follow(in("y", 9), "a", second) },
		"it is refused": func(tn *incarnation) bool {
			time.Sleep(200 * time.Millisecond)
			r, due, _ := tn.renewal()
			return due && tn.answered(r, fmt.Errorf("wrapped: %w", errNotMember))
		},
		"it has lapsed": func(tn *incarnation) bool {
			time.Sleep(900 * time.Millisecond)
			return tn.follow(in("x", 7), "a", second)
		},
		"it has lapsed when the answer comes": func(tn *incarnation) bool {
			time.Sleep(800 * time.Millisecond)
			r, _, _ := tn.renewal()
			time.Sleep(100 * time.Millisecond)
			return tn.answered(r, nil)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			tn := granted(t)
			if tn.rejoin() {
				t.Fatalf("%s: it rejoins while it stands", name)
			}
			if !end(tn) || stands(tn) {
				t.Errorf("%s: it stands on", name)
			}
			if s := *tn.standing.Load(); s != (Standing{}) {
				t.Errorf("%s: standing %+v", name, s)
			}
			if _, due, _ := tn.renewal(); due {
				t.Errorf("%s: it renews", name)
			}
			if !tn.rejoin() || tn.rejoin() {
				t.Errorf("%s: it does not rejoin once", name)
			}
			if boot, voided := tn.current(); boot != "x.1" || voided != 7 {
				t.Errorf("%s: it is %s after %d", name, boot, voided)
			}
			if tn.follow(in("x", 7), "a", second); stands(tn) {
				t.Errorf("%s: it takes its old member for itself", name)
			}
		})
	}
}

// Nothing has to run for a standing to lapse, and nothing is renewed by an
// answer that never came.
func TestStandingLapsesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := granted(t)
		time.Sleep(899 * time.Millisecond)
		if !stands(tn) {
			t.Error("lapsed early")
		}
		r, _, _ := tn.renewal()
		if tn.answered(r, errors.New("nobody")); !stands(tn) {
			t.Error("a failure ends it")
		}
		time.Sleep(time.Millisecond)
		if stands(tn) {
			t.Error("it stands on")
		}
		if !tn.rejoin() {
			t.Error("it cannot come back, since nobody has noticed")
		}
	})
}

// One that was never let in, or never got a lease, has nothing to come back from.
func TestNothingToRejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := newIncarnation("x", time.Now)
		tn.follow(in("", 0), "a", second)
		time.Sleep(time.Hour)
		if tn.rejoin() {
			t.Error("it was nobody")
		}
		tn.follow(in("x", 7), "a", second)
		time.Sleep(time.Hour)
		if tn.rejoin() {
			t.Error("it never had a lease")
		}
	})
}
