package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strconv"
)

// serveSockets takes every request for one without a body, sends it as it is over an upstream connection that the
// client's connection has for itself, and the answer back. What that costs no proxy on Go's sockets can do
// without.
func serveSockets(l net.Listener, upstream string) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				slog.Error("cannot forward", slog.Any("error", err))
				return
			}
			defer server.Close()
			for buffer := make([]byte, bufferSize); err == nil; {
				if err = pass(server, client, buffer, func([]byte) (int, error) { return 0, nil }); err == nil {
					err = pass(client, server, buffer, contentLength)
				}
			}
		}()
	}
}

// pass reads a message from one connection, whose head tells how long its body is, and writes it to another.
func pass(to, from net.Conn, buffer []byte, length func(head []byte) (int, error)) error {
	for n := 0; n < len(buffer); {
		m, err := from.Read(buffer[n:])
		if err != nil {
			return err
		}
		n += m
		head, body, ended := bytes.Cut(buffer[:n], []byte("\r\n\r\n"))
		if !ended {
			continue
		}
		want, err := length(head)
		if err != nil {
			return err
		}
		if len(body) >= want {
			_, err = to.Write(buffer[:n])
			return err
		}
	}
	return errors.New("a message that is too long")
}

func contentLength(head []byte) (int, error) {
	_, rest, _ := bytes.Cut(head, []byte("\r\nContent-Length: "))
	digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return strconv.Atoi(string(digits))
}
