package membership

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"

	"github.com/kgate/kgate/internal/membership/core"
	"github.com/kgate/kgate/internal/transport"
)

// Who is at the other end of a connection is one process, which speaks for no other; what is no message
// is refused, and said once.
func TestSpeaksForItself(t *testing.T) {
	var log bytes.Buffer
	var events []any
	c := NewCarrier()
	c.begin(1, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(e any) { events = append(events, e) })
	say := func(name string, id uint64, what string) {
		c.take(name, 0, append(binary.BigEndian.AppendUint64(nil, id), what...))
	}
	const knocks = `{"knocks":{"name":"x"}}`
	expect := func(what string, want int) {
		t.Helper()
		if len(events) != want {
			t.Errorf("%s: %d events, want %d: %+v", what, len(events), want, events)
		}
		events = nil
	}
	say("b", 7, knocks)
	expect("without a connection", 0)
	c.Changed(transport.Change{Name: "b", Up: true})
	c.Changed(transport.Change{Name: "c", Up: true})
	say("b", 7, "")
	expect("it is connected", 1)
	say("b", 7, knocks)
	expect("a message", 1)
	say("c", 7, knocks)
	say("c", 1, knocks)
	say("c", 0, knocks)
	expect("in the name of another, of this one, of nobody", 0)
	for range 3 {
		say("b", 7, "nonsense")
		c.take("b", 0, []byte("short"))
	}
	expect("nonsense", 0)
	if n := strings.Count(log.String(), "gateway is refused"); n != 1 {
		t.Errorf("said %d times", n)
	}
	say("b", 8, knocks) // it has been started again
	if len(events) != 3 {
		t.Fatalf("another process: %+v", events)
	}
	if gone, is := events[0].(core.Disconnected); !is || gone.From != 7 {
		t.Errorf("%+v", events[0])
	}
	events = nil
	c.Changed(transport.Change{Name: "b"})
	expect("it ends", 1)
}
