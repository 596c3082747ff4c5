package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kgate/kgate/internal/demo"
)

// TestSecretsStaySecret has a gateway do all that it does with secrets, at level
// debug, and looks for them wherever somebody else may look.
func TestSecretsStaySecret(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real gateway")
	}
	t.Parallel()
	_, upstream := ServeUpstream(t, &demo.Upstream{})
	dir := t.TempDir()
	if out, errs, code := run(t, "keygen", "--dir", dir, "--ca", "--token", "--peer", "gw"); code != 0 {
		t.Fatal(out, errs)
	}
	file := filepath.Join(dir, "kgate.yaml")
	at := func(name string) string { return filepath.Join(dir, name) }
	config := fmt.Sprintf(`
node: {name: gw, admin_token_file: %q}
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0", peer: "127.0.0.1:0"}
cluster: {tls: {ca: %q, cert: %q, key: %q}}
pools: [{name: pool, k: 1, tickets: true, upstreams: [%q]}]
log: {level: debug}
`, at("admin.token"), at("ca.pem"), at("gw.pem"), at("gw-key.pem"), upstream)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := launch(t, "gw", []string{Binary(t), "serve", "-c", file}, nil, Options{}.withDefaults().Dial)
	if err := g.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	secrets := secretsIn(t, dir)
	secrets["a ticket"] = useTickets(t, g)
	secrets["a waiting ticket"] = useTickets(t, g)
	token := strings.TrimSpace(string(secrets["the admin token"]))
	for _, shown := range []string{token, "wrong"} {
		ask(t, http.MethodPost, "http://"+g.Admin+"/api/v1/pools/pool", `{"k": 2, "was": 1}`, "Authorization", "Bearer "+shown)
	}

	seen := map[string][]byte{}
	for _, path := range []string{"/", "/metrics", "/api/v1/status", "/api/v1/line?pool=pool", "/debug/line", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		body, err := g.get(t.Context(), path)
		if err != nil && len(body) == 0 {
			t.Errorf("%s: %v", path, err)
		}
		seen[path] = body
	}
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.PID())); err == nil {
		seen["the list of processes"] = cmdline
	}
	if err := g.Signal(syscall.SIGHUP); err != nil { // the file is read again, and said to be
		t.Fatal(err)
	}
	if _, err := g.AwaitRecord("reloaded"); err != nil {
		t.Error(err)
	}
	if _, err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	lines, _ := g.Log.Lines()
	seen["the log"] = []byte(strings.Join(lines, "\n"))
	if !bytes.Contains(seen["the log"], []byte(`"DEBUG"`)) {
		t.Error("nothing is logged at level debug")
	}
	for place, text := range seen {
		for name, secret := range secrets {
			for form, s := range forms(secret) {
				if bytes.Contains(text, []byte(s)) {
					t.Errorf("%s shows %s, %s", place, name, form)
				}
			}
		}
	}
	t.Logf("%d lines of log, %d places in all, %d secrets", len(lines), len(seen), len(secrets))
}

// secretsIn returns what must not show of the files that keygen has made.
func secretsIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	secrets := make(map[string][]byte)
	for name, file := range map[string]string{
		"the admin token": "admin.token", "the gateway's key": "gw-key.pem",
	} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.TrimSpace(data)
		if file == "gw-key.pem" {
			data = bytes.Split(data, []byte("\n"))[1] // a line of the body
		}
		secrets[name] = data
	}
	return secrets
}

// forms are the ways in which a secret may be written.
func forms(secret []byte) map[string]string {
	all := map[string]string{"as it is": string(secret)}
	if raw, err := base64.StdEncoding.DecodeString(string(secret)); err == nil {
		all["in bytes"], all["in hex"], all["as a list"] = string(raw), hex.EncodeToString(raw), strings.Trim(fmt.Sprintf("%d", raw), "[]")
	}
	return all
}

// useTickets takes a ticket at the client address and looks at it in every way; it
// returns its id.
func useTickets(t *testing.T, g *Gateway) []byte {
	t.Helper()
	const path = "/.kgate/tickets"
	where := ask(t, http.MethodPost, "http://"+g.HTTP+path, `{"pool": "pool", "ttl": "1m"}`, "Content-Type", "application/json").Get("Location")
	id := where[strings.LastIndexByte(where, '/')+1:]
	if len(id) < 16 {
		t.Fatalf("a ticket at %q", where)
	}
	for _, base := range []string{"http://" + g.HTTP, "http://" + g.Admin} {
		ask(t, http.MethodGet, base+path+"/"+id, "", "", "")
		ask(t, http.MethodPut, base+path+"/"+id, `{}`, "Content-Type", "application/json")
	}
	ask(t, http.MethodGet, "http://"+g.HTTP+"/", "", "Kgate-Ticket", id)
	ask(t, http.MethodGet, "http://"+g.HTTP+path+"/"+id+"x", "", "", "") // and one that there is not
	return []byte(id)
}

// ask makes a request, of whose answer only the header matters here.
func ask(t *testing.T, method, url, body, header, value string) http.Header {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	req.Close = true
	client := http.Client{Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Header
}
