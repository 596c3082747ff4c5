package experiment

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kgate/kgate/lab/handover"
	"github.com/kgate/kgate/lab/protocol/central"
	"github.com/kgate/kgate/lab/protocol/elmp"
)

// Seed 004's setting, as far as it is known: 50 peers, 100 cycles, no idle time. The
// network is ours: 1 Gbit/s, a tenth of a millisecond for a message.
const (
	peerDelay  = 100 * time.Microsecond
	peerCount  = 50
	mebibyte   = 1 << 20
	perSecond  = 125e6 // bytes
	peerToPeer = "peer to peer"
	withServer = "client-server"
)

func transfer(mib float64) time.Duration {
	return time.Duration(mib * mebibyte / perSecond * float64(time.Second))
}

// cycleConfig is a run with a peer-to-peer lock, or a server's.
func cycleConfig(kind string, mib float64, locked time.Duration, s Size, seed uint64) handover.Config {
	c := handover.Config{
		Seed: seed, Protocol: elmp.Spec(), Server: kind == withServer, Peers: peerCount, Delay: peerDelay, Transfer: transfer(mib),
		Locked: locked, Cycles: s.Entries, Skip: 2,
	}
	if c.Server {
		c.Protocol = central.Spec()
	}
	return c
}

func seed004() []*Experiment { return []*Experiment{cycleTimes(), asynchronous(), departures()} }

var (
	cycleSizes = []float64{0, 1, 10, 50, 200, 500} // MiB
	cycleLocks = []float64{0, .1, 1, 5}            // s
)

