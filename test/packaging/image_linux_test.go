package packaging

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kgate/kgate/test/cluster"
)

// TestImage does what the image does, without a builder of images: nothing but the
// binary and a folder for data, a user without a name, the health check's own
// words.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles kgate as a release does")
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, for another root folder")
		}
		t.Skip("needs root, for another root folder")
	}
	file, err := os.ReadFile(folder + "Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	health := regexp.MustCompile(`HEALTHCHECK .* CMD \["/usr/bin/kgate", (.*)\]`).FindSubmatch(file)
	if health == nil || !regexp.MustCompile(`(?m)^USER 65532:65532$`).Match(file) || !regexp.MustCompile(`(?m)^FROM scratch$`).Match(file) {
		t.Fatal("the Containerfile has no health check in the exec form, another user, or another base")
	}
	check := strings.Split(strings.ReplaceAll(string(health[1]), `"`, ""), ", ")

	root := image(t)
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	in := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/kgate", args...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return cmd
	}
	if out, err := in("--version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "kgate "+version+" ") {
		t.Errorf("--version: %v: %s", err, out)
	}
	admin := cluster.ReservePort(t)
	check = append(check, "--admin", "http://"+admin)
	if err := in(check...).Run(); err == nil {
		t.Error("healthy before it runs")
	}
	serve := in("serve", "--upstream", upstream.URL, "--k", "1", "--data-dir", "/var/lib/kgate", "--name", "image",
		"--listen-http", "127.0.0.1:0", "--listen-admin", admin, "--listen-peer", "127.0.0.1:0")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // as a builder's health check does
		if out, err = in(check...).CombinedOutput(); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil || string(out) != "image is ready\n" {
		t.Errorf("health check: %v: %s", err, out)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("ends with %v", err)
	}
}

// version is what a release says that it is.
const version = "1.2.3-test"

// releaseFlags returns the linker's flags in a file that builds releases.
func releaseFlags(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`-ldflags "([^"]*)"`).FindSubmatch(text)
	if flags == nil {
		t.Fatalf("%s: no -ldflags", file)
	}
	return regexp.MustCompile(`(?i)\$VERSION`).ReplaceAllString(string(flags[1]), version)
}

// image returns a folder that holds what the image holds. The binary is built
// without cgo, as there, and with the flags of the Containerfile, which are those of
// dist.sh.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/lib/kgate"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(root, "var/lib/kgate"), 65532, 65532); err != nil {
		t.Fatal(err)
	}
	flags := releaseFlags(t, folder+"Containerfile")
	if dist := strings.Replace(releaseFlags(t, "../../tools/dist.sh"), "-buildid= ", "", 1); dist != flags {
		t.Errorf("dist.sh links with %s, the Containerfile with %s", dist, flags)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../cmd/kgate", "-ldflags", flags, "-o", filepath.Join(root, "usr/bin/kgate"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return root
}
