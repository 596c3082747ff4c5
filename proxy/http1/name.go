package http1

// ID is a name of fields that a proxy knows; Other is any other.
type ID uint8

// The known names.
const (
	Other ID = iota
	Accept
	AcceptEncoding
	AcceptLanguage
	AltSvc
	Authorization
	CacheControl
	Connection
	ContentEncoding
	ContentLength
	ContentType
	Cookie
	Date
	ETag
	Expect
	Forwarded
	Host
	HTTP2Settings
	IfModifiedSince
	IfNoneMatch
	KeepAlive
	LastModified
	Location
	MaxForwards
	Origin
	Prefer
	ProxyAuthenticate
	ProxyAuthorization
	ProxyConnection
	Range
	Referer
	RetryAfter
	Server
	SetCookie
	TE
	Traceparent
	Tracestate
	Trailer
	TransferEncoding
	Upgrade
	UserAgent
	Vary
	Via
	XForwardedFor
	XForwardedHost
	XForwardedProto

	ids // how many; at most 64
)

// idNames has the names as net/http spells them.
var idNames = [ids]string{
	Accept: "Accept", AcceptEncoding: "Accept-Encoding", AcceptLanguage: "Accept-Language", AltSvc: "Alt-Svc",
	Authorization: "Authorization", CacheControl: "Cache-Control", Connection: "Connection",
	ContentEncoding: "Content-Encoding", ContentLength: "Content-Length", ContentType: "Content-Type", Cookie: "Cookie",
	Date: "Date", ETag: "Etag", Expect: "Expect", Forwarded: "Forwarded", Host: "Host", HTTP2Settings: "Http2-Settings",
	IfModifiedSince: "If-Modified-Since", IfNoneMatch: "If-None-Match", KeepAlive: "Keep-Alive",
	LastModified: "Last-Modified", Location: "Location", MaxForwards: "Max-Forwards", Origin: "Origin", Prefer: "Prefer",
	ProxyAuthenticate: "Proxy-Authenticate", ProxyAuthorization: "Proxy-Authorization", ProxyConnection: "Proxy-Connection",
	Range: "Range", Referer: "Referer", RetryAfter: "Retry-After", Server: "Server", SetCookie: "Set-Cookie", TE: "Te",
	Traceparent: "Traceparent", Tracestate: "Tracestate", Trailer: "Trailer", TransferEncoding: "Transfer-Encoding",
	Upgrade: "Upgrade", UserAgent: "User-Agent", Vary: "Vary", Via: "Via",
	XForwardedFor: "X-Forwarded-For", XForwardedHost: "X-Forwarded-Host", XForwardedProto: "X-Forwarded-Proto",
}

// String returns the name as net/http spells it; "" for Other.
func (id ID) String() string { return idNames[id] }

// The table by hash. Two names of one hash would be a fault of nameHash: see TestNames.
var idTable = func() (t [256]ID) {
	for id := Other + 1; id < ids; id++ {
		t[nameHash([]byte(idNames[id]))] = id
	}
	return t
}()

// nameHash does not tell capitals from small letters. The name is not empty.
func nameHash[T text](name T) uint8 {
	n := len(name)
	return uint8(n)*93 ^ (name[0]|0x20)*107 ^ (name[n-1]|0x20)*89 ^ (name[n/2] | 0x20)
}

// idOf returns the id of a name.
func idOf[T text](name T) ID {
	if len(name) == 0 {
		return Other
	}
	id := idTable[nameHash(name)]
	if id == Other || !equalFold(name, idNames[id]) {
		return Other
	}
	return id
}

// equalFold reports whether a token is s, where only letters of ASCII have a case.
func equalFold[T text](token T, s string) bool {
	if len(token) != len(s) {
		return false
	}
	for i := range len(s) {
		if lower(token[i]) != lower(s[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// isFraming reports whether a field says where a message ends or whom it is for: it may not
// stand in a trailer (RFC 9110, section 6.5.1).
func (id ID) isFraming() bool {
	return id == ContentLength || id == TransferEncoding || id == Host || id == Trailer
}