func cycleTimes() *Experiment {
	plot := func(kind string) Plot {
		return Plot{
			Title: "Cycle time, " + kind, X: "size_mib", Y: "cycle_s", XLabel: "size of the data, MiB", YLabel: "seconds",
			Series: []string{"locked_s"}, Where: map[string][]string{"lock": {kind}},
		}
	}
	return &Experiment{
		Name: "004-fig6", Source: "seed 004, figure 6",
		About: "data handover without other work: cycle time against size and time in use, peer to peer and client-server",
		Quick: Size{Seeds: 3, Entries: 20}, Full: Size{Seeds: 10, Entries: 100},
		Plots: []Plot{plot(peerToPeer), plot(withServer)},
		design: func(s setting) (*design, error) {
			d := &design{name: "004-fig6", keys: []string{"lock", "locked_s", "size_mib"}, figures: []Figure{
				{"cycle_s", "mean cycle, T_DHO"},
				{"queue", "others in line at a request, q"},
				{"place_s", "cycle over q + 1"},
				{"overhead_us", "the same, less T_locked and T_fetch, microseconds"},
				{"messages", "messages of the lock per cycle"},
			}}
			for _, kind := range []string{peerToPeer, withServer} {
				for _, locked := range cycleLocks {
					for _, size := range cycleSizes {
						d.cells = append(d.cells, cell{rows: [][]string{{kind, text(locked), text(size)}}, measure: func(seed uint64) ([][]float64, error) {
							c := cycleConfig(kind, size, time.Duration(locked*float64(time.Second)), s.Size, seed)
							r, err := handover.Run(c)
							if err != nil {
								return nil, err
							}
							place := r.Cycle.Seconds() / (r.Queue + 1)
							return [][]float64{{r.Cycle.Seconds(), r.Queue, place, 1e6 * (place - c.Locked.Seconds() - c.Fetch().Seconds()), r.Messages}}, nil
						}})
					}
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			pb, pa, pe := fitCycles(t, peerToPeer)
			sb, sa, se := fitCycles(t, withServer)
			return []Check{
				{
					What: "T_DHO = (T_locked + T_fetch + alpha eta)(q + 1)", Quoted: "fitted, equation 3",
					Found:  fmt.Sprintf("peer to peer: slope %.4f, %.2f %% explained; client-server: %.4f, %.2f %%", pb, 100*pe, sb, 100*se),
					Agrees: math.Abs(pb-1) < .01 && math.Abs(sb-1) < .01 && min(pe, se) > .999, Why: "see the table",
				},
				{
					What: "alpha eta, peer to peer over client-server", Quoted: "10.4 x 430 us = 4.5 ms over 10.4 x 70 us = .7 ms: 6 times as much", Agrees: pa > sa,
					Found: fmt.Sprintf("%.0f us over %.0f us, where a message takes %.0f us: %.1f times as much", 1e6*pa, 1e6*sa, 1e6*peerDelay.Seconds(), pa/sa),
					Why:   "with a line the token goes straight from one peer to the next, one delay, and through a server it takes two; the exchange of places in the tree, which the paper blames, goes on while the request waits. In the paper's implementation it delays the hand-over",
				},
				{
					What: "q is smaller peer to peer", Quoted: "significantly reduced", Found: fmt.Sprintf("%.1f and %.1f", t.at("queue", peerToPeer, "1", "50").Mean, t.at("queue", withServer, "1", "50").Mean),
					Agrees: t.at("queue", peerToPeer, "1", "50").Mean < .9*t.at("queue", withServer, "1", "50").Mean,
					Why:    "50 peers without idle time are 49 in line ahead of the 50th, whoever keeps the line; if the requests that are still on their way through the tree are not counted, q is smaller, and the wait is the same",
				},
			}
		},
		finding: func(t *Table) string {
			pb, pa, _ := fitCycles(t, peerToPeer)
			_, sa, _ := fitCycles(t, withServer)
			return fmt.Sprintf("the cycle is (%.3f (T_locked + T_fetch) + %.0f us)(q + 1) peer to peer and has %.0f us through a server (paper: 4.5 ms and .7 ms)", pb, 1e6*pa, 1e6*sa)
		},
	}
}

// fitCycles fits cycle/(q + 1) = a + b (T_locked + T_fetch), and returns how much of
// the variance that explains.
func fitCycles(t *Table, kind string) (b, a, explained float64) {
	var x, y []float64
	for _, row := range t.rowsOf("lock", kind) {
		locked, _ := strconv.ParseFloat(row.Keys[1], 64)
		size, _ := strconv.ParseFloat(row.Keys[2], 64)
		if locked == 0 && size == 0 {
			continue // only messages: the requests' own way is as long as the line
		}
		x = append(x, locked+transfer(size).Seconds()+2*peerDelay.Seconds())
		y = append(y, t.at("place_s", row.Keys...).Mean)
	}
	b, explained = slope(x, y)
	for i := range x {
		a += (y[i] - b*x[i]) / float64(len(x))
	}
	return b, a, explained
}

const (
	timeCycle    = "T_DHO"
	timeWait     = "T_Wait"
	timeBlocking = "T_Blocking"
)

var (
	asyncLocks = []string{"0", "1", "5"}                             // s
	asyncWorks = []float64{0, 1, 2, 5, 10, 15, 20, 40, 80, 200, 300} // s
)

// Who has other work. If it is one peer, the times are those of the others.
const (
	allWork   = "all"
	oneWorks  = "one"
	oneYields = "one, yields"
)

func asynchronous() *Experiment {
	var plots []Plot
	for _, locked := range asyncLocks {
		plots = append(plots, Plot{
			Title: "50 peers, 50 MiB, T_locked = " + locked + " s", X: "work_s", Y: "seconds", XLabel: "work between request and acquire, T_Wblocked, s", YLabel: "seconds",
			Series: []string{"time"}, Where: map[string][]string{"working": {allWork}, "locked_s": {locked}},
		})
	}
	plots = append(plots, Plot{
		Title: "The others' cycle if one of 50 peers works, T_locked = 1 s", X: "work_s", Y: "seconds", XLabel: "its work between request and acquire, s", YLabel: "seconds",
		Series: []string{"working"}, Where: map[string][]string{"working": {oneWorks, oneYields}, "time": {timeCycle}},
	})
	return &Experiment{
		Name: "004-fig7", Source: "seed 004, figure 7",
		About: "data handover with other work while the request waits, peer to peer",
		Quick: Size{Seeds: 3, Entries: 20}, Full: Size{Seeds: 10, Entries: 100},
		Plots: plots,
		design: func(s setting) (*design, error) {
			d := &design{name: "004-fig7", keys: []string{"working", "locked_s", "time", "work_s"}, figures: []Figure{{"seconds", "mean over the cycles"}}}
			for _, work := range asyncWorks {
				for _, locked := range asyncLocks {
					d.cells = append(d.cells, asyncCell(allWork, locked, work, s.Size))
				}
				d.cells = append(d.cells, asyncCell(oneWorks, "1", work, s.Size), asyncCell(oneYields, "1", work, s.Size))
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			at := func(locked, name, work string) float64 { return t.at("seconds", allWork, locked, name, work).Mean }
			others := func(working string) float64 { return t.at("seconds", working, "1", timeCycle, "200").Mean }
			same := at("0", timeCycle, "0") == at("0", timeWait, "0") && at("0", timeWait, "0") == at("0", timeBlocking, "0")
			hidden := func(locked string) float64 { return at(locked, timeBlocking, "0") - at(locked, timeBlocking, "5") }
			longer := at("5", timeCycle, "5") / at("5", timeCycle, "0")
			return []Check{
				{What: "T_locked = T_Wblocked = 0: the three curves meet", Quoted: "superimposed", Found: fmt.Sprintf("%.2f s, %.2f s, %.2f s", at("0", timeCycle, "0"), at("0", timeWait, "0"), at("0", timeBlocking, "0")), Agrees: same, Why: "see the table"},
				{
					What: "T_Wblocked = 5 s overlaps well", Quoted: "a good overlapping", Agrees: math.Abs(hidden("1")-5) < .1 && math.Abs(hidden("5")-5) < .1 && longer < 1.01,
					Found: fmt.Sprintf("%.2f s and %.2f s of it are hidden with T_locked = 1 s and 5 s; the cycle takes %.3f times as long", hidden("1"), hidden("5"), longer), Why: "see the table",
				},
				{
					What: "T_Wait grows slightly with T_Wblocked", Quoted: "slightly: the grant is taken a bit later", Agrees: at("1", timeWait, "40") < 1.1*at("1", timeWait, "0"),
					Found: fmt.Sprintf("T_locked = 1 s: %.1f s without work, %.1f s with 40 s, %.1f s with 200 s", at("1", timeWait, "0"), at("1", timeWait, "40"), at("1", timeWait, "200")),
					Why:   "true until the work is as long as the wait. From there T_Wait is the work itself, which it contains by its definition; everybody works at the same time, so nobody is delayed",
				},
				{
					What: "T_locked = 1 s, one of 50 peers works for 200 s", Quoted: "not measured", Agrees: others(oneWorks) < 1.1*at("1", timeCycle, "0"),
					Found: fmt.Sprintf("the others' cycle takes %.1f s instead of %.1f s; %.1f s if it passes on a lock that it cannot use yet", others(oneWorks), at("1", timeCycle, "0"), others(oneYields)),
					Why:   "a lock that is granted before its owner needs it is used by nobody",
				},
			}
		},
		finding: func(t *Table) string {
			at := func(working, name, work string) float64 { return t.at("seconds", working, "1", name, work).Mean }
			return fmt.Sprintf("with T_locked = 1 s, 5 s of work cut the time that a peer is blocked from %.1f s to %.1f s; one peer that works for 200 s makes the cycle of the 49 others %.1f times as long",
				at(allWork, timeBlocking, "0"), at(allWork, timeBlocking, "5"), at(oneWorks, timeCycle, "200")/at(allWork, timeCycle, "0"))
		},
	}
}

// asyncCell has the three times of a setting.
func asyncCell(working, locked string, work float64, s Size) cell {
	var c cell
	for _, name := range []string{timeCycle, timeWait, timeBlocking} {
		c.rows = append(c.rows, []string{working, locked, name, text(work)})
	}
	c.measure = func(seed uint64) ([][]float64, error) {
		used, _ := time.ParseDuration(locked + "s")
		cfg := cycleConfig(peerToPeer, 50, used, s, seed)
		cfg.Work, cfg.Yield = time.Duration(work*float64(time.Second)), working == oneYields
		if working != allWork {
			cfg.Workers = 1
		}
		r, err := handover.Run(cfg)
		return [][]float64{{r.Cycle.Seconds()}, {r.Wait.Seconds()}, {r.Blocking.Seconds()}}, err
	}
	return c
}

var (
	departShares = []int{25, 33, 50}
	departPeers  = []int{50, 120}
	// departQuoted is table 2: seconds, by peers and share.
	departQuoted = map[int][]float64{50: {2.27, 2.65, 4.29}, 120: {4.27, 6.46, 10.34}}
)

func departures() *Experiment {
	return &Experiment{
		Name: "004-tab2", Source: "seed 004, table 2",
		About: "what peers that leave cost the cycles of the others, 50 MiB, T_locked = 5 s",
		Quick: Size{Seeds: 20}, Full: Size{Seeds: 200},
		Plots: []Plot{{
			Title: "Overhead of departures", X: "leave_percent", Y: "overhead_s", XLabel: "share of the peers that leave, %", YLabel: "seconds more per cycle",
			Series: []string{"peers", "tree"},
		}},
		design: func(setting) (*design, error) {
			d := &design{name: "004-tab2", keys: []string{"peers", "tree", "leave_percent"}, figures: []Figure{
				{"overhead_s", "mean cycle of those who stay, less that without the others"}, {"percent", "the same over a cycle with all peers"}, {"cycle_s", "mean cycle"},
			}}
			for _, peers := range departPeers {
				for _, tree := range []string{"order 2", "lazy"} {
					for _, share := range departShares {
						d.cells = append(d.cells, cell{rows: [][]string{{text(peers), tree, text(share)}}, measure: func(seed uint64) ([][]float64, error) {
							c := handover.Config{
								Seed: seed, Protocol: elmp.With(tree, elmp.Options{Lazy: tree == "lazy"}), Peers: peers, Delay: peerDelay, Transfer: transfer(50),
								Locked: 5 * time.Second, Cycles: 1, Leavers: peers * share / 100,
							}
							with, err := handover.Run(c)
							if err != nil {
								return nil, err
							}
							c.Absent = true
							without, err := handover.Run(c)
							if err != nil {
								return nil, err
							}
							more := (with.Cycle - without.Cycle).Seconds()
							full := float64(peers) * (c.Locked + c.Fetch()).Seconds()
							return [][]float64{{more, 100 * more / full, with.Cycle.Seconds()}}, nil
						}})
					}
				}
			}
			return d, nil
		},
		checks: func(t *Table) []Check {
			var found, quoted string
			within2, grows := true, true
			for _, peers := range departPeers {
				last := 0.0
				for i, share := range departShares {
					v, q := t.at("overhead_s", text(peers), "order 2", text(share)).Mean, departQuoted[peers][i]
					found += fmt.Sprintf("%.2f ", v)
					quoted += fmt.Sprintf("%.2f ", q)
					within2 = within2 && v > q/2 && v < 2*q
					grows = grows && v > last
					last = v
				}
			}
			return []Check{
				{
					What: "overhead, s: 25, 33, 50 % of 50 peers, then of 120", Quoted: quoted, Found: found, Agrees: within2 && grows,
					Why: "see the table",
				},
				{
					What: "negligible", Quoted: ".7 to 1.7 % of a cycle", Found: fmt.Sprintf("%.2f to %.2f %%", t.at("percent", "50", "order 2", "25").Mean, t.at("percent", "120", "order 2", "50").Mean),
					Agrees: t.at("percent", "120", "order 2", "50").Mean < 3.4, Why: "see the table",
				},
			}
		},
		finding: func(t *Table) string {
			return fmt.Sprintf("half of 120 peers that leave cost the others %.1f s per cycle (paper: 10.34 s): each one in line fetches the data before it passes the token on",
				t.at("overhead_s", "120", "order 2", "50").Mean)
		},
	}
}
