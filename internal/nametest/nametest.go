// Package nametest is a name server for tests.
package nametest

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Serve answers all look-ups of this process until the test ends, with what a question is answered
// with; nil among it: the name server fails.
func Serve(t *testing.T, answer func(q dnsmessage.Question) []dnsmessage.ResourceBody) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			q := m.Questions[0]
			for _, body := range answer(q) {
				if body == nil {
					m.RCode = dnsmessage.RCodeServerFailure
					continue
				}
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: body,
				})
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		// A Dialer would read net.DefaultResolver, and package net's lookups outlive their callers.
		return net.DialUDP("udp", nil, conn.LocalAddr().(*net.UDPAddr))
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // a question without an answer waits for seconds
		<-done
		_ = conn.Close()
	})
}
