package views

import "testing"

// A machine that began with a snapshot has the digest of those that applied every entry.
func TestDigestSurvivesSnapshots(t *testing.T) {
	all, late := new(Machine), new(Machine)
	entry, err := Encode(join("a", "x"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3 * checkpointsKept) {
		_, _ = all.Apply(5+2*i, entry)
		if i == checkpointsKept {
			data, err := all.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if err := late.Restore(data); err != nil {
				t.Fatal(err)
			}
		} else if i > checkpointsKept {
			_, _ = late.Apply(5+2*i, entry)
		}
	}
	if same, known := all.Compare(late.Newest()); !same || !known {
		t.Errorf("same %t, known %t", same, known)
	}
	gap := Checkpoint{late.Newest().Index - 1, late.Newest().Digest}
	if same, known := all.Compare(gap); same || !known {
		t.Errorf("an entry that was never agreed on: same %t, known %t", same, known)
	}
	if _, known := all.Compare(Checkpoint{Index: 1}); known {
		t.Error("what is long forgotten is known")
	}
}
