package library

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kgate/kgate"
	ports "github.com/kgate/kgate/test/cluster"
)

// What programs have to write, and in how many lines (TestPrograms).

// limitedCall is a call with a slot: at most 6 lines.
func limitedCall(ctx context.Context, node *kgate.Node, call func(context.Context) error) error {
	return node.Do(ctx, "p", call)
}

// limitedClient is a client whose requests wait for slots: at most 5.
func limitedClient(node *kgate.Node) *http.Client {
	return &http.Client{Transport: node.Limit("p", nil)}
}

// runJobs runs each job with a slot: at most 8.
func runJobs(ctx context.Context, node *kgate.Node, jobs []func(context.Context) error) {
	var running sync.WaitGroup
	for i, job := range jobs {
		running.Go(func() {
			_ = node.Do(ctx, "p", job, kgate.Note(fmt.Sprint("job ", i)))
		})
	}
	running.Wait()
}

// TestProgramsAreShort counts the lines of what programs have to write.
func TestProgramsAreShort(t *testing.T) {
	for _, c := range []struct {
		file, function string
		most           int
	}{
		{"programs_test.go", "limitedCall", 6},
		{"programs_test.go", "limitedClient", 5},
		{"programs_test.go", "runJobs", 8},
		{"../../examples/hello/main.go", "main", 15},
		{"../../examples/kgrpc/kgrpc.go", "Unary", 8},
		{"../../examples/kgrpc/kgrpc.go", "Stream", 8},
	} {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, c.file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == c.function {
				lines = set.Position(f.Body.Rbrace).Line - set.Position(f.Body.Lbrace).Line - 1
			}
		}
		if lines < 1 || lines > c.most {
			t.Errorf("%s has %d lines, at most %d", c.function, lines, c.most)
		}
	}
}

// judge counts who is in at once.
type judge struct{ in, most atomic.Int32 }

func (j *judge) work(ctx context.Context) error {
	now := j.in.Add(1)
	defer j.in.Add(-1)
	for most := j.most.Load(); now > most && !j.most.CompareAndSwap(most, now); most = j.most.Load() {
	}
	time.Sleep(5 * time.Millisecond)
	return ctx.Err()
}

// TestPrograms runs them beside each other.
func TestPrograms(t *testing.T) {
	nodes := cluster(t, 2, 2)
	var upstream judge
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = upstream.work(r.Context())
		_, _ = io.WriteString(w, r.Header.Get("Kgate-Fence"))
	}))
	defer server.Close()
	var all sync.WaitGroup
	for _, n := range nodes {
		client := limitedClient(n)
		defer client.CloseIdleConnections()
		for range 8 {
			all.Go(func() {
				res, err := client.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if fence, err := io.ReadAll(res.Body); err != nil || len(fence) == 0 {
					t.Errorf("fence %q, %v", fence, err)
				}
			})
			all.Go(func() {
				if err := limitedCall(t.Context(), n, upstream.work); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			runJobs(t.Context(), n, []func(context.Context) error{upstream.work, upstream.work, upstream.work})
		})
	}
	all.Wait()
	if most := upstream.most.Load(); most != 2 {
		t.Errorf("%d at once, k is 2", most)
	}
	for _, n := range nodes {
		eventually(t, "all slots are back", func() bool { return n.Stats("p").InFlight == 0 })
	}
}

// TestHello runs the program hello as three processes.
func TestHello(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hello")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./examples/hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as all else is built, also where this test runs with the race detector
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var addrs []string
	for range 3 {
		addrs = append(addrs, ports.ReservePort(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range addrs {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, program, append([]string{addrs[i]}, addrs...)...)
			cmd.Env = os.Environ()
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello from "+addrs[i]+"\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
}
