package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kgate/kgate/internal/journal"
	"github.com/kgate/kgate/internal/journal/journaltest"
)

const magic = "a test's journal"

// words is the content of a journal: some words.
type words struct {
	*journal.Journal
	kept []string
}

// open opens the file; RewriteAt is small, so that files are rewritten.
func open(path string, on journal.FS) (*words, error) {
	w := &words{}
	var err error
	w.Journal, err = journal.Open(path, journal.Options{
		Magic: magic, Format: 7, FS: on, RewriteAt: 6000,
		Apply: func(body []byte) error {
			var some []string
			err := json.Unmarshal(body, &some)
			w.kept = append(w.kept, some...)
			return err
		},
		Whole: func() ([]byte, error) { return json.Marshal(w.kept) },
	})
	return w, err
}

// add appends a word.
func (w *words) add(word string) error {
	body, err := json.Marshal([]string{word})
	if err == nil {
		err = w.Append(body)
	}
	if err != nil {
		return err
	}
	w.kept = append(w.kept, word)
	return w.Compact()
}

func opened(t *testing.T, path string, on journal.FS) *words {
	t.Helper()
	w, err := open(path, on)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func try(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	d, db := journaltest.NewDisk(), filepath.Join(t.TempDir(), "db")
	w := opened(t, db, d)
	if !w.Created() {
		t.Error("the first one did not create the file")
	}
	for i := range 500 {
		try(t, w.add(fmt.Sprint("word ", i)))
	}
	try(t, w.Close())
	if size := len(d.Read(db)); size > 4096+2*500*12 {
		t.Errorf("%d bytes: it is not written again", size)
	}
	again := opened(t, db, d)
	if !slices.Equal(again.kept, w.kept) || again.Created() {
		t.Errorf("%d words, created %t", len(again.kept), again.Created())
	}
	try(t, again.Close())
	if err := again.add("late"); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestDamage: a damaged file is refused, or loads without a loss.
func TestDamage(t *testing.T) {
	d, db := journaltest.NewDisk(), filepath.Join(t.TempDir(), "db")
	w := opened(t, db, d)
	for i := range 40 {
		try(t, w.add(fmt.Sprint("word ", i)))
	}
	try(t, w.Close())
	refused := 0
	for name, bad := range journaltest.Damage(d.Read(db), 660) {
		d := journaltest.NewDisk()
		d.Write(db, bad)
		switch again, err := open(db, d); {
		case err == nil:
			if !slices.Equal(again.kept, w.kept) {
				t.Errorf("%s: read as another state", name)
			}
			try(t, again.Close())
		case errors.Is(err, journal.ErrDamaged), errors.Is(err, journal.ErrForeign):
			refused++
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
	if refused < 400 {
		t.Errorf("only %d of 660 are refused", refused)
	}
}

// TestPowerLoss: acknowledged records survive, and the write under way survives as a whole or not at
// all.
func TestPowerLoss(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		d := journaltest.NewDisk()
		w := opened(t, db, d)
		for i := range 1 + r.IntN(200) {
			try(t, w.add(fmt.Sprint("word ", i)))
		}
		acknowledged := slices.Clone(w.kept)
		if r.IntN(2) == 0 {
			d.Interrupt()
			if w.add("last") == nil {
				t.Fatalf("seed %d: a write that was not synced is acknowledged", seed)
			}
		}
		try(t, w.Close())
		again, err := open(db, d.Lose(r))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !slices.Equal(again.kept, acknowledged) && !slices.Equal(again.kept, append(acknowledged, "last")) {
			t.Fatalf("seed %d: %d words, %d were acknowledged", seed, len(again.kept), len(acknowledged))
		}
		try(t, again.add("next"), again.Close())
	}
}

// TestRecover: after a failed write every later write fails, until Recover.
func TestRecover(t *testing.T) {
	d, db := journaltest.NewDisk(), filepath.Join(t.TempDir(), "db")
	w := opened(t, db, d)
	try(t, w.add("one"))
	d.Fill(journaltest.ErrNoSpace)
	if err := w.add("two"); !errors.Is(err, journaltest.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := w.Recover(); !errors.Is(err, journaltest.ErrNoSpace) {
		t.Errorf("recovered on a full disk: %v", err)
	}
	d.Fill(nil)
	if err := w.add("three"); !errors.Is(err, journaltest.ErrNoSpace) {
		t.Errorf("a file that has failed is believed again: %v", err)
	}
	try(t, w.Recover(), w.add("four"), w.Close())
	again := opened(t, db, d)
	if !slices.Equal(again.kept, []string{"one", "four"}) {
		t.Errorf("%q", again.kept)
	}
	try(t, again.Close())
}

const childEnv = "KGATE_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		_, err := open(path, nil)
		fmt.Print(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestOneProcess: a second process is kept out, also after the lock file was removed, and after the
// file was rewritten.
func TestOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	w := opened(t, path, nil)
	other := func() string {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.Output()
		try(t, err)
		return string(out)
	}
	rewrite := func() error { w.Fail(errors.New("a test")); return w.Recover() }
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"as it is", func() error { return nil }},
		{"the lock file is removed", func() error { return os.Remove(path + ".lock") }},
		{"removed, and written again", func() error { return errors.Join(rewrite(), os.Remove(path+".lock")) }},
	} {
		try(t, change.do())
		if said := other(); said != journal.ErrInUse.Error() {
			t.Errorf("%s: a second process opens it: %s", change.name, said)
		}
	}
	try(t, w.Close())
	if said := other(); said != "<nil>" {
		t.Errorf("closed: %s", said)
	}
}
