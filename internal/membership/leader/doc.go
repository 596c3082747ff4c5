// Package leader holds the rules by which the leader of a cluster judges its
// members: whom to suspend, whose lease to call expired, what to give back, whom
// to let in, and when to hand the lead over.
//
// The rules are pure. A driver tells them what the leader learns and when, as a
// [time.Duration] on the leader's monotonic clock, and carries out what [Rules.Judge]
// returns. It calls Judge every [Interval]. Package membership's core drives them.
//
// # Why suspending is safe
//
// A suspension takes a member out of the agreed view. From then on nobody grants
// it a lease, and its tokens are withheld until its lease has provably expired. So
// a wrong suspicion costs a gateway its place for a moment and never breaks the
// promise of k. The rules may therefore err, but they must always end in a view
// whose members can form the line: that is what the bounds are about.
//
// # Who votes
//
// [NextStep] says which raft server gets a vote or loses it. Once three have one, there never
// are fewer than three, whoever is lost: with fewer, the return of one could not make up for the
// loss of the next. A lost voter's place is taken by another member, if there is one without a
// vote, and by its own next incarnation, which may be another server. Fewer become only those
// that people take out, or stop in order ([TakeOut]).
//
// # The table
//
// L is the lease, W is [lease.Terms.Wait] (1.1 L and a bound). A renewal comes every
// L/6. Bounds count from the fault to the verdict, on top of them comes one
// [Interval]; a leader that has just been elected counts from its election.
//
//	fault                          rule                                           bound
//	-----                          ----                                           -----
//	a process is gone              its link is down, three dials in a row failed, 3 dials
//	                               and no renewal came since the first of them
//	a host is gone                 no renewal for L/3, and then as above          L/3 and 3 dials
//	a gateway came back as         no renewal for L/2, and gossip does not show   L/2, or when
//	another, or is shut off        this incarnation alive                         gossip knows
//	a gateway does not renew,      no renewal for W: its lease is over, whatever  W
//	gossip sees it                 gossip says
//	a link is broken, or carries   both ends complain that it is down since L/2:  2 L/3 after the
//	short packets only             the end in more such pairs goes, of equals     link is noticed
//	                               the younger                                    to be down
//	a report does not come         the home of a pool complains twice in a row:   L/2; for one that
//	                               the member that it misses goes; a home that    has just come in,
//	                               misses most of those who renew goes itself     L
//	a home cannot read its         its own report is among those that it misses:  L/2
//	tickets                        it goes
//	views are not followed         it renews, and names a view that is L/2 old    3 L/4
//	the leader is not heard by     more gateways that gossip sees have not          L/2, again
//	most, or cannot ask the        renewed for L/2, or are kept out since they do   after W
//	voters                         not reach the leader, than have, and one that is
//	                               kept out itself counts, too; or no renewal
//	                               is confirmed: the lead is handed over
//	a member is not reached by     two gateways or more that are out reach each     L/3
//	two gateways that are out,     other and all members but it, or answer another
//	or two by three, and so on     member and not the leader: it goes, whatever else
//	                               is out; a leader hands the lead over first
//	the leader hears nobody        most voters do not answer: it takes nobody     -
//	                               out, since the others would do what it proposes
//	the leader itself was stopped  silence counts from when it went on            -
//	a lease has run out            lease.Grantor says so: expire                  W
//	a pool with a longest hold     HoldMax after the lease was known to be over   W + HoldMax
//	a gateway wants to come in     it reaches every member that renews, also      at once
//	                               with long packets; one that is silent, or
//	                               that gossip shows as another incarnation,
//	                               does not count
//	round trips to one that        core does not let it in: it would get no       -
//	wants to come in take 2 L/5    lease, and every pool would wait for it
//	a gateway flaps                it waits before it is let in again, twice as   1 s to 1 min
//	                               long each time that it happens again soon; W at
//	                               first if it was its reports that did not come
package leader
