// Command upstream answers every request at once with 1 KiB, those for /large with
// 512 MiB, and those for /wait when the client has left. Its profiles are at
// /debug/pprof/. On another port it sends every byte back. It logs the addresses it listens
// on, in JSON, and runs until it is ended.
package main

import (
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"strconv"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Error("cannot listen", slog.Any("error", err))
		os.Exit(1)
	}
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Error("cannot listen", slog.Any("error", err))
		os.Exit(1)
	}
	go sendBack(echo)
	log.Info("listening", slog.String("http", l.Addr().String()), slog.String("echo", echo.Addr().String()))
	body := make([]byte, 1<<10)
	for i := range body {
		body[i] = 'x'
	}
	length := strconv.Itoa(len(body))
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(body) // its reader may be gone
	})
	http.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { large(w) })
	http.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	err = http.Serve(l, nil)
	log.Error("cannot serve", slog.Any("error", err))
	os.Exit(1)
}

// sendBack sends back what comes, byte for byte.
func sendBack(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var b [1]byte
			for {
				if _, err := conn.Read(b[:]); err != nil {
					return
				}
				if _, err := conn.Write(b[:]); err != nil {
					return
				}
			}
		}()
	}
}

func large(w http.ResponseWriter) {
	const size = 512 << 20
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	piece := make([]byte, 64<<10)
	for range size / len(piece) {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}
