//go:build !race

package membership

const judgesTimes = true
