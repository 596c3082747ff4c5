package upstream

import (
	"net/http"

	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// Request to a server. Its Header is not looked at: Fields are its header, in the order in which
// they are sent. Fields for one connection are written by this package, from what else the request
// says. It may be used again when its exchange is over.
type Request struct {
	http.Request
	Fields http1.Fields

	answer answer // to it, over HTTP/1.1
}

// Response is a server's answer. Its Header is nil: Fields are its header. Net/http fills in the Trailer
// of one over HTTP/2 when its body has been read.
type Response struct {
	*http.Response
	Fields http1.Fields
}

// RoundTrip is Do for a request of net/http's.
func (c *Client) RoundTrip(req *http.Request, caller Caller) (*http.Response, error) {
	r := &Request{Request: *req, Fields: adapt.Fields(req.Header)}
	res, err := c.Do(r, caller)
	if err != nil {
		return nil, err
	}
	res.Header, res.Request = adapt.Header(res.Fields), req
	return res.Response, nil
}

// withHeader returns the request as net/http has it.
func (r *Request) withHeader() *http.Request {
	out := r.WithContext(r.Context())
	out.Header = adapt.Header(r.Fields)
	if !r.Fields.Has(http1.UserAgent) {
		out.Header["User-Agent"] = []string{""} // else net/http has one of its own
	}
	return out
}
