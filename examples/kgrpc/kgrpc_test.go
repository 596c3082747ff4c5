package kgrpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kgate/kgate"
)

// judge counts the handlers that run at once.
type judge struct{ in, most atomic.Int32 }

func (j *judge) enter() (leave func()) {
	now := j.in.Add(1)
	for most := j.most.Load(); now > most && !j.most.CompareAndSwap(most, now); most = j.most.Load() {
	}
	return func() { j.in.Add(-1) }
}

// newClient starts a server with the interceptors, and the judge behind them, and returns a client.
func newClient(t *testing.T, node *kgate.Node, j *judge) grpc_health_v1.HealthClient {
	t.Helper()
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(Unary(node, "p"), func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			defer j.enter()()
			time.Sleep(5 * time.Millisecond)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(Stream(node, "p"), func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			defer j.enter()()
			if kgate.FromContext(s.Context()) == nil {
				t.Error("the stream has no slot")
			}
			return next(srv, s)
		}),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// TestCalls: at most k calls and streams are in, all are answered, and a node that has ended refuses
// them as unavailable.
func TestCalls(t *testing.T) {
	const k = 2
	node, err := kgate.Start(t.Context(), kgate.Config{Peers: kgate.Peers{Listen: "127.0.0.1:0"}, Pools: []kgate.Pool{{Name: "p", K: k}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var j judge
	client := newClient(t, node, &j)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel() // ends the stream, and gives its slot back
			s, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most := j.most.Load(); most != k {
		t.Errorf("%d at once, k is %d", most, k)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the node's end: %v", err)
	}
}
