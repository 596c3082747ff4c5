// Package fairk runs kgate's own machines in the lab: package kmutex with the
// bindings of package coordinator, one [Gateway] per node, driven as package
// gateway drives them.
//
// What is the driver's in production is so here: the ask interval, links that know
// whom the agreed view names, epochs with their freeze, reports and installs. A
// fleet is a protocol of package lab: all gateways under one view from beginning
// to end. Package cluster puts views, leases and faults around the same gateways.
package fairk
