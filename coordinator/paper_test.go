package coordinator_test

import (
	"testing"

	"github.com/kgate/kgate/coordinator"
	"github.com/kgate/kgate/kmutex"
)

// These tests take the paper's statements about the coordinator (section 3.2) one by one, and late
// binding's counterparts. Whole runs are in package kmutex.

// machine begins an epoch at home, which has every token.
func machine(t *testing.T, b kmutex.Binding, k int) *kmutex.Machine {
	t.Helper()
	m := kmutex.New(1, b)
	step(t, m, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: k, Home: 1}, 1)})
	return m
}

func step(t *testing.T, m *kmutex.Machine, e kmutex.Event) *kmutex.Effects {
	t.Helper()
	if e.Message != nil {
		e.Message.Epoch = 1
	}
	fx, err := m.Step(&e)
	if err != nil {
		t.Fatal(err)
	}
	return fx
}

func acquire(t *testing.T, m *kmutex.Machine, request kmutex.Request) *kmutex.Effects {
	t.Helper()
	return step(t, m, kmutex.Event{Kind: kmutex.EventAcquire, Request: request})
}

func release(t *testing.T, m *kmutex.Machine, request kmutex.Request) *kmutex.Effects {
	t.Helper()
	return step(t, m, kmutex.Event{Kind: kmutex.EventRelease, Request: request})
}

// "The coordinator could then guide people who enter the cinema hall to request
// counters in a round robin fashion."
func TestEarlyDealsRoundRobin(t *testing.T) {
	const k = 3
	m := machine(t, new(coordinator.Early), k)
	for request := range kmutex.Request(k) {
		acquire(t, m, request+1) // the idle tokens
	}
	for request := range kmutex.Request(4 * k) {
		fx := acquire(t, m, k+1+request)
		tied := -1
		for _, tr := range fx.Trace {
			if tr.Kind == kmutex.TraceTied {
				tied = int(tr.Token)
			}
		}
		if want := int(request) % k; tied != want {
			t.Errorf("request %d stands for token %d, want %d", k+1+request, tied, want)
		}
	}
}

// "It forwards the token to its child in the distributed queue. If such a node
// does not exist, the token stays with node i." (Release CS)
func TestEarlyReleaseGoesToTheChild(t *testing.T) {
	m := machine(t, new(coordinator.Early), 1)
	acquire(t, m, 1)
	acquire(t, m, 2)
	if fx := release(t, m, 1); len(fx.Grants) != 1 || fx.Grants[0].Request != 2 || len(fx.Messages) != 0 {
		t.Errorf("grants %v, messages %v", fx.Grants, fx.Messages)
	}
	release(t, m, 2)
	if m.FreeHere() != 1 {
		t.Error("the token did not stay")
	}
}

// "In case this message is received when requesting_cs = false, node i will
// immediately forward the token to node r." (Process Child)
func TestEarlyIdleTokenGoesAtOnce(t *testing.T) {
	m := machine(t, new(coordinator.Early), 1)
	seat := kmutex.Seat{Node: 2, Serial: 9}
	fx := step(t, m, kmutex.Event{Kind: kmutex.EventReceive, From: 2, Message: &kmutex.Message{Kind: kmutex.KindRequest, Origin: 2, Seat: seat}})
	if len(fx.Messages) != 2 || fx.Messages[0].Message.Kind != kmutex.KindToken || fx.Messages[0].Message.Seat != seat ||
		fx.Messages[1].Message.Kind != kmutex.KindBaton {
		t.Errorf("messages %v, want the token and the baton", fx.Messages)
	}
}

// "Process Token": the request in the token's seat enters; if it has left, the token goes on.
func TestEarlyAbandonedSeatPassesTheToken(t *testing.T) {
	m := machine(t, new(coordinator.Early), 1)
	for request := range kmutex.Request(3) {
		acquire(t, m, request+1)
	}
	step(t, m, kmutex.Event{Kind: kmutex.EventCancel, Request: 2})
	if fx := release(t, m, 1); len(fx.Grants) != 1 || fx.Grants[0].Request != 3 {
		t.Errorf("grants %v, want request 3", fx.Grants)
	}
}

// Late binding keeps the counter: the next free token at or after it, in cyclic
// order, so that all tokens are used alike.
func TestLateTakesTheNextFreeToken(t *testing.T) {
	m := machine(t, new(coordinator.Late), 3)
	var got []kmutex.Token
	for request := range kmutex.Request(7) {
		fx := acquire(t, m, request+1)
		got = append(got, fx.Grants[0].Token)
		release(t, m, request+1)
	}
	for i, q := range got {
		if int(q) != i%3 {
			t.Fatalf("tokens %v, want them in turn", got)
		}
	}
}

// A request is bound when a token is free for it, and not before: the oldest request takes the
// token that comes back first.
func TestLateTiesTheOldestToWhatIsFreeFirst(t *testing.T) {
	m := machine(t, new(coordinator.Late), 2)
	for request := range kmutex.Request(4) {
		acquire(t, m, request+1)
	}
	if fx := release(t, m, 2); len(fx.Grants) != 1 || fx.Grants[0] != (kmutex.Grant{Request: 3, Token: 1, Serial: kmutex.MaxK + 2}) {
		t.Errorf("grants %v, want request 3 with token 1", fx.Grants)
	}
}

// The coordinator asks home once for each token that it lacks, and not for tokens that its own
// requests will give back.
func TestLateAsksOnce(t *testing.T) {
	m := kmutex.New(2, new(coordinator.Late))
	step(t, m, kmutex.Event{Kind: kmutex.EventInstall, Install: kmutex.Genesis(kmutex.EpochChange{Epoch: 1, K: 3, Home: 1}, 2)})
	acquire(t, m, 1)
	baton := kmutex.Message{Kind: kmutex.KindBaton, Number: 1, Batch: 1}
	baton.Free.Add(0)
	fx := step(t, m, kmutex.Event{Kind: kmutex.EventReceive, From: 1, Message: &baton})
	if len(fx.Grants) != 1 || len(fx.Messages) != 0 {
		t.Fatalf("with a free token: grants %v, messages %v", fx.Grants, fx.Messages)
	}
	if fx = acquire(t, m, 2); len(fx.Messages) != 1 || fx.Messages[0].Message.Kind != kmutex.KindLocate || fx.Messages[0].To != 1 {
		t.Errorf("out of tokens: messages %v, want locate", fx.Messages)
	}
	if fx = acquire(t, m, 3); len(fx.Messages) != 1 || fx.Messages[0].Message.Want != 1 {
		t.Errorf("a second one lacks: messages %v", fx.Messages)
	}
	if fx = acquire(t, m, 4); len(fx.Messages) != 0 {
		t.Errorf("all the others are asked for: messages %v", fx.Messages)
	}
}
