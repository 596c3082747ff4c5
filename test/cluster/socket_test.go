package cluster

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A socket that systemd has opened outlives a gateway: who connects when there is none, or one
// that ends, is served by the next one.
func TestSocketOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 2), make(chan struct{})
	_, _, upstream := NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			entered <- struct{}{}
			<-release
		}
	}))
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
	ask := func(path string) <-chan error {
		answered := make(chan error, 1)
		go func() {
			res, err := client.Get("http://" + l.Addr().String() + path)
			if err == nil && res.StatusCode != http.StatusOK {
				err = errors.New(res.Status)
			}
			if err == nil {
				err = res.Body.Close()
			}
			answered <- err
		}()
		return answered
	}
	early := ask("/")
	for round := range 2 {
		admin, log := ReservePort(t), newLog()
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", Binary(t), "serve", "--k=2", "--upstream="+upstream,
			"--listen-admin="+admin, "--listen-peer="+ReservePort(t))
		cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(plainEnv(), "LISTEN_FDS=1", "LISTEN_FDNAMES=http"), []*os.File{file}, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := <-early; err != nil {
			t.Errorf("who connected before gateway %d: %v", round, err)
		}
		long := ask("/long")
		select {
		case <-entered:
		case err := <-long:
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := Await(t.Context(), func() error {
			res, err := client.Get("http://" + admin + "/readyz")
			if err == nil && res.StatusCode == http.StatusOK {
				err = errors.New("it does not end")
			}
			if res != nil {
				_ = res.Body.Close()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		early = ask("/") // it connects to a gateway that ends
		release <- struct{}{}
		if err := <-long; err != nil {
			t.Errorf("who was served when gateway %d ended: %v", round, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v:\n%s", err, log.Tail(20))
		}
		if len(log.Records("requests were aborted")) > 0 {
			t.Errorf("it says that requests were aborted:\n%s", log.Tail(20))
		}
	}
}
