package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tricks reach into what a library does not promise.
var tricks = regexp.MustCompile(`"reflect"|"unsafe"|go:linkname|\.Error\(\) [!=]=|(Contains|HasPrefix|HasSuffix)\([a-z]+\.Error\(\)`)

// needTricks are the files that need one, and why.
var needTricks = map[string]string{
	"update.go":          "reflect.DeepEqual of two configurations",
	"upstream/unseen.go": "net/http's HTTP/2 says only in the text of an error that a request was not sent",
}

// TestNoTricks: the data plane builds on what is documented.
func TestNoTricks(t *testing.T) {
	var found []string
	err := fs.WalkDir(os.DirFS("../../proxy"), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(filepath.Join("../../proxy", path))
		if what := tricks.Find(code); what != nil {
			if found = append(found, path); needTricks[path] == "" {
				t.Errorf("proxy/%s has %s", path, what)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range needTricks {
		if !slices.Contains(found, path) {
			t.Errorf("proxy/%s needs no trick", path)
		}
	}
}
