package prometheus

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kgate/kgate/test/cluster"
)

// answers are what the runbook's commands say.
var answers = map[string]string{
	"status":                "!",
	"status --json":         `"troubles"`,
	"pool set NAME --k N":   " -> 5",
	"leave --force NAME":    "gw-3 is removed",
	"check -c FILE --files": "unknown key",
	"drain":                 "gw-1 drains",
}

// runbook returns the commands that docs/alerts.md has for an alert.
func runbook(t *testing.T, alert string) (commands []string) {
	t.Helper()
	_, section, ok := strings.Cut(read(t, "../../docs/alerts.md"), "\n## "+alert+"\n")
	if !ok {
		t.Fatalf("docs/alerts.md has no section %s", alert)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("`kgate ([^`]+)`").FindAllStringSubmatch(section, -1) {
		commands = append(commands, m[1])
	}
	return commands
}

// TestRunbook: each command in the section of an alert is run while that alert fires, by TestFaults
// or TestFleet. Only status, which both run in each state, may be in the others.
func TestRunbook(t *testing.T) {
	caused := []string{"KgateLeaseLost"} // by TestFleet
	for _, f := range Faults {
		caused = append(caused, f.alerts...)
	}
	for _, a := range Rules(t, "alerts.yaml") {
		for _, c := range runbook(t, a.Alert) {
			if answers[c] == "" || !strings.HasPrefix(c, "status") && !slices.Contains(caused, a.Alert) {
				t.Errorf("%s: no test runs kgate %s", a.Alert, c)
			}
		}
	}
}

// follow runs the commands that the runbook has for alerts which fire now.
func (n *Night) follow(t *testing.T, firing []string) {
	commands := []string{"status", "status --json"} // while there is something to say
	for _, a := range firing {
		for _, c := range runbook(t, a) {
			if !slices.Contains(commands, c) {
				commands = append(commands, c)
			}
		}
	}
	for _, c := range commands {
		// Where no lease is, nothing can be changed: the runbook says so.
		n.obeys(t, n.Gateways[0], c, strings.HasPrefix(c, "check") || n.fault.noLease && !strings.HasPrefix(c, "status"))
	}
}

// tells looks that kgate status names the cause of an alert that fires.
func tells(t *testing.T, at *cluster.Gateway, cause string) {
	t.Helper()
	await(t, func() error { // it gives a new leader two seconds
		s, err := at.Status(t.Context())
		if err != nil {
			return err
		}
		if said := strings.Join(s.Troubles(), "\n"); !regexp.MustCompile(cause).MatchString(said) {
			return fmt.Errorf("status says nothing of %s:\n%s", cause, said)
		}
		return nil
	})
}

// obeys runs a command of the runbook at a gateway.
func (n *Night) obeys(t *testing.T, at *cluster.Gateway, command string, fails bool) {
	words := strings.NewReplacer("NAME --k N", cluster.PoolName+" --k 5", "--force NAME", "--force gw-3", "FILE", n.ConfigFile(at.Name), "drain", "drain --timeout 0")
	args := append(slices.Clone(n.outside), cluster.Binary(t))
	args = append(args, strings.Fields(words.Replace(command))...)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KGATE_ADMIN=http://"+at.Admin)
	if n.network != nil {
		cmd.Env = append(cmd.Env, "KGATE_ADMIN_TOKEN_FILE="+n.TokenFile())
	}
	out, err := cmd.CombinedOutput()
	if (err != nil) != fails || (!fails || strings.HasPrefix(command, "check")) && !strings.Contains(string(out), answers[command]) {
		t.Errorf("kgate %s: %v; want %q in:\n%s", command, err, answers[command], out)
	}
}
