package transport

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kgate/kgate/internal/oncelog"
	"github.com/kgate/kgate/internal/transport/wire"
)

func TestConfigValidate(t *testing.T) {
	err := Config{
		PingInterval: -1, Advertise: ":80", TLS: &tls.Config{},
	}.Validate()
	if !errors.Is(err, errConfig) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{
		"Name", "Handler", "PingInterval", "Advertise", "RootCAs", "Certificates",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in:\n%v", want, err)
		}
	}
	if err := (Config{Name: "gw", Handler: discard, TLS: newPKI(t).peer(t)}).Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	if _, err := Listen(Config{}); !errors.Is(err, errConfig) {
		t.Errorf("Listen: %v", err)
	}
	if _, err := Listen(Config{Name: "gw", Handler: discard, Listen: "127.0.0.1:no"}); err == nil {
		t.Error("a bad address was accepted")
	}
}

func TestAdvertise(t *testing.T) {
	_, port, _ := strings.Cut(listen(t, Config{}).Addr().String(), ":")
	if port == "" || port == "0" {
		t.Errorf("port %q", port)
	}
	for in, want := range map[string]string{
		"10.0.0.1:7080": "10.0.0.1:7080",
		"gw-1:7080":     "gw-1:7080",
		"gw-1":          "gw-1:99",
		"gw-1:0":        "gw-1:99",
		"[::1]:0":       "[::1]:99",
		"::1":           "[::1]:99",
		":80":           "",
		"gw:http":       "",
		"gw:70000":      "",
	} {
		got, err := advertised(in, advertisedAddr("127.0.0.1:99"))
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", in, got, err, want)
		}
	}
	tr := listen(t, Config{Advertise: "gw-1:7080"})
	if tr.Addr().String() != "gw-1:7080" || tr.Addr().Network() != "tcp" {
		t.Errorf("Addr = %v", tr.Addr())
	}
}

// Refusals are counted each, and logged once per cause and minute.
func TestRefusalsAreLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		seen := newCounter()
		r := newRefusals(seen, slog.New(slog.NewTextHandler(&log, nil)))
		lines := func() int { return strings.Count(log.String(), "\n") }
		for range 100 {
			r.add(CauseMagic, errMagic)
			r.add(CauseSlow, wire.ErrTruncated)
		}
		if lines() != 2 {
			t.Errorf("%d lines, want 2:\n%s", lines(), &log)
		}
		time.Sleep(oncelog.Period - time.Nanosecond) // of the fake clock
		r.add(CauseMagic, errMagic)
		if lines() != 2 {
			t.Errorf("%d lines within a minute, want 2", lines())
		}
		time.Sleep(time.Nanosecond)
		r.add(CauseMagic, errMagic)
		if lines() != 3 || !strings.Contains(log.String(), "suppressed=100") {
			t.Errorf("after a minute:\n%s", &log)
		}
		if seen.count(CauseMagic) != 102 || seen.count(CauseSlow) != 100 {
			t.Errorf("counted %v", seen.refused)
		}
	})
}
