package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// show writes a value as the file would, on one line.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return showDuration(x)
	case *url.URL:
		return showUpstream(x)
	case netip.Addr:
		if !x.IsValid() {
			return `""`
		}
		return textOf(x.String())
	case fmt.Stringer:
		return showText(x.String())
	case bool, int, float64:
		return fmt.Sprint(x)
	}
	if v.Kind() != reflect.Slice {
		return showText(v.String())
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = show(v.Index(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// showDuration leaves out what time.Duration writes of zeros.
func showDuration(d time.Duration) string {
	s := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, unit) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// showText hides the password of a URL.
func showText(s string) string {
	if strings.Contains(s, "@") {
		if u, err := url.Parse(s); err == nil && u.User != nil {
			s = u.Redacted()
		}
	}
	return textOf(s)
}

// notText matches what YAML would not read back as the same text.
var notText = regexp.MustCompile(`^$|^[-?. ]| $|["',:\[\]{}#&*!|>%@` + "`" + `\\\x00-\x1f\x7f]|^[0-9a-fA-F.+_xo-]+$|[^\x20-\x7e]|^(?i:true|false|null|yes|no|on|off|y|n|~)$|^[=<]`)

// textOf writes s as YAML has text.
func textOf(s string) string {
	if notText.MatchString(s) {
		return strconv.Quote(strings.ToValidUTF8(s, "?"))
	}
	return s
}

// showUpstream writes an upstream as the file has it.
func showUpstream(u *url.URL) string {
	if k := admission.UpstreamK(u); k > 0 {
		return fmt.Sprintf("{url: %s, k: %d}", textOf(admission.UpstreamURL(u)), k)
	}
	if k := admission.UpstreamKEach(u); k > 0 {
		return fmt.Sprintf("{url: %s, k_each: %d}", textOf(admission.UpstreamURL(u)), k)
	}
	return textOf(u.Redacted())
}
