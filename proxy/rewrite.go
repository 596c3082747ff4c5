package proxy

import (
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/internal/headeredit"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
	"github.com/kgate/kgate/proxy/upstream"
)

// removeNamed removes the fields that Connection names.
func removeNamed(fields *http1.Fields) {
	for _, line := range fields.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				fields.Delete(http.CanonicalHeaderKey(name))
			}
		}
	}
}

// appendEndToEnd appends the fields of an answer, except what is for one connection or not the
// upstream's to say.
func appendEndToEnd(to, from http1.Fields) http1.Fields {
	for _, f := range from {
		if !headeredit.IsHopByHop(f.Name) && f.ID != http1.AltSvc && (f.ID != http1.Other || !isReserved(f.Name)) {
			to = append(to, f)
		}
	}
	return to
}

// outgoing is the request for the upstream, what the gateway adds to it, and the fields of the
// answer as it goes on. It is lent on admission: many requests wait.
type outgoing struct {
	upstream.Request
	url    url.URL
	fields [mostFields]http1.Field
	answer [mostFields]http1.Field
	moving moving

	verdict verdict // on the backend
	settled bool    // the header of an answer has come
	shared  bool    // others may still use it
}

// mostFields is how many fields a head has room for. One with more gets its own.
const mostFields = 20

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

// blank is what requests for upstreams begin as.
var blank = &http.Request{Body: http.NoBody}

// outgoing returns the request for the upstream, made from the client's. It is valid until
// the next call. Its fields are missing: on the stack of this they would be too deep for one of 4 KiB,
// which a client that waits keeps.
func (ex *exchange) outgoing(in *http1.Request) *upstream.Request {
	out := &ex.attempt.out.Request
	out.Request = *blank.WithContext(&ex.ctx)
	out.Method, out.Host, out.ContentLength = in.Method, in.Host, in.Length
	if ex.body.ex != nil && in.Length != 0 {
		out.Body = &ex.body
	}
	// The values of announced trailers come when the body has been read.
	out.Trailer = adapt.Announced(in.Announced)
	ex.removeUntrusted(out.Trailer)
	if ex.body.trailer = out.Trailer; len(out.Trailer) > 0 {
		// HTTP/2 has them behind a body of known length, too; HTTP/1.1 only
		// behind chunks.
		out.ContentLength = -1
	}
	out.URL = ex.address(in)
	if host := ex.attempt.backend.Load().transport.Host; host != "" {
		out.Host = host
	}
	return out
}

// address returns the URL at the present upstream.
func (ex *exchange) address(in *http1.Request) *url.URL {
	to := &ex.attempt.out.url
	*to = in.URL
	if ex.route.strip != "" {
		stripPrefix(to, ex.route.strip)
	}
	base := ex.attempt.backend.Load().url
	to.Scheme, to.Host, to.User = base.Scheme, base.Host, nil
	if base.Path != "" {
		joinPath(base, to)
	}
	return to
}

// fillFields fills in the fields of the request for the upstream.
func (ex *exchange) fillFields(out *upstream.Request, in *http1.Request) {
	trusted := contains(ex.snapshot.cfg.TrustedProxies, in.Remote)
	came := in.Fields
	fields := http1.Fields(ex.attempt.out.fields[:0])
	for i := range came {
		if f := &came[i]; f.ID == http1.Connection || ex.passes(f, trusted) {
			fields = append(fields, *f)
		}
	}
	removePlaces(&fields)
	removeNamed(&fields)
	fields.Delete("Connection")
	if ex.requestID != "" {
		fields.Add(ex.snapshot.requestID, ex.requestID)
	}
	ex.route.request.apply(&fields, ex)
	if came.HasToken(http1.TE, "trailers") {
		fields.Add("Te", "trailers")
	}
	if n, ok := maxForwards(in); ok {
		fields.Set("Max-Forwards", strconv.FormatUint(n-1, 10))
	}
	if upgrade := upgradeType(came); upgrade != "" && in.AtLeast(1, 1) && !switchesHTTP(upgrade) && !ex.attempt.backend.Load().onlyHTTP2 {
		fields.Add("Connection", "Upgrade")
		fields.Add("Upgrade", upgrade)
	}
	ex.addForwarded(&fields, in, trusted)
	if pool := ex.route.pool; pool != nil && pool.Fence {
		if fence := ex.hold.slot.Fence(); fence != "" {
			fields.Add("Kgate-Fence", fence)
		}
	}
	ex.traceUpstream(out, &fields)
	fields.Add("Via", ex.snapshot.via.of(in))
	out.Fields = fields
}

