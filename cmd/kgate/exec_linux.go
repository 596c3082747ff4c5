package main

import "syscall"

// dieWithParent has the kernel end the command when this process is killed, in case its
// guard is killed as well, by killall for example.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
