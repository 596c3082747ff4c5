package proxy

import (
	"slices"
	"strings"

	"github.com/kgate/kgate/proxy/http1"
)

// upgradeType returns the list of protocols in which a head asks, or agrees, to go on;
// empty: none.
func upgradeType(fields http1.Fields) string {
	if !fields.HasToken(http1.Connection, "Upgrade") {
		return ""
	}
	list := strings.Join(fields.Values("Upgrade"), ", ")
	for i := range len(list) {
		if list[i] < ' ' || list[i] > '~' {
			return ""
		}
	}
	return list
}

// protocols splits such a list. Nothing can be quoted in it.
func protocols(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// isAsked reports whether all protocols in which an upstream goes on were asked for.
func isAsked(asked, agreed string) bool {
	may, goesOn := protocols(asked), protocols(agreed)
	for _, protocol := range goesOn {
		if !slices.ContainsFunc(may, func(p string) bool { return sameProtocol(p, protocol) }) {
			return false
		}
	}
	return len(goesOn) > 0
}

// sameProtocol compares two protocols. Either may leave its version out.
func sameProtocol(a, b string) bool {
	nameA, versionA, _ := strings.Cut(a, "/")
	nameB, versionB, _ := strings.Cut(b, "/")
	return strings.EqualFold(nameA, nameB) && (versionA == "" || versionB == "" || strings.EqualFold(versionA, versionB))
}

// switchesHTTP reports whether a request wants to go on in another kind of HTTP:
// then any number of requests would pass behind the admitted one, with
// headers that were not checked.
func switchesHTTP(asked string) bool {
	for _, protocol := range protocols(asked) {
		switch name, _, _ := strings.Cut(strings.ToLower(protocol), "/"); name {
		case "h2c", "h2", "http", "tls":
			return true
		}
	}
	return false
}
