package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

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
	var c common
	var w waiting
	cmd := &cobra.Command{
		Use:   "hold KEY",
		Short: "Hold a lock until stdin is closed, for programs in other languages",
		Long: `hold takes the lock KEY, prints a line of JSON, and holds the lock until its standard input is
closed or a signal ends it. Then it releases the lock and exits with 0. Start it with a pipe on its
standard input, and stop working when its output ends.

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
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, child.Signals...)
			defer signal.Stop(signals)
			ctx, stop := endedBy(cmd.Context(), signals)
			began := time.Now()
			conn, err := c.openWithin(ctx, cmd, patience)
			if err != nil {
				stop()
				return endedOr(ctx, err)
			}
			defer conn.close()
			lease, err := obtain(ctx, &w, w.locker(conn, args[0]), rest(patience, began), conn.set.TTL)
			stop()
			if err != nil {
				return c.shown(endedOr(ctx, err))
			}
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), lease.Unlock(cmd.Context()))
			}
			return holdOn(cmd, lease, child.DefaultPlan(conn.set.TTL), len(conn.set.Members), signals)
		},
	}
	c.flags(cmd.Flags())
	w.flags(cmd.Flags())
	w.candidate(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "log one JSON object per line on stderr")
	return cmd
}

func holdOn(cmd *cobra.Command, lease *redlock.Lease, plan child.Plan, members int, signals <-chan os.Signal) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	say := func(what, reason string) error {
		return out.Encode(event{what, lease.Key(), lease.Token(), lease.Votes(), members, lease.ValidUntil(), reason, slotsToJSON(lease.Slots())})
	}
	release := func() error {
		if err := lease.Unlock(cmd.Context()); err != nil {
			return err
		}
		return say("released", "")
	}
	if err := say("held", ""); err != nil {
		return errors.Join(err, lease.Unlock(cmd.Context()))
	}
	closed := make(chan struct{})
	go func() { // until stdin is closed, or the program ends
		defer close(closed)
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
	}()
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
