package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/kgate/kgate/internal/config"
	"github.com/kgate/kgate/test/cluster"
)

// manifest is what of a manifest must fit the others.
type manifest struct {
	Kind     string            `yaml:"kind"`
	Metadata metadata          `yaml:"metadata"`
	Data     map[string]string `yaml:"data"`
	Spec     struct {
		ServiceName    string `yaml:"serviceName"`
		ClusterIP      string `yaml:"clusterIP"`
		EvenNotReady   bool   `yaml:"publishNotReadyAddresses"`
		MaxUnavailable int    `yaml:"maxUnavailable"`
		Replicas       int    `yaml:"replicas"`
		// Selector of a service; of others it has matchLabels.
		Selector map[string]any `yaml:"selector"`
		Ports    []struct {
			Name string `yaml:"name"`
			Port int    `yaml:"port"`
			To   string `yaml:"targetPort"`
		} `yaml:"ports"`
		Template struct {
			Metadata metadata `yaml:"metadata"`
			Spec     pod      `yaml:"spec"`
		} `yaml:"template"`
		Claims []struct {
			Metadata metadata `yaml:"metadata"`
		} `yaml:"volumeClaimTemplates"`
	} `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type pod struct {
	Grace      int         `yaml:"terminationGracePeriodSeconds"`
	Containers []container `yaml:"containers"`
	Volumes    []struct {
		Name string `yaml:"name"`
	} `yaml:"volumes"`
}

type container struct {
	Args      []string `yaml:"args"`
	Lifecycle struct {
		PreStop struct {
			Sleep struct {
				Seconds int `yaml:"seconds"`
			} `yaml:"sleep"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
	Ports []struct {
		Name   string `yaml:"name"`
		Number int    `yaml:"containerPort"`
	} `yaml:"ports"`
	Live   probe `yaml:"livenessProbe"`
	Ready  probe `yaml:"readinessProbe"`
	Mounts []struct {
		Name string `yaml:"name"`
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

// manifests returns all of them by kind and name.
func manifests(t *testing.T, text string) map[string]manifest {
	t.Helper()
	all := make(map[string]manifest)
	for doc := range bytes.SplitSeq([]byte(text), []byte("\n---\n")) {
		var m manifest
		if err := yaml.Unmarshal(doc, &m); err != nil {
			t.Fatal(err)
		}
		all[m.Kind+"/"+m.Metadata.Name] = m
	}
	return all
}

func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile(folder + "kubernetes/kgate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkManifests(t, string(text), string(text))
}

// What ends the gateways of the compose file waits for as long as their requests may take.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../configs/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Kgate struct {
			Grace string `yaml:"stop_grace_period"`
		} `yaml:"x-kgate"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Pools = []config.Pool{config.DefaultPool()}
	if grace, err := time.ParseDuration(file.Kgate.Grace); err != nil || grace <= cfg.DrainTimeout() {
		t.Errorf("stop_grace_period is %q, drain.timeout %v", file.Kgate.Grace, cfg.DrainTimeout())
	}
}

// The chart is clean as Helm sees it, and makes manifests that fit. Helm's engine with all of
// Kubernetes' client takes 65 s of processor time to compile, for a chart that changes rarely.
func TestChart(t *testing.T) {
	if os.Getenv("KGATE_SOAK") == "" {
		t.Skip("compiles Helm's engine: KGATE_SOAK=1")
	}
	const at = folder + "helm/kgate"
	values, err := os.ReadFile(at + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	binary := cluster.Build(t, "../../tools/chart")
	render := func(values string) (string, error) {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), binary, at, "kgate", file)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said.String())
		}
		return strings.TrimPrefix(string(out), "---\n"), err
	}
	for name, changes := range map[string]string{
		"as it is": "", "five": "replicas: 5", "one": "replicas: 1",
		"long":    "config: {pools: [{name: a, k: 3, hold: {max: 1h30m}}, {name: b, k: 3, hold: {idle: 1m}}, {name: c, k: 3, hold: {max: 90s}}]}",
		"short":   "config: {pools: [{name: a, k: 3, hold: {max: 90s}}]}",
		"given":   "config: {drain: {timeout: 1h}, pools: [{name: a, k: 3}]}",
		"changed": "persistence: {enabled: false}\nlease: 5s\nconfig: {pools: [{name: a, k: 3, upstreams: ['http://a'], hold: {max: 10m}}]}\nnodeSelector: {a: b}",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(changes)
			if err != nil {
				t.Fatal(err)
			}
			checkManifests(t, text, string(values))
		})
	}
	for what, changes := range map[string]string{
		"no pool": "config: {pools: []}", "a cluster of its own": "config: {pools: [{name: a, k: 1}], cluster: {}}", "misspelt": "replica: 3",
		"no duration": "config: {pools: [{name: a, k: 1, hold: {max: 10 minutes}}]}",
	} {
		if _, err := render(changes); err == nil {
			t.Errorf("%s: the chart takes it", what)
		}
	}
}

// checkManifests looks whether the configuration is valid, and all that it names is
// there. Notes say how to make the secret.
func checkManifests(t *testing.T, text, notes string) {
	t.Helper()
	all := manifests(t, text)
	cfg, err := config.Parse("kgate.yaml", []byte(all["ConfigMap/kgate"].Data["kgate.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	set := all["StatefulSet/kgate"].Spec
	peers := all["Service/"+set.ServiceName].Spec
	if len(set.Template.Spec.Containers) != 1 {
		t.Fatal("not one container")
	}
	c := set.Template.Spec.Containers[0]
	join := []string{set.ServiceName + ":7080"}
	if set.Replicas == 1 {
		join = nil // with a list, a gateway alone waits for another one
	}
	for what, ok := range map[string]bool{
		"as many gateways found the cluster as there are": set.Replicas == cfg.Bootstrap(),
		"they meet at the headless service":               slices.Equal(cfg.Cluster.Join, join) && peers.ClusterIP == "None",
		"they meet before they are ready":                 peers.EvenNotReady,
		"a majority stays":                                all["PodDisruptionBudget/kgate"].Spec.MaxUnavailable == 1,
		"requests in flight have time to finish":          mayFinish(set.Template.Spec) >= cfg.DrainTimeout() && mayFinish(set.Template.Spec) < cfg.DrainTimeout()+time.Minute,
		"the probes are the gateway's":                    c.Live.Get.Path == "/healthz" && c.Ready.Get.Path == "/readyz" && c.Live.Get.Port == "admin" && c.Ready.Get.Port == "admin",
		"the configuration is the one that is mounted":    slices.Equal(c.Args, []string{"serve", "-c", "/etc/kgate/kgate.yaml"}),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	t.Run("labels", func(t *testing.T) { checkLabels(t, all) })
	t.Run("ports", func(t *testing.T) { checkPorts(t, c, all, cfg) })
	t.Run("files", func(t *testing.T) { checkFiles(t, set.Template.Spec, len(set.Claims), cfg, notes) })
}

// mayFinish returns how long requests in flight may take until a pod that goes is killed. The
// gateway needs some seconds more to leave.
func mayFinish(p pod) time.Duration {
	const leaves = 5 * time.Second
	return time.Duration(p.Grace-p.Containers[0].Lifecycle.PreStop.Sleep.Seconds)*time.Second - leaves
}

// Whatever selects pods selects the gateways.
func checkLabels(t *testing.T, all map[string]manifest) {
	const key = "app.kubernetes.io/name"
	label := all["StatefulSet/kgate"].Spec.Template.Metadata.Labels[key]
	for name, m := range all {
		selector := m.Spec.Selector
		if inner, ok := selector["matchLabels"].(map[string]any); ok {
			selector = inner
		}
		if selector != nil && selector[key] != label {
			t.Errorf("%s selects %v, gateways have %s=%q", name, selector, key, label)
		}
	}
}

// Ports of the container are those that the gateway listens on, and services lead
// to them.
func checkPorts(t *testing.T, c container, all map[string]manifest, cfg *config.Config) {
	listens := map[string]string{
		"http": cfg.Listen.HTTP, "admin": cfg.Listen.Admin, "peer": cfg.Listen.Peer,
	}
	if len(c.Ports) != len(listens) {
		t.Errorf("%d ports, want %d", len(c.Ports), len(listens))
	}
	named := make(map[string]bool)
	for _, p := range c.Ports {
		named[p.Name] = true
		if listens[p.Name] != ":"+strconv.Itoa(p.Number) {
			t.Errorf("port %s is %d, the gateway listens on %q", p.Name, p.Number, listens[p.Name])
		}
	}
	for name, m := range all {
		for _, p := range m.Spec.Ports {
			if !named[p.To] {
				t.Errorf("%s leads to port %q, which no container has", name, p.To)
			}
		}
	}
}

// Files of the configuration are mounted, and the keys among them are in the
// secret that the text says to make.
func checkFiles(t *testing.T, p pod, claims int, cfg *config.Config, text string) {
	volumes := claims
	mounted := func(file string) bool {
		for _, m := range p.Containers[0].Mounts {
			if file == m.Path || strings.HasPrefix(file, m.Path+"/") {
				return true
			}
		}
		return false
	}
	keys := []string{cfg.Node.AdminTokenFile, cfg.Cluster.KeyFile}
	for _, file := range append(keys, "/etc/kgate/kgate.yaml", cfg.Node.DataDir) {
		if file == "" || !mounted(file) {
			t.Errorf("%q is not mounted", file)
		}
	}
	for _, file := range keys {
		if !strings.Contains(text, "--from-file=keys/"+path.Base(file)) {
			t.Errorf("%s is not in the secret", path.Base(file))
		}
	}
	if volumes += len(p.Volumes); volumes != len(p.Containers[0].Mounts) {
		t.Errorf("%d volumes, %d mounted", volumes, len(p.Containers[0].Mounts))
	}
}
