package bench

import (
	_ "github.com/anishathalye/porcupine"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/term"
	_ "golang.org/x/net/http2"
	_ "go.uber.org/goleak"
)
