package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPurge: keys that a purged package leaves, because a person has put them there, are nobody
// else's to read: their group stays. The next group that is made would have its number.
func TestPurge(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, for another /etc")
		}
		t.Skip("needs root, for another /etc")
	}
	debian, err := filepath.Abs(folder + "debian")
	if err != nil {
		t.Fatal(err)
	}
	script := `set -eu
cp -a /etc "$1"
mount --bind "$1/etc" /etc
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /etc/kgate /var/lib/kgate
sh "$2/postinst" configure
install -o root -g kgate -m 640 /dev/null /etc/kgate/cluster.key
sh "$2/postrm" remove
sh "$2/postrm" purge | grep -qx /etc/kgate/cluster.key || { echo "nothing is said of the key"; exit 1; }
test ! -e /var/lib/kgate || { echo "the data is left"; exit 1; }
groupadd --system later
stat -c '%a %G' /etc/kgate/cluster.key
sh "$2/postinst" configure
`
	out, err := exec.CommandContext(t.Context(), tool(t, "unshare", "util-linux"), "--mount", "sh", "-c", script, "sh", t.TempDir(), debian).CombinedOutput()
	if err != nil || string(out) != "640 kgate\n" {
		t.Errorf("the key: %s%v", out, err)
	}
}
