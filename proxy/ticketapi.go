package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/proxy/http1"
	"github.com/kgate/kgate/proxy/http1/adapt"
)

// serveTickets passes the ticket API on.
func (ex *exchange) serveTickets(r *http1.Request) {
	if ex.snapshot.cfg.TicketHandler == nil {
		ex.answerProblem(r, http.StatusNotFound, "this gateway has no tickets")
		return
	}
	if cors := &ex.snapshot.ticketCORS; len(cors.Origins) > 0 && preflightMethod(r) != "" {
		ex.answerPreflight(r, cors)
		return
	}
	ex.takeHead(r)
	if ex.crowded && r.Method == http.MethodGet { // which may wait
		ex.refuse(r, admission.QueueFull)
		return
	}
	own := *r
	own.Body = ex.readOwnBody(r)
	ex.snapshot.cfg.TicketHandler.ServeHTTP(ex, adapt.ToHTTP(&ex.ctx, &own, nil))
}

// admitOrTicket admits a request that prefers a ticket to waiting: with
// the slot of its ticket if that is granted within the wait that it prefers, at once
// if it names none. Otherwise it is answered with the ticket, which keeps its place.
func (ex *exchange) admitOrTicket(r *http1.Request, pool *Pool) (Slot, error) {
	tickets := ex.snapshot.cfg.Tickets
	ticket, err := tickets.RequestTicket(&ex.ctx, ex.ticketRequest(r, pool), min(MaxTicketTTL, cmp.Or(pool.TicketTTL, MaxTicketTTL)), "Prefer: "+ticketPreference)
	if err != nil {
		return nil, err
	}
	if seconds, ok := preferredWait(r.Fields); ok && !ticket.Granted && !ex.crowded {
		var wait time.Duration
		wait, ex.prefer = time.Duration(seconds)*time.Second, seconds
		if pool.QueueTimeout >= 0 && wait > pool.QueueTimeout {
			wait, ex.prefer = pool.QueueTimeout, -1
		}
		later, err := tickets.TestTicket(&ex.ctx, ticket.ID, false, wait)
		switch {
		case ex.ctx.Err() != nil:
			cancelTicket(tickets, ticket.ID)
			return nil, ex.ctx.Err()
		case err == nil: // else the gateway that has it does not answer now, and the client may ask again
			ticket = later
		}
	}
	if !ticket.Granted {
		if err := ex.writeTicket(ticket); err != nil {
			return nil, err
		}
		return nil, errAnswered
	}
	slot, err := ex.redeem(&ex.ctx, pool.Name, []string{ticket.ID})
	if err != nil {
		cancelTicket(tickets, ticket.ID)
	}
	return slot, err
}

// writeTicket answers with a ticket.
func (ex *exchange) writeTicket(ticket admission.Ticket) error {
	body, err := json.Marshal(ticket)
	if err != nil {
		return err
	}
	header := ex.Header()
	header.Set("Location", ticketsPath+"/"+url.PathEscape(ticket.ID))
	header.Set("Retry-After", strconv.Itoa(retryAfterSeconds(min(ticket.ETA, MaxTicketTTL/2))))
	header.Set("Preference-Applied", ticketPreference)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	ex.WriteHeader(http.StatusAccepted)
	_, _ = ex.Write(body) // the client may be gone; its ticket then expires
	return nil
}

// TicketRequest returns what is asked for with a ticket of the pool. If ctx is that of a
// request which a [Config].TicketHandler serves, that is what its client may have;
// otherwise it is the program's own, and the hold has no bound.
func TicketRequest(ctx context.Context, pool string) admission.Request {
	if ex := exchangeIn(ctx); ex != nil && ex.route == nil {
		if p := ex.snapshot.pool(pool); p != nil {
			return ex.ticketRequest(ex.request, p)
		}
	}
	return admission.Request{Pool: pool}
}
