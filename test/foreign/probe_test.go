package foreign

import (
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// TestHttp11Probe: of Http11Probe's cases, which are requests and sequences of them, the gateway passes as many
// as nginx, and each is read. testdata/probe.mjs runs them.
func TestHttp11Probe(t *testing.T) {
	dir := fetch(t, "KGATE_HTTP11PROBE", "https://github.com/MDA2AV/Http11Probe")
	cluster.Need(t, "node", "nodejs")
	passed := make(map[string]int)
	for _, s := range servers(t) {
		host, port, _ := net.SplitHostPort(s.addr)
		cmd := exec.CommandContext(t.Context(), "node", "testdata/probe.mjs", dir, host, port)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		var results map[string]string
		if err == nil {
			err = json.Unmarshal(out, &results)
		}
		if err != nil {
			t.Fatal(err)
		}
		others := make(map[string][]string)
		for id, verdict := range results {
			if verdict == "Pass" {
				passed[s.name]++
				continue
			}
			others[verdict] = append(others[verdict], id)
			if strings.HasPrefix(verdict, "not read") {
				t.Errorf("%s: %s", id, verdict)
			}
		}
		t.Logf("%s passes %d of %d", s.name, passed[s.name], len(results))
		for verdict, ids := range others {
			slices.Sort(ids)
			t.Logf("%s: %s: %s", s.name, verdict, strings.Join(ids, " "))
		}
	}
	if passed["kgate"] < passed["nginx"] {
		t.Errorf("kgate passes %d, nginx %d", passed["kgate"], passed["nginx"])
	}
}
