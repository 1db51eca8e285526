// Package child runs a command while a lease is valid. It makes sure that nothing of the command
// runs when the lease ends.
//
//	                 renewed in time: all moves on
//	├──────────────────────────────┬─────────────┬────┤
//	granted                  until - KillAfter   │  until
//	                         SIGTERM         until - Margin
//	                                         SIGKILL
//
// plan.go decides when and is pure. supervise.go carries it out, and proc_*.go knows the system.
//
// On Linux the package stops the command's process group, and every process that descends from the
// command, wherever it went. It can do so because this process takes over orphans
// (PR_SET_CHILD_SUBREAPER). On other systems it stops the process group, or the command alone if that
// shares our group at a terminal. If this process is killed
// with SIGKILL, Linux kills the command itself (PR_SET_PDEATHSIG), unless the command is a
// set-user-ID program. Processes that the command started go on. A process in uninterruptible sleep
// dies when its system call returns.
//
// The package can stop nothing in time if this process is stopped (SIGSTOP), gets no processor time
// for Margin, or the machine is suspended. Only fencing tokens help then.
package child
