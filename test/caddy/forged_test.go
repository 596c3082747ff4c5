package caddy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/forged"
)

// TestForged: a client says nothing in kgate's name through Caddy, in a header nor in a
// trailer. The upstream judges.
func TestForged(t *testing.T) {
	came := make(chan *http.Request, 1)
	_, _, upstream := cluster.NewJudge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			came <- r
		}
	}))
	c := fleet(t, 1, "pool {\n k 1\n }", upstream)[0]
	conn, err := net.Dial("tcp", c.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, forged.Request("/")); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	got := <-came
	if said := forged.Fields(got.Header); len(said) != 1 || strings.Contains(said[0], forged.Fence) {
		t.Errorf("the upstream reads %q, want one fence of ours", said)
	}
	if said := forged.Fields(got.Trailer); len(said) > 0 {
		t.Errorf("the upstream reads the trailers %q", said)
	}
	if got.Header.Get("Test-Kept") != "1" || got.Trailer.Get("Test-Kept") != "1" {
		t.Errorf("the client's own fields are lost: %v, %v", got.Header, got.Trailer)
	}
}
