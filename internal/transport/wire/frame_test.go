package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// bytesOf concatenates bytes, strings of bytes and numbers.
func bytesOf(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		case frameType:
			b = append(b, byte(p))
		case uint64:
			b = binary.AppendUvarint(b, p)
		}
	}
	return b
}

func TestDecoderRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		body []byte
		want error
	}{
		"empty":                {nil, ErrTruncated},
		"type 0":               {bytesOf(0), ErrRange},
		"type beyond the last": {bytesOf(typePadding + 1), ErrRange},
		"flag of an ack":       {bytesOf(typeAck|flagged, 1), ErrRange},
		"no channel":           {bytesOf(typeDatagram), ErrTruncated},
		"unknown channel":      {bytesOf(typeDatagram, int(channels), "x"), ErrRange},
		"call 0":               {bytesOf(typeCall, 0, 1, "c", 1, "b"), ErrRange},
		"call without name":    {bytesOf(typeCall, 1, 0, 1, "b"), ErrRange},
		"name too long":        {bytesOf(typeCall, 1, MaxName+1, strings.Repeat("c", MaxName+1), 0), ErrRange},
		"name truncated":       {bytesOf(typeCall, 1, 2, "c"), ErrTruncated},
		"body too long":        {bytesOf(typeCall, 1, 1, "c", uint64(MaxBody+1)), ErrRange},
		"body missing":         {bytesOf(typeCall, 1, 1, "c", 2, "b"), ErrRange},
		"body with more":       {bytesOf(typeCall, 1, 1, "c", 1, "bb"), ErrRange},
		"long body in a frame": {bytesOf(typeCall, 1, 1, "c", uint64(fragment+1), "b"), ErrRange},
		"answer to 0":          {bytesOf(typeAnswer, 0, 0, 0), ErrRange},
		"unknown status":       {bytesOf(typeAnswer, 1, int(statuses), 0), ErrRange},
		"cancel 0":             {bytesOf(typeCancel, 0), ErrRange},
		"credit too large":     {bytesOf(typeCredit, uint64(maxWindow+1)), ErrRange},
		"ping 0":               {bytesOf(typePing, 0), ErrRange},
		"pong without number":  {bytesOf(typePong), ErrTruncated},
		"ack, long form":       {bytesOf(typeAck, 0x81, 0x00), ErrNotMinimal},
		"ack, zero long":       {bytesOf(typeAck, 0x80, 0x00), ErrNotMinimal},
		"ack, above 64 bits":   {bytesOf(typeAck, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), ErrRange},
		"ack with more":        {bytesOf(typeAck, 1, 1), ErrTrailing},
		"link, truncated":      {bytesOf(typeLink, 1, 2, 3), ErrTruncated},
	} {
		var f frame
		if err := decode(tc.body, &f); !errors.Is(err, tc.want) || !errors.Is(err, ErrFrame) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
	}
}

// encode is what decode undoes, without the length.
func encode(f *frame) []byte {
	var b []byte
	kind := f.kind
	if f.flag {
		kind |= flagged
	}
	size := make([]byte, f.size)
	copy(size, f.data)
	switch f.kind {
	case typeMessage, typePadding:
		b = seal(append(open(nil, kind), f.data...), 0)
	case typeDatagram:
		b = seal(append(append(open(nil, kind), byte(f.channel)), f.data...), 0)
	case typeCall:
		b = appendCall(nil, f.id, string(f.name), size)
		b[lengthSize] = byte(kind)
	case typeData:
		b = appendData(nil, f.id, f.data)
	case typeAnswer:
		b = appendAnswer(nil, f.id, f.status, size)
	case typeCredit:
		b = appendNumbers(nil, f.kind, uint64(f.size))
	case typeLink:
		b = appendNumbers(nil, f.kind, f.link.self, f.link.peer, f.link.received, f.link.given)
	default:
		b = appendNumbers(nil, f.kind, f.id)
	}
	return b[lengthSize:]
}

// FuzzFrame: what the decoder accepts, the encoder makes, byte for byte.
func FuzzFrame(f *testing.F) {
	for _, b := range [][]byte{
		appendCall(nil, 3, "call/tickets", []byte("body")), appendCall(nil, 5, "link/pool", make([]byte, fragment+1)),
		appendData(nil, 7, []byte("data")), appendAnswer(nil, 4, StatusFailed, []byte("why")),
		appendDatagram(nil, Gossip, []byte("alive")), appendNumbers(nil, typeLink, 5, 7, 300, 2), appendNumbers(nil, typeCredit, 1<<20),
		appendNumbers(nil, typeCancel, 9), appendNumbers(nil, typePing, 300), appendNumbers(nil, typeAck, 0),
	} {
		f.Add(b[lengthSize:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxFrame {
			t.Skip("Receive does not let such a frame through")
		}
		var got frame
		if err := decode(body, &got); err != nil {
			if !errors.Is(err, ErrFrame) {
				t.Fatalf("error %v is not ErrFrame", err)
			}
			return
		}
		if again := encode(&got); !bytes.Equal(again, body) {
			t.Fatalf("%x was decoded as %+v, which is %x", body, got, again)
		}
	})
}

func TestHello(t *testing.T) {
	h := Hello{Name: "gw-1", Boot: "b", Addr: "10.0.0.1:7080", To: "gw-2", Number: 300, Saw: 2}
	b := h.Append(nil)
	n, err := HelloSize(b)
	if err != nil || n != len(b)-lengthSize {
		t.Fatalf("size %d, %v, of %d bytes", n, err, len(b))
	}
	if got, err := DecodeHello(b[lengthSize:]); err != nil || got != h {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for i := range n {
		if _, err := DecodeHello(b[lengthSize : lengthSize+i]); err == nil {
			t.Errorf("%d of %d bytes are accepted", i, n)
		}
	}
	for _, bad := range []Hello{{}, {Name: "gw-1"}, {Boot: "b"}} {
		if _, err := DecodeHello(bad.Append(nil)[lengthSize:]); !errors.Is(err, ErrFrame) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := HelloSize([]byte{0xff, 0xff}); !errors.Is(err, ErrOversized) {
		t.Errorf("a long one: %v", err)
	}
}

// FuzzHello: what is accepted of a hello is canonical, too.
func FuzzHello(f *testing.F) {
	f.Add(Hello{Name: "gw-1", Boot: "b", Number: 1}.Append(nil)[lengthSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := DecodeHello(b); err == nil && !bytes.Equal(h.Append(nil)[lengthSize:], b) {
			t.Fatalf("%x was decoded as %+v", b, h)
		}
	})
}
