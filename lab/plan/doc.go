// Package plan answers what a pool's operator wants to know before there is one: how
// long requests will wait with this many slots, and how many slots it takes.
//
// A [Question] describes the load: requests per second over all gateways, coming
// independently (a Poisson stream) and evenly over the gateways; how long each
// holds a slot, by mean and SCV (squared coefficient of variation: 0 constant, 1
// exponential, other values log-normal). [Question.Compare] simulates it with the
// machines that kgate ships. The hold is the time in which a gateway counts a
// request as in flight, which is a little longer than the upstream's own time.
//
// The longest wait, and the spread, are of as many requests as one run simulates;
// they grow with that number. Means and quantiles do not.
package plan
