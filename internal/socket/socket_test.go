package socket

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // the second time over what the first has left
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%v, %v", info, err)
		}
		if _, err := Listen(path); err == nil {
			t.Error("two listen on one socket")
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		u, err := ParseURL("unix:" + path)
		if err != nil || Name(u) != "unix:"+path {
			t.Fatal(u, err)
		}
		transport := Transport()
		res, err := (&http.Client{Transport: transport}).Get(u.JoinPath("a", "b").String())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		transport.CloseIdleConnections()
		if string(got) != "/a/b" {
			t.Errorf("got %q", got)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if err := os.WriteFile(path+".other", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Listen(path + ".other"); err == nil {
		t.Error("a file that is no socket was removed")
	}
}

func TestParseURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://h:1": true, "https://h": true, "unix:/a": true, "unix:a": false, "unix:": false, "ftp://h": false, "h:1": false, "": false,
	} {
		if u, err := ParseURL(text); (err == nil) != ok {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	}
}
