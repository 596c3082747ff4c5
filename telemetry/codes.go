package telemetry

import (
	"net/http"
	"strconv"
)

// statusClientGone stands for clients that left before there was an answer.
const statusClientGone = 499

// codes are a pool's counters by status code. Registered codes have theirs from the start; codes
// that an upstream makes up count as other.
type codes struct {
	by    map[int]Counter
	other Counter
}

func newCodes(vec func(code string) Counter) *codes {
	c := &codes{by: map[int]Counter{}, other: vec(other)}
	for code := 100; code < 600; code++ {
		if http.StatusText(code) != "" || code == statusClientGone {
			c.by[code] = vec(strconv.Itoa(code))
		}
	}
	return c
}

func (c *codes) inc(code int) {
	counter, ok := c.by[code]
	if !ok {
		counter = c.other
	}
	counter.Inc()
}
