//go:build race

package membership

// The race detector slows everything down: a run with it looks for races, and judges
// no times.
const judgesTimes = false
