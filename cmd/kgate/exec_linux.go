package main

import "syscall"

// dieWithParent makes the system end the command when this process is killed:
// nobody would stop it then when its slot is lost.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
