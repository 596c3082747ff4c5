package stall

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A meter excuses no more than the kernel says that the machine has kept this process waiting,
// so nothing when nothing stands.
func TestExcusesWhatTheKernelHasSeen(t *testing.T) {
	t.Setenv(Strict, "")
	m := Start()
	defer m.Stop()
	before, began := kept(t), time.Now()
	time.Sleep(time.Second)
	ended, seen := time.Now(), kept(t)-before
	excused := m.Between(began, ended)
	t.Logf("excused %v of %v, the kernel has seen %v", excused, ended.Sub(began), seen)
	if excused > seen+usual {
		t.Errorf("excused %v of %v, the kernel has seen %v", excused, ended.Sub(began), seen)
	}
}

// kept returns for how long the machine has kept the threads of this process from running when they
// could: others ran, or, in a virtual machine, its processors did not.
func kept(t *testing.T) (sum time.Duration) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(threads) == 0 {
		t.Fatal("no account of the scheduler: ", err)
	}
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited int64 // nanoseconds
		if _, err := fmt.Sscan(string(data), &ran, &waited); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(waited)
	}
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64 // hundredths of a second
	if _, err := fmt.Sscan(strings.TrimPrefix(string(data), "cpu "), &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		t.Fatal(err)
	}
	return sum + time.Duration(steal)*time.Second/100
}
