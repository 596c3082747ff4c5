package membership

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/membership/leader"
	"github.com/kgate/kgate/internal/membership/lease"
	"github.com/kgate/kgate/internal/membership/views"
	"github.com/kgate/kgate/kmutex"
)

type renewalResult struct {
	renewal lease.Renewal
	err     error
}

// leaseHolder renews this gateway's lease with the leader.
type leaseHolder struct {
	*raftNode
	incarnation *incarnation
	peers       *peerClient
	leaders     *leaderWatch
	leases      *leaseServer // if this gateway leads
}

// run keeps the lease while the cluster runs: it follows the views, sends
// renewals, and notices when the lease has lapsed. When one is not answered for a
// third of the lease, another goes out beside it, over another connection: the answer
// may be late, or the connection dead.
func (h *leaseHolder) run() {
	answers := make(chan renewalResult, lease.Outstanding)
	asking := 0
	var asked time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	announced := h.config.Boot
	for {
		changed := h.Changed()
		v := h.View()
		if h.incarnation.follow(v, h.config.Name, v.Terms()) {
			h.standingChanged()
		}
		wait := h.announce(&announced)
		patience := time.Until(asked.Add(v.Lease / 3))
		switch {
		case asking == 0, asking < lease.Outstanding && patience <= 0:
			renewal, due, next := h.incarnation.renewal()
			if due {
				asking++
				asked = time.Now()
				h.wg.Go(func() { answers <- renewalResult{renewal, h.sendRenewal(v, renewal)} })
			}
			wait = min(wait, next)
		case asking < lease.Outstanding:
			wait = min(wait, patience)
		}
		if v.Lease > 0 {
			wait = min(wait, v.Lease/6) // the machine may have slept
		}
		timer.Reset(wait)
		select {
		case <-h.closing.Done():
			return
		case <-changed:
		case <-timer.C:
		case a := <-answers:
			asking--
			if h.incarnation.answered(a.renewal, a.err) {
				h.standingChanged()
			}
		}
	}
}

func (h *leaseHolder) standingChanged() {
	s := *h.incarnation.standing.Load()
	if node := slog.Uint64("node", uint64(s.Node)); s.Until.IsZero() {
		h.config.Logger.Debug("no lease", node) // why is logged by who ends what the lease was for
	} else {
		h.config.Logger.Info("lease granted", node)
	}
	h.machine.touch()
}

// announce has gossip carry the boot of a new incarnation, and returns when to
// try again if it could not.
func (h *leaseHolder) announce(announced *string) time.Duration {
	boot, _ := h.incarnation.current()
	if boot == *announced {
		return time.Hour
	}
	if err := h.config.Discovery.SetBoot(boot); err != nil {
		h.config.Logger.Warn("gossip does not carry the new incarnation yet", slog.Any("error", err))
		return 10 * soon
	}
	*announced = boot
	return 0
}

// sendRenewal asks the leader for one more lease.
func (h *leaseHolder) sendRenewal(v *View, r lease.Renewal) error {
	ctx, cancel := context.WithTimeout(h.closing, renewTimeout(v.Lease))
	defer cancel()
	p := renewalRequest{r, leader.Report{
		View: v.Number,
		Down: complaints(h.config.Links.Down(), leader.DownAfter(v.Terms())), Missing: complaints(h.config.Missing(), leader.MissingAfter(v.Terms())),
	}}
	now := &renewal{h.leaderID(), h.raft.CurrentTerm(), time.Now()}
	if now.to == h.storage.meta.Server {
		return h.leases.ask(ctx, p)
	}
	to, ok := h.addresses.to(now.to)
	if now.to == "" || !ok {
		return errNoLeader
	}
	if !h.leaders.asked.Load().of(now.to, now.term) {
		h.leaders.asked.Store(now)
	}
	h.wg.Go(func() { h.leaders.whileLed(ctx, now.to, cancel) })
	var a renewalAnswer
	if err := h.peers.call(ctx, http.MethodPost, to, pathLease, p, &a); err != nil {
		return err
	}
	switch {
	case a.Lost:
		h.leaders.asked.Store(nil)
		return errNotMember
	case !a.Granted:
		return fmt.Errorf("membership: renewal: %s says nothing", to.Addr)
	case h.differs(a.Applied):
		return errDiffers
	default:
		if last := h.leaders.renewed.Load(); last == nil || last.sent.Before(now.sent) {
			h.leaders.renewed.Store(now) // two at once: either will do
		}
		return nil
	}
}

// differs compares what this gateway has applied with what its leader has. A defect, or a disk that
// has lost what it had taken, can give them different entries, and each would go on with its
// own k. Then this gateway ends.
func (h *leaseHolder) differs(applied views.Checkpoint) bool {
	same, known := h.machine.compare(applied)
	if !known || same {
		return false
	}
	h.config.Logger.Error("this gateway's state is not what the others have agreed on", slog.Uint64("index", applied.Index),
		slog.String("remedy", "move its data_dir away and start it again"))
	h.fail(fmt.Errorf("%w: entry %d", errDiffers, applied.Index))
	return true
}

// complaints returns the nodes whose trouble has lasted for d, in ascending order.
func complaints(since map[kmutex.Node]time.Time, d time.Duration) []kmutex.Node {
	now := time.Now()
	var nodes []kmutex.Node
	for node, at := range since {
		if now.Sub(at) >= d {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes[:min(len(nodes), maxComplaints)]
}
