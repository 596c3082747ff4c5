package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kgate/kgate/internal/transport/wire"
	"github.com/kgate/kgate/kmutex"
)

// examples has a message of each kind and form, with small and extreme values.
func examples() []kmutex.Message {
	seat := kmutex.Seat{Node: 7, Serial: 9}
	far := kmutex.Seat{Node: math.MaxUint64, Serial: math.MaxUint64}
	tails := make([]kmutex.Seat, maxTokens)
	for i := range tails {
		tails[i] = far
	}
	return []kmutex.Message{
		{Kind: kmutex.KindRequest, Epoch: 1, Origin: 3},
		{Kind: kmutex.KindRequest, Epoch: math.MaxUint64, Origin: math.MaxUint64, Hops: math.MaxUint32, Seat: far},
		{Kind: kmutex.KindBaton, Epoch: 1},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 300, Counter: 7, Free: kmutex.NewTokenSet(8), Excess: []uint32{5}, Serial: 300},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: math.MaxUint64, Counter: maxTokens - 1, Free: kmutex.NewTokenSet(maxTokens), Excess: []uint32{maxTokens, 0, 1}, Serial: math.MaxUint64},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 2, Tails: []kmutex.Seat{seat, {}, far}},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 2, Tails: tails},
		{Kind: kmutex.KindChild, Epoch: 1, Seat: seat, Child: far},
		{Kind: kmutex.KindToken, Epoch: 1},
		{Kind: kmutex.KindToken, Epoch: 1, Token: maxTokens - 1},
		{Kind: kmutex.KindToken, Epoch: 1, Token: 2, Seat: seat},
		{Kind: kmutex.KindToken, Epoch: 1, Token: 2, Seat: seat, Serial: math.MaxUint64},
		{Kind: kmutex.KindToken, Epoch: 1, Token: 2, Tag: []byte{0}},
		{Kind: kmutex.KindToken, Epoch: 1, Token: 2, Seat: seat, Serial: 3, Tag: make([]byte, MaxTag)},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 2, Free: kmutex.NewTokenSet(8), Tag: []byte("tag")},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 2, Tails: []kmutex.Seat{seat}, Tag: []byte("tag")},
		{Kind: kmutex.KindLocate, Epoch: 1, Number: 4, Holder: 5},
		{Kind: kmutex.KindLocate, Epoch: 1, Number: 4, Holder: 5, Want: maxTokens},
		{Kind: kmutex.KindBaton, Epoch: 1, Number: 300, Free: kmutex.NewTokenSet(8), Want: 2, Resting: []kmutex.Node{3, math.MaxUint64}},
		{Kind: kmutex.KindRecall, Epoch: 1, Holder: 5, Want: 1},
		{Kind: kmutex.KindRecall, Epoch: 1, Number: math.MaxUint64, Holder: 5, Want: maxTokens, Resting: make1000()},
		{Kind: kmutex.KindRequest, Epoch: 1, Origin: 3, Batch: math.MaxUint64},
		{Kind: kmutex.KindOffer, Epoch: 1},
		{Kind: kmutex.KindOffer, Epoch: 1, Free: kmutex.NewTokenSet(maxTokens), Batch: 300, Origin: 2, Other: 301, Changes: 3, Serial: math.MaxUint64, Tag: []byte("tag")},
		{Kind: kmutex.KindSkip, Epoch: 1, Batch: 300, Number: 7, Origin: 2, Other: 301, Changes: math.MaxUint64},
		{Kind: kmutex.KindTokens, Epoch: 1, Free: kmutex.NewTokenSet(1)},
		{Kind: kmutex.KindTokens, Epoch: 1, Free: kmutex.NewTokenSet(maxTokens), Number: math.MaxUint64, Want: 7, Hops: 2, Resting: []kmutex.Node{1}, Serial: 300, Tag: []byte("tag")},
	}
}

// make1000 returns a thousand nodes.
func make1000() []kmutex.Node {
	nodes := make([]kmutex.Node, 1000)
	for i := range nodes {
		nodes[i] = kmutex.Node(i + 1)
	}
	return nodes
}

