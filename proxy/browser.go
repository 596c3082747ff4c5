package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/internal/problems"
	"github.com/kgate/kgate/proxy/http1"
)

// A browser whose request has to wait is shown a page instead of nothing. Its place in
// line is a ticket, whose id is in a cookie for that one URL. The page comes back by
// itself, and the first request after the ticket was granted has its slot.

const (
	// pageHold is how long a request waits before it is answered with the page. Most
	// slots are free sooner, and a slot that is granted meanwhile is used at once.
	pageHold = 2 * time.Second
	// maxPlaceWait bounds how long the page's script may wait for news.
	maxPlaceWait = 30 * time.Second
	// maxPlaceWaits bounds how many scripts wait; one more is answered at once.
	maxPlaceWaits = 10_000

	placeCookiePrefix = "kgate-place-"
	// placePreference asks where the browser's ticket is in the line, without using it.
	placePreference = "kgate-place"
	// placeHeader is in the answers to that. What an upstream answers never has it: the
	// page's script tells by it that the pool has a page no more.
	placeHeader = "Kgate-Place"
	// maxPlaces is how many places a browser may have at once: each is a cookie that comes
	// with every request.
	maxPlaces = 50
)

// browser is a browser's request for a URL of a pool with a page.
type browser struct {
	*visit
	pool    *Pool
	w       http.ResponseWriter
	r       *http1.Request
	cookie  string // its name
	renewed bool   // the place that it had was given up
}

// newBrowser returns the browser that may be answered with the pool's page; nil: the request
// is not one of a browser, or the pool has no page.
func newBrowser(v *visit, pool *Pool, w http.ResponseWriter, r *http1.Request) *browser {
	if pool.Page == nil || !asksForPlace(r) && !isNavigation(r) {
		return nil
	}
	sum := sha256.Sum256([]byte(pool.Name + "\x00" + r.URL.RequestURI()))
	return &browser{visit: v, pool: pool, w: w, r: r, cookie: placeCookiePrefix + hex.EncodeToString(sum[:8])}
}

// isNavigation reports whether a person waits for the answer, and can be shown a page
// meanwhile. Cookies of a page in a frame of another site are not sent, so that only
// whole windows get one.
func isNavigation(r *http1.Request) bool {
	if r.Method != http.MethodGet || r.Length != 0 || !problems.AcceptsHTML(r.Fields.Values("Accept")) {
		return false
	}
	for _, name := range []string{"Range", "Prefer", "Upgrade", "X-Requested-With"} {
		if len(r.Fields.Values(name)) > 0 {
			return false
		}
	}
	dest := r.Fields.Get("Sec-Fetch-Dest")
	return dest == "" || dest == "document"
}

// asksForPlace reports whether a page's script makes the request.
func asksForPlace(r *http1.Request) bool {
	_, ok := preference(r.Fields, placePreference)
	return ok && r.Method == http.MethodGet
}

// isSpeculative reports whether the browser asks for what its user has not asked for yet.
func isSpeculative(fields http1.Fields) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Moz"} {
		v := fields.Get(name)
		if strings.Contains(v, "prefetch") || strings.Contains(v, "prerender") || strings.Contains(v, "preview") {
			return true
		}
	}
	return false
}

// admit returns the slot of the browser's ticket, or a free slot. Otherwise it
// answers with the page, or tells the page's script its place, and returns errAnswered.
// Acquire waits for a slot in the line, no longer than limit.
func (b *browser) admit(ctx context.Context, acquire func(limit time.Duration) (Slot, error)) (Slot, error) {
	if asksForPlace(b.r) {
		return nil, b.tellPlace(ctx)
	}
	if isSpeculative(b.r.Fields) {
		return acquire(minWait) // the page may never be looked at: no place in line
	}
	if id := b.ticket(); id != "" {
		slot, err := b.follow(ctx, id)
		if !isGone(err) {
			return slot, err
		}
		var ended *admission.EndedError
		b.renewed = errors.As(err, &ended) && ended.How == admission.EndExpired
	}
	slot, err := acquire(minWait)
	if !errors.Is(err, admission.Timeout) {
		return slot, err
	}
	if b.hasManyPlaces() {
		return acquire(b.pool.QueueTimeout) // as without a page
	}
	tickets := b.snapshot.cfg.Tickets
	ticket, err := tickets.RequestTicket(ctx, b.ticketRequest(b.r, b.pool), b.pool.Page.keep, "waiting page")
	switch {
	case errors.Is(err, admission.ClientLimit):
		return acquire(b.pool.QueueTimeout) // as without a page
	case err != nil:
		return nil, err
	}
	slot, err = b.follow(ctx, ticket.ID)
	if slot == nil && !errors.Is(err, errAnswered) {
		cancelTicket(tickets, ticket.ID)
	}
	return slot, err
}

