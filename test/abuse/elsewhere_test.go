package abuse

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// elsewhere is how many mutants others get: the first ones.
const elsewhere = 2_500

// besides returns nginx and HAProxy before an upstream.
func besides(t *testing.T, upstream string) map[string]string {
	t.Helper()
	if !soak() {
		t.Skip("counts what others let pass: with KGATE_SOAK=1")
	}
	cluster.Need(t, "nginx", "nginx-light")
	cluster.Need(t, "haproxy", "haproxy")
	upstream = strings.TrimPrefix(upstream, "http://")
	return map[string]string{"nginx": cluster.StartNginx(t, upstream), "HAProxy": cluster.StartHAProxy(t, upstream)}
}

// hasty is how long others may take for an answer: they wait where they take a mutant for a part.
const hasty = 100 * time.Millisecond

// TestMutantsOfRequestsElsewhere counts what passes others.
func TestMutantsOfRequestsElsewhere(t *testing.T) {
	u := newRawUpstream(t)
	for name, addr := range besides(t, u.url()) {
		r := rand.New(rand.NewPCG(29, 6))
		passed, malformed, several := 0, 0, 0
		for range elsewhere {
			sent := mutate(r, seedRequests)
			if want, err := parse(sent, ""); err == nil {
				sent = sent[:want.length]
			} else if errors.Is(err, errShort) {
				continue
			}
			statusOf(t, addr, sent, hasty)
			seen := slices.DeleteFunc(u.take(), func(s sighting) bool { return !s.whole })
			for _, s := range seen {
				passed++
				if _, err := parse(s.raw, ""); err != nil {
					malformed++
					t.Logf("%s: %q: %v: the upstream saw\n%q", name, sent, err, s.raw)
				}
			}
			if len(seen) > 1 {
				several++
			}
		}
		t.Logf("%s: the upstream saw %d requests, %d of them malformed; of %d mutants more than one", name, passed, malformed, several)
	}
}

// TestMutantsOfAnswersElsewhere does the same in the other direction.
func TestMutantsOfAnswersElsewhere(t *testing.T) {
	u := newAnswering(t)
	for name, addr := range besides(t, u.listener.Addr().String()) {
		r := rand.New(rand.NewPCG(29, 7))
		passed, malformed := 0, 0
		for range elsewhere {
			sent := mutate(r, seedAnswers)
			if want, err := parse(sent, http.MethodGet); err == nil && want.first < "200" {
				continue
			}
			u.mu.Lock()
			u.answer = sent
			u.mu.Unlock()
			raw := rawAnswer(t, addr, 10*hasty)
			got, err := parse(raw, http.MethodGet)
			switch {
			case err != nil && !errors.Is(err, errShort):
				malformed++
				t.Logf("%s: %q: %v: the client got\n%q", name, sent, err, raw)
			case err == nil && got.first != "502":
				passed++
			}
		}
		t.Logf("%s: %d answers passed, %d of them malformed", name, passed+malformed, malformed)
	}
}
