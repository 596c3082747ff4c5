package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kgate/kgate/test/cluster"
)

// tab is one page in the browser. It fails its test at the end if the page has
// asked another host for anything, or has complained.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	host       string
	others     []string // that the page may ask, too
	complaints []string
	// failing: requests are about to fail, as when the gateway is killed: that is no fault.
	failing bool
	close   func()
}

// leave closes the tab.
func (b *tab) leave() { b.close() }

// browser starts Chromium, which ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	cluster.Need(t, "chromium", "chromium")
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.Flag("force-color-profile", "srgb")))
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return ctx
}

// open opens a page in a tab of its own.
func open(browser context.Context, t *testing.T, page string, script bool) *tab {
	t.Helper()
	at, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, host: at.Host, close: cancel}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.complaints {
			t.Errorf("page %s: %s", page, c)
		}
	})
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !script})
	run(b, chromedp.Navigate(page))
	return b
}

// hear notes what must not be.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(format string, args ...any) { b.complaints = append(b.complaints, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != b.host && !slices.Contains(b.others, u.Host) {
			complain("asks for %s", e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		complain("throws %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			complain("writes to its console: %v", e.Args)
		}
	case *log.EventEntryAdded:
		// The waiting page has the status 503, which the browser calls an error.
		waits := strings.Contains(e.Entry.Text, "503 (Service Unavailable)")
		if e.Entry.Level == "error" && !b.failing && !waits {
			complain("has an error: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
}

// run does something in the page and returns what comes of it.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	out, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// call has the browser carry out a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what an expression comes to in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// await waits until an expression holds in the page. It asks again and again: the
// page's policy forbids the browser's own way to wait.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	const patience = time.Minute
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	defer func() { b.t.Logf("%5.2f s: %s", time.Since(begun).Seconds(), what) }()
	for ; !eval[bool](b, "!!("+expression+")"); <-tick.C {
		if time.Since(begun) > patience {
			b.t.Fatalf("never: %s; the page says:\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}

// look sets how wide the window is, and whether its user likes it dark.
func (b *tab) look(width int64, scheme string) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// shoot keeps a picture of the whole page, where somebody wants it.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if os.Getenv("KGATE_ARTIFACTS") == "" {
		return
	}
	b.keep(name, run(b, chromedp.FullScreenshot(100)))
}

// shootParts keeps a picture of each element that the selector finds, where somebody
// wants them.
func (b *tab) shootParts(name, selector string) {
	b.t.Helper()
	if os.Getenv("KGATE_ARTIFACTS") == "" {
		return
	}
	boxes := eval[[][4]int](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.getBoundingClientRect())
		.map((r) => [r.left, r.top + scrollY, r.right, r.bottom + scrollY].map(Math.round))`, selector))
	whole, err := png.Decode(bytes.NewReader(run(b, chromedp.FullScreenshot(100))))
	if err != nil {
		b.t.Fatal(err)
	}
	cut, ok := whole.(interface {
		SubImage(r image.Rectangle) image.Image
	})
	if !ok {
		b.t.Fatalf("a picture of type %T", whole)
	}
	for i, box := range boxes {
		var part bytes.Buffer
		if err := png.Encode(&part, cut.SubImage(image.Rect(box[0], box[1], box[2], box[3]))); err != nil {
			b.t.Fatal(err)
		}
		b.keep(fmt.Sprintf("%s-%d", name, i+1), part.Bytes())
	}
}

func (b *tab) keep(name string, picture []byte) {
	b.t.Helper()
	dir := os.Getenv("KGATE_ARTIFACTS")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// skip skips a test that lacks a tool; what CI does not run is not tested.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
