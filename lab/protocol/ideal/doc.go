// Package ideal is the bound for all the others: one line over all nodes and k
// tokens, with no delay and no messages.
package ideal
