// Package child runs a command while a lease is valid, and sees to it that nothing of the command runs
// when the lease ends.
//
//	                 renewed in time: all moves on
//	├──────────────────────────────┬─────────────┬────┤
//	granted                  until - KillAfter   │  until
//	                         SIGTERM         until - Margin
//	                                         SIGKILL
//
// plan.go decides when (pure), supervise.go carries it out, proc_*.go knows the system.
//
// What is stopped: on Linux the command's process group and every process that descends from it, wherever
// it went, because this process takes over orphans (PR_SET_CHILD_SUBREAPER); elsewhere the process group.
// If this process is killed with SIGKILL, Linux kills the command itself (PR_SET_PDEATHSIG), unless it is
// a set-user-ID program; processes that it started go on. A process in uninterruptible sleep dies when
// its system call returns. If this process is stopped (SIGSTOP), gets no
// processor time for Margin, or the machine is suspended, nothing is stopped in time: only fencing tokens
// help there.
package child
