package membership

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/membership/raftfile"
	"github.com/kgate/kgate/internal/membership/views"
)

// machine feeds raft's log to a views.Machine and publishes its views.
type machine struct {
	logger *slog.Logger
	newest atomic.Pointer[View]
	// agreed is told of each entry that is committed; nil: nobody is.
	agreed func(raftfile.Position)

	mu      sync.Mutex
	views   views.Machine
	changed chan struct{} // closed and replaced with every new view, and by touch
}

var _ raft.FSM = (*machine)(nil)

func newMachine(logger *slog.Logger) *machine {
	m := &machine{logger: logger, changed: make(chan struct{})}
	m.newest.Store(m.views.View())
	return m
}

// Apply implements raft.FSM. What it returns is an error or nil.
func (m *machine) Apply(entry *raft.Log) any {
	if m.agreed != nil {
		m.agreed(raftfile.Position{Index: entry.Index, Term: entry.Term})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	followed := m.views.Broken() == nil
	changed, err := m.views.Apply(entry.Index, entry.Data)
	if changed {
		m.publish()
	}
	if broken := m.views.Broken(); broken != nil && followed {
		m.logger.Error("this gateway no longer follows the cluster's views", slog.Any("error", broken), slog.Uint64("index", entry.Index),
			slog.String("hint", "run the version of kgate that the other gateways run"))
	}
	if err != nil {
		return err
	}
	return nil
}

// publish makes the present state the newest view. The caller holds mu.
func (m *machine) publish() {
	v := m.views.View()
	m.newest.Store(v)
	close(m.changed)
	m.changed = make(chan struct{})
	m.logger.Debug("view changed", slog.Uint64("view", v.Number), slog.Int("members", len(v.Members)), slog.Int("pools", len(v.Pools)))
}

// touch wakes those that wait for a change, though the view is the same.
func (m *machine) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// changes returns the channel that the next change closes.
func (m *machine) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *machine) problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views.Broken()
}

// newestCheckpoint and compare are those of views.Machine.
func (m *machine) newestCheckpoint() views.Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views.Newest()
}

func (m *machine) compare(c views.Checkpoint) (same, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views.Compare(c)
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.views.Snapshot()
	if err != nil {
		return nil, err
	}
	return snapshot(data), nil
}

// maxSnapshot bounds what is read back: as many members and pools as package views takes, of the longest
// texts, escaped.
const maxSnapshot = 64 << 20

func (m *machine) Restore(from io.ReadCloser) error {
	data, err := io.ReadAll(io.LimitReader(from, maxSnapshot))
	if err = errors.Join(err, from.Close()); err != nil {
		return fmt.Errorf("membership: read snapshot: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.views.Restore(data); err != nil {
		return err
	}
	m.publish()
	return nil
}

// snapshot is an encoded state.
type snapshot []byte

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(fmt.Errorf("membership: write snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s snapshot) Release() {}
