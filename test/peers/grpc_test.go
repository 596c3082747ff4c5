package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service's name makes its path that of the pool.
const echoMethod = "/grpc/Echo"

// startGRPC serves a method that sends every message back, with metadata before
// and after; "fail" ends the call with an error.
func startGRPC(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "grpc", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Echo", Handler: echoGRPC, ServerStreams: true, ClientStreams: true}},
	}, struct{}{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return "h2c://" + l.Addr().String()
}

func echoGRPC(_ any, stream grpc.ServerStream) error {
	in, _ := metadata.FromIncomingContext(stream.Context())
	if err := stream.SendHeader(metadata.Pairs("x-first", strings.Join(in.Get("x-sent"), ","))); err != nil {
		return err
	}
	stream.SetTrailer(metadata.Pairs("x-last-bin", "\x00\xff"))
	for {
		m := new(wrapperspb.BytesValue)
		switch err := stream.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case string(m.Value) == "fail":
			return status.Error(codes.FailedPrecondition, "as you asked")
		}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

// testGRPC: streams in both directions at once, metadata, trailers and status,
// through every gateway, in the clear and over TLS.
func testGRPC(t *testing.T, w *world) {
	for i, g := range w.Gateways {
		for addr, secure := range map[string]credentials.TransportCredentials{
			g.HTTP: insecure.NewCredentials(), g.HTTPS: credentials.NewTLS(w.pool),
		} {
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-sent", "yes"), patience)
			if err := callGRPC(ctx, addr, secure); err != nil {
				t.Errorf("gateway %d, %s: %v", i+1, secure.Info().SecurityProtocol, err)
			}
			cancel()
		}
	}
}

func callGRPC(ctx context.Context, addr string, secure credentials.TransportCredentials) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(secure))
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, fail := range []bool{false, true} {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, echoMethod)
		if err != nil {
			return err
		}
		for n := range 100 {
			sent := &wrapperspb.BytesValue{Value: pattern[:n*n]}
			got := new(wrapperspb.BytesValue)
			if err := errors.Join(stream.SendMsg(sent), stream.RecvMsg(got)); err != nil {
				return fmt.Errorf("message %d: %w", n, err)
			}
			if string(got.Value) != string(sent.Value) {
				return fmt.Errorf("message %d came back as %d bytes", n, len(got.Value))
			}
		}
		want := codes.OK
		if fail {
			want = codes.FailedPrecondition
			err = stream.SendMsg(&wrapperspb.BytesValue{Value: []byte("fail")})
		} else {
			err = stream.CloseSend()
		}
		if err != nil {
			return err
		}
		err = stream.RecvMsg(new(wrapperspb.BytesValue))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		header, _ := stream.Header()
		trailer := stream.Trailer()
		if status.Code(err) != want || strings.Join(header.Get("x-first"), ",") != "yes" || strings.Join(trailer.Get("x-last-bin"), ",") != "\x00\xff" {
			return fmt.Errorf("ended with %w, header %v, trailer %v", err, header, trailer)
		}
	}
	return nil
}
