package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
)

func TestDemoParts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"demo upstream --listen " + taken, exitFailure, "in use"},
		{"demo upstream --hold=-1s", exitUsage, "cannot be negative"},
		{"demo upstream --scv 4", exitUsage, "--scv"},
		{"demo load http://127.0.0.1:1=many", exitUsage, `"many" is not a number of clients`},
		{"demo load ftp://127.0.0.1:1", exitUsage, "not an http URL"},
		{"demo load http://127.0.0.1:1=2 --duration 100ms", exitFailure, "no request was answered"},
		{"demo --k 0", exitUsage, "at least 1"},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(tt.args), streams{&out, &errs}); code != tt.code || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: exit %d, %q; want %d and %q", tt.args, code, errs.String(), tt.code, tt.want)
		}
	}
}
