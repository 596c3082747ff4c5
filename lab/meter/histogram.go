package meter

import (
	"math/bits"
	"time"
)

// Histogram counts times in buckets that grow with the time, so that a quantile
// is right to within 1 %. The zero value is empty.
type Histogram struct {
	buckets []uint64
	count   uint64
	sum     float64 // of seconds
	max     time.Duration
}

// Each power of two is cut into 1 << subBits buckets. The middle of a bucket is
// at most 0.4 % off.
const subBits = 7

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return shift<<subBits + int(v>>shift)
}

// middle returns the time in the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 1<<(subBits+1) {
		return time.Duration(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket-shift<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// Add counts one time.
func (h *Histogram) Add(d time.Duration) {
	b := bucketOf(d)
	if b >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]uint64, b+1-len(h.buckets))...)
	}
	h.buckets[b]++
	h.count++
	h.sum += d.Seconds()
	h.max = max(h.max, d)
}

// merge adds what o has counted.
func (h *Histogram) merge(o *Histogram) {
	if len(o.buckets) > len(h.buckets) {
		h.buckets = append(h.buckets, make([]uint64, len(o.buckets)-len(h.buckets))...)
	}
	for b, n := range o.buckets {
		h.buckets[b] += n
	}
	h.count += o.count
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// observations returns how many times were added.
func (h *Histogram) observations() uint64 { return h.count }

// Mean returns the exact mean.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.count) * float64(time.Second))
}

// Max returns the exact maximum.
func (h *Histogram) Max() time.Duration { return h.max }

// Spread returns the maximum less the mean.
func (h *Histogram) Spread() time.Duration { return h.max - h.Mean() }

// Quantile returns the time that a share q of the times do not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.count))
	var seen uint64
	for b, n := range h.buckets {
		if seen += n; seen > rank {
			return min(middle(b), h.max)
		}
	}
	return h.max
}
