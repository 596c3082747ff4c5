package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kgate/kgate/internal/admin"
)

// output is written by the command and read by the test.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// fakeCluster is a gateway of which only the admin address is there.
type fakeCluster struct {
	admin.Lines // not used
	admin.Peers

	mu       sync.Mutex
	k        int
	inFlight int
	did      []string
	left     func() // closes the address
}

func (c *fakeCluster) note(format string, args ...any) {
	c.did = append(c.did, fmt.Sprintf(format, args...))
}

func (c *fakeCluster) Reload(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("reload")
	return []string{"log.level: info -> debug (reload)"}, nil
}

func (c *fakeCluster) SetRate(context.Context, string, admin.RateChange) error { return nil }

func (c *fakeCluster) SetK(_ context.Context, pool, _ string, k, was int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was != c.k {
		return fmt.Errorf("%w: the k of %s is %d, not %d", admin.ErrConflict, pool, c.k, was)
	}
	c.k = k
	return nil
}

func (c *fakeCluster) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("drain")
}

func (c *fakeCluster) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("leave")
	go c.left()
}

func (c *fakeCluster) Suspend(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "gw-2" {
		return fmt.Errorf("%w: no gateway is named %q", admin.ErrUnknown, name)
	}
	c.note("suspend %s", name)
	return nil
}

// Report shows one request less in flight each time.
func (c *fakeCluster) Report(string, int) admin.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := admin.Status{
		Gateway: admin.Gateway{Name: "gw-1", Drained: len(c.did) > 0 && c.inFlight == 0},
		// One in q is a ticket's, which draining leaves alone.
		Pools: []admin.Pool{{Name: "p", K: c.k, InFlight: c.inFlight, Upstreams: []admin.Upstream{{URL: "http://10.0.1.1:80", InFlight: 1, DownSeconds: 5, Why: "refused"}}}, {Name: "q", K: 9, InFlight: 1}},
	}
	if len(c.did) > 0 && c.inFlight > 0 {
		c.inFlight--
	}
	return admin.Report{Status: s}
}

func (c *fakeCluster) Ready() (bool, string) { return true, "" }

func startCluster(t *testing.T) (*fakeCluster, string) {
	t.Helper()
	c := &fakeCluster{k: 3, inFlight: 2}
	h := admin.NewHandler(admin.Config{Source: c, Lines: c, Peers: c, Control: c})
	server := httptest.NewServer(h)
	var once sync.Once
	c.left = func() { once.Do(server.Close) }
	t.Cleanup(c.left)
	return c, server.URL
}

func TestChangingCommands(t *testing.T) {
	dir := t.TempDir()
	token, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	for name, content := range map[string]string{token: "s3cret\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
		did  string
		k    int
	}{
		"pool set":             {[]string{"pool", "set", "p", "--k", "6"}, exitOK, "p: k 3 -> 6", "", 6},
		"pool set, first down": {[]string{"pool", "set", "p", "--k", "6", "--admin", "http://127.0.0.1:1,URL"}, exitOK, "p: k 3 -> 6", "", 6},
		"pool set, token":      {[]string{"pool", "set", "p", "--k", "6", "--admin-token-file", token}, exitOK, "p: k 3 -> 6", "", 6},
		"pool set, overtaken":  {[]string{"pool", "set", "p", "--k", "6", "--was", "2"}, exitFailure, "the k of p is 3, not 2", "", 3},
		"pool set, the same":   {[]string{"pool", "set", "p", "--k", "3"}, exitOK, "p: k is 3 already; nothing has changed", "", 3},
		"pool set, not that k": {[]string{"pool", "set", "p", "--k", "6", "--was", "6"}, exitFailure, "the k of p is 3, not 6", "", 3},
		"pool set, no pool":    {[]string{"pool", "set", "x", "--k", "6"}, exitFailure, "there are: p, q", "", 3},
		"pool set, k 0":        {[]string{"pool", "set", "p", "--k", "0"}, exitUsage, "at least 1", "", 3},
		"pool set, no k":       {[]string{"pool", "set", "p"}, exitUsage, "--k", "", 3},
		"pool set, no token":   {[]string{"pool", "set", "p", "--k", "6", "--admin-token-file", empty}, exitFailure, "is empty", "", 3},
		"pool set, nobody":     {[]string{"pool", "set", "p", "--k", "6", "--admin", "http://127.0.0.1:1"}, exitFailure, "is it running", "", 3},
		"pool list":            {[]string{"pool", "list"}, exitOK, "POOL  IN USE  K  WAITING  OLDEST  MEAN WAIT  BINDING\np          2  3        0", "", 3},
		"pool list, JSON":      {[]string{"pool", "list", "--json"}, exitOK, `"k": 3,`, "", 3},
		"members":              {[]string{"members"}, exitOK, "GATEWAY  STATE", "", 3},
		"members, JSON":        {[]string{"members", "--json"}, exitOK, "[]\n", "", 3},
		"upstreams":            {[]string{"upstreams"}, exitOK, "\n\np: http://10.0.1.1:80: refused\n", "", 3},
		"upstreams, JSON":      {[]string{"upstreams", "--json"}, exitOK, `"pool": "p",`, "", 3},
		"reload":               {[]string{"reload"}, exitOK, "gw-1 has read its configuration: 1 change\n  log.level: info -> debug (reload)\n", "reload", 3},
		"reload, JSON":         {[]string{"reload", "--json"}, exitOK, `{"changes":["log.level: info `, "reload", 3},
		"drain":                {[]string{"drain"}, exitOK, "gw-1 is drained", "drain", 3},
		"drain, no wait":       {[]string{"drain", "--timeout", "0"}, exitOK, "gw-1 drains", "drain", 3},
		"drain, too long":      {[]string{"drain", "--timeout", "1ms"}, exitFailure, "slots in use, 0 waiting; it goes on draining", "drain", 3},
		"drain, which":         {[]string{"drain", "--admin", "http://127.0.0.1:1,URL"}, exitUsage, "the one gateway", "", 3},
		"leave":                {[]string{"leave"}, exitOK, "gw-1 has left", "leave", 3},
		"leave, no wait":       {[]string{"leave", "--timeout", "0"}, exitOK, "gw-1 leaves", "leave", 3},
		"leave, which":         {[]string{"leave", "--admin", "URL,URL"}, exitUsage, "the one gateway", "", 3},
		"force":                {[]string{"leave", "--force", "gw-2"}, exitOK, "gw-2 is removed", "suspend gw-2", 3},
		"force, empty name":    {[]string{"leave", "--force", ""}, exitUsage, "--force needs a value", "", 3},
		"no admin address":     {[]string{"leave", "--force", "gw-2", "--admin", ""}, exitUsage, "--admin, or KGATE_ADMIN, is empty", "", 3},
		"force, unknown":       {[]string{"leave", "--force", "gw-9"}, exitFailure, `no gateway is named "gw-9"`, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, url := startCluster(t)
			args := strings.Split(strings.ReplaceAll(strings.Join(tc.args, "\n"), "URL", url), "\n")
			if !strings.Contains(strings.Join(args, " "), "--admin ") {
				args = append(args, "--admin", url)
			}
			var out output
			code := run(args, streams{&out, &out})
			c.mu.Lock()
			defer c.mu.Unlock()
			if did := strings.Join(c.did, ","); code != tc.code || !strings.Contains(out.String(), tc.says) || did != tc.did || c.k != tc.k {
				t.Errorf("exit %d, k %d, did %q, says\n%s\nwant exit %d, k %d, %q, %q", code, c.k, did, out.String(), tc.code, tc.k, tc.did, tc.says)
			}
		})
	}
}
