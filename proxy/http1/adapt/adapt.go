// Package adapt makes net/http's types of package http1's heads, and the other way round: for
// HTTP/2, and for programs whose handlers take net/http's types.
package adapt

import (
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/proxy/http1"
)

// headers are empty headers to be used again.
var headers = sync.Pool{New: func() any { return make(http.Header, 16) }}

// NewHeader returns an empty header.
func NewHeader() http.Header { return headers.Get().(http.Header) }

// Recycle has NewHeader return a header that is no longer used. Its values may be.
func Recycle(header http.Header) {
	const large = 64 // a map does not shrink
	if len(header) <= large {
		clear(header)
		headers.Put(header)
	}
}

// Header returns the fields of h that were not removed. Their values outlive h's bytes. It is nil
// if h is.
func Header(h *http1.Head) http.Header {
	if h == nil {
		return nil
	}
	header := make(http.Header, h.Len())
	addTo(header, h, h.Text())
	return header
}

// addTo adds the fields of h, whose text is given.
func addTo(header http.Header, h *http1.Head, text string) {
	values := make([]string, h.Len()) // one for each field, in one piece
	for i := range h.Len() {
		if h.IsRemoved(i) {
			continue
		}
		name := h.ID(i).String()
		if name == "" {
			name = textproto.CanonicalMIMEHeaderKey(h.NameIn(text, i))
		}
		values[i] = h.ValueIn(text, i)
		if have, ok := header[name]; ok {
			header[name] = append(have, values[i])
		} else {
			header[name] = values[i : i+1 : i+1]
		}
	}
}

// announced returns the names of the trailer that h announces, without values; nil: there are
// none. Those that may not stand in a trailer are left out.
func announced(h *http1.Head) http.Header {
	if h.Find(http1.Trailer) < 0 {
		return nil
	}
	var names http.Header
	for i := range h.Len() {
		if h.ID(i) != http1.Trailer || h.IsRemoved(i) {
			continue
		}
		for name := range strings.SplitSeq(string(h.Value(i)), ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name == "" || !httpguts.ValidTrailerHeader(name) {
				continue
			}
			if names == nil {
				names = make(http.Header)
			}
			names[name] = nil
		}
	}
	return names
}

// Request returns a request of net/http's with what h says, as its server would fill it in, but
// for Body and RemoteAddr. The error is one of net/url: the target is none.
func Request(h *http1.Head, f http1.Framing) (*http.Request, error) {
	target := string(h.Target())
	r := &http.Request{
		Method: methodOf(h), RequestURI: target,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: h.Minor(),
		Host: string(h.Authority()), Close: !f.Persists, Body: http.NoBody,
	}
	if h.Minor() == 0 {
		r.Proto = "HTTP/1.0"
	}
	var err error
	if r.Method == http.MethodConnect && !strings.HasPrefix(target, "/") {
		if r.URL, err = url.ParseRequestURI("http://" + target); err == nil {
			r.URL.Scheme = ""
		}
	} else {
		r.URL, err = url.ParseRequestURI(target)
	}
	if err != nil {
		return nil, err
	}
	switch f.Kind {
	case http1.Chunked:
		r.ContentLength, r.TransferEncoding = -1, chunked
		r.Trailer = announced(h)
	case http1.Length:
		r.ContentLength = f.Length
	case http1.None, http1.UntilClose, http1.Tunnel:
	}
	r.Header = Header(h)
	delete(r.Header, "Host")
	delete(r.Header, "Transfer-Encoding")
	delete(r.Header, "Trailer")
	return r, nil
}

// Response fills in res with what h says, as net/http's Transport would, but for Body and
// Request. Its header may be recycled.
func Response(res *http.Response, h *http1.Head, f http1.Framing) {
	text := h.Text()
	*res = http.Response{
		Status: h.StatusIn(text), StatusCode: h.Status(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: h.Minor(),
		Header: NewHeader(), Close: !f.Persists, ContentLength: -1,
	}
	if h.Minor() == 0 {
		res.Proto = "HTTP/1.0"
	}
	addTo(res.Header, h, text)
	if h.Find(http1.TransferEncoding) >= 0 { // an answer to HEAD may say so, too
		res.TransferEncoding, res.Trailer = chunked, announced(h)
		delete(res.Header, "Transfer-Encoding")
		delete(res.Header, "Trailer")
	}
	switch {
	case res.StatusCode < 200, res.StatusCode == http.StatusNoContent, res.StatusCode == http.StatusNotModified:
		res.ContentLength = 0
	case f.Sized:
		res.ContentLength = f.Length
	}
}

var chunked = []string{"chunked"}

func methodOf(h *http1.Head) string {
	switch m := h.Method(); string(m) {
	case http.MethodGet:
		return http.MethodGet
	case http.MethodHead:
		return http.MethodHead
	case http.MethodPost:
		return http.MethodPost
	case http.MethodPut:
		return http.MethodPut
	default:
		return string(m)
	}
}

// AppendHeader appends the fields of a header but those of which skip tells, in the order of their
// names, so that the same header always looks the same. The error is a http1.Rule. Names is for
// sorting: what it returns may be given to the next call.
func AppendHeader(dst []byte, header http.Header, skip func(name string) bool, names []string) ([]byte, []string, error) {
	names = names[:0]
	for name := range header {
		if !skip(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var err error
	for _, name := range names {
		for _, value := range header[name] {
			if dst, err = http1.AppendField(dst, name, value); err != nil {
				return dst, names, fmt.Errorf("%w: %q", err, name)
			}
		}
	}
	return dst, names, nil
}
