package peers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/kgate/kgate/test/cluster"
)

// interopCases are gRPC's own, but those about credentials and balancing.
var interopCases = []struct {
	name string
	do   func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
}{
	{"empty_unary", interop.DoEmptyUnaryCall},
	{"large_unary", interop.DoLargeUnaryCall},
	{"client_streaming", interop.DoClientStreaming},
	{"server_streaming", interop.DoServerStreaming},
	{"ping_pong", interop.DoPingPong},
	{"empty_stream", interop.DoEmptyStream},
	{"timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer},
	{"cancel_after_begin", interop.DoCancelAfterBegin},
	{"cancel_after_first_response", interop.DoCancelAfterFirstResponse},
	{"status_code_and_message", interop.DoStatusCodeAndMessage},
	{"special_status_message", interop.DoSpecialStatusMessage},
	{"custom_metadata", interop.DoCustomMetadata},
}

// interopFailure is what a case says when it fails: it would end the process.
type interopFailure string

// interopLog makes a panic of that.
type interopLog struct{ grpclog.LoggerV2 }

// Fatalln implements grpclog.LoggerV2.
func (interopLog) Fatalln(args ...any) { panic(interopFailure(fmt.Sprintln(args...))) }

// TestGRPCInterop: gRPC's client and its server understand each other through a gateway, in the
// clear and over TLS.
func TestGRPCInterop(t *testing.T) {
	grpclog.SetLoggerV2(interopLog{grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	files := cluster.NewTLSFiles(t)
	secure, err := credentials.NewClientTLSFromFile(files.CA, "")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: k, Upstream: "h2c://" + l.Addr().String(), ClientTLS: files, Name: "interop"})
	for name, over := range map[string]struct {
		addr        string
		credentials credentials.TransportCredentials
	}{
		"in the clear": {c.Gateways[0].HTTP, insecure.NewCredentials()}, "TLS": {c.Gateways[0].HTTPS, secure},
	} {
		conn, err := grpc.NewClient("passthrough:///"+over.addr, grpc.WithTransportCredentials(over.credentials))
		if err != nil {
			t.Fatal(err)
		}
		client := testgrpc.NewTestServiceClient(conn)
		for _, test := range interopCases {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				judgeInterop(t, func(ctx context.Context) { test.do(ctx, client) })
			})
		}
		t.Run(name+"/unimplemented_method", func(t *testing.T) {
			judgeInterop(t, func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, conn) })
		})
		t.Run(name+"/unimplemented_service", func(t *testing.T) {
			judgeInterop(t, func(ctx context.Context) {
				interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
			})
		})
		_ = conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.AwaitWhole(ctx); err != nil {
		t.Errorf("a slot is lost: %v", err)
	}
}

// judgeInterop runs a case.
func judgeInterop(t *testing.T, do func(context.Context)) {
	t.Helper()
	defer func() {
		if why := recover(); why != nil {
			failure, ok := why.(interopFailure)
			if !ok {
				panic(why)
			}
			t.Error(failure)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	do(ctx)
}
