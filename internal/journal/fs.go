package journal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// FS is the file system of a [Journal]. Tests use slow, full and forgetful disks in its place.
type FS interface {
	// Open opens an existing file; the error wraps fs.ErrNotExist if there is none.
	Open(path string) (Handle, error)
	// Create makes an empty file, and replaces an existing one.
	Create(path string) (Handle, error)
	// Rename is on disk when it returns.
	Rename(from, to string) error
	Remove(path string) error
}

// Handle is an open file of an [FS].
type Handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// OS is the operating system's file system.
type OS struct{}

type osHandle struct{ *os.File }

func (h osHandle) Size() (int64, error) {
	info, err := h.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Open implements [FS]. No other process can open the file until it is closed.
func (OS) Open(path string) (Handle, error) {
	for {
		f, err := openLocked(path, os.O_RDWR)
		if err != nil {
			return nil, err
		}
		// The last owner may have replaced the file before it let the lock go.
		mine, err := f.Stat()
		now, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(mine, now) {
			return osHandle{f}, nil
		}
		if err = errors.Join(err, err2, f.Close()); err != nil {
			return nil, err
		}
	}
}

// Create implements [FS]. No other process can open the file until it is closed.
func (OS) Create(path string) (Handle, error) {
	f, err := openLocked(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osHandle{f}, nil
}

func openLocked(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Rename implements [FS].
func (OS) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Remove implements [FS].
func (OS) Remove(path string) error { return os.Remove(path) }