// passes reports whether a field of the client's goes on as it is. Those that the gateway writes do
// not.
func (ex *exchange) passes(f *http1.Field, trusted bool) bool {
	switch f.ID {
	case http1.HTTP2Settings, http1.Host, http1.ContentLength, http1.Forwarded, http1.XForwardedFor:
		return false
	case http1.XForwardedHost, http1.XForwardedProto:
		return trusted
	case http1.Other:
		return !isUntrusted(f.Name, trusted) && !ex.owns(f.Name)
	default:
		return !headeredit.IsHopByHop(f.Name) && !ex.owns(f.Name)
	}
}

// addForwarded tells the upstream who the client is. What a trusted proxy has said of that
// is kept and added to.
func (ex *exchange) addForwarded(fields *http1.Fields, in *http1.Request, trusted bool) {
	fields.Add("Forwarded", ex.forwarded(in, trusted))
	if remote, _, err := net.SplitHostPort(in.Remote); err == nil { // else nothing is known
		if prior := in.Fields.Values("X-Forwarded-For"); trusted && len(prior) > 0 {
			remote = strings.Join(prior, ", ") + ", " + remote
		}
		fields.Add("X-Forwarded-For", remote)
	}
	// What of these is there a trusted proxy has said. The client may have named them in
	// Connection, to have them removed.
	if !fields.Has(http1.XForwardedHost) {
		fields.Add("X-Forwarded-Host", in.Host)
	}
	if !fields.Has(http1.XForwardedProto) {
		fields.Add("X-Forwarded-Proto", scheme(in))
	}
}

// Max-Forwards bounds how many hops an OPTIONS or a TRACE takes (RFC 9110, section
// 7.6.2); with other methods it means nothing.
func maxForwards(r *http1.Request) (n uint64, ok bool) {
	if r.Method != http.MethodOptions && r.Method != http.MethodTrace {
		return 0, false
	}
	value, ok := r.Fields.Only(http1.MaxForwards)
	n, err := strconv.ParseUint(value, 10, 32)
	return n, ok && err == nil
}

// viaValues are the values of Via for requests that came over HTTP/1.0, 1.1 and 2.
type viaValues [3]string

func newViaValues(pseudonym string) viaValues {
	return viaValues{"1.0 " + pseudonym, "1.1 " + pseudonym, "2.0 " + pseudonym}
}

func (v *viaValues) of(r *http1.Request) string {
	switch {
	case r.Major == 2:
		return v[2]
	case r.Major == 1 && r.Minor == 0:
		return v[0]
	default:
		return v[1]
	}
}

// isUntrusted reports whether a field of a client goes no further: Kgate-*, Proxy
// (which CGI programs take for the address of a proxy that they should use) and
// X-Forwarded-*, however they are spelled. A trusted proxy may say X-Forwarded-*, in the
// plain spelling: it passes the others on as its clients have sent them.
func isUntrusted(name string, trusted bool) bool {
	return isKgate(name) || name == "Proxy" || hasNamePrefix(name, "X-Forwarded-") && (!trusted || !isPlain(name))
}

// owns reports whether the gateway alone says the field of this name in a request.
func (ex *exchange) owns(name string) bool {
	return ex.route.request.owns(name) || ex.requestID != "" && sameName(name, ex.snapshot.requestID)
}

// removeUntrusted removes from a trailer what does not belong there: who the client is,
// the fields that the gateway writes in the header, and those by which a message is read.
func (ex *exchange) removeUntrusted(trailer http.Header) {
	for name := range trailer {
		if isUntrusted(name, false) || name == "Forwarded" || name == "Via" || ex.owns(name) || !httpguts.ValidTrailerHeader(name) {
			delete(trailer, name)
		}
	}
}

// isReserved reports whether only the gateway may say a field in an answer: Kgate-*,
// by which its own answers are known; Alt-Svc, which would lead clients past it; and in a
// trailer those by which a message is read.
func isReserved(name string) bool {
	bare, late := strings.CutPrefix(name, http.TrailerPrefix)
	return isKgate(bare) || bare == "Alt-Svc" || late && !httpguts.ValidTrailerHeader(bare)
}

// removeReserved removes such fields.
func removeReserved(h http.Header) {
	for name := range h {
		if isReserved(name) {
			delete(h, name)
		}
	}
}
