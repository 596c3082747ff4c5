package downstream

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// FuzzServerName: whatever a client says first, all of it is kept, and it ends.
func FuzzServerName(f *testing.F) {
	f.Add([]byte("\x16\x03\x01\x00\x02xx"))
	f.Add([]byte("SSH-2.0-x\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write(said)
			_ = far.Close()
		}()
		_, kept, err := readServerName(near, time.Second)
		_ = near.Close()
		if err == nil && !bytes.HasPrefix(said, kept) {
			t.Errorf("kept %q of %q", kept, said)
		}
	})
}
