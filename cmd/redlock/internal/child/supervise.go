package child

import (
	"log/slog"
	"os"
	"syscall"
	"time"
)

// Lease is what a command needs of a held lock.
type Lease interface {
	ValidUntil() time.Time
	Done() <-chan struct{}
	Err() error
}

// Process is a running command.
type Process interface {
	// Exited is closed when the command itself has ended. Code is valid then.
	Exited() <-chan struct{}
	Code() int // its exit code, or 128 + the signal that ended it
	// Gone is closed when the command and all known processes that it started have ended. If it
	// left nothing behind, that is before Exited.
	Gone() <-chan struct{}
	// Forward passes on a signal that was sent to this process. After a signal that Ends, it
	// continues what is stopped, because a stopped process could not handle the signal.
	Forward(sig syscall.Signal)
	// Halted tells that the command itself was stopped, and by which signal.
	Halted() <-chan syscall.Signal
	// Continue continues what the terminal has stopped.
	Continue()
	// InForeground reports whether the terminal would not stop the command again for using it.
	InForeground() bool
	// Terminate asks all of it to end, and Kill ends all of it. Neither waits.
	Terminate()
	Kill()
}

// Outcome says how a command ended.
type Outcome struct {
	Code    int
	Stopped bool  // Supervise stopped it, because the lease was ending
	Reason  error // if Stopped: why the lease ended; nil if it was given up in time
	Left    bool  // something of it still runs and cannot be ended
	Told    bool  // a signal that Ends was passed on
}

// Supervise returns when nothing of the process runs any more. With keep, it returns when the
// command itself has ended by itself.
//
// It passes signals on, except one that Stops, because a stopped command would hold the lock until
// somebody thinks of it. If the terminal has stopped the command by itself, Supervise continues it
// at once. It does the same if the command is stopped a little later, or stops itself when told to.
// A command that the terminal has stopped in the background goes on when it comes to the foreground:
// a shell that does not see its job stopped sends no SIGCONT.
func Supervise(p Process, lease Lease, plan Plan, keep bool, signals <-chan os.Signal, log *slog.Logger) Outcome {
	s := Stopper{Plan: plan}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var (
		out    Outcome
		done   = lease.Done()
		exited = p.Exited()
		last   = Run     // what was done last
		stray  bool      // the command has ended and left processes behind
		end    time.Time // of their time to end by themselves
		killed time.Time // when it was killed first
		undo   = time.NewTimer(0)
		again  time.Duration      // after which the stop is undone once more
		wants  = time.NewTimer(0) // while the command waits for the foreground
	)
	undo.Stop()
	defer undo.Stop()
	wants.Stop()
	defer wants.Stop()
	for {
		now := time.Now()
		over := done == nil
		action, wait := s.Look(now, lease.ValidUntil(), over)
		if stray && action == Run { // they get as long as the command would have
			if wait = end.Sub(now); wait <= 0 {
				action = Kill
			}
		}
		switch {
		case action == Terminate && last == Run:
			out.Stopped = out.Stopped || !stray
			log.Warn("the lease ends and is not renewed: asking the command to end",
				"left", time.Until(lease.ValidUntil()).Round(time.Millisecond))
			p.Terminate()
			last = Terminate
		case action == Kill:
			if last != Kill {
				out.Stopped = out.Stopped || !stray
				killed = now
				log.Warn("killing the command", "left", time.Until(lease.ValidUntil()).Round(time.Millisecond), "lease_over", over)
			}
			if now.Sub(killed) > giveUp {
				out.Left, out.Reason = true, lease.Err()
				return out
			}
			p.Kill()
			last = Kill
			wait = killAgain
		}
		timer.Reset(time.Until(now.Add(wait))) // what was done may have taken its time
		select {
		case <-timer.C:
		case <-done:
			done = nil
		case sig := <-signals:
			if !Stops(sig) {
				out.Told = out.Told || Ends(sig)
				p.Forward(sig.(syscall.Signal))
				break
			}
			log.Warn("not stopping the command, because it would hold the lock; Ctrl-C ends it")
			again = undoAgain
			undo.Reset(0)
		case sig := <-p.Halted():
			if Stops(sig) && again > 0 && again < undoAtMost {
				break // said already, and undone
			}
			log.Warn("the command is stopped, and the lock stays held: "+advice(sig), "signal", sig.String())
			if OfTerminal(sig) {
				wants.Reset(wantsAgain)
			}
		case <-wants.C:
			if p.InForeground() {
				p.Continue()
				break
			}
			wants.Reset(wantsAgain)
		case <-undo.C:
			p.Continue()
			if again < undoAtMost {
				undo.Reset(again)
				again *= 4
			}
		case <-exited:
			exited = nil
			out.Code = p.Code()
			if keep && !out.Stopped {
				return out
			}
			select {
			case <-p.Gone():
			default:
				if !out.Stopped {
					log.Warn("the command has ended and left processes behind: asking them to end (run --keep-children leaves them alone)")
					p.Terminate()
					stray, end = true, time.Now().Add(plan.KillAfter)
				}
			}
		case <-p.Gone():
			out.Code = p.Code()
			if out.Stopped {
				out.Reason = lease.Err()
			}
			return out
		}
	}
}

// advice says what a person can do about a command that a signal has stopped.
func advice(sig syscall.Signal) string {
	if OfTerminal(sig) {
		return "it wants the terminal from the background, so bring it to the foreground (fg) or end it"
	}
	return "it goes on with SIGCONT"
}

const (
	undoAgain  = 10 * time.Millisecond
	undoAtMost = 10 * time.Second // at 0, 10, 50, 210, 850 ms, 3.4 s, 13.7 s
	wantsAgain = 100 * time.Millisecond
	killAgain  = 2 * time.Millisecond // what forks while it is killed is found at the next look
	giveUp     = 10 * time.Second     // what a kill does not end for so long is in an uninterruptible sleep
)
