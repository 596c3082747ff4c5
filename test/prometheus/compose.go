package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/kgate/kgate/test/cluster"
	"github.com/kgate/kgate/test/netns"
)

// Compose is configs/compose.yaml, as far as it is looked at here.
type Compose struct {
	Services map[string]Service
	Configs  map[string]struct{ Content string }
}

// Service of a Compose.
type Service struct {
	Build   *struct{ Context, Dockerfile string } // nil: somebody else's image
	Image   string
	Command string
	Ports   []string
	Volumes []string
	Configs []struct{ Source, Target string }
}

// ReadCompose reads configs/compose.yaml.
func ReadCompose(t *testing.T) *Compose {
	t.Helper()
	c := new(Compose)
	if err := yaml.Unmarshal([]byte(read(t, "../../configs/compose.yaml")), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Up runs what compose would run, word by word, but Grafana and in no container: each
// service on a machine of its own, made of namespaces, with the other services'
// names in /etc/hosts. It returns the command that runs others on Prometheus's machine.
func (c *Compose) Up(t *testing.T) (onPrometheus []string) {
	t.Helper()
	var names, addrs []string
	hosts := "127.0.0.1 localhost\n"
	for name := range c.Services {
		if name == "grafana" {
			continue
		}
		addr := fmt.Sprintf("10.0.0.%d", len(names)+1)
		names, addrs = append(names, name), append(addrs, addr+"/24")
		hosts += addr + " " + name + "\n"
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, m := range netns.Machines(t, addrs...) {
		if names[i] == "prometheus" {
			onPrometheus = m.Command
		}
		script := c.script(t, names[i], dir)
		args := append(m.Command, "unshare", "--mount", "--uts", "sh", "-e", "-c", script)
		p := cluster.StartProcess(t, args[0], args[1:]...)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s:\n%s", names[i], p.Log.Tail(20))
			}
		})
	}
	return onPrometheus
}

// script does for a service what a container engine would: its host name, what is
// mounted, and its command.
func (c *Compose) script(t *testing.T, name, dir string) string {
	t.Helper()
	s := c.Services[name]
	lines := []string{
		"hostname " + name,
		"mount --bind " + filepath.Join(dir, "hosts") + " /etc/hosts",
		"mount -t tmpfs none /run", "cd /run",
	}
	for _, file := range s.Configs {
		content, err := json.Marshal(c.Configs[file.Source].Content)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "mkdir -p "+filepath.Dir(file.Target), fmt.Sprintf("echo %s >%s", content, file.Target))
	}
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		from, err := filepath.Abs(filepath.Join("../../configs", parts[0]))
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "mount --bind "+from+" "+parts[1])
	}
	binary := name // prom/prometheus runs prometheus
	if s.Build != nil {
		binary = cluster.Binary(t)
	} else if path, err := exec.LookPath(name); err == nil {
		binary = path
	}
	return strings.Join(append(lines, "exec "+binary+" "+s.Command), "\n")
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
