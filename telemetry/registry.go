package telemetry

// Registry makes the metrics. Package prom implements it for Prometheus.
type Registry interface {
	// Counters returns a function that makes the counter of the labels' values.
	Counters(name, help string, labels ...string) func(values ...string) Counter
	// Times makes a histogram of seconds, Sizes a histogram of numbers with the given edges of
	// buckets.
	Times(name, help string, labels ...string) func(values ...string) Observer
	Sizes(name, help string, edges []float64) Observer
}

// Counter counts.
type Counter interface {
	Inc()
	Add(n float64)
}

// Observer counts values. A value of a recorded trace comes with the trace's ID, others with "".
type Observer interface {
	Observe(value float64, traceID string)
}

// nothing is a Registry that records nothing, and the metrics that it makes.
type nothing struct{}

// Counters implements Registry.
func (nothing) Counters(string, string, ...string) func(...string) Counter {
	return func(...string) Counter { return nothing{} }
}

// Times implements Registry.
func (nothing) Times(string, string, ...string) func(...string) Observer {
	return func(...string) Observer { return nothing{} }
}

// Sizes implements Registry.
func (nothing) Sizes(string, string, []float64) Observer { return nothing{} }

// Inc implements Counter.
func (nothing) Inc() {}

// Add implements Counter.
func (nothing) Add(float64) {}

// Observe implements Observer.
func (nothing) Observe(float64, string) {}
