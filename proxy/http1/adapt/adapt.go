// Package adapt makes net/http's types of package http1's heads, and the other way round: for
// HTTP/2, and for programs whose handlers take net/http's types.
package adapt

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/proxy/http1"
)

// Fields returns those of a header, in the order of their names, so that the same header always
// looks the same.
func Fields(header http.Header) http1.Fields {
	if len(header) == 0 {
		return nil
	}
	fields := make(http1.Fields, 0, len(header))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			fields = append(fields, http1.NewField(name, value))
		}
	}
	return fields
}

// Header returns fields as a header.
func Header(fields http1.Fields) http.Header {
	header, room := make(http.Header, len(fields)), make([]string, len(fields))
	for i, f := range fields {
		if have, ok := header[f.Name]; ok {
			header[f.Name] = append(have, f.Value)
			continue
		}
		room[i] = f.Value
		header[f.Name] = room[i : i+1 : i+1]
	}
	return header
}

// Trailer returns the fields of a trailer. It is nil if h is.
func Trailer(h *http1.Head) http.Header {
	if h == nil {
		return nil
	}
	return Header(h.AppendFields(nil, h.Text()))
}

// Announced returns the header of a trailer of which the names are known, without values; nil: there are
// none. Those that may not stand in a trailer are left out.
func Announced(names []string) http.Header {
	var trailer http.Header
	for _, name := range names {
		if !httpguts.ValidTrailerHeader(name) {
			continue
		}
		if trailer == nil {
			trailer = make(http.Header)
		}
		trailer[name] = nil
	}
	return trailer
}

// FromHTTP returns a request that net/http's server has read.
func FromHTTP(in *http.Request) *http1.Request {
	r := &http1.Request{
		Method: in.Method, Target: in.RequestURI, URL: *in.URL, Host: in.Host, Proto: in.Proto, Major: uint8(in.ProtoMajor), Minor: uint8(in.ProtoMinor),
		Remote: in.RemoteAddr, Secure: in.TLS != nil, Close: in.Close, Fields: Fields(in.Header),
		Length: in.ContentLength, Chunked: len(in.TransferEncoding) > 0, Announced: slices.Sorted(maps.Keys(in.Trailer)),
	}
	if in.Body != nil && in.Body != http.NoBody {
		r.Body = &body{in.Body, in, r}
	}
	return r
}

// body is the body of a request that net/http's server has read.
type body struct {
	io.ReadCloser
	from *http.Request
	to   *http1.Request
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.to.Trailer = Fields(b.from.Trailer)
	}
	return n, err
}

// ToHTTP returns a request as net/http's server would, but for its trailer: for a handler that takes
// net/http's.
func ToHTTP(ctx context.Context, r *http1.Request, state *tls.ConnectionState) *http.Request {
	url := r.URL
	out := (&http.Request{
		Method: r.Method, URL: &url, Proto: r.Proto, ProtoMajor: int(r.Major), ProtoMinor: int(r.Minor), Header: Header(r.Fields), Body: r.Body,
		ContentLength: r.Length, Close: r.Close, Host: r.Host, RemoteAddr: r.Remote, RequestURI: r.Target, TLS: state,
	}).WithContext(ctx)
	for _, name := range []string{"Host", "Transfer-Encoding", "Trailer"} {
		delete(out.Header, name)
	}
	if out.Body == nil {
		out.Body = http.NoBody
	}
	if r.Chunked {
		out.TransferEncoding = chunked
	}
	return out
}

// Response fills in res with what h says, as net/http's Transport would, but for Header, Body and
// Request. It returns the fields, appended to those of room.
func Response(res *http.Response, h *http1.Head, f http1.Framing, room http1.Fields) http1.Fields {
	text := h.Text()
	*res = http.Response{
		Status: h.StatusIn(text), StatusCode: h.Status(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: h.Minor(), Close: !f.Persists, ContentLength: -1,
	}
	if h.Minor() == 0 {
		res.Proto = "HTTP/1.0"
	}
	fields := h.AppendFields(room, text)
	if h.Find(http1.TransferEncoding) >= 0 { // an answer to HEAD may say so, too
		res.TransferEncoding, res.Trailer = chunked, Announced(h.Announced())
		fields.Delete("Transfer-Encoding")
		fields.Delete("Trailer")
	}
	switch {
	case res.StatusCode < 200, res.StatusCode == http.StatusNoContent, res.StatusCode == http.StatusNotModified:
		res.ContentLength = 0
	case f.Sized:
		res.ContentLength = f.Length
	}
	return fields
}

var chunked = []string{"chunked"}
