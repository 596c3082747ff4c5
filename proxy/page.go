package proxy

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"time"
)

var (
	//go:embed page/wait.html
	waitPage string
	//go:embed page/wait.js
	waitScript string
)

// Page is what a browser is shown while its request waits.
type Page struct {
	keep     time.Duration
	template *template.Template
}

// pageData is what a template may show.
type pageData struct {
	// Head must be in the page's head: it brings the page back.
	Head template.HTML
	// Position in the line, from 1; 0 if it is not known.
	Position int
	// Wait is the expected wait in words, and Seconds in seconds; empty and 0 if it is
	// not known.
	Wait    string
	Seconds int
	// Keep is how long the place is kept without the page, in words.
	Keep string
	// Renewed: the place that the browser had before was given up.
	Renewed bool
}

// NewPage returns a page. A place in line is kept for the time keep after the page was last
// seen; for that long a slot may be held for a browser that has gone. The text is a template of
// package html/template; empty: the page that is built in. It must have {{.Head}} in its
// head, which brings the page back, and may have {{.Position}}, {{.Seconds}} (the expected
// wait), {{.Wait}} (the same in words), {{.Keep}} and {{.Renewed}} (the place before was
// given up). Elements with the attribute data-live are kept up to date while the page is
// open. Those with data-served are shown in their place when the turn has come, since the
// answer may be a download, those with data-nocookie if the browser keeps no cookies.
func NewPage(keep time.Duration, text string) (*Page, error) {
	if keep < time.Second {
		return nil, fmt.Errorf("a page's place is kept for %v: make it a second or more", keep)
	}
	if text == "" {
		text = waitPage
	}
	t, err := template.New("page").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the page is no template: %w", err)
	}
	p := &Page{keep: keep, template: t}
	for _, d := range []pageData{{}, {Position: 12, Wait: "about 3 minutes", Seconds: 180, Renewed: true}} {
		d.Head = p.head(time.Second)
		out, err := p.render(d)
		if err != nil {
			return nil, fmt.Errorf("the page cannot be shown: %w", err)
		}
		if !bytes.Contains(out, []byte(d.Head)) {
			return nil, errors.New("the page lacks {{.Head}}, and would never come back; write it between <head> and </head>")
		}
	}
	return p, nil
}

func (p *Page) render(d pageData) ([]byte, error) {
	d.Keep = exactly(p.keep)
	var b bytes.Buffer
	err := p.template.Execute(&b, d)
	return b.Bytes(), err
}

// head brings the page back: a script that asks for the place, or else a reload.
func (p *Page) head(refresh time.Duration) template.HTML {
	return template.HTML(fmt.Sprintf("<noscript><meta http-equiv=\"refresh\" content=\"%d\"></noscript>\n<script type=\"module\">%s</script>",
		retryAfterSeconds(refresh), waitScript))
}

// pagePolicy lets a page have its own style, and of scripts only the one in its head.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(waitScript))
	return "default-src 'none'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; connect-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
}()

// inWords says about how long something takes; "" if that is not known.
func inWords(d time.Duration) string {
	const few, hours = 10 * time.Second, 100 * time.Minute
	switch {
	case d <= 0:
		return ""
	case d < few:
		return "a few seconds"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d seconds", (d+few/2)/few*10)
	case d < hours:
		return fmt.Sprintf("about %d minutes", (d+time.Minute/2)/time.Minute)
	default:
		return fmt.Sprintf("about %d hours", (d+time.Hour/2)/time.Hour)
	}
}

// exactly says how long something takes.
func exactly(d time.Duration) string {
	switch {
	case d == time.Minute:
		return "a minute"
	case d%time.Minute == 0:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	default:
		return fmt.Sprintf("%d seconds", d/time.Second)
	}
}
