package cluster

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/demo"
)

// A socket that systemd has opened outlives a gateway: who connects meanwhile is served by the
// next one.
func TestSocketOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	_, upstream := ServeUpstream(t, demo.UpstreamConfig{Hold: demo.Distribution{Mean: time.Millisecond}, K: 1})
	var c net.ListenConfig
	c.SetMultipathTCP(false) // as systemd's
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		answered := make(chan error, 1)
		go func() { // it connects before the gateway is there
			res, err := client.Get("http://" + l.Addr().String())
			if err == nil && res.StatusCode != http.StatusOK {
				err = errors.New(res.Status)
			}
			if err == nil {
				err = res.Body.Close()
			}
			answered <- err
		}()
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", Binary(t), "serve", "--k=1", "--upstream="+upstream,
			"--listen-admin="+ReservePort(t), "--listen-peer="+ReservePort(t), "--listen-gossip="+ReservePort(t))
		cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(plainEnv(), "LISTEN_FDS=1", "LISTEN_FDNAMES=http"), []*os.File{file}, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
