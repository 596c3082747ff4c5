package peers

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// maxRSS is what a gateway may take of memory, whatever goes through it.
const maxRSS = 100 << 20

// pseudonym is how a gateway calls itself in Via: each has a name of its own, so
// that it knows its own requests.
var pseudonym = regexp.MustCompile(`kgate-[0-9a-f]{8}`)

// checkText reads an answer that is this text.
func checkText(t *testing.T, res *http.Response, want string) {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if got := pseudonym.ReplaceAllString(string(b), "kgate"); err != nil || res.StatusCode != http.StatusOK || got != want {
		t.Errorf("%s %q, %v; want %q", res.Status, b, err, want)
	}
}

// testLarge sends a lot up and down at once, through one gateway, in every way;
// the gateway's memory stays flat.
func testLarge(t *testing.T, w *world) {
	size := int64(128 << 20)
	if os.Getenv("KGATE_SOAK") != "" {
		size = 4 << 30
	}
	g := w.Gateways[2]
	want := account(mustSum(t, size))
	for _, m := range modes {
		began := time.Now()
		c := w.client(t, m)
		var wg sync.WaitGroup
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, m.url(g, "/drain"), io.NopCloser(&stream{left: size}))
			if err != nil {
				t.Error(err)
				return
			}
			req.ContentLength = size
			res, err := c.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			checkText(t, res, want)
		})
		wg.Go(func() {
			res, err := c.Get(m.url(g, fmt.Sprintf("/flood?bytes=%d", size)))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			bytes, crc, err := sum(res.Body)
			if got := account(bytes, crc); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", m.name, got, err, want)
			}
		})
		wg.Wait()
		rss := peak(t, g)
		t.Logf("%s: %d MiB up and as much down in %.1f s, the gateway has used at most %d MiB of memory",
			m.name, size>>20, time.Since(began).Seconds(), rss>>20)
		if rss > maxRSS {
			t.Errorf("%s: the gateway has used %d MiB of memory", m.name, rss>>20)
		}
	}
}

func mustSum(t *testing.T, size int64) (bytes int64, crc string) {
	t.Helper()
	bytes, crc, err := sum(&stream{left: size})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, crc
}

func peak(t *testing.T, g *cluster.Gateway) int64 {
	t.Helper()
	rss, err := g.PeakRSS()
	if err != nil {
		t.Skip(err)
	}
	return rss
}
