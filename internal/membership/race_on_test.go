//go:build race

package membership

// raceDetector tells that these tests run under the race detector.
const raceDetector = true
