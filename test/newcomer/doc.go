// Package newcomer does what docs/install.md says, word by word, on clean Debian
// machines: the package installed, the unit started by systemd, three gateways
// joined, the cap counted by the upstream.
//
// # Machines
//
// Four: gw-1 to gw-3 at 10.0.0.1 to 10.0.0.3, and upstream at 10.0.1.1. Each is a
// Debian that debootstrap has made, with systemd as its first process, in
// namespaces of its own (processes, mounts, network, host name, IPC, cgroups), and
// with nothing of the host's files. What they share is the host's kernel. The
// folder of root holds the package, sshd runs, the machines know each other's
// names, and root of any may ssh to root of any other: what the page presumes.
//
// What this shows: the package's files, scripts and dependencies, the unit with
// every restriction it has, and each command of the page. What it does not: other
// kernels, and machines that start with the network still down.
//
// It takes minutes, and downloads a Debian once, so it runs only as make newcomer.
// Needs Linux, root, debootstrap and ip (Debian: debootstrap, iproute2).
package newcomer
