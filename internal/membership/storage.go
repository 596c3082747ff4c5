package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/membership/raftfile"
)

// errDiffers means that this gateway's state is not what the others have agreed on.
var errDiffers = errors.New("this gateway's state is not what the others have agreed on")

// errBehind means that this gateway has lost what was agreed on.
var errBehind = errors.New("this gateway has lost what was agreed on")

// dataFile is the file of a data directory that package raftfile writes.
const dataFile = "kgate.db"

// meta says to whom a data directory belongs.
type meta struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Cluster string `json:"cluster"`
	// Tickets is the mark of the tickets that are kept in this directory, too.
	Tickets string `json:"tickets_mark,omitempty"`
}

// storage is where a gateway keeps its share of the log: on disk, or in
// memory for as long as the process lives.
type storage struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	// fresh: nothing was ever written here.
	fresh bool
	file  *raftfile.File // nil in memory

	mu   sync.Mutex // guards what of meta may change
	meta meta       // Name and Server stay
	// bootstrapped is the configuration with which this process has begun a cluster.
	bootstrapped []bootstrapServer
}

// openStorage opens the directory, or memory if there is none. A fresh
// storage takes the server id offered; another one keeps its own.
func openStorage(dir, name, server string, options raftfile.Options) (*storage, error) {
	want := meta{Name: name, Server: server}
	if dir == "" {
		memory := raft.NewInmemStore()
		return &storage{logs: memory, stable: memory, snapshots: raft.NewInmemSnapshotStore(), fresh: true, meta: want}, nil
	}
	s, err := openDir(dir, want, options)
	if err != nil {
		return nil, dirError(dir, err)
	}
	return s, nil
}

// dirError says which directory cannot be used, why, and what to do.
func dirError(dir string, err error) error {
	return fmt.Errorf("%w: %s: %w%s", errDataDir, dir, err, advice(err))
}

func openDir(dir string, want meta, options raftfile.Options) (_ *storage, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := raftfile.Open(filepath.Join(dir, dataFile), options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	s := &storage{logs: file, stable: file, snapshots: file, file: file, meta: want}
	if note := file.Note(); note != nil {
		if s.meta, err = checkMeta(note, want); err != nil {
			return nil, err
		}
	}
	used, err := raft.HasExistingState(s.logs, s.stable, s.snapshots)
	if err != nil {
		return nil, err
	}
	if s.fresh = !used; s.fresh {
		// The gateway may have ended between the first start and its first
		// vote: others know it by its present boot, if at all.
		s.meta = want
	}
	return s, s.save()
}

func checkMeta(data []byte, want meta) (meta, error) {
	var m meta
	if err := json.Unmarshal(data, &m); err != nil {
		return meta{}, fmt.Errorf("%w: %w", journal.ErrDamaged, err)
	}
	if m.Name != want.Name {
		return meta{}, fmt.Errorf("it belongs to the gateway %q, this one is %q: "+
			"give each gateway a data_dir of its own, or go back to the old name", m.Name, want.Name)
	}
	return m, nil
}

// clusterID returns the cluster that the gateway belongs to, "" if none yet.
func (s *storage) clusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta.Cluster
}

// ticketsMark returns what setTicketsMark has recorded, empty if nothing.
func (s *storage) ticketsMark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta.Tickets
}

// setCluster records the cluster that the gateway belongs to. The caller holds mu.
func (s *storage) setCluster(cluster string) error {
	s.meta.Cluster = cluster
	return s.save()
}

// setTicketsMark records the mark of the tickets in the directory.
func (s *storage) setTicketsMark(mark string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta.Tickets = mark
	return s.save()
}

func (s *storage) save() error {
	if s.file == nil {
		return nil
	}
	data, err := json.Marshal(s.meta)
	if err != nil {
		return err
	}
	return s.file.SetNote(data)
}

func (s *storage) close() error {
	if s.file == nil {
		return nil
	}
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("membership: close data_dir: %w", err)
	}
	return nil
}

// flush has everything on disk that must be before a message leaves.
func (s *storage) flush() error {
	if s.file == nil {
		return nil
	}
	return s.file.Flush()
}

// advice says what to do about an error of the data directory.
func advice(err error) string {
	switch {
	case errors.Is(err, errDiffers):
		return "; it has a defect, or its disk has lost what it had taken: move its data_dir away, it then joins as a new one"
	case errors.Is(err, raftfile.ErrContradiction), errors.Is(err, errBehind):
		return "; do not put old copies of a data_dir back: move the directory away from each gateway that has an old one, it then joins as a new one"
	default:
		return journal.Remedy(err, "the directory away: the gateway then joins as a new one")
	}
}

// voted returns the server that this gateway has voted for last, and in which term.
func (s *storage) voted() (server string, term uint64) {
	term, err := s.stable.GetUint64([]byte(raftfile.KeyVoteTerm))
	if err != nil {
		return "", 0
	}
	candidate, err := s.stable.Get([]byte(raftfile.KeyVoteCandidate))
	if err != nil {
		return "", 0
	}
	_, server = splitAddress(raft.ServerAddress(candidate))
	return server, term
}

// bootstrapServer is a server of the configuration with which a cluster starts.
type bootstrapServer struct {
	Server string `json:"server"`
	Addr   string `json:"addr"`
	Voter  bool   `json:"voter"`
}
