package main

import "fmt"

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command could not do its work
	exitUsage   = 2 // the command line is wrong

	exitUnreachable = 69 // EX_UNAVAILABLE: no gateway answers
	exitNoSlot      = 75 // EX_TEMPFAIL: no slot came in time
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128 // and the signal's number
)

// codedError ends the process with its own exit code. If err is nil it has been printed
// already.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// usageError returns the error for a command line that is wrong.
func usageError(format string, args ...any) error {
	return &codedError{code: exitUsage, err: fmt.Errorf(format, args...)}
}
