package transport

import (
	"fmt"
	"slices"
)

// maxPayload bounds the size of one payload, and what all unfinished payloads
// from one peer may add up to.
const maxPayload = 64 << 20

const (
	// maxPayloads bounds how many payloads from one peer are unfinished.
	maxPayloads = 16
	// maxPayloadQueue bounds how many wait for one peer, those included.
	maxPayloadQueue = 1024
	// chunkSize bounds the bytes of a payload in one frame. A message waits for
	// one chunk at most before it is written.
	chunkSize = 32 << 10
	// payloadWindow bounds the bytes of payloads on their way: written, but not
	// yet read at the other end. So messages and pings, which share the
	// connection, queue behind no more than this in the kernel's buffers.
	payloadWindow = 1 << 20
	// paddingSize is longer than what any usual network carries in one packet:
	// 9000 bytes and a little.
	paddingSize = 9 << 10
)

// outPayload is a payload to be sent.
type outPayload struct {
	topic string
	size  int
	id    uint64 // 0: not offered to the peer yet
	rest  []byte // what is not written yet
	done  chan error
}

// outPayloads are the payloads that one connection sends. It has no lock.
type outPayloads struct {
	waiting []*outPayload // not offered yet, in the order of the calls
	// offered are those the peer knows of and has not taken yet. The first is
	// the next to have a chunk written.
	offered  []*outPayload
	dropped  []uint64 // abandoned, to be told to the peer
	bytes    int      // the sizes of offered
	inFlight int      // bytes written that the peer has not read
	lastID   uint64
}

func (o *outPayloads) add(p *outPayload) error {
	if n := len(o.waiting) + len(o.offered); n >= maxPayloadQueue {
		return fmt.Errorf("%w: %d payloads", errOverflow, n)
	}
	o.waiting = append(o.waiting, p)
	return nil
}

// padding appends a payload that is abandoned: packets of the greatest length. A network may
// lose those and let short ones through, such as pings; then nothing behind the first long
// packet arrives, either. So each connection begins with a padding and a ping in each
// direction. The answer to that ping shows that both paddings have arrived, because the peer
// writes its own before the answer. Until then the link is down. If there is no room for
// another payload, the payloads that are being sent do as well; the peer counts abandoned
// ones until it reads that they are.
func (o *outPayloads) padding(batch []byte) []byte {
	const size = paddingSize + 1 // it stays incomplete
	if len(o.dropped) > 0 || len(o.offered) == maxPayloads || o.bytes+size > maxPayload || o.inFlight+paddingSize > payloadWindow {
		return batch
	}
	o.lastID++
	o.inFlight += paddingSize
	batch = appendOffer(batch, o.lastID, size, "padding")
	batch = appendChunk(batch, o.lastID, make([]byte, paddingSize))
	return appendControl(batch, frameAbandon, o.lastID)
}

// abandon stops the sending of p. One that is wholly written counts until the
// peer has taken it.
func (o *outPayloads) abandon(p *outPayload) {
	if i := slices.Index(o.waiting, p); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
		return
	}
	if i := slices.Index(o.offered, p); i >= 0 && len(p.rest) > 0 {
		o.remove(i)
		o.dropped = append(o.dropped, p.id)
	}
}

func (o *outPayloads) remove(i int) {
	o.bytes -= o.offered[i].size
	o.offered = slices.Delete(o.offered, i, i+1)
}

// startable returns the place of the first payload that waits and may be
// offered now, one of a topic at a time; -1: none.
func (o *outPayloads) startable() int {
	if len(o.offered) == maxPayloads {
		return -1
	}
	for i, p := range o.waiting {
		if slices.ContainsFunc(o.offered, func(q *outPayload) bool { return q.topic == p.topic }) {
			continue
		}
		if o.bytes+p.size > maxPayload {
			break // smaller ones must not overtake it: it could wait for ever
		}
		return i
	}
	return -1
}

// next returns the payload to have a chunk written, or nil.
func (o *outPayloads) next() *outPayload {
	if o.inFlight >= payloadWindow {
		return nil
	}
	for _, p := range o.offered {
		if len(p.rest) > 0 {
			return p
		}
	}
	return nil
}

// pending reports whether there are payloads that the peer has not taken.
func (o *outPayloads) pending() bool { return len(o.waiting)+len(o.offered) > 0 }

// due reports whether take has something to write.
func (o *outPayloads) due() bool {
	return len(o.dropped) > 0 || o.startable() >= 0 || o.next() != nil
}

// take appends what there is to write to batch: at most one chunk.
func (o *outPayloads) take(batch []byte) []byte {
	for _, id := range o.dropped {
		batch = appendControl(batch, frameAbandon, id)
	}
	o.dropped = nil
	for i := o.startable(); i >= 0; i = o.startable() {
		p := o.waiting[i]
		o.waiting = slices.Delete(o.waiting, i, i+1)
		o.lastID++
		p.id = o.lastID
		o.bytes += p.size
		o.offered = append(o.offered, p)
		batch = appendOffer(batch, p.id, p.size, p.topic)
	}
	p := o.next()
	if p == nil {
		return batch
	}
	chunk := p.rest[:min(len(p.rest), chunkSize)]
	p.rest = p.rest[len(chunk):]
	o.inFlight += len(chunk)
	// The others are first now.
	i := slices.Index(o.offered, p)
	o.offered = append(slices.Delete(o.offered, i, i+1), p)
	return appendChunk(batch, p.id, chunk)
}

// read notes that the peer has read n bytes of chunks.
func (o *outPayloads) read(n uint64) error {
	if n > uint64(o.inFlight) {
		return fmt.Errorf("%w: %d bytes read, but %d are underway", errProtocol, n, o.inFlight)
	}
	o.inFlight -= int(n)
	return nil
}

// taken notes that the peer is done with a payload.
func (o *outPayloads) taken(id uint64, ok bool) error {
	i := slices.IndexFunc(o.offered, func(p *outPayload) bool { return p.id == id })
	switch {
	case i < 0 || len(o.offered[i].rest) > 0:
		return fmt.Errorf("%w: payload %d taken, which was not sent", errProtocol, id)
	case ok:
		o.offered[i].done <- nil
	default:
		o.offered[i].done <- errNotTaken
	}
	o.remove(i)
	return nil
}

// fail ends all with err.
func (o *outPayloads) fail(err error) {
	for _, p := range slices.Concat(o.waiting, o.offered) {
		p.done <- err
	}
	*o = outPayloads{}
}
