package kgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/kgate/kgate"
)

// A semaphore over machines. Each runs a node; here there is one, on its own.
func Example() {
	ctx := context.Background()
	node, err := kgate.Start(ctx, kgate.Config{
		Name: "machine-1",
		// On three machines: Join: []string{"10.0.0.2:7080", "10.0.0.3:7080"}, Expect: 3,
		// and the Key that `kgate keygen` has made for all of them.
		Pools: []kgate.Pool{{Name: "licences", K: 4}},
	})
	if err != nil {
		log.Fatal(err)
	}

	err = node.Do(ctx, "licences", func(ctx context.Context) error { // waits in line as long as ctx
		fmt.Println("my turn:", ctx.Err() == nil) // ctx ends when the slot is lost
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: my turn: true
}

// A router of which one part is behind a pool.
func ExampleNode_Middleware() {
	ctx := context.Background()
	node, err := kgate.Start(ctx, kgate.Config{
		Name:  "web-1",
		Pools: []kgate.Pool{{Name: "reports", K: 2, QueueTimeout: 30 * time.Second}},
	})
	if err != nil {
		log.Fatal(err)
	}

	if err := node.Ready(ctx); err != nil { // until then Middleware refuses
		log.Fatal(err)
	}
	router := chi.NewRouter()
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") })
	router.With(node.Middleware("reports")).Get("/report", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "in flight: %d", node.Stats("reports").InFlight) // r.Context() ends if the slot is lost
	})
	server := httptest.NewUnstartedServer(router)
	server.Config.ConnContext = kgate.ConnContext // notices clients that leave before their body is read
	server.Start()

	for _, path := range []string{"/", "/report"} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		fmt.Println(string(text))
	}

	if err := node.Shutdown(ctx); err != nil { // before the server's
		log.Fatal(err)
	}
	server.Close()
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// welcome
	// in flight: 1
}

// Workers that take a slot for each job: eight of them here, and at most three jobs at a
// time over all machines.
func ExampleNode_Acquire() {
	ctx := context.Background()
	node, err := kgate.Start(ctx, kgate.Config{Name: "worker-1", Pools: []kgate.Pool{{Name: "jobs", K: 3}}})
	if err != nil {
		log.Fatal(err)
	}

	jobs, done := make(chan int), make(chan int, 20)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for job := range jobs {
				slot, err := node.Acquire(ctx, "jobs", kgate.Note(fmt.Sprintf("job %d", job)))
				if err != nil {
					log.Print(err) // a *kgate.RefusedError says when to try again
					continue
				}
				done <- job // the work; stop it when slot.Lost() is closed
				slot.Release()
			}
		})
	}
	for job := range 20 {
		jobs <- job
	}
	close(jobs)
	workers.Wait()
	fmt.Println(len(done), "jobs done")

	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 20 jobs done
}

// One of three machines that share a pool: the others name this one and each other.
func ExampleStart() {
	work := func(ctx context.Context) error { return ctx.Err() }
	run := func(ctx context.Context) error {
		key, err := os.ReadFile("cluster.key") // of `kgate keygen`, the same on each machine
		if err != nil {
			return err
		}
		node, err := kgate.Start(ctx, kgate.Config{
			Name:  "web-1",
			Peers: kgate.Peers{Join: []string{"10.0.0.2:7080", "10.0.0.3:7080"}, Expect: 3, Key: key},
			Pools: []kgate.Pool{{Name: "reports", K: 6}},
		})
		if err != nil {
			return err
		}
		err = node.Do(ctx, "reports", func(ctx context.Context) error { // waits in line as long as ctx
			return work(ctx) // with a slot; ctx ends if it is lost
		})
		// And at the end:
		return errors.Join(err, node.Shutdown(ctx)) // before the http.Server's
	}
	fmt.Println(run(context.Background()))
	// Output: open cluster.key: no such file or directory
}

// An API allows six calls at a time, from all machines together.
func ExampleSlot_Context() {
	ctx := context.Background()
	node, err := kgate.Start(ctx, kgate.Config{Name: "worker-1", Pools: []kgate.Pool{{Name: "model", K: 6}}})
	if err != nil {
		log.Fatal(err)
	}

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }))
	client := http.Client{Transport: node.Transport(nil)}
	ask := func(ctx context.Context) error {
		slot, err := node.Acquire(ctx, "model") // waits in line as long as ctx
		if err != nil {
			return err
		}
		defer slot.Release()
		ctx, cancel := slot.Context(ctx) // ends when the slot is lost, and so does the call
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		fmt.Println(string(text))
		return err
	}
	if err := ask(ctx); err != nil {
		log.Fatal(err)
	}

	client.CloseIdleConnections()
	api.Close()
	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: an answer
}

// A place in line for who comes back later, on any machine: here for a job that a web
// request has ordered.
func ExampleNode_RequestTicket() {
	ctx := context.Background()
	node, err := kgate.Start(ctx, kgate.Config{Name: "worker-1", Pools: []kgate.Pool{{Name: "jobs", K: 2}}})
	if err != nil {
		log.Fatal(err)
	}

	ticket, err := node.RequestTicket(ctx, "jobs", time.Minute, kgate.Note("report 7"))
	if err != nil {
		log.Fatal(err)
	}
	if err := ticket.Wait(ctx); err != nil {
		_ = ticket.Cancel(ctx) // or it takes a slot later, for its time to live
		log.Fatal(err)
	}
	slot, err := ticket.Redeem(ctx) // any node can: node.Ticket(id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid:", slot.Valid())
	slot.Release()

	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: valid: true
}
