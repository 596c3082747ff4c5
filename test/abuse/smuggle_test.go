package abuse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kgate/kgate/test/cluster"
)

// own are the header lines that the gateway adds to each request.
var own = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^Kgate-Fence: pool/\d+/1/\d+\r\n`),
	regexp.MustCompile(`(?m)^Via: [12]\.[01] kgate-[0-9a-f]{8}\r\n`),
	regexp.MustCompile(`(?m)^X-Forwarded-For: 127\.0\.0\.1\r\n`),
	regexp.MustCompile(`(?m)^X-Forwarded-Host: (kgate|other)\.test\r\n`),
	regexp.MustCompile(`(?m)^X-Forwarded-Proto: http\r\n`),
	regexp.MustCompile(`(?m)^Forwarded: for=127\.0\.0\.1;host=(kgate|other)\.test;proto=http\r\n`),
}

// theirs is what is the client's in it.
func (s sighting) theirs() string {
	raw := s.raw
	for _, line := range own {
		raw = line.ReplaceAllString(raw, "")
	}
	return raw
}

// next is the honest request that follows on the same connection.
const next = "GET /next HTTP/1.1\r\nHost: kgate.test\r\n\r\n"

// outcome is what came of an attempt.
type outcome struct {
	attempt
	client   string
	upstream []sighting
}

// TestOneRequestOrNothing: whatever a client sends, the upstream sees one request
// that cannot be misread, with nothing in it that only a gateway may say, or it
// sees nothing.
func TestOneRequestOrNothing(t *testing.T) {
	u := newRawUpstream(t)
	c := cluster.Start(t, cluster.Options{Gateways: 1, K: 1, Upstream: u.url()})
	g := c.Gateways[0]
	var golden bytes.Buffer
	for _, s := range []section{
		{title: "Framing", attempts: framing},
		{title: "Targets and methods", attempts: routing},
		{title: "Headers that are not the client's to write", attempts: spoofing},
		{title: "HTTP/2", attempts: overHTTP2},
	} {
		for _, a := range s.attempts {
			o := outcome{attempt: a}
			if a.fields != nil {
				o.client = tryHTTP2(t, g.HTTP, a)
			} else {
				o.client = tryHTTP1(t, g.HTTP, a.sent)
			}
			if got := tryHTTP1(t, g.HTTP, h1("GET "+probe+" HTTP/1.1", "Host: kgate.test", "Connection: close", "", "")); got != "200, closed" {
				t.Fatalf("%s: the gateway then answers an honest request with %q", a.name, got)
			}
			o.upstream = u.take()
			o.check(t)
			o.upstream = slices.DeleteFunc(o.upstream, func(s sighting) bool {
				return s.theirs() == next || a.breaks && !s.whole // how much of it came is chance
			})
			o.write(&golden, s.title)
		}
	}
	compare(t, "testdata/attempts.txt", golden.Bytes())
}

type section struct {
	title    string
	attempts []attempt
}

// check holds what reached the upstream against the promise.
func (o outcome) check(t *testing.T) {
	t.Helper()
	for _, s := range o.upstream {
		for _, line := range own {
			if got := len(line.FindAllString(s.raw, -1)); got != 1 && s.whole {
				t.Errorf("%s: %d lines like %v in\n%q", o.name, got, line, s.raw)
			}
		}
		if !s.whole && !o.breaks {
			t.Errorf("%s: the upstream saw a request that does not end:\n%q", o.name, s.raw)
		}
		if err := strict(s.raw); err != nil && s.whole {
			t.Errorf("%s: the upstream saw a request that can be misread: %v\n%q", o.name, err, s.raw)
		}
		head, _, _ := strings.Cut(s.raw, "\r\n\r\n")
		for _, never := range []string{"/smuggled HTTP", "203.0.113.9", "pool/999/999", "Host: other.test"} {
			if strings.Contains(head, never) && !strings.Contains(o.name, "X-Real-Ip") && !strings.Contains(o.name, "two requests") && !strings.Contains(o.name, "absolute form of") {
				t.Errorf("%s: the upstream saw %q in\n%q", o.name, never, s.raw)
			}
		}
	}
}

// tryHTTP1 sends bytes, and then an honest request on the same connection if the
// gateway lets it. It returns the statuses, and whether the connection was closed
// before that request was answered.
func tryHTTP1(t *testing.T, addr, sent string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	var got []string
	r := bufio.NewReader(conn)
	last := strings.Contains(sent, "Connection: close")
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			if !last || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !isReset(err) {
				t.Errorf("after %q: %v", sent, err)
			}
			return strings.Join(append(got, "closed"), ", ")
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		got = append(got, fmt.Sprint(res.StatusCode))
		if res.Close {
			last = true
		} else if !last && res.StatusCode >= 200 {
			last = true
			_, _ = io.WriteString(conn, h1("GET /next HTTP/1.1", "Host: kgate.test", "Connection: close", "", ""))
		}
	}
}

func isReset(err error) bool { return strings.Contains(err.Error(), "connection reset by peer") }

// tryHTTP2 sends frames and returns what became of the stream.
func tryHTTP2(t *testing.T, addr string, a attempt) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.AllowIllegalWrites = true
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	headers := func(fields [][2]string, end bool) {
		block.Reset()
		for _, f := range fields {
			must(t, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
		}
		must(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}))
	}
	must(t, framer.WriteSettings())
	headers(a.fields, a.body == "")
	if a.body != "" {
		must(t, framer.WriteData(1, a.trailers == nil, []byte(a.body)))
		if a.trailers != nil {
			headers(a.trailers, true)
		}
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	status := ""
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return strings.TrimPrefix(status+", connection closed", ", ")
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if s := f.PseudoValue("status"); s != "" {
				status = s
			}
			if f.StreamEnded() {
				return status
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return status
			}
		case *http2.RSTStreamFrame:
			return strings.TrimPrefix(status+", stream reset: "+f.ErrCode.String(), ", ")
		case *http2.GoAwayFrame:
			return strings.TrimPrefix(status+", connection ended: "+f.ErrCode.String(), ", ")
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write adds the attempt and what came of it to a golden file.
func (o outcome) write(b *bytes.Buffer, title string) {
	fmt.Fprintf(b, "# %s: %s\n", title, o.name)
	if o.fields == nil {
		for line := range strings.SplitAfterSeq(o.sent, "\n") {
			if line != "" {
				fmt.Fprintf(b, "> %q\n", line)
			}
		}
	}
	for _, f := range o.fields {
		fmt.Fprintf(b, "> %q: %q\n", f[0], f[1])
	}
	if o.body != "" {
		fmt.Fprintf(b, "> data %q\n", o.body)
	}
	for _, f := range o.trailers {
		fmt.Fprintf(b, "> trailer %q: %q\n", f[0], f[1])
	}
	fmt.Fprintf(b, "the client got %s\n", o.client)
	if len(o.upstream) == 0 {
		fmt.Fprintf(b, "the upstream saw %s\n", o.nothing())
	}
	for _, s := range o.upstream {
		b.WriteString("the upstream saw\n")
		for line := range strings.SplitAfterSeq(s.theirs(), "\n") {
			if line != "" {
				fmt.Fprintf(b, "< %q\n", line)
			}
		}
	}
	b.WriteString("\n")
}

// compare holds got against a file, or writes it.
func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if bytes.Equal(want, got) {
		return
	}
	for i, part := range strings.Split(string(got), "\n\n") {
		if parts := strings.Split(string(want), "\n\n"); i >= len(parts) || parts[i] != part {
			t.Errorf("not as in %s (-update rewrites it):\n%s", file, part)
		}
	}
}

func (o outcome) nothing() string {
	if o.breaks {
		return "no whole request"
	}
	return "nothing"
}
