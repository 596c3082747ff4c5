package foreign

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// caches is the version of the package http-cache-tests from npm.
const caches = "http-cache-tests@0.4.5"

// runCaches is a module that runs its cases over a server, and prints what came of each.
const runCaches = `import { runTests, getResults } from './node_modules/http-cache-tests/client/runner.mjs'
import tests from './node_modules/http-cache-tests/tests/index.mjs'
import fetch from './node_modules/node-fetch/lib/index.mjs'
await runTests(tests, fetch, false, process.argv[2])
console.log(JSON.stringify(getResults()))
`

// unlikeNginx is an answer with a coding that nobody knows: 502.
const unlikeNginx = "headers-store-Transfer-Encoding"

// TestCaches: cases for caches, which send conditional and partial requests, odd fields of many kinds,
// and answers that break off. The gateway has no cache: each case ends over it as over nginx
// without one, with the same words.
func TestCaches(t *testing.T) {
	if !others() {
		t.Skip("fetches what is not ours, and takes half a minute: set KGATE_FOREIGN=1")
	}
	cluster.Need(t, "npm", "npm")
	cluster.Need(t, "nginx", "nginx-light")
	dir := t.TempDir()
	npm := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--silent", "--ignore-scripts", caches)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("cannot install %s: %v\n%s", caches, err, out)
	}
	module := filepath.Join(dir, "run.mjs")
	if err := os.WriteFile(module, []byte(runCaches), 0o600); err != nil {
		t.Fatal(err)
	}
	upstream := cluster.ReservePort(t)
	_, port, _ := strings.Cut(upstream, ":")
	cluster.StartProcess(t, "env", "npm_config_protocol=http", "npm_config_port="+port, "npm_config_pidfile="+filepath.Join(dir, "pid"),
		"node", filepath.Join(dir, "node_modules/http-cache-tests/server/server.mjs"))
	if err := cluster.AwaitListening(t.Context(), upstream); err != nil {
		t.Fatal(err)
	}
	all := before(t, upstream)
	results := make([]map[string]any, len(all))
	inParallel(len(all), func(i int) { results[i] = runCachesOver(t, module, all[i].addr) })
	byName := make(map[string]map[string]any)
	for i, s := range all {
		passed := 0
		for _, r := range results[i] {
			if r == true {
				passed++
			}
		}
		t.Logf("%s: %d of %d, which a cache passes, hold", s.name, passed, len(results[i]))
		byName[s.name] = results[i]
	}
	if len(byName["kgate"]) == 0 || len(byName["kgate"]) != len(byName["nginx"]) {
		t.Errorf("%d cases over kgate, %d over nginx", len(byName["kgate"]), len(byName["nginx"]))
	}
	for id, want := range byName["nginx"] {
		if got := byName["kgate"][id]; id != unlikeNginx && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: over kgate %v, over nginx %v", id, got, want)
		}
	}
}

// runCachesOver returns what came of each case: true, or what is wrong, without what differs from run to run.
func runCachesOver(t *testing.T, module, addr string) (results map[string]any) {
	cmd := exec.CommandContext(t.Context(), "node", "--no-warnings", module, "http://"+addr)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil {
		t.Error(fmt.Errorf("%s: %w", addr, err))
	}
	for id, r := range results {
		if list, ok := r.([]any); ok && len(list) > 0 && list[0] == "FetchError" {
			results[id] = list[:1]
		}
	}
	return results
}
