package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// elsewhere is a page of another origin that uses tickets, as docs/tickets.md shows it.
const elsewhere = `<!DOCTYPE html><html lang="en"><link rel="icon" href="data:,"><title>page</title><script>
async function download(gateway, prefers) {
	try {
		const tickets = gateway + "/.kgate/tickets";
		let at;
		if (prefers) {
			at = gateway + (await fetch(gateway + "/open/file", {headers: {Prefer: "kgate-ticket"}})).headers.get("Location");
		} else {
			const body = JSON.stringify({pool: "open"});
			at = tickets + "/" + (await (await fetch(tickets, {method: "POST", headers: {"Content-Type": "application/json"}, body})).json()).id;
		}
		let ticket = await (await fetch(at)).json();
		document.title = ticket.state + " " + ticket.position;
		while (ticket.state === "waiting") {
			const answer = await fetch(at + "?wait=10s");
			if (answer.ok) ticket = await answer.json();
			else if (answer.status < 500) throw new Error("the ticket has ended");
			else await new Promise(later => setTimeout(later, 1000));
		}
		const answer = await fetch(gateway + "/open/file", {headers: {"Kgate-Ticket": ticket.id}});
		document.title = answer.status + " " + await answer.text();
	} catch (e) {
		document.title = e.name;
	}
}
</script></html>`

// gate is an upstream that says when a request has come, and answers it when told so.
type gate struct{ entered, proceed chan struct{} }

// pagesOfElsewhere are two origins, of which only the first may use tickets of the pool open.
func pagesOfElsewhere(t *testing.T) (may, mayNot *httptest.Server, pool cluster.Pool, slow *gate) {
	t.Helper()
	serve := func(h http.HandlerFunc) *httptest.Server {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s
	}
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, elsewhere) }
	may, mayNot = serve(page), serve(page)
	slow = &gate{make(chan struct{}), make(chan struct{})}
	upstream := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/open/slow" {
			slow.entered <- struct{}{}
			<-slow.proceed
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(w, "from the upstream")
	})
	return may, mayNot, cluster.Pool{
		Name: "open", K: 1, Upstream: upstream.URL, Settings: "tickets: true",
		Route: fmt.Sprintf("cors: {origins: [%q], preflight: true}", may.URL),
	}, slow
}

// ticketsFromPages: a page that the route lists waits with a ticket, and has its answer in
// its turn. Another one gets nothing.
func ticketsFromPages(t *testing.T, visit func(page string) *tab, may, mayNot *httptest.Server, slow *gate, gateways []*cluster.Gateway) {
	foreign, page := visit(mayNot.URL), visit(may.URL)
	for _, b := range []*tab{foreign, page} {
		b.mu.Lock()
		b.others, b.failing = []string{gateways[0].HTTP}, b == foreign
		b.mu.Unlock()
	}
	for _, prefers := range []bool{false, true} {
		first := ask(t, gateways[0], "/open/slow")
		<-slow.entered
		download := fmt.Sprintf("(download('http://%s', %v), true)", gateways[0].HTTP, prefers)
		eval[bool](page, download)
		page.await("the page is in line", `document.title.startsWith("waiting")`)
		eval[bool](foreign, download)
		foreign.await("another page has no ticket", `document.title .startsWith("TypeError")`)
		slow.proceed <- struct{}{}
		page.await("it is served", `document.title === "200 from the upstream"`)
		if got := <-first.done; got != "200 " {
			t.Errorf("a client got %s", got)
		}
	}
}
