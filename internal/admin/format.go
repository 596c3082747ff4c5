package admin

import (
	"fmt"
	"strings"
	"time"
)

// The page and the command kgate status format times in the same way.

// Millis formats milliseconds for people.
func Millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d == 0:
		return "0 ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return Seconds(d.Seconds())
	}
}

// Seconds formats seconds for people.
func Seconds(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 100:
		return fmt.Sprintf("%.0f s", s)
	default:
		return Uptime(s)
	}
}

// Uptime formats whole seconds for people, in the two largest units.
func Uptime(seconds float64) string {
	s := int64(seconds)
	switch days, hours, minutes := s/86400, s/3600%24, s/60%60; {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min %d s", minutes, s%60)
	default:
		return fmt.Sprintf("%d s", s)
	}
}

// Rate formats a pool's rate for people.
func Rate(r *PoolRate) string {
	var parts []string
	for _, p := range []struct {
		name      string
		all, here int64
	}{{"down", r.Down, r.DownHere}, {"up", r.Up, r.UpHere}} {
		if p.all > 0 {
			parts = append(parts, fmt.Sprintf("%s %s, of which %s here", bytesPerSecond(p.all), p.name, bytesPerSecond(p.here)))
		}
	}
	return "at most " + strings.Join(parts, "; ")
}

func bytesPerSecond(n int64) string {
	const step = 1024
	units := []string{"B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"}
	v, i := float64(n), 0
	for v >= step && i < len(units)-1 {
		v, i = v/step, i+1
	}
	return fmt.Sprintf("%.3g %s", v, units[i])
}
