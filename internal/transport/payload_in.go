package transport

// inPayload is a payload that is coming in.
type inPayload struct {
	id    uint64
	topic string
	size  int
	data  []byte
}

// inPayloads are the payloads that one connection receives. Only the reader
// uses it, except for what is marked.
type inPayloads struct {
	open   map[uint64]*inPayload
	lastID uint64
	unread int // bytes read that the peer has not been told of
	// whole takes complete payloads to the goroutine that hands them on. It
	// never blocks: there is room for all that may be unfinished.
	whole chan *inPayload

	// Under link.mu: what the peer has offered and has not been told to be
	// taken.
	count, bytes int
	// Under link.mu: for the writer.
	readDue  int
	takenDue []takenPayload
}

type takenPayload struct {
	id uint64
	ok bool
}

func newInPayloads() inPayloads {
	return inPayloads{open: make(map[uint64]*inPayload), whole: make(chan *inPayload, maxPayloads)}
}

// due reports whether take has something to write.
func (in *inPayloads) due() bool { return in.readDue > 0 || len(in.takenDue) > 0 }

// take appends what the peer is to be told.
func (in *inPayloads) take(batch []byte) []byte {
	if in.readDue > 0 {
		batch = appendControl(batch, frameRead, uint64(in.readDue))
		in.readDue = 0
	}
	for _, t := range in.takenDue {
		batch = appendTaken(batch, t.id, t.ok)
	}
	in.takenDue = in.takenDue[:0]
	return batch
}

// add appends a chunk. Memory grows with what arrives, not with what was
// announced.
func (p *inPayload) add(chunk []byte) {
	if need := len(p.data) + len(chunk); need > cap(p.data) {
		grown := make([]byte, len(p.data), min(p.size, max(2*cap(p.data), need)))
		copy(grown, p.data)
		p.data = grown
	}
	p.data = append(p.data, chunk...)
}
