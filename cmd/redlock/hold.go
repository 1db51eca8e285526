package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/redlock"
)

// event is one line that hold prints.
type event struct {
	Event   string     `json:"event"` // held, losing, lost or released
	Key     string     `json:"key"`
	Token   uint64     `json:"token"`
	Votes   int        `json:"votes"`
	Members int        `json:"members"`
	Until   time.Time  `json:"valid_until"`
	Reason  string     `json:"reason,omitempty"`
	Slots   []slotJSON `json:"slots,omitempty"` // of a semaphore
}

func newHold() *cobra.Command {
	c := common{aside: true, takes: true}
	var w waiting
	cmd := &cobra.Command{
		Use:   "hold KEY",
		Short: "Hold a lock until stdin is closed, for programs in other languages",
		Long: `hold takes the lock KEY, prints a line of JSON, and holds the lock until its standard input is
closed or a signal ends it. Then it releases the lock and exits with 0. Start it with a pipe on its
standard input, and stop working when its output ends. It refuses an input that is at its end when it
starts, as a shell gives it to what it starts with &. If the input is closed while hold waits, hold
ends with 75.

The input is closed when every process that has the other end of the pipe has closed it or ended. So
a child that inherits it, after a fork, keeps the lock: have it close the pipe.

It prints these lines:

  - "held" when it has the lock;
  - "losing" when it could not renew and the validity ends within a third of --ttl, at most 5 s:
    stop now;
  - "lost", with exit code 79, when the validity is over;
  - "released".

With --limit, KEY is a semaphore, and each line has the slots and their tokens.

` + configHelp,
		Example: `  redlock hold nightly --wait 10s <pipe
  coproc redlock hold nightly; read -r line <&"${COPROC[0]}"; echo "$line"   # bash`,
		Annotations: map[string]string{ownSignals: "yes"},
		Args:        oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			patience, err := w.patience()
			if err != nil {
				return err
			}
			if err := atItsEnd(cmd.InOrStdin()); err != nil {
				return err
			}
			child.Holding()
			signals := make(chan os.Signal, 8)
			child.Notify(signals, child.Signals...)
			defer signal.Stop(signals)
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			stop := endWith(cancel, signals)
			closed := make(chan struct{})
			go func() { // until stdin is closed, or the program ends
				defer close(closed)
				_, _ = io.Copy(io.Discard, cmd.InOrStdin())
				cancel(errStdinClosed)
			}()
			began := time.Now()
			conn, err := c.openWithin(ctx, cmd, patience)
			if err != nil {
				stop()
				return gaveUp(ctx, err)
			}
			defer conn.close()
			if err := conn.nested(ctx, args, &w, patience); err != nil {
				stop()
				return c.shown(err)
			}
			lease, err := obtain(ctx, &w, w.locker(conn, args[0]), rest(patience, began), conn.set.TTL)
			stop()
			if err != nil {
				return c.shown(gaveUp(ctx, err))
			}
			if s := (signalError{}); errors.As(context.Cause(ctx), &s) {
				return errors.Join(s, lease.Unlock(cmd.Context()))
			}
			return holdOn(cmd, lease, child.DefaultPlan(conn.set.TTL), len(conn.set.Members), signals, closed)
		},
	}
	c.flags(cmd.Flags())
	w.flags(cmd.Flags())
	w.candidate(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "log one JSON object per line on stderr")
	return cmd
}

// errStdinClosed ends a wait: the program that wanted the lock has gone, or wants it no more.
var errStdinClosed = errors.New("standard input was closed before the lock was obtained")

// gaveUp prefers the end of standard input, or the signal, that ended ctx to the error that it led to.
func gaveUp(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStdinClosed) && errors.Is(err, context.Canceled) {
		return &exitError{exitNotObtained, errStdinClosed}
	}
	return endedOr(ctx, err)
}

// atItsEnd returns an error if in cannot say when to stop, so that the lock would be released when it is obtained.
func atItsEnd(in io.Reader) error {
	f, ok := in.(*os.File)
	switch {
	case !ok:
		return nil
	case term.IsTerminal(int(f.Fd())):
		if child.HasTerminal() && !child.InForeground() {
			return usage("standard input is a terminal, and hold is in the background, where it cannot read: give it a pipe, or use redlock run")
		}
		return nil
	case ended(f):
		return usage("standard input is at its end, so the lock would be released at once: give hold a pipe that stays open" +
			" (a shell that starts it with & gives it /dev/null), or use redlock run, or redlock acquire")
	}
	return nil
}

func holdOn(
	cmd *cobra.Command, lease *redlock.Lease, plan child.Plan, members int, signals <-chan os.Signal, closed <-chan struct{},
) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	say := func(what, reason string) error {
		return out.Encode(event{what, lease.Key(), lease.Token(), lease.Votes(), members, lease.ValidUntil(), reason, slotsToJSON(lease.Slots())})
	}
	release := func() error {
		if err := lease.Unlock(cmd.Context()); err != nil {
			return err
		}
		if err := say("released", ""); !errors.Is(err, syscall.EPIPE) {
			return err
		}
		return nil // the program has gone
	}
	if err := say("held", ""); err != nil {
		return errors.Join(err, lease.Unlock(cmd.Context()))
	}
	losing := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := clock.Until(lease.ValidUntil(), time.Now())
			if left <= plan.KillAfter && !losing {
				losing = true
				_ = say("losing", "")
			}
			losing = losing && left <= plan.KillAfter // renewed after all
			timer.Reset(max(10*time.Millisecond, min(left-plan.KillAfter, time.Second)))
		case <-lease.Done():
			reason := "expired"
			if lost := (*redlock.LostError)(nil); errors.As(lease.Err(), &lost) {
				reason = string(lost.Reason)
			}
			_ = say("lost", reason)
			return lease.Err()
		case s := <-signals:
			if child.Ends(s) {
				return release()
			}
		case <-closed:
			return release()
		}
	}
}