// follow uses a ticket if it is granted soon, and answers with the page if not. An error
// for which isGone holds says that there is no such ticket to follow any more.
func (b *browser) follow(ctx context.Context, id string) (Slot, error) {
	tickets := b.snapshot.cfg.Tickets
	hold := pageHold
	if b.crowded {
		hold = 0
	}
	ticket, err := tickets.TestTicket(ctx, id, false, hold)
	if err == nil && ticket.Granted {
		var slot Slot
		if slot, err = tickets.RedeemTicket(ctx, b.pool.Name, id, &b.hold); err == nil {
			return slot, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case isGone(err):
		return nil, err
	case err != nil: // the ticket's gateway does not answer now
		ticket = admission.Ticket{}
	}
	return nil, b.show(http.StatusServiceUnavailable, id, ticket)
}

// isGone reports whether a ticket can no longer be used.
func isGone(err error) bool {
	var ended *admission.EndedError
	return errors.Is(err, admission.ErrUnknownTicket) || errors.Is(err, admission.ErrTicketUsed) || errors.As(err, &ended)
}

// tellPlace answers the script of a page: with the page as it is now, after a while, or
// with status 204 if the ticket has been granted.
func (b *browser) tellPlace(ctx context.Context) error {
	id := b.ticket()
	if id == "" {
		return errUnknown
	}
	seconds, _ := preferredWait(b.r.Fields)
	b.w.Header().Set(placeHeader, "1")
	wait := min(time.Duration(seconds)*time.Second, maxPlaceWait)
	if b.snapshot.places.Add(1) > maxPlaceWaits || b.crowded {
		wait = 0
	}
	defer b.snapshot.places.Add(-1)
	ticket, err := b.snapshot.cfg.Tickets.TestTicket(ctx, id, false, wait)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isGone(err), err == nil && ticket.Pool != b.pool.Name:
		return errUnknown
	case err != nil:
		return err
	case ticket.Granted:
		b.w.Header().Set("Cache-Control", "no-store")
		b.w.WriteHeader(http.StatusNoContent)
		return errAnswered
	}
	return b.show(http.StatusOK, id, ticket)
}

// show answers with the page, and returns errAnswered.
func (b *browser) show(status int, id string, ticket admission.Ticket) error {
	page := b.pool.Page
	refresh := page.keep / 6
	if ticket.ETA > 0 {
		refresh = min(refresh, max(ticket.ETA/2, pageHold))
	}
	body, err := page.render(pageData{
		Head: page.head(refresh), Position: ticket.Position, Wait: inWords(ticket.ETA), Seconds: int(ticket.ETA / time.Second), Renewed: b.renewed,
	})
	if err != nil {
		return err
	}
	b.setTicket(id)
	h := b.w.Header()
	h.Set("Retry-After", strconv.Itoa(retryAfterSeconds(refresh)))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	b.w.WriteHeader(status)
	_, _ = b.w.Write(body) // the browser may be gone; its ticket then expires
	return errAnswered
}

// ticket returns the id of the browser's ticket for this URL; "" if it has none.
func (b *browser) ticket() string {
	for _, c := range b.cookies() {
		if c.Name == b.cookie {
			return c.Value
		}
	}
	return ""
}

// cookies returns those that the browser has sent.
func (b *browser) cookies() []*http.Cookie {
	r := http.Request{Header: http.Header{"Cookie": b.r.Fields.Values("Cookie")}}
	return r.Cookies()
}

// hasManyPlaces reports whether the browser brings as many tickets as it may have, and
// none for this URL.
func (b *browser) hasManyPlaces() bool {
	n := 0
	for _, c := range b.cookies() {
		if strings.HasPrefix(c.Name, placeCookiePrefix) {
			n++
		}
	}
	return n >= maxPlaces && b.ticket() == ""
}

// setTicket has the browser bring a ticket along when it comes back. A link from another
// site leads to the place, too; a page's script cannot read the ticket.
func (b *browser) setTicket(id string) {
	// For longer than the ticket lives, so that the page can say that it has expired.
	age := int(2 * b.pool.Page.keep / time.Second)
	http.SetCookie(b.w, &http.Cookie{
		Name: b.cookie, Value: id, Path: "/", MaxAge: age, Secure: b.snapshot.isSecure(b.r), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// removePlaces removes the cookies that hold tickets, which are the gateway's own.
func removePlaces(fields *http1.Fields) {
	holds := func(f http1.Field) bool { return f.ID == http1.Cookie && strings.Contains(f.Value, placeCookiePrefix) }
	if !slices.ContainsFunc(*fields, holds) {
		return
	}
	var kept []string
	for _, line := range fields.Values("Cookie") {
		for cookie := range strings.SplitSeq(line, ";") {
			if cookie = strings.TrimSpace(cookie); cookie != "" && !strings.HasPrefix(cookie, placeCookiePrefix) {
				kept = append(kept, cookie)
			}
		}
	}
	if fields.Delete("Cookie"); len(kept) > 0 {
		fields.Add("Cookie", strings.Join(kept, "; "))
	}
}
