// Package fairk runs kgate's own machines in the lab: package kmutex with the
// bindings of package coordinator, one machine per gateway, driven as package
// gateway drives them.
//
// What is the driver's in production is so here: tickets, the ask interval, the
// links, the epochs with their reports and installs. In a run of package lab there
// is one epoch from beginning to end; [Fleet.Follow] brings the agreed views that
// begin others, and package fuzz makes use of it.
package fairk
