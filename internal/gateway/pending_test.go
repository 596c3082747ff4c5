package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/transport"
	"github.com/kgate/kgate/kmutex"
)

// A pool that no view explains is refused until it is forgotten, not just once.
func TestPendingPoolStaysRefused(t *testing.T) {
	var p pendingMessages
	now := time.Now()
	put := func(after time.Duration, pool string) error {
		return p.put(now.Add(after), 2, pool, kmutex.Message{Kind: kmutex.KindToken})
	}
	if err := errors.Join(put(0, "new"), put(pendingFor, "new"), put(pendingFor, "other")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := put(pendingFor+1, "new"); !errors.Is(err, admission.ErrUnknownPool) {
			t.Errorf("after %v: %v", pendingFor, err)
		}
	}
	if got := p.take("new"); got != nil {
		t.Errorf("%d messages, although others were refused", len(got))
	}
	if got := p.take("other"); len(got) != 1 || p.count != 0 || p.bytes != 0 || len(p.pools) != 0 {
		t.Errorf("%d messages; left: %+v", len(got), p)
	}
	_ = put(0, "new")
	if err := put(pendingForget+1, "new"); err != nil {
		t.Errorf("forgotten after %v, and %v", pendingForget, err)
	}
}

// What is kept has bounds: messages, their bytes, pools.
func TestPendingBounds(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		m    kmutex.Message
		pool func(n int) string
		most int
	}{
		"messages": {kmutex.Message{}, func(int) string { return "new" }, pendingLimit},
		"bytes":    {kmutex.Message{Tails: make([]kmutex.Seat, 1<<16)}, func(int) string { return "new" }, pendingBytes >> 20},
		"pools":    {kmutex.Message{}, func(n int) string { return fmt.Sprint(n) }, pendingPools},
	} {
		var p pendingMessages
		n := 0
		for n <= pendingLimit && p.put(now, 2, c.pool(n), c.m) == nil {
			n++
		}
		if n > c.most || n < c.most*9/10 {
			t.Errorf("%s: %d are kept, want about %d", name, n, c.most)
		}
		if err := p.put(now.Add(pendingForget+1), 2, "later", c.m); err != nil {
			t.Errorf("%s: later: %v", name, err)
		}
	}
}

// A letter about a pool that no view has explained here yet is not refused for good: it is sent again.
func TestLetterBeforeItsPool(t *testing.T) {
	if err := new(Gateway).ReceivePayload(2, poolTopic+"new", []byte("{}")); !errors.Is(err, transport.ErrNotYet) {
		t.Error(err)
	}
}