func encode(tb rapid.TB, m kmutex.Message) []byte {
	tb.Helper()
	b, err := appendMessage(nil, "downloads", &m)
	if err != nil {
		tb.Fatalf("%v: %v", m, err)
	}
	return b
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range examples() {
		b := encode(t, m)
		var got kmutex.Message
		pool, err := decodeMessage(b, names{}, &got)
		if err != nil {
			t.Errorf("%v: %v", m.Kind, err)
			continue
		}
		if pool != "downloads" || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: decoded %q %+v, want %+v", m.Kind, pool, got, m)
		}
	}
}

// Tokens that were removed leave empty words behind: not on the wire.
func TestFreeTokensAreTrimmed(t *testing.T) {
	free := kmutex.NewTokenSet(200)
	for q := kmutex.Token(3); q < 200; q++ {
		free.Remove(q)
	}
	b := encode(t, kmutex.Message{Kind: kmutex.KindBaton, Epoch: 1, Free: free})
	var got kmutex.Message
	if _, err := decodeMessage(b, names{}, &got); err != nil {
		t.Fatal(err)
	}
	if want := kmutex.NewTokenSet(3); !reflect.DeepEqual(got.Free, want) {
		t.Errorf("free = %v, want %v", got.Free, want)
	}
}

func TestEncoderRefuses(t *testing.T) {
	ok := kmutex.Message{Kind: kmutex.KindToken, Epoch: 1}
	for _, pool := range []string{"", strings.Repeat("p", maxPool+1)} {
		if _, err := appendMessage(nil, pool, &ok); !errors.Is(err, errMessage) {
			t.Errorf("pool %q: error %v", pool, err)
		}
	}
}

// bytesOf concatenates bytes and strings of bytes.
func bytesOf(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case string:
			b = append(b, p...)
		case uint64:
			b = binary.AppendUvarint(b, p)
		}
	}
	return b
}

func TestDecoderRefuses(t *testing.T) {
	const (
		request, baton, child, tok, locate = 1, 2, 3, 4, 5
		recall, tokens                     = 6, 7
	)
	far := uint64(maxTokens)
	for name, tc := range map[string]struct {
		body []byte
		want error
	}{
		"empty":                {nil, wire.ErrTruncated},
		"no pool":              {bytesOf(0, tok, 1, 0, 0, 0), wire.ErrRange},
		"pool too long":        {bytesOf(maxPool+1, strings.Repeat("p", maxPool+1), tok, 1, 0, 0, 0), wire.ErrRange},
		"pool truncated":       {bytesOf(9, "p"), wire.ErrTruncated},
		"kind 0":               {bytesOf(1, "p", 0, 1), errKind},
		"kind 10":              {bytesOf(1, "p", 10, 1), errKind},
		"epoch 0":              {bytesOf(1, "p", tok, 0, 0, 0, 0), errEpoch},
		"trailing":             {bytesOf(1, "p", tok, 1, 0, 0, 0, 0), wire.ErrTrailing},
		"truncated":            {bytesOf(1, "p", tok, 1, 0, 0), wire.ErrTruncated},
		"origin 0":             {bytesOf(1, "p", request, 1, 0, 0, 0, 0), errNoNode},
		"hops above 32 bits":   {bytesOf(1, "p", request, 1, 1, 0, 0, uint64(1<<32)), wire.ErrRange},
		"serial 0":             {bytesOf(1, "p", request, 1, 1, 0, 1, 0, 0), wire.ErrRange},
		"counter out of range": {bytesOf(1, "p", baton, 1, 1, 1, far, 0, 0, 0), wire.ErrRange},
		"baton of form 2":      {bytesOf(1, "p", baton, 1, 1, 1, 0, 2, 0), wire.ErrRange},
		"free, last word 0":    {bytesOf(1, "p", baton, 1, 1, 1, 0, 0, 0, 2, 1, 0), wire.ErrNotMinimal},
		"free, too many":       {bytesOf(1, "p", baton, 1, 1, 1, 0, 0, 0, uint64(maxTokens/64+1), strings.Repeat("\x01", 1025)), wire.ErrRange},
		"free, count only":     {bytesOf(1, "p", baton, 1, 1, 1, 0, 0, 0, uint64(1024)), wire.ErrTruncated},
		"no tails":             {bytesOf(1, "p", baton, 1, 1, 1, 0, 1, 0), wire.ErrRange},
		"tails, too many":      {bytesOf(1, "p", baton, 1, 1, 1, 0, 1, far+1, strings.Repeat("\x00", maxTokens+1)), wire.ErrRange},
		"tails, count only":    {bytesOf(1, "p", baton, 1, 1, 1, 0, 1, far), wire.ErrTruncated},
		"serial without seat":  {bytesOf(1, "p", tok, 1, 0, 0, 1), errFields},
		"child of nobody":      {bytesOf(1, "p", child, 1, 0, 1, 1), errSeat},
		"no child":             {bytesOf(1, "p", child, 1, 1, 1, 0), errSeat},
		"token out of range":   {bytesOf(1, "p", tok, 1, far, 0, 0), wire.ErrRange},
		"tag of no bytes":      {bytesOf(1, "p", tok|tagged, 1, 0, 0, 0, 0), wire.ErrRange},
		"tag truncated":        {bytesOf(1, "p", tok|tagged, 1, 0, 0, 0, 2, 1), wire.ErrTruncated},
		"tag too long":         {bytesOf(1, "p", tok|tagged, 1, 0, 0, 0, uint64(MaxTag+1), strings.Repeat("t", MaxTag+1)), wire.ErrRange},
		"tag elsewhere":        {bytesOf(1, "p", locate|tagged, 1, 1, 1, 1, 0, 1, 1), errFields},
		"holder 0":             {bytesOf(1, "p", locate, 1, 1, 0, 1, 0), errNoNode},
		"names in locate":      {bytesOf(1, "p", locate, 1, 1, 1, 1, 1, 2), errFields},
		"recall of node 0":     {bytesOf(1, "p", recall, 1, 1, 1, 1, 1, 0), wire.ErrRange},
		"recall, count only":   {bytesOf(1, "p", recall, 1, 1, 1, 1, 9), wire.ErrTruncated},
		"too many wanted":      {bytesOf(1, "p", recall, 1, 1, 1, far+1, 0), wire.ErrRange},
		"tokens, last word 0":  {bytesOf(1, "p", tokens, 1, 1, 1, 2, 1, 0, 0, 0, 0), wire.ErrNotMinimal},
	} {
		var m kmutex.Message
		if _, err := decodeMessage(tc.body, names{}, &m); !errors.Is(err, tc.want) || !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
	}
}

