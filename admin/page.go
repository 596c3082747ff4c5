package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's template and style
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(pageStyle) }, // our own file
		"millis": millis,
		"uptime": uptime,
	}).Parse(pageText))

	// styleHash lets the page's own style pass the content security policy.
	styleHash = func() string {
		sum := sha256.Sum256([]byte(pageStyle))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}()
)

func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, h.source.Status()); err != nil {
		h.log.Error("status page cannot be rendered", slog.Any("error", err))
		problem(w, r, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// millis formats milliseconds for people.
func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// uptime formats seconds for people, in the two largest units.
func uptime(seconds float64) string {
	s := int64(seconds)
	switch days, hours, minutes := s/86400, s/3600%24, s/60%60; {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min %d s", minutes, s%60)
	default:
		return fmt.Sprintf("%d s", s)
	}
}
