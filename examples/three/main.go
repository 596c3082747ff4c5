// Three runs three nodes of one cluster in one process, with 30 clients that share two
// slots. A program on three machines looks the same, with one node each.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kgate/kgate"
)

const (
	nodes   = 3
	k       = 2
	clients = 30
	jobs    = 10 // of each client
)

func main() {
	if err := run(); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := start(ctx)
	defer func() {
		for _, n := range cluster {
			err = errors.Join(err, n.Shutdown(ctx))
		}
	}()
	if err != nil {
		return err
	}
	var served, now, most atomic.Int64
	began := time.Now()
	failed := make(chan error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for range jobs {
				slot, err := cluster[i%nodes].Acquire(ctx, "jobs")
				if err != nil {
					failed <- err
					return
				}
				at := now.Add(1)
				for before := most.Load(); at > before && !most.CompareAndSwap(before, at); before = most.Load() {
				}
				time.Sleep(5 * time.Millisecond) // the job
				served.Add(1)
				now.Add(-1)
				slot.Release()
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d nodes, k=%d, %d clients: %d served, most at once %d, %v\n",
		nodes, k, clients, served.Load(), most.Load(), time.Since(began).Round(time.Millisecond))
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

// start starts the nodes and waits until they take part.
func start(ctx context.Context) (cluster []*kgate.Node, err error) {
	for i := range nodes {
		cfg := kgate.Config{
			Name: fmt.Sprintf("node-%d", i+1),
			Peers: kgate.Peers{
				Listen: "127.0.0.1:0", Expect: nodes,
			},
			Pools: []kgate.Pool{{Name: "jobs", K: k}},
		}
		for _, n := range cluster {
			cfg.Peers.Join = append(cfg.Peers.Join, n.PeerAddr())
		}
		n, err := kgate.Start(ctx, cfg)
		if err != nil {
			return cluster, err
		}
		cluster = append(cluster, n)
	}
	for _, n := range cluster {
		if err := n.Ready(ctx); err != nil {
			return cluster, err
		}
	}
	return cluster, nil
}
