package views

import "errors"

// Machine makes views of a log's entries. The zero value has seen none. It is used by
// one goroutine at a time; the views it returns may be read by any.
type Machine struct {
	state   state
	digests digests
	newest  *View
	broken  error // an entry of another version was met; nothing is applied any more
}

// Apply takes in the next entry. It reports whether there is a new view, and why the entry
// was refused if it was. After an entry of another version of kgate it refuses all:
// this one cannot know what the others make of it.
func (m *Machine) Apply(index uint64, data []byte) (changed bool, err error) {
	if m.broken != nil {
		return false, m.broken
	}
	m.digests.add(index, data)
	m.state.Applied = m.digests.newest()
	c, err := DecodeCommand(data)
	if err == nil {
		if changed, err = m.state.Apply(index, c); changed {
			m.newest = m.state.view()
		}
	}
	if errors.Is(err, ErrNewer) || errors.Is(err, errOlder) {
		m.broken = err
	}
	return changed, err
}

// View returns the newest view.
func (m *Machine) View() *View {
	if m.newest == nil {
		m.newest = m.state.view()
	}
	return m.newest
}

// Broken returns why no entry is applied any more; nil if they are.
func (m *Machine) Broken() error { return m.broken }

// Newest returns the digest of all entries that were applied.
func (m *Machine) Newest() Checkpoint { return m.digests.newest() }

// Compare reports whether the entries up to c are those that were applied here, and
// whether that can be told.
func (m *Machine) Compare(c Checkpoint) (same, known bool) { return m.digests.compare(c) }

// Snapshot returns the state in bytes.
func (m *Machine) Snapshot() ([]byte, error) {
	if m.broken != nil {
		return nil, m.broken
	}
	return m.state.Encode()
}

// Restore puts what Snapshot has returned in the place of the state.
func (m *Machine) Restore(data []byte) error {
	s, err := decodeState(data)
	if err != nil {
		return err
	}
	m.state, m.newest = s, s.view()
	m.digests = digests{kept: []Checkpoint{s.Applied}}
	return nil
}
