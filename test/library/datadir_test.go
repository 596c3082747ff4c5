package library

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kgate/kgate"
)

// written is what a log has, for several goroutines.
type written struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Buffer.Write(p)
}

// TestOpenDataDir: a node says so when others can replace what it stores.
func TestOpenDataDir(t *testing.T) {
	for mode, told := range map[os.FileMode]bool{0o777: true, 0o700: false} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		var log written
		cluster(t, 1, 1, func(cfg *kgate.Config) { cfg.DataDir, cfg.Logger = dir, slog.New(slog.NewTextHandler(&log, nil)) })
		log.mu.Lock()
		if got := strings.Contains(log.String(), "other users of this machine can replace"); got != told {
			t.Errorf("mode %04o: told %v, want %v:\n%s", mode, got, told, log.String())
		}
		log.mu.Unlock()
	}
}