// Every proper prefix of a message is refused: none is another message.
func TestDecoderRefusesPrefixes(t *testing.T) {
	for _, m := range examples() {
		body := encode(t, m)
		step := max(1, len(body)/60)
		for n := 0; n < len(body); n += step {
			var got kmutex.Message
			if _, err := decodeMessage(body[:n], names{}, &got); err == nil {
				t.Errorf("%v: the first %d of %d bytes were accepted", m.Kind, n, len(body))
			}
		}
	}
}

func drawMessage(t *rapid.T) kmutex.Message {
	node := rapid.Map(rapid.Uint64Min(1), func(v uint64) kmutex.Node { return kmutex.Node(v) })
	seat := rapid.Custom(func(t *rapid.T) kmutex.Seat {
		return kmutex.Seat{Node: node.Draw(t, "node"), Serial: rapid.Uint64Min(1).Draw(t, "serial")}
	})
	m := kmutex.Message{
		Kind:  rapid.SampledFrom([]kmutex.Kind{kmutex.KindRequest, kmutex.KindBaton, kmutex.KindChild, kmutex.KindToken, kmutex.KindLocate, kmutex.KindRecall, kmutex.KindTokens, kmutex.KindOffer, kmutex.KindSkip}).Draw(t, "kind"),
		Epoch: rapid.Uint64Min(1).Draw(t, "epoch"),
	}
	early := rapid.Bool().Draw(t, "early")
	switch m.Kind {
	case kmutex.KindRequest:
		m.Origin = node.Draw(t, "origin")
		m.Hops = rapid.Uint32().Draw(t, "hops")
		m.Batch = rapid.Uint64().Draw(t, "batch")
		if early {
			m.Seat = seat.Draw(t, "seat")
		}
	case kmutex.KindBaton:
		m.Number, m.Batch = rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "batch")
		m.Counter = rapid.Uint32Max(maxTokens-1).Draw(t, "counter")
		if early {
			m.Tails = rapid.SliceOfN(seat, 1, 20).Draw(t, "tails")
			break
		}
		m.Serial = rapid.Uint64().Draw(t, "serial")
		if n := rapid.IntRange(0, 3).Draw(t, "classes"); n > 0 {
			m.Excess = rapid.SliceOfN(rapid.Uint32Max(maxTokens), n, n).Draw(t, "excess")
		}
		drawDemand(t, &m)
		for _, q := range rapid.SliceOf(rapid.Int32Range(0, maxTokens-1)).Draw(t, "free") {
			m.Free.Add(kmutex.Token(q))
		}
	case kmutex.KindChild:
		m.Seat, m.Child = seat.Draw(t, "seat"), seat.Draw(t, "child")
	case kmutex.KindToken:
		m.Token = kmutex.Token(rapid.Int32Range(0, maxTokens-1).Draw(t, "token"))
		if early {
			m.Seat, m.Serial = seat.Draw(t, "seat"), rapid.Uint64().Draw(t, "serial")
		}
	case kmutex.KindLocate:
		m.Number, m.Holder = rapid.Uint64().Draw(t, "number"), node.Draw(t, "holder")
		m.Want = rapid.Uint32Max(maxTokens).Draw(t, "want")
	case kmutex.KindRecall:
		m.Number, m.Holder = rapid.Uint64().Draw(t, "number"), node.Draw(t, "holder")
		drawDemand(t, &m)
	case kmutex.KindTokens:
		m.Number, m.Serial = rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "serial")
		m.Hops = rapid.Uint32().Draw(t, "hops")
		m.Free.Add(kmutex.Token(rapid.Int32Range(0, maxTokens-1).Draw(t, "token")))
		drawDemand(t, &m)
	case kmutex.KindOffer:
		m.Batch, m.Serial = rapid.Uint64().Draw(t, "batch"), rapid.Uint64().Draw(t, "serial")
		m.Origin, m.Other = node.Draw(t, "origin"), rapid.Uint64().Draw(t, "other")
		m.Changes = rapid.Uint64().Draw(t, "changes")
		m.Free.Add(kmutex.Token(rapid.Int32Range(0, maxTokens-1).Draw(t, "token")))
	case kmutex.KindSkip:
		m.Batch, m.Number = rapid.Uint64().Draw(t, "batch"), rapid.Uint64().Draw(t, "number")
		m.Origin, m.Other = node.Draw(t, "origin"), rapid.Uint64().Draw(t, "other")
		m.Changes = rapid.Uint64().Draw(t, "changes")
	}
	return m
}

