//go:build race

package membership

import "time"

// The race detector slows everything down: a run with it looks for races, and judges
// no times.
const judgesTimes = false

// usualLease is that of gateways for which a test names none.
const usualLease = 2 * time.Second
