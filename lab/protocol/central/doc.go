// Package central is what a sceptic would build: one node, the home, keeps the
// line and the tokens; the others ask it. An entry costs three messages (request,
// grant, release), a hand-off two delays, and the home is a single point of
// failure.
package central
