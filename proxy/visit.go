package proxy

import (
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// visit is what a request, a TCP connection and a request of Middleware have in common:
// when it came, what it asks the pool's line for, its slot, and its outcome.
type visit struct {
	snapshot *snapshot
	hold     hold
	spans    *spans // nil: it is not sampled
	rec      Record
	info     admission.RequestInfo // of the client's address from the beginning, of the rest when it is to wait
	failure  error                 // why the upstream gave no answer

	arrived time.Time
	entered bool  // it was admitted
	crowded bool  // there is no room for its head while it waits
	head    int32 // bytes that are counted while it waits
	prefer  int   // the preference "wait" that was honoured, -1 if none was

	standing uint64 // what Config.Standing said when it was admitted
}

// isDraining reports whether the gateway is being taken out of service.
func (v *visit) isDraining() bool { return v.snapshot.cfg.Draining != nil && v.snapshot.cfg.Draining() }

// waited notes that the wait is over.
func (v *visit) waited() { v.rec.Wait = time.Since(v.arrived) }

// timing returns what Server-Timing tells of the wait.
func (v *visit) timing() string {
	us := v.rec.Wait.Microseconds()
	b := append(make([]byte, 0, 48), `kgate;desc="queue";dur=`...)
	b = strconv.AppendInt(b, us/1000, 10)
	return string(append(b, '.', byte('0'+us/100%10), byte('0'+us/10%10), byte('0'+us%10)))
}

// admitted returns when the visit was admitted.
func (v *visit) admitted() time.Time { return v.arrived.Add(v.rec.Wait) }

// held notes for how long the visit had its slot.
func (v *visit) held() {
	if v.entered {
		v.rec.Hold = time.Since(v.admitted())
	}
}

// gaveUp says how the wait for an answer has ended that does not come. A slot of a ticket may be lost alone:
// its upstream was too slow.
func (v *visit) gaveUp() settling {
	if v.hold.aborted() == errLost {
		if now := v.snapshot.cfg.Standing(); now == 0 || now != v.standing {
			return settlingLost // the gateway may have another standing by now
		}
	}
	return settlingGaveUp
}
