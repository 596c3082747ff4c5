package proxy

import "github.com/kgate/kgate/internal/memnet"

var (
	inVirtualTime = memnet.Test
	memoryOf      = memnet.Of
	listen        = memnet.Listen
	listenAt      = memnet.ListenAt
	dialerOf      = memnet.DialerOf
)
