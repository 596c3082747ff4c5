package membership

import "time"

// began is when the process started, on both clocks.
var (
	began     = time.Now()
	beganBoot = sinceBoot()
)

// bootNow returns the present time on a clock that goes on while the machine sleeps,
// where there is one (Linux). It is not set with the time of day, and good for
// nothing but differences. It costs a system call.
func bootNow() time.Time {
	if beganBoot == 0 {
		return time.Now()
	}
	return began.Add(sinceBoot() - beganBoot)
}
