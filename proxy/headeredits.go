package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/kgate/kgate/internal/headeredit"
	"github.com/kgate/kgate/proxy/http1"
)

// Field is a header field. The value may have placeholders: {client}, the address of
// the request's client; {host}, which it asks for; {request_id}; {pool}; {gateway}.
type Field struct{ Name, Value string }

// HeaderEdits change a header: fields are removed, then others set, then added to. They
// cannot change what frames a message or is the gateway's own to write, such as
// X-Forwarded-For and Kgate-Fence.
type HeaderEdits struct {
	Remove   []string
	Set, Add []Field
}

// headerEdits are HeaderEdits made ready.
type headerEdits struct {
	remove   []string // canonical, as all names here; those of set, too
	set, add []fieldEdit
}

// fieldEdit has the field's value: once and for all, or to be expanded.
type fieldEdit struct {
	name  string
	fixed string // empty: it has placeholders
	value headeredit.Value
}

// newHeaderEdits returns valid edits made ready; nil if there are none.
func newHeaderEdits(e HeaderEdits) *headerEdits {
	if len(e.Remove)+len(e.Set)+len(e.Add) == 0 {
		return nil
	}
	out := new(headerEdits)
	for _, name := range e.Remove {
		out.remove = append(out.remove, http.CanonicalHeaderKey(name))
	}
	out.set, out.add = newFieldEdits(e.Set), newFieldEdits(e.Add)
	for _, f := range out.set {
		out.remove = append(out.remove, f.name)
	}
	return out
}

func newFieldEdits(fields []Field) []fieldEdit {
	var out []fieldEdit
	for _, f := range fields {
		value, _ := headeredit.ParseValue(f.Value) // has been checked
		edit := fieldEdit{name: http.CanonicalHeaderKey(f.Name), value: value}
		edit.fixed, _ = value.Fixed()
		out = append(out, edit)
	}
	return out
}

// check returns what is wrong with the edits; may says which fields they may change.
func (e HeaderEdits) check(may func(name string) error) error {
	var errs []error
	for _, name := range e.Remove {
		errs = append(errs, may(name))
	}
	for _, f := range slices.Concat(e.Set, e.Add) {
		errs = append(errs, may(f.Name))
		if _, err := headeredit.ParseValue(f.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
	}
	return errors.Join(errs...)
}

// owns reports whether the edits alone decide about the field of this name.
func (e *headerEdits) owns(name string) bool {
	if e == nil {
		return false
	}
	return slices.ContainsFunc(e.remove, func(own string) bool { return sameName(own, name) })
}

// apply changes the fields of a head of the exchange.
func (e *headerEdits) apply(fields *http1.Fields, ex *exchange) {
	if e == nil {
		return
	}
	for _, name := range e.remove {
		fields.Delete(name)
	}
	for _, edits := range [...][]fieldEdit{e.set, e.add} {
		for _, f := range edits {
			value, ok := f.fixed, true
			if value == "" {
				value, ok = f.value.Expand(ex.placeholder)
			}
			if ok { // else no field may have it
				fields.Add(f.name, value)
			}
		}
	}
}

// placeholder returns what a placeholder of a header field stands for.
func (ex *exchange) placeholder(name string) string {
	switch name {
	case headeredit.Client:
		return ex.info.Remote.String()
	case headeredit.Host:
		return ex.request.Host
	case headeredit.RequestID:
		return ex.requestID
	case headeredit.Pool:
		return ex.rec.Pool
	case headeredit.Gateway:
		return ex.snapshot.cfg.Gateway
	default:
		return ""
	}
}