func drawDemand(t *rapid.T, m *kmutex.Message) {
	m.Want = rapid.Uint32Max(maxTokens).Draw(t, "want")
	for _, n := range rapid.SliceOfN(rapid.Uint64Min(1), 0, 20).Draw(t, "resting") {
		m.Resting = append(m.Resting, kmutex.Node(n))
	}
}

func TestAnyMessageRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		var got kmutex.Message
		if _, err := decodeMessage(encode(t, m), names{}, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("decoded %+v, want %+v", got, m)
		}
	})
}

// FuzzMessage: what the decoder accepts, the encoder makes, byte for byte.
func FuzzMessage(f *testing.F) {
	for _, m := range examples() {
		if b := encode(f, m); len(b) < 1000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > wire.MaxMessage {
			t.Skip("no such message comes")
		}
		var got kmutex.Message
		pool, err := decodeMessage(body, names{}, &got)
		if err != nil {
			if !errors.Is(err, wire.ErrFrame) {
				t.Fatalf("error %v is not ErrFrame", err)
			}
			return
		}
		again, err := appendMessage(nil, pool, &got)
		if err != nil {
			t.Fatalf("%+v was decoded but cannot be encoded: %v", got, err)
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("%x was decoded as %+v, which is %x", body, got, again)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	pools := make(names)
	for i := range 3 * maxNames {
		b := binary.BigEndian.AppendUint32(nil, uint32(i))
		if got := pools.get(b); got != string(b) {
			t.Fatalf("get(%q) = %q", b, got)
		}
	}
	if len(pools) > maxNames {
		t.Errorf("%d names kept, want at most %d", len(pools), maxNames)
	}
}
