// Package bench measures what kgate costs, side by side with what it could be
// compared to, in one run on one machine: `make bench`. It has no code of its
// own but benchmarks; each prints a table when all are done.
//
// Every proxy and the upstream are processes of their own on real sockets; the
// clients are in the benchmark's process. Rounds of the compared systems take
// turns and the median counts, so that a busy moment of the machine hits all of
// them. A benchmark takes as long as its rounds take: -benchtime has no say.
package bench
