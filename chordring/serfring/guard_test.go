package serfring

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/kgate/kgate/internal/inbound"
)

// pushPull is how a state begins.
type pushPull struct {
	Nodes, UserStateLen int
	Join                bool
}

func encoded(t testing.TB, kind byte, value any) []byte {
	t.Helper()
	b := bytes.NewBuffer([]byte{kind})
	if err := codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// announced is the head of an encrypted message of so many bytes.
func announced(size uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindEncrypt}, size)
}

// TestFlood: whoever connects, and claims and sends what memberlist would take in, makes
// the gateway neither grow nor go deaf.
func TestFlood(t *testing.T) {
	junk := make([]byte, 20<<20)
	for name, c := range map[string]struct {
		key  []byte
		head []byte
	}{
		"key, 20 MB":           {bytes.Repeat([]byte("k"), KeySize), announced(20 << 20)},
		"key, 4 MB":            {bytes.Repeat([]byte("k"), KeySize), announced(mostStream)},
		"key, small":           {bytes.Repeat([]byte("k"), KeySize), announced(smallStream)},
		"clear, many members":  {nil, encoded(t, kindPushPull, pushPull{Nodes: 1 << 20})},
		"clear, long state":    {nil, encoded(t, kindPushPull, pushPull{UserStateLen: 20 << 20})},
		"clear, most of state": {nil, encoded(t, kindPushPull, pushPull{Nodes: 100, UserStateLen: mostStream - 200<<10})},
		"silent":               {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			keyed := func(name string, join ...string) *Agent {
				conf := base(name, "1", join...)
				if c.key != nil {
					conf.Keys = [][]byte{c.key}
				}
				return start(t, conf)
			}
			a := keyed("a")
			stop := make(chan struct{})
			ended := make(chan int, 40)
			for range 40 {
				go func() { ended <- flood(a.Addr(), c.head, junk, stop) }()
			}
			var most uint64
			var m runtime.MemStats
			for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			// Meanwhile another gateway finds it.
			sees(t, keyed("b", a.Addr()), "a/1/alive", "b/1/alive")
			close(stop)
			times := 0
			for range 40 {
				times += <-ended
			}
			t.Logf("40 connections, opened %d times: %d MiB of heap at most", times, most>>20)
			if most > 200<<20 {
				t.Errorf("%d MiB of heap", most>>20)
			}
		})
	}
}

// flood connects again and again until stop, and returns how often.
func flood(addr string, head, junk []byte, stop <-chan struct{}) (times int) {
	for {
		select {
		case <-stop:
			return times
		case <-time.After(5 * time.Millisecond):
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		times++
		_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond))
		_, err = conn.Write(head)
		if err == nil && head != nil {
			_, _ = conn.Write(junk)
		}
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}
}

// FuzzStream: what the guard reads first is what memberlist reads first, and never more
// than the header.
func FuzzStream(f *testing.F) {
	for _, seed := range [][]byte{
		announced(10), announced(1 << 31),
		{},
		{kindPing, 0x80},
		{kindCompress},
		{244, 3, 'a', 'b', 'c'},
		encoded(f, kindPushPull, pushPull{Nodes: 3, UserStateLen: 70, Join: true}),
		encoded(f, kindPushPull, pushPull{Nodes: -1}),
		{kindPushPull, 0xdf, 0xff, 0xff, 0xff, 0xff},
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, keyed bool) {
		g := &guard{keyed: keyed}
		p := &inbound.Reader{In: bufio.NewReaderSize(bytes.NewReader(data), mostPrefix), Most: mostPrefix}
		size, err := g.length(p)
		if err == nil && (size < 0 || size > mostStream) {
			t.Errorf("%d bytes", size)
		}
		if !bytes.HasPrefix(data, p.Kept) || len(p.Kept) > mostPrefix {
			t.Errorf("read %x of %x", p.Kept, data)
		}
	})
}

// FuzzPacket: nothing compressed gets through, however it is wrapped.
func FuzzPacket(f *testing.F) {
	for _, seed := range [][]byte{
		{kindPing, 1},
		{kindCompress, 1},
		{kindCompound, 1, 0, 2, kindCompress, 0},
		{kindCRC, 0, 0, 0, 0, kindCompress},
		{kindCompound, 2, 0, 1, 0, 9, 1},
		{kindCompound, 255},
		bytes.Repeat([]byte{kindCRC, 0, 0, 0, 0}, 9),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bounded(data, 4) && len(data) > 0 && (data[0] == kindCompress || len(data) > 5 && data[0] == kindCRC && data[5] == kindCompress) {
			t.Errorf("%x gets through", data)
		}
	})
}

// pushNode is a member in a state, as memberlist encodes it.
type pushNode struct {
	Name        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Incarnation uint32
	State       int
	Vsn         []uint8
}

// FuzzPushPull: whoever exchanges states in the clear, of whatever members, leaves the
// gateway answering the next one.
func FuzzPushPull(f *testing.F) {
	a, err := Start(base("a", "1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = a.Close() })
	for end := time.Now().Add(time.Minute); len(a.Members()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("the agent does not see itself")
		}
	}
	vsn := []byte{1, 5, 2, 2, 5, 4}
	f.Add(1, "b", []byte{127, 0, 0, 1}, uint16(7946), []byte("\xff\x80"), uint32(1), 0, vsn, []byte("\x02\x80"))
	f.Add(0, "", []byte{}, uint16(0), []byte{}, uint32(0), 0, []byte{}, []byte{})
	f.Add(3, "a", []byte{127, 0, 0, 1}, uint16(7946), []byte{}, uint32(1<<31), 2, vsn, []byte{})
	f.Add(-1, "b", []byte{1}, uint16(1), bytes.Repeat([]byte("m"), 600), uint32(7), 9, []byte{0}, []byte("x"))
	f.Fuzz(func(t *testing.T, nodes int, name string, addr []byte, port uint16, meta []byte, incarnation uint32, state int, vsn, user []byte) {
		conn, err := net.Dial("tcp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		message := encoded(t, kindPushPull, pushPull{Nodes: nodes, UserStateLen: len(user)})
		for range min(max(nodes, 0), 20) {
			message = append(message, encoded(t, 0, pushNode{name, addr, port, meta, incarnation, state, vsn})[1:]...)
		}
		_, _ = conn.Write(append(message, user...))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		if members := a.Members(); len(members) > mostMembers || !slices.ContainsFunc(members, func(m Member) bool { return m.Name == "a" && m.Status == StatusAlive }) {
			t.Errorf("%d members", len(members))
		}
	})
}
