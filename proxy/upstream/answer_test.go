package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
	"time"

	"github.com/kgate/kgate/proxy/http1"
)

// outcome is what came of an answer.
type outcome struct {
	failed  bool
	rule    http1.Rule // of package http1, by which it was refused
	status  int
	proto   string
	header  string
	body    string
	broken  bool
	trailer string
	early   string
}

func outcomeOf(res *http.Response, err error, early []int) outcome {
	if err != nil {
		o := outcome{failed: true, early: fmt.Sprint(early)}
		errors.As(err, &o.rule)
		return o
	}
	defer res.Body.Close()
	o := outcome{status: res.StatusCode, proto: res.Proto, header: fmt.Sprint(res.Header), early: fmt.Sprint(early)}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return o
	}
	b, err := io.ReadAll(res.Body)
	o.body, o.broken, o.trailer = string(b), err != nil, fmt.Sprint(res.Trailer)
	errors.As(err, &o.rule)
	return o
}

// once is a dialler whose connection answers the first request with raw, and
// closes.
func once(raw string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			_ = far.SetDeadline(time.Now().Add(patience))
			buf := make([]byte, 4096)
			if _, err := far.Read(buf); err != nil {
				return
			}
			_, _ = io.WriteString(far, raw)
		}()
		return near, nil
	}
}

func ours(t testing.TB, method, raw string) outcome {
	c := newClient(t, "h:80", func(c *Config) { c.MaxHeaderBytes = 8 << 10 })
	c.cfg.Dial = once(raw)
	caller := &plain{}
	res, err := c.RoundTrip(request(t, method, nil, "User-Agent", "x"), caller)
	return outcomeOf(res, err, caller.early)
}

// theirs is what net/http's Transport makes of it.
func theirs(t testing.TB, method, raw string) outcome {
	tr := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return once(raw)(ctx) },
		DisableCompression:     true,
		MaxResponseHeaderBytes: 8 << 10,
	}
	defer tr.CloseIdleConnections()
	var early []int
	req := request(t, method, nil, "User-Agent", "x")
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(status int, _ textproto.MIMEHeader) error { early = append(early, status); return nil },
	}))
	res, err := tr.RoundTrip(req)
	return outcomeOf(res, err, early)
}

var rawAnswers = []string{
	short,
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.0 200 OK\r\n\r\nuntil the end",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
	"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nabc",
	"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\n" + short,
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + short,
	"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nBad Name: a\r\n\r\n",
	"HTTP/1.1 200 OK\r\n: a\r\n\r\n",
	"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
	"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 99 Odd\r\n\r\n",
	"HTTP/1.1 abc\r\n\r\n",
	"HTTP/2.0 200 OK\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"SSH-2.0-OpenSSH\r\n",
	"\r\n\r\n",
	"",
}

// stricter are the answers that net/http takes and two readers may read in two ways.
var stricter = map[string]http1.Rule{
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc":                            http1.ManyLengths,
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3\r\nabc\r\n0\r\n\r\n": http1.LengthAndCoding,
	"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n":                                                           http1.FoldedLine,
	"HTTP/1.1 200 OK\r\nBad Name: a\r\n\r\n":                                                          http1.BadName,
	"HTTP/1.1 200 OK\nContent-Length: 2\n\nok":                                                        http1.BareLF,
	"HTTP/2.0 200 OK\r\n\r\n":                                                                         http1.UnknownVersion,
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n":                                           http1.CodingInHTTP10,
}

// TestAnswers: an answer is read as net/http reads it, whatever it is, or refused by a rule.
func TestAnswers(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, raw := range rawAnswers {
			got, want := ours(t, method, raw), theirs(t, method, raw)
			if rule, ok := stricter[raw]; ok {
				want = outcome{failed: true, early: "[]", rule: rule}
			} else {
				got.rule = 0 // net/http refuses it, too
			}
			if got != want {
				t.Errorf("%s, %q:\n got %+v\nwant %+v", method, raw, got, want)
			}
		}
	}
}

// TestTransferEncodingInHTTP10: RFC 9112, section 6.1, takes the framing of such an answer for
// faulty. Net/http would pass the chunks on as the body.
func TestTransferEncodingInHTTP10(t *testing.T) {
	const chunks = "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	for raw, failed := range map[string]bool{
		"HTTP/1.0 200 OK\r\n" + chunks: true,
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n" + chunks:         true,
		"HTTP/1.1 103 E\r\n\r\nHTTP/1.0 200 OK\r\n" + chunks:                                  true,
		"HTTP/1.0 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":          true,
		"HTTP/1.1            103 E\r\n\r\nHTTP/1.0 200 OK\r\n" + chunks:                       true,
		"HTTP/1.1 103 E\r\n" + chunks[:30] + "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok": false,
		"HTTP/1.0 200 OK\r\nContent-Length: 27\r\n\r\n" + chunks:                              false,
	} {
		if got := ours(t, "GET", raw); got.failed != failed {
			t.Errorf("%q: %+v", raw, got)
		}
	}
}

// TestBothLengths: somebody else may find another end of such an answer.
func TestBothLengths(t *testing.T) {
	const both = "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	for raw, rule := range map[string]http1.Rule{
		"HTTP/1.1 200 OK\r\n" + both:                                             http1.LengthAndCoding,
		"HTTP/1.1 103 E\r\n\r\nHTTP/1.1 200 OK\r\n" + both:                       http1.LengthAndCoding,
		"HTTP/1.1 103 E\r\n" + both[:17] + "\r\n\r\nHTTP/1.1 200 OK" + both[17:]: 0,
		"HTTP/1.1 103 E\r\n" + both[:len(both)-12] + short:                       http1.LengthAndCoding,
		short: 0,
	} {
		if got := ours(t, "GET", raw); got.rule != rule || got.failed != (rule != 0) {
			t.Errorf("%q: %+v", raw, got)
		}
	}
}

// FuzzAnswer looks for an answer that is read differently, or taken where net/http refuses it.
func FuzzAnswer(f *testing.F) {
	for _, raw := range rawAnswers {
		f.Add(uint8(0), raw)
	}
	f.Fuzz(func(t *testing.T, method uint8, raw string) {
		m := []string{"GET", "HEAD", "POST"}[int(method)%3]
		got, want := ours(t, m, raw), theirs(t, m, raw)
		switch {
		case got.rule != 0: // we are stricter, or so are both
		case got.failed != want.failed && want.status < 100 && !want.failed: // net/http passes it on
		case got.failed != want.failed, got.broken != want.broken, !got.failed && !got.broken && got != want:
			t.Errorf("%s, %q:\n got %+v\nwant %+v", m, raw, got, want)
		}
	})
}
