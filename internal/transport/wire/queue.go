package wire

// queue holds whole frames that are to be written, in order.
type queue struct{ frames []byte }

// take appends frames to dst until that has limit bytes, one at least if dst is empty.
func (q *queue) take(dst []byte, limit int) []byte {
	n := 0
	for n < len(q.frames) {
		size := frameSize(q.frames[n:])
		if len(dst)+n > 0 && len(dst)+n+size > limit {
			break
		}
		n += size
	}
	dst = append(dst, q.frames[:n]...)
	switch rest := q.frames[n:]; {
	case len(rest) > 0:
		q.frames = rest
	case cap(q.frames) > keepBuffer:
		q.frames = nil
	default:
		q.frames = q.frames[:0]
	}
	return dst
}

// keepBuffer is how much memory an empty queue keeps.
const keepBuffer = 1 << 20
