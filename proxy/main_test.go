package proxy

import (
	"testing"

	"go.uber.org/goleak"
)

// Net/http's servers close a connection half a second after the last answer.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
