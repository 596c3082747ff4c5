package proxy

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	texttemplate "text/template"

	"golang.org/x/net/http/httpguts"

	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/http1"
)

// ErrorPage is what people are shown in place of the gateway's own line of text, when it
// cannot do what a request asks for. Clients that prefer JSON get the problem document
// all the same.
type ErrorPage struct {
	statuses    []string
	contentType string
	mediaType   string
	template    interface {
		Execute(w io.Writer, data any) error
	}
}

// NewErrorPage returns a page for answers with one of the statuses, such as 503 or 5xx. Of
// several pages that with the status itself is shown, else the first. The text is a
// template of package html/template, or of text/template if the content type is not
// text/html, and may have {{.Status}}, {{.Title}} (the status in words), {{.Detail}},
// {{.RetryAfter}} (seconds, or 0), {{.RequestID}}, {{.Pool}}, {{.Reason}} and {{.Position}}.
func NewErrorPage(statuses []string, contentType, text string) (*ErrorPage, error) {
	p := &ErrorPage{statuses: statuses, contentType: contentType}
	var err error
	if p.mediaType, _, err = mime.ParseMediaType(contentType); err != nil || !httpguts.ValidHeaderFieldValue(contentType) {
		return nil, fmt.Errorf("%q is not a content type: write one such as text/html; charset=utf-8", contentType)
	}
	if p.mediaType == "text/html" {
		p.template, err = template.New("page").Parse(text)
	} else {
		p.template, err = texttemplate.New("page").Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the page is no template: %w", err)
	}
	for _, d := range []problem{{Status: 404}, {Status: 503, Detail: "<b>", Pool: "p", Reason: "timeout", Position: 3, RetryAfter: 1, RequestID: "a"}} {
		if _, err := p.render(d); err != nil {
			return nil, fmt.Errorf("the page cannot be shown: %w", err)
		}
	}
	return p, nil
}

func (p *ErrorPage) render(d problem) ([]byte, error) {
	d.Title = http.StatusText(d.Status)
	if strings.HasSuffix(p.mediaType, "xml") { // browsers run the scripts of XHTML and SVG
		d.Detail, d.Pool = template.HTMLEscapeString(d.Detail), template.HTMLEscapeString(d.Pool)
	}
	var b bytes.Buffer
	err := p.template.Execute(&b, d)
	return b.Bytes(), err
}

// findErrorPage returns the page for a status; nil if there is none.
func findErrorPage(pages []*ErrorPage, status int) *ErrorPage {
	if len(pages) == 0 {
		return nil
	}
	code := strconv.Itoa(status)
	for _, wanted := range []string{code, code[:1] + "xx"} {
		for _, p := range pages {
			if slices.Contains(p.statuses, wanted) {
				return p
			}
		}
	}
	return nil
}

// writeErrorPage answers with the page for the problem, and reports whether there is one
// that the client wants.
func (ex *exchange) writeErrorPage(r *http1.Request, d problem) bool {
	var p *ErrorPage
	if ex.route != nil {
		p = findErrorPage(ex.route.errorPages, d.Status)
	}
	if p == nil {
		p = findErrorPage(ex.snapshot.cfg.Edge.ErrorPages, d.Status)
	}
	if p == nil || !problems.Wants(r.Fields.Values("Accept"), p.mediaType) {
		return false
	}
	body, err := p.render(d)
	if err != nil { // it has been tried
		return false
	}
	problems.WriteBody(ex, d.Status, p.contentType, body)
	return true
}
