package proxy

import (
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/internal/headeredit"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// removeNamed removes the fields that the values of Connection name.
func removeNamed(h http.Header, connection []string) {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				delete(h, http.CanonicalHeaderKey(name))
			}
		}
	}
}

// copyEndToEnd adds the fields of an answer to those of to, except what is for one
// connection or not the upstream's to say. Values are shared, and never changed in
// place.
func copyEndToEnd(to, from http.Header) {
	for name, values := range from {
		if headeredit.IsHopByHop(name) || isReserved(name) {
			continue
		}
		if have := to[name]; len(have) > 0 {
			values = append(have[:len(have):len(have)], values...)
		}
		to[name] = values
	}
}

// outgoing is the request for the upstream, and what the gateway adds to it. It is allocated on
// admission: many requests wait.
type outgoing struct {
	request http.Request
	url     url.URL
	values  [10]string // of fields
	used    int
}

// value returns s as the values of a field.
func (o *outgoing) value(s string) []string {
	if o.used == len(o.values) {
		return []string{s}
	}
	o.values[o.used] = s
	o.used++
	return o.values[o.used-1 : o.used : o.used]
}

// outgoing returns the request for the upstream, made from the client's. It is valid until
// the next call.
func (ex *exchange) outgoing(in *http.Request) *http.Request {
	out := &ex.attempt.out.request
	*out = *in.WithContext(&ex.ctx)
	out.Header = adapt.NewHeader()
	out.Close = false
	out.Body = http.NoBody
	if ex.body.ReadCloser != nil && in.ContentLength != 0 {
		out.Body = &ex.body
	}
	// The values of announced trailers come when the body has been read: into the
	// server's map.
	ex.removeUntrusted(out.Trailer)
	ex.body.announced = maps.Clone(out.Trailer)
	if len(out.Trailer) > 0 {
		// HTTP/2 has them behind a body of known length, too; HTTP/1.1 only
		// behind chunks.
		out.ContentLength = -1
	}
	out.URL = ex.address(in)
	if host := ex.attempt.backend.Load().transport.Host; host != "" {
		out.Host = host
	}
	ex.fillHeader(out, in)
	return out
}

// address returns the URL at the present upstream.
func (ex *exchange) address(in *http.Request) *url.URL {
	to := &ex.attempt.out.url
	*to = *in.URL
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

// fillHeader fills in the header of the request for the upstream.
func (ex *exchange) fillHeader(out, in *http.Request) {
	backend := ex.attempt.backend.Load()
	header, trusted := out.Header, contains(ex.snapshot.cfg.TrustedProxies, in.RemoteAddr)
	for name, values := range in.Header {
		if headeredit.IsHopByHop(name) || isUntrusted(name, trusted) || name == "Http2-Settings" || ex.owns(name) {
			continue
		}
		header[name] = values
	}
	removePlaces(header)
	removeNamed(header, in.Header["Connection"])
	upgrade := upgradeType(in.Header)
	trailers := httpguts.HeaderValuesContainsToken(in.Header["Te"], "trailers")

	ex.attempt.out.used = 0
	set := func(name, value string) { header[name] = ex.attempt.out.value(value) }
	if ex.requestID != "" {
		set(ex.snapshot.requestID, ex.requestID)
	}
	ex.route.request.apply(header, ex)
	if trailers {
		set("Te", "trailers")
	}
	if n, ok := maxForwards(in); ok {
		set("Max-Forwards", strconv.FormatUint(n-1, 10))
	}
	if upgrade != "" && in.ProtoAtLeast(1, 1) && !switchesHTTP(upgrade) && !backend.onlyHTTP2 {
		set("Connection", "Upgrade")
		set("Upgrade", upgrade)
	}
	if _, ok := header["User-Agent"]; !ok {
		set("User-Agent", "") // else net/http has one of its own
	}
	ex.setForwarded(header, in, trusted)
	if pool := ex.route.pool; pool != nil && pool.Fence {
		if fence := ex.hold.slot.Fence(); fence != "" {
			set("Kgate-Fence", fence)
		}
	}
	ex.traceUpstream(out)
	if before := header["Via"]; len(before) > 0 {
		header["Via"] = append(before[:len(before):len(before)], ex.snapshot.via.of(in))
	} else {
		set("Via", ex.snapshot.via.of(in))
	}
}

// setForwarded tells the upstream who the client is. What a trusted proxy has said of that
// is kept and added to.
func (ex *exchange) setForwarded(header http.Header, in *http.Request, trusted bool) {
	set := func(name, value string) { header[name] = ex.attempt.out.value(value) }
	set("Forwarded", forwarded(in, trusted))
	remote, _, err := net.SplitHostPort(in.RemoteAddr)
	prior := in.Header["X-Forwarded-For"]
	switch {
	case err != nil: // then nothing is known
		delete(header, "X-Forwarded-For")
	case trusted && len(prior) > 0:
		set("X-Forwarded-For", strings.Join(prior, ", ")+", "+remote)
	default:
		set("X-Forwarded-For", remote)
	}
	// What of these is left a trusted proxy has said. The client may have named them in
	// Connection, to have them removed.
	if len(header["X-Forwarded-Host"]) == 0 {
		set("X-Forwarded-Host", in.Host)
	}
	if len(header["X-Forwarded-Proto"]) == 0 {
		set("X-Forwarded-Proto", scheme(in))
	}
}

// Max-Forwards bounds how many hops an OPTIONS or a TRACE takes (RFC 9110, section
// 7.6.2); with other methods it means nothing.
func maxForwards(r *http.Request) (n uint64, ok bool) {
	if r.Method != http.MethodOptions && r.Method != http.MethodTrace {
		return 0, false
	}
	values := r.Header["Max-Forwards"]
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return n, err == nil
}

// viaValues are the values of Via for requests that came over HTTP/1.0, 1.1 and 2.
type viaValues [3]string

func newViaValues(pseudonym string) viaValues {
	return viaValues{"1.0 " + pseudonym, "1.1 " + pseudonym, "2.0 " + pseudonym}
}

func (v *viaValues) of(r *http.Request) string {
	switch {
	case r.ProtoMajor == 2:
		return v[2]
	case r.ProtoMajor == 1 && r.ProtoMinor == 0:
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
