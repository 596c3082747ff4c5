package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestNote: who looks at the line sees what a request is, and none of its
// secrets.
func TestNote(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/files/a%20b?token=secret", http.NoBody)
	r.RemoteAddr = "192.0.2.7:4711"
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	want := Note{Method: "PUT", Path: "/files/a b", Remote: "192.0.2.7", Trace: "0af7651916cd43dd8448eb211c80319c"}
	if got := noteOf(r); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTraceID(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for parent, want := range map[string]string{
		"":                                       "",
		"00-" + id + "-b7ad6b7169203331-01":      id,
		"cc-" + id + "-b7ad6b7169203331-01-xx":   id, // a version to come
		"00-" + id + "-b7ad6b7169203331":         "",
		"00-" + id[1:] + "g-b7ad6b7169203331-01": "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331": "",
		"00_" + id + "-b7ad6b7169203331-01":                    "",
	} {
		if got := traceID(http.Header{"Traceparent": {parent}}); got != want {
			t.Errorf("%q: %q, want %q", parent, got, want)
		}
	}
	if got := traceID(http.Header{"Traceparent": {"00-" + id + "-b7ad6b7169203331-01", "x"}}); got != "" {
		t.Errorf("two headers: %q", got)
	}
}
