package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck runs kgate check on files and flags.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "pools: [{name: a, k: 3, upstreams: ['http://127.0.0.1:9']}]\n")
	bad := file("bad.yaml", "pools: [{name: a, k: 0, upstreams: ['http://127.0.0.1:9']}]\nlog: {leve: info}\n")
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	exposed := file("exposed.yaml", "node: {data_dir: "+open+"}\npools: [{name: a, k: 3, upstreams: ['http://127.0.0.1:9']}]\n")
	files := file("files.yaml", "node: {admin_token_file: /nowhere/token}\npools: [{name: a, k: 3, upstreams: ['http://127.0.0.1:9']}]\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"good":             {[]string{"-c", good}, exitOK, []string{"valid, 1 pool, 1 route"}},
		"bad":              {[]string{"-c", bad}, exitFailure, []string{bad + ":1:22: pools[0].k: 0 is out of range", bad + ":2:7: log.leve: unknown key; did you mean level?"}},
		"bad, mended":      {[]string{"-c", bad, "--k", "3"}, exitFailure, []string{"log.leve"}},
		"absent":           {[]string{"-c", filepath.Join(dir, "absent.yaml")}, exitFailure, []string{"no such file"}},
		"no file":          {nil, exitUsage, []string{"kgate check -c FILE"}},
		"bad flag":         {[]string{"-c", good, "--k=-3"}, exitUsage, []string{"--k (KGATE_K)"}},
		"files":            {[]string{"-c", files, "--files"}, exitFailure, []string{files + ":1:26: node.admin_token_file: there is no file"}},
		"open data_dir":    {[]string{"-c", exposed}, exitOK, []string{"warning: node.data_dir: " + open + " has mode 0777", "valid, 1 pool"}},
		"files elsewhere":  {[]string{"-c", files}, exitOK, []string{"valid, 1 pool"}},
		"print":            {[]string{"-c", good, "--print", "--k", "5", "--name", "gw-7"}, exitOK, []string{"\n    k: 5\n", "name: gw-7", "limit: 10000"}},
		"print, flags":     {[]string{"--print", "--k", "5", "--upstream", "http://127.0.0.1:9"}, exitOK, []string{"name: default", "\nroutes:\n  - pool: default\n"}},
		"print, too early": {[]string{"-c", bad, "--print"}, exitFailure, []string{"out of range"}},
		"JSON":             {[]string{"-c", good, "--json"}, exitOK, []string{`"valid": true`, `"errors": []`}},
		"JSON, bad":        {[]string{"-c", bad, "--json"}, exitFailure, []string{`"valid": false`, bad + ":1:22: pools[0].k: 0 is out of range", "log.leve"}},
		"schema":           {[]string{"--schema"}, exitOK, []string{"json-schema.org"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := run(append([]string{"check"}, tc.args...), streams{&out, &out})
			if code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, part := range tc.says {
				if !strings.Contains(out.String(), part) {
					t.Errorf("no %q in:\n%s", part, out.String())
				}
			}
			if (name == "schema" || strings.HasPrefix(name, "JSON")) && !json.Valid(out.Bytes()) {
				t.Error("not JSON")
			}
		})
	}
}

// TestCheckPrintIsAFile reads what it prints again.
func TestCheckPrintIsAFile(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"check", "--print", "--k", "5", "--upstream", "http://127.0.0.1:9"}, streams{&out, &out}); code != exitOK {
		t.Fatal(out.String())
	}
	file := filepath.Join(t.TempDir(), "kgate.yaml")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if code := run([]string{"check", "-c", file, "--print"}, streams{&again, &again}); code != exitOK || again.String() != out.String() {
		t.Errorf("exit %d, printed again:\n%s\nbefore:\n%s", code, again.String(), out.String())
	}
}
