package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/kgate/kgate"
	"github.com/kgate/kgate/gateway"
)

// The whole reverse proxy in a program, with the page for operators below a path of its own.
func Example() {
	ctx := context.Background()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "from the site") }))
	at, err := url.Parse(site.URL)
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.Start(ctx, gateway.Config{
		Config: kgate.Config{Name: "gw-1"},
		Pools:  []gateway.Pool{{Pool: kgate.Pool{Name: "site", K: 6}, Upstreams: []*url.URL{at}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Ready(ctx); err != nil { // until then clients get 503
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.Handler())
	mux.Handle("/ops/", http.StripPrefix("/ops", gateway.Admin(g.Node)))
	server := httptest.NewServer(mux)

	for _, path := range []string{"/", "/ops/readyz"} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, string(text))
	}

	if err := g.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	server.Close()
	site.Close()
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 from the site
	// 200 ready
}
