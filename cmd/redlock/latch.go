package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/redlock"
)

// latchFlags are those of the commands about one latch.
type latchFlags struct {
	common
	count int
	round uint64
	life  time.Duration
	wait  string
}

func newLatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latch",
		Short: "Arrive at a countdown latch, or wait until it opens",
		Long: `latch serves countdown latches: a latch opens when --count have arrived, for everybody who awaits it
and for good. Nobody holds it. All users of a latch give the same --count, or 0 if they do not know
it. To use a name again, give each use a greater --round.

` + configHelp,
		Example: `  redlock latch arrive import part-1 --count 3     # each of three jobs, in any order
  redlock latch await import --count 3 --wait 1h && ./report.sh`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLatchArrive(), newLatchCountDown(), newLatchAwait(), newLatchRemaining(), newLatchDelete())
	return cmd
}

// command makes one of the commands, which does something about a latch.
func (f *latchFlags) command(cmd *cobra.Command, terms bool, do func(ctx context.Context, conn *connection, l *redlock.Latch, args []string) error) *cobra.Command {
	f.flags(cmd.Flags())
	if terms {
		cmd.Flags().IntVar(&f.count, "count", 0, "how many open the latch; 0: another user tells it")
		cmd.Flags().DurationVar(&f.life, "life", 24*time.Hour, "how long the members keep the latch after its last use")
	}
	cmd.Flags().Uint64Var(&f.round, "round", 0, "which use of the name this is")
	cmd.RunE = f.connected(func(cmd *cobra.Command, conn *connection, args []string) error {
		opts := []redlock.LatchOption{redlock.Round(f.round)}
		if terms {
			opts = append(opts, redlock.Life(f.life))
		}
		return do(cmd.Context(), conn, conn.Latch(args[0], f.count, opts...), args)
	})
	return cmd
}

