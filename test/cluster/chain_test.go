package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/timing"
)

// TestChainOfJoinLists starts five gateways at once, each told of the next one
// only. They have to find each other across whatever pairs meet first.
func TestChainOfJoinLists(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	const (
		size  = 5
		bound = 5 * time.Second
	)
	rounds := 2
	if Soak() {
		rounds = 20
	}
	binary := Binary(t)
	_, url := serve(t, &http.Server{Handler: http.NotFoundHandler()})
	for round := range rounds {
		peers := make([]string, size)
		for i := range peers {
			peers[i] = ReservePort(t)
		}
		began := time.Now()
		var all []*Process
		for i := range size {
			args := []string{
				"serve", "--upstream", url, "--k", "3", "--name", fmt.Sprintf("gw-%d", i+1),
				"--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--listen-peer", peers[i],
				"--bootstrap-expect", fmt.Sprint(size),
			}
			if i+1 < size {
				args = append(args, "--join", peers[i+1])
			}
			all = append(all, StartProcess(t, binary, args...))
		}
		var errs []error
		for i, p := range all {
			_, err := p.AwaitRecord("ready")
			if err != nil {
				err = fmt.Errorf("gw-%d: %w", i+1, err)
			}
			errs = append(errs, err)
		}
		whole := time.Since(began)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		timing.Within(t, fmt.Sprintf("round %d: all ready", round+1), whole, bound)
		for _, p := range all {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
}
