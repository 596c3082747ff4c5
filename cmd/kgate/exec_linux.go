package main

import "syscall"

// dieWithParent makes the system end the command when this process is killed, in case
// that its guard is killed as well, as by killall.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
