// Package kgrpc admits the calls of a gRPC server to the slots of a pool:
//
//	grpc.NewServer(grpc.UnaryInterceptor(kgrpc.Unary(node, "p")), grpc.StreamInterceptor(kgrpc.Stream(node, "p")))
//
// It is a module of its own, so that kgate's does not need gRPC: copy it.
package kgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kgate/kgate"
)

// Unary lets each call wait for a slot of the pool, as long as the caller does. The handler's context
// ends when the slot is lost.
func Unary(node *kgate.Node, pool string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
		err = node.Do(ctx, pool, func(ctx context.Context) error {
			answer, err = next(ctx, req)
			return err
		})
		return answer, said(err)
	}
}

// Stream is Unary for streams, each of which has its slot from its beginning to its end.
func Stream(node *kgate.Node, pool string) grpc.StreamServerInterceptor {
	return func(server any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return said(node.Do(s.Context(), pool, func(ctx context.Context) error { return next(server, stream{s, ctx}) }))
	}
}

// stream has the context of its slot.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s stream) Context() context.Context { return s.ctx }

// said returns an error of kgate as gRPC says it; others as they are.
func said(err error) error {
	refused := (*kgate.RefusedError)(nil)
	switch {
	case errors.Is(err, kgate.ErrLost):
		return status.Error(codes.Aborted, err.Error())
	case errors.As(err, &refused), errors.Is(err, kgate.ErrClosed):
		return status.Error(codes.Unavailable, err.Error())
	default:
		return err
	}
}
