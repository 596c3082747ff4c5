package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/membership"
)

// TestAwake: a process that stood still has run since it went on.
func TestAwake(t *testing.T) {
	var a awake
	began := time.Now()
	for _, look := range []struct{ at, want time.Duration }{
		{0, 0},
		{time.Second, time.Second},
		{2500 * time.Millisecond, 2500 * time.Millisecond},
		{14 * time.Second, 0},
		{15 * time.Second, time.Second},
	} {
		if got := a.since(began.Add(look.at)); got != look.want {
			t.Errorf("at %v: has run for %v, want %v", look.at, got, look.want)
		}
	}
}

// TestUnlike: status says each difference between the k that the cluster has agreed on and the
// configuration's, and what to do about it.
func TestUnlike(t *testing.T) {
	class := func(host string, k int) membership.Class { return membership.Class{Upstream: "http://" + host, K: k} }
	server := class("s", 2)
	server.Name = "http://all"
	plain := func(k int) membership.Pool { return membership.Pool{Name: "p", K: k} }
	each := func(all ...membership.Class) membership.Pool {
		p := plain(0)
		for _, c := range all {
			p.K += c.K
		}
		p.Classes = all
		return p
	}
	for name, test := range map[string]struct {
		agreed, spec membership.Pool
		want         []string // a part of each
	}{
		"as agreed":             {plain(4), plain(4), nil},
		"another k":             {plain(5), plain(6), []string{"write 5 there, or kgate pool set p --k 6"}},
		"one k, a k of each":    {plain(4), each(class("a", 2), class("b", 2)), []string{"agreed on k 4 for all of them together"}},
		"a k of each, one k":    {each(class("a", 2), class("b", 2)), plain(4), []string{"agreed on a k for each upstream"}},
		"each as agreed":        {each(class("a", 2), server), each(class("a", 2)), nil},
		"the same sum":          {each(class("a", 3), class("b", 1)), each(class("a", 1), class("b", 3)), []string{"--upstream http://a --k 1", "--upstream http://b --k 3"}},
		"one that is not there": {each(class("a", 2)), each(class("a", 2), class("b", 3)), []string{"http://b gets no requests"}},
		"one that is not here":  {each(class("a", 2), class("b", 3)), each(class("a", 2)), []string{"write it there, or kgate pool set p --upstream http://b --k 0"}},
	} {
		got := unlike(&test.agreed, &test.spec)
		if len(got) != len(test.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %q does not say %q", name, got[i], want)
			}
		}
	}
}

// TestCheckUpstream: what kgate pool set may add to a pool whose upstreams have a k of their own.
func TestCheckUpstream(t *testing.T) {
	have := []membership.Class{{Upstream: "http://10.0.0.1", K: 2}}
	for upstream, want := range map[string]string{
		"http://10.0.0.1":         "",
		"http://10.0.0.2:8000":    "",
		"https://10.0.0.1":        "",
		"http://10.0.0.1/":        "has this server as http://10.0.0.1",
		"http://10.0.0.1:80":      "has this server as http://10.0.0.1",
		"ftp://10.0.0.2":          "scheme",
		"10.0.0.2":                "scheme",
		"http://u:secret@h":       "user information",
		"http://10.0.0.2?x=1":     "query",
		"http://10.0.0.2#k=3":     "ends with #",
		"http://_llm._tcp.ex.com": "SRV",
		"tcp://10.0.0.2:22":       "of another kind",
	} {
		err := checkUpstream(have, upstream)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", upstream, err, want)
		}
	}
}

// TestFailingAfterDown: an upstream that is up again does not fail requests because it failed those of the minute before.
func TestFailingAfterDown(t *testing.T) {
	var log strings.Builder
	l := upstreamLog{slog.New(slog.NewTextHandler(&log, nil)), make(map[string]map[string]upstreamWas)}
	began := time.Now()
	for _, look := range []struct {
		at    time.Duration
		up    bool
		fails uint64
		want  int // lines
	}{
		{0, true, 0, 0},
		{time.Second, false, 80, 0},
		{2 * time.Second, true, 80, 0},
		{50 * time.Second, true, 60, 0},
		{61 * time.Second, true, 1, 0},
		{90 * time.Second, true, 80, 1},
		{92 * time.Second, true, 0, 2},
	} {
		l.look("p", []admin.Upstream{{URL: "http://a", Up: look.up, Recent: admin.Recent{Ended: 100, Failed: look.fails}}}, began.Add(look.at))
		if got := strings.Count(log.String(), "\n"); got != look.want {
			t.Errorf("after %v: %d lines, want %d:\n%s", look.at, got, look.want, log.String())
		}
	}
}
