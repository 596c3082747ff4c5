package cluster

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// A gateway whose standard error is a full pipe that nobody reads starts, keeps its
// lease, serves, and ends when it is told to.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	_, url := ServeUpstream(t, &demo.Upstream{Hold: time.Millisecond})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(strings.Repeat("x", 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	clients := ReservePort(t)
	cmd := exec.Command(Binary(t), "serve", "--name=gw", "--k=1", "--upstream="+url, "--log-level=debug",
		"--listen-http="+clients, "--listen-admin="+ReservePort(t), "--listen-peer="+ReservePort(t))
	cmd.Stderr, cmd.Env = w, plainEnv()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	client := http.Client{Timeout: time.Second}
	served := 0
	for end := time.Now().Add(patience); served < 40 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // longer than a lease
		if answer, err := client.Get("http://" + clients + "/"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				served++
			}
		}
	}
	if served < 40 {
		t.Errorf("%d requests served in %v", served, patience)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}