func newLatchArrive() *cobra.Command {
	var f latchFlags
	return f.command(&cobra.Command{
		Use:   "arrive KEY ID",
		Short: "Count a named piece of work, once however often this is repeated",
		Long: `arrive counts the piece of work ID. A job that runs again after a crash may arrive again: it counts
once. arrive exits with 0 once a majority of the members has the arrival.

` + configHelp,
		Example: `  redlock latch arrive import part-1 --count 3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("arrive takes a key and an id: usage: redlock latch %s", cmd.Use)
			}
			return nil
		},
	}, true, func(ctx context.Context, _ *connection, l *redlock.Latch, args []string) error {
		return l.Arrive(ctx, args[1])
	})
}

func newLatchCountDown() *cobra.Command {
	var f latchFlags
	return f.command(&cobra.Command{
		Use:   "countdown KEY",
		Short: "Count once more",
		Long: `countdown counts this call. If you repeat it after an error, it may count twice: use arrive for work
that has a name.

` + configHelp,
		Example: `  redlock latch countdown import --count 3`,
		Args:    oneKey,
	}, true, func(ctx context.Context, _ *connection, l *redlock.Latch, _ []string) error { return l.CountDown(ctx) })
}

func newLatchAwait() *cobra.Command {
	var f latchFlags
	cmd := f.command(&cobra.Command{
		Use:   "await KEY",
		Short: "Wait until the latch is open",
		Long: `await exits with 0 when the latch is open, and with 75 if it is not open within --wait. A latch that
nobody has made yet is shut. It exits with 79 if a later round has begun.

` + configHelp,
		Example: `  redlock latch await import --count 3 --wait 1h && ./report.sh`,
		Args:    oneKey,
	}, true, func(ctx context.Context, _ *connection, l *redlock.Latch, args []string) error {
		shut := &exitError{exitNotObtained, fmt.Errorf("latch %s, round %d is not open", printable.Quote(args[0]), f.round)}
		w := waiting{wait: f.wait}
		patience, err := w.patience()
		switch {
		case err != nil:
			return err
		case patience == 0: // one look
			if n, err := l.Remaining(ctx); n > 0 && err == nil {
				return shut
			} else if err != nil {
				return err
			}
		case patience > 0:
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, patience)
			defer cancel()
		}
		err = l.Await(ctx)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redlock.ErrNoQuorum) && !errors.Is(err, redlock.ErrQuarantined) {
			return shut
		}
		return err
	})
	cmd.Flags().StringVarP(&f.wait, "wait", "w", "forever", "how long to wait for the latch, or for a majority of the members: 0, a duration such as 30s, or forever")
	return cmd
}

func newLatchRemaining() *cobra.Command {
	var f latchFlags
	cmd := &cobra.Command{
		Use:   "remaining KEY",
		Short: "Show how many are missing, and what every member knows",
		Long: `remaining asks every member what it knows of the latch, and joins it. It changes nothing. Members that
have forgotten make it say too much for a while, and never too little: use await to decide.

It prints the number of missing arrivals on the first line, 0 if the latch is open. The exit code is
0 whether it is open or not; 69 if no majority answers.

` + configHelp,
		Example: `  redlock latch remaining import
  redlock latch remaining import --json | jq .open`,
		Args: oneKey,
		RunE: f.connected(func(cmd *cobra.Command, conn *connection, args []string) error {
			in, err := conn.InspectLatch(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			err = f.show(cmd, func() any { return latchToJSON(in) }, func(w io.Writer) error { return printLatch(w, in) })
			if err != nil {
				return err
			}
			return latchUnanswered(in)
		}),
	}
	f.flags(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func newLatchDelete() *cobra.Command {
	var f latchFlags
	return f.command(&cobra.Command{
		Use:   "delete KEY",
		Short: "Free the memory of a latch that nobody uses any more",
		Long: `delete removes the latch at every member that it reaches. It is not needed: a latch ends by itself. Do
not delete a latch to use its name again: give the next use a greater --round.

` + configHelp,
		Example: `  redlock latch delete import`,
		Args:    oneKey,
	}, false, func(ctx context.Context, _ *connection, l *redlock.Latch, _ []string) error { return l.Delete(ctx) })
}

// latchJSON is redlock.Inspection for scripts.
type latchJSON struct {
	Key       string            `json:"key"`
	KeyBytes  []byte            `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Known     bool              `json:"known"`
	Round     uint64            `json:"round"`
	Count     int               `json:"count"`
	Remaining int               `json:"remaining"`
	Open      bool              `json:"open"`
	Members   []latchMemberJSON `json:"members"`
}

type latchMemberJSON struct {
	Member  string `json:"member"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
	Round   uint64 `json:"round"`
	Count   int    `json:"count"`
	Arrived int    `json:"arrived"`
	Open    bool   `json:"open"`
	Waiting int    `json:"waiting"`
	LifeMS  int64  `json:"life_ms"`
}

func latchToJSON(in *redlock.Inspection) latchJSON {
	out := latchJSON{Key: in.Key, KeyBytes: exact(in.Key), Known: in.Latch != nil}
	if l := in.Latch; l != nil {
		out.Round, out.Count, out.Remaining, out.Open = l.Round, l.Count, l.Remaining, l.Open
	}
	for _, v := range in.Members {
		m := latchMemberJSON{Member: v.Member, State: v.State}
		if l := v.Latch; l != nil {
			m.Round, m.Count, m.Arrived, m.Open, m.Waiting, m.LifeMS = l.Round, l.Count, l.Arrived, l.Open, l.Waiting, l.Life.Milliseconds()
		}
		if v.Err != nil {
			m.Error = v.Err.Error()
		}
		out.Members = append(out.Members, m)
	}
	return out
}

func printLatch(w io.Writer, in *redlock.Inspection) error {
	missing := 0
	if in.Latch != nil {
		missing = in.Latch.Remaining
	}
	_, err := fmt.Fprintf(w, "%d\n%s: %s\n", missing, printable.Quote(in.Key), latchState(in))
	if err == nil {
		printLatchMembers(w, in)
	}
	return err
}

// latchState says whether a latch is open, and what is missing.
func latchState(in *redlock.Inspection) string {
	switch l := in.Latch; {
	case l == nil:
		return "no member has such a latch"
	case l.Open:
		return fmt.Sprintf("open, round %d", l.Round)
	case l.Count == 0:
		return fmt.Sprintf("shut, round %d, nobody has told the count", l.Round)
	default:
		return fmt.Sprintf("shut, round %d, %d of %d are missing", l.Round, l.Remaining, l.Count)
	}
}

func printLatchMembers(w io.Writer, in *redlock.Inspection) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "  MEMBER\tSTATE\tROUND\tARRIVED\tCOUNT\tOPEN\tWAITING\tLIFE")
	for _, v := range in.Members {
		switch l := v.Latch; {
		case v.Err != nil:
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%v\n", v.Member, v.State, v.Err)
		case l == nil:
			_, _ = fmt.Fprintf(table, "  %s\t%s\t-\t-\t-\t-\t-\t-\n", v.Member, v.State)
		default:
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%d\t%d\t%s\t%v\t%d\t%v\n", v.Member, v.State, l.Round, l.Arrived,
				map[bool]string{true: "-", false: strconv.Itoa(l.Count)}[l.Count == 0], l.Open, l.Waiting, l.Life)
		}
	}
	_ = table.Flush()
}

// latchUnanswered is why too few members answered, nil if enough did.
func latchUnanswered(in *redlock.Inspection) error {
	var all []error
	for _, v := range in.Members {
		all = append(all, v.Err)
	}
	return tooFew(all)
}
