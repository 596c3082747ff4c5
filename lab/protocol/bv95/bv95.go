package bv95

import (
	"github.com/kgate/kgate/lab/protocol"
	"github.com/kgate/kgate/lab/protocol/naimi"
)

// A makes the first proxy.
func A() protocol.Spec {
	return spec("bv95-proxy-a", "proxy of BV95: k Naimi-Trehel trees, uniform choice", false)
}

// B makes the second proxy.
func B() protocol.Spec {
	return spec("bv95-proxy-b", "proxy of BV95: k Chang-Singhal-Liu trees, uniform choice", true)
}

func spec(name, about string, caching bool) protocol.Spec {
	return protocol.Spec{
		Name: name, About: about,
		New: func(h protocol.Host, s protocol.Setup) (protocol.Protocol, error) {
			return naimi.Trees(h, s, caching), nil
		},
	}
}
