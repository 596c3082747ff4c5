package config

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/kgate/kgate/internal/admission"
)

// validator collects what is wrong with a configuration.
type validator struct {
	src  *source
	errs []error
}

func (v *validator) wrong(key, wrong, hint string) {
	if wrong != "" && !v.src.broken(key) {
		v.errs = append(v.errs, v.src.at(key, wrong, hint))
	}
}

// whole checks a whole number.
func (v *validator) whole(key string, n, least, most int) {
	if n < least || n > most {
		v.wrong(key, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("write a whole number from %d to %d", least, most))
	}
}

// duration checks a duration.
func (v *validator) duration(key string, d, least time.Duration) {
	switch {
	case d >= least:
	case d < 0:
		v.wrong(key, d.String()+" is negative", hintDuration)
	case least == 1:
		v.wrong(key, "must be more than zero", hintDuration)
	default:
		v.wrong(key, d.String()+" is too short", "write "+least.String()+" or more")
	}
}

// oneOf checks a word.
func oneOf[T ~string](v *validator, key string, word T, known []T) {
	if slices.Contains(known, word) {
		return
	}
	words := make([]string, len(known))
	for i, w := range known {
		words[i] = string(w)
	}
	v.wrong(key, quote(string(word))+" is not known", didYouMean(string(word), words, "write one of"))
}

func (v *validator) name(key, name string, ok func(string) bool, hint string) {
	if !ok(name) {
		v.wrong(key, quote(name)+" is not a name", hint)
	}
}

// upstreams checks that a list names no server twice.
func (v *validator) upstreams(key string, us []*url.URL) {
	seen := map[string]bool{}
	for i, u := range us {
		if u == nil { // it could not be read
			continue
		}
		server := admission.UpstreamServer(u)
		if seen[server] {
			v.wrong(fmt.Sprintf("%s[%d]", key, i), quote(admission.UpstreamURL(u))+" is listed twice", "keep one of the two")
		}
		seen[server] = true
	}
}
