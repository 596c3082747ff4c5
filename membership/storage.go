package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	bolterrors "go.etcd.io/bbolt/errors"
)

// dataFormat is the version of the data directory.
const dataFormat = 2

// meta says to whom a data directory belongs.
type meta struct {
	Format  int    `json:"format"`
	Name    string `json:"name"`
	Server  string `json:"server"`
	Cluster string `json:"cluster"`
}

// storage is where a gateway keeps its share of the log: on disk, or in
// memory for as long as the process lives.
type storage struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	// fresh: nothing was ever written here.
	fresh bool
	meta  meta
	bolt  *boltStore // nil in memory
}

// openStorage opens the directory, or memory if there is none. A fresh
// storage takes the server id offered; another one keeps its own.
func openStorage(dir, name, server string, logger hclog.Logger) (*storage, error) {
	want := meta{Format: dataFormat, Name: name, Server: server}
	if dir == "" {
		memory := raft.NewInmemStore()
		return &storage{logs: memory, stable: memory, snapshots: raft.NewInmemSnapshotStore(), fresh: true, meta: want}, nil
	}
	s, err := openDir(dir, want, logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w%s", ErrDataDir, dir, err, advice(err))
	}
	return s, nil
}

func openDir(dir string, want meta, logger hclog.Logger) (_ *storage, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	bolt, err := openBolt(filepath.Join(dir, "kgate.db"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bolt.close())
		}
	}()
	// Reading keeps raft from noticing a newer format on its own terms.
	have, err := bolt.get(bucketMeta, bucketMeta)
	if err != nil {
		return nil, err
	}
	s := &storage{logs: bolt, stable: bolt, bolt: bolt, meta: want}
	if len(have) > 0 {
		if s.meta, err = checkMeta(have, want); err != nil {
			return nil, err
		}
	}
	s.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, 2, logger)
	if err != nil {
		return nil, err
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
		return meta{}, fmt.Errorf("damaged: %w", err)
	}
	if m.Format > dataFormat {
		return meta{}, fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, m.Format, dataFormat)
	}
	if m.Format < dataFormat {
		return meta{}, fmt.Errorf("%w: format %d, this one writes %d", ErrOlder, m.Format, dataFormat)
	}
	if m.Name != want.Name {
		return meta{}, fmt.Errorf("it belongs to the gateway %q, this one is %q: "+
			"give each gateway a data_dir of its own, or go back to the old name", m.Name, want.Name)
	}
	return m, nil
}

// setCluster records the cluster that the gateway belongs to.
func (s *storage) setCluster(cluster string) error {
	s.meta.Cluster = cluster
	return s.save()
}

func (s *storage) save() error {
	if s.bolt == nil {
		return nil
	}
	data, err := json.Marshal(s.meta)
	if err != nil {
		return err
	}
	return s.bolt.put(bucketMeta, bucketMeta, data)
}

func (s *storage) close() error {
	if s.bolt == nil {
		return nil
	}
	if err := s.bolt.close(); err != nil {
		return fmt.Errorf("membership: close data_dir: %w", err)
	}
	return nil
}

// advice says what to do about an error of the data directory.
func advice(err error) string {
	switch {
	case errors.Is(err, ErrNewer):
		return "; run the newer version, or move the directory away to start afresh"
	case errors.Is(err, ErrOlder):
		return "; move the directory away: the gateway then joins as a new one"
	case errors.Is(err, bolterrors.ErrTimeout):
		return "; another kgate has it open: give each gateway a data_dir of its own"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return "; the user that runs kgate must be able to write there"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EISDIR):
		return "; data_dir must be a directory that is empty or was written by kgate"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; the disk is full"
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrFreePagesNotLoaded),
		strings.Contains(err.Error(), "damaged"), strings.Contains(err.Error(), "file size too small"):
		return "; the file is damaged or not kgate's: move the directory away, the gateway then joins as a new one"
	default:
		return ""
	}
}

// loudStore tells of entries that could not be written. Raft itself only logs
// that, and goes on without them.
type loudStore struct {
	raft.LogStore
	failed func(error)
}

// StoreLog implements raft.LogStore.
func (s loudStore) StoreLog(log *raft.Log) error { return s.tell(s.LogStore.StoreLog(log)) }

// StoreLogs implements raft.LogStore.
func (s loudStore) StoreLogs(logs []*raft.Log) error { return s.tell(s.LogStore.StoreLogs(logs)) }

func (s loudStore) tell(err error) error {
	if err != nil {
		s.failed(err)
	}
	return err
}
