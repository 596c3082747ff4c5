package pool

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// lastReport returns three gateways, one of which has lost a fourth one's tickets, in a
// new epoch: home waits for the report of gateway 2 alone.
func lastReport(t *testing.T) *trio {
	w := newTrio(t, 2)
	w.view.Lost = []replication.Lost{{Node: 4, Successor: 2}}
	w.view.Newest = 4
	for _, n := range w.view.Members {
		w.next(n, DiskNone)
	}
	w.deliver(func(s sent) bool { return s.from != 2 })
	w.states(Reporting, Reporting, Reporting)
	return w
}

// hostile are letters that no gateway sends, from gateway 2.
var hostile = map[string]string{
	"a replica that is not there": `{"Report":{"Node":2,"Epoch":2,"Installed":1,"Left":{"node":2,"replicas":[null]}}}`,
	"a part of a table":           `{"Report":{"Node":2,"Epoch":2,"Installed":1,"Left":{"node":2,"replicas":[{"owner":4,"from":1,"to":2}]}}}`,
	"what another one knows":      `{"Report":{"Node":2,"Epoch":2,"Installed":1,"Left":{"node":3}}}`,
	"unknown since the future":    `{"Report":{"Node":2,"Epoch":2,"Installed":1,"Bounds":{"4":{"Since":1}}}}`,
	"unknown in the future":       `{"Answer":{"Install":{"Epoch":2},"Bounds":{"4":{"Since":1}}}}`,
	"an answer without an epoch":  `{"Answer":{}}`,
	"records without numbers": `{"Answer":{"Install":{"Epoch":2},"HandOvers":[{"owner":4,"successor":1,"records":[` +
		`{"id":"aeaaaaaaaaaaaaaaaaaaaaaa74-4","stamp":1,"ttl":1000000000,"state":"waiting"}]}]}}`,
	"a push of nobody":       `{"Push":{"seq":1}}`,
	"a push without a delta": `{"Push":{"seq":1,"owner":2}}`,
	"no letter":              `[]`,
}

func TestHostileLetters(t *testing.T) {
	for name, data := range hostile {
		if _, err := ParseLetter(2, []byte(data)); !errors.Is(err, errLetter) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Home alone says how an epoch begins, and has the tokens counted.
func TestOnlyHomeAnswers(t *testing.T) {
	w := newTrio(t, 2)
	for _, n := range w.view.Members {
		w.next(n, DiskNone)
	}
	var answer Letter
	w.deliver(func(s sent) bool {
		if s.letter.To == 3 && s.letter.Answer != nil {
			answer = s.letter
			return false
		}
		return true
	})
	if _, err := w.pools[3].Take(w.now, 2, &answer); !errors.Is(err, errLetter) {
		t.Errorf("an answer from a gateway that is not home: %v", err)
	}
	w.states(Installed, Installed, Reporting)
	if _, err := w.pools[3].Take(w.now, 1, &answer); err != nil {
		t.Error(err)
	}
	w.states(Installed, Installed, Installed)
	for from, replies := range map[kmutex.Node]int{1: 1, 2: 0} {
		fx, err := w.pools[3].Take(w.now, from, &Letter{Count: &Count{Round: 1}})
		if err != nil || len(fx.Letters) != replies {
			t.Errorf("node %d counts tokens: %v, %v", from, fx.Letters, err)
		}
	}
}

// FuzzLetters lets a gateway send any letter to home, as the last one whose report is
// awaited, and to one that waits for its answer: it is taken in or refused, and the pools
// go on.
func FuzzLetters(f *testing.F) {
	for _, data := range hostile {
		f.Add([]byte(data))
	}
	w := newTrio(new(testing.T), 2)
	for _, n := range w.view.Members {
		w.next(n, DiskNone)
	}
	add := func(s sent) bool {
		data, err := json.Marshal(&s.letter)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		return true
	}
	w.deliver(add)
	w.now += time.Minute
	w.wake(10 * time.Millisecond) // a count
	w.deliver(add)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := ParseLetter(2, data)
		if err != nil {
			if !errors.Is(err, errLetter) {
				t.Error(err)
			}
			return
		}
		w := lastReport(t)
		for _, to := range []kmutex.Node{1, 3} {
			again, err := ParseLetter(2, data)
			if err != nil {
				t.Fatal(err)
			}
			fx, _ := w.pools[to].Take(w.now, 2, again)
			w.carry(to, fx)
		}
		w.wake(100 * time.Millisecond)
	})
}
