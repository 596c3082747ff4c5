package admin

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
)

// lineText shows the requests and tickets of all pools, or of one, as text for curl.
func (h *handler) lineText(w http.ResponseWriter, r *http.Request) {
	pools := []string{r.URL.Query().Get("pool")}
	if pools[0] == "" {
		pools = nil
		for _, p := range h.Source.Report("", 0).Status.Pools {
			pools = append(pools, p.Name)
		}
	}
	var b bytes.Buffer
	for _, pool := range pools {
		l, _, err := h.fleet.line(r.Context(), pool)
		if err != nil {
			failed(w, r, err, h.Log)
			return
		}
		l.print(&b)
	}
	if len(pools) == 0 {
		fmt.Fprintln(&b, "No pools are agreed on yet.")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// print writes l as text.
func (l *Line) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "pool %s: %d of %d slots in use, %d waiting\n", l.Pool, l.InFlight, l.K, l.Waiting)
	if len(l.Missing) > 0 {
		fmt.Fprintf(b, "missing, as it does not answer: %s\n", strings.Join(l.Missing, ", "))
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(first string, e Entry) {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", first, Seconds(e.Seconds), e.Gateway, e.Who(), cmp.Or(e.Trace, "-"), e.ID)
	}
	if len(l.Holders)+len(l.Line) > 0 {
		fmt.Fprintln(table, "\n  PLACE\tFOR\tAT\tWHO\tTRACE\tID")
	}
	for _, e := range l.Holders {
		row("in", e)
	}
	for _, e := range l.Line {
		row(fmt.Sprint(e.Position), e)
	}
	_ = table.Flush() // to memory
	if more := l.Waiting - len(l.Line); more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	b.WriteByte('\n')
}
