//go:build !race

package membership

import "time"

const judgesTimes = true

const usualLease = time.Second
