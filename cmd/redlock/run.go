package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/redlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The most that the library takes.
const (
	mostKeys  = 64
	mostValue = 4096 // bytes
)

// waiting are the flags of every command that obtains a lock.
type waiting struct {
	wait   string
	once   bool
	code   int
	fair   bool
	shared bool
	seats  int     // permits of a semaphore; 0: one
	limit  int     // of a semaphore; 0: the lock is none
	elect  *string // nil: the lock is no election
}

func (w *waiting) flags(f *pflag.FlagSet) {
	f.StringVarP(&w.wait, "wait", "w", "forever", "how long to wait for the lock, or for a majority of the members: 0, a duration such as 30s, or forever")
	f.BoolVarP(&w.once, "nonblock", "n", false, "the same as --wait 0")
	f.IntVarP(&w.code, "conflict-exit-code", "E", exitNotObtained, "exit code when the lock is not obtained in time (0: that is a success, and run and hold tell of it with -v only)")
	f.BoolVar(&w.fair, "fair", false, "wait in strict order with all other callers that say --fair")
	f.BoolVar(&w.shared, "shared", false, "take the lock as a reader: together with others that do, and never beside one that does not")
	f.Func("limit", "take a permit of the semaphore KEY, which has `K` slots, 1 to 4,096", within(&w.limit, mostSlots))
	f.Func("permits", "with --limit: take `N` permits, 1 to 64, all or none (default 1)", within(&w.seats, mostPermits))
}

// candidate adds the flag of those commands that can lead.
func (w *waiting) candidate(f *pflag.FlagSet) {
	f.Func("elect", "campaign for KEY and proclaim this `value`: see redlock leader", func(v string) error {
		w.elect = &v
		return nil
	})
}

// options are those of the lock.
func (w *waiting) options(more ...redlock.LockOption) []redlock.LockOption {
	if w.fair {
		more = append(more, redlock.Fair())
	}
	return more
}

// patience is 0 for one try, negative for ever.
func (w *waiting) patience() (time.Duration, error) {
	if err := w.semaphore(); err != nil {
		return 0, err
	}
	if w.fair && w.shared {
		return 0, usage("--fair and --shared exclude each other: readers have no order among themselves")
	}
	if w.elect != nil && len(*w.elect) > mostValue {
		return 0, usage("--elect has %d bytes, but at most %d are allowed", len(*w.elect), mostValue)
	}
	if w.elect != nil && (w.fair || w.shared) {
		return 0, usage("--elect excludes --fair and --shared: a leader is alone, and candidates have no strict order")
	}
	if w.code < 0 || w.code > 255 {
		return 0, usage("--conflict-exit-code is %d, must be between 0 and 255", w.code)
	}
	d := time.Duration(-1)
	switch {
	case w.once:
		d = 0
	case w.wait != "forever":
		var err error
		if d, err = settings.Duration(w.wait); err != nil {
			return 0, usage("--wait: %q %w; it takes a duration, 0 or forever", w.wait, err)
		} else if d < 0 {
			return 0, usage("--wait: %q is less than 0; it takes a duration, 0 or forever", w.wait)
		}
	}
	if w.elect != nil && d == 0 {
		return 0, usage("--elect waits: it has no --wait 0")
	}
	return d, nil
}

// section is what a command runs under: a lease, or the leases of several locks.
type section interface {
	child.Lease
	Votes() int
	Extend(ctx context.Context, ttl time.Duration) error
	Unlock(ctx context.Context) error
}

// lock gives a section.
type lock[S section] interface {
	Lock(ctx context.Context) (S, error)
	TryLock(ctx context.Context) (S, error)
}

// locker is a lock of one name, as one side takes it.
type locker = lock[*redlock.Lease]

// reader takes a lock together with others.
type reader struct{ m *redlock.RWMutex }

func (r reader) Lock(ctx context.Context) (*redlock.Lease, error)    { return r.m.RLock(ctx) }
func (r reader) TryLock(ctx context.Context) (*redlock.Lease, error) { return r.m.TryRLock(ctx) }

// locker is the lock that the flags name. To be alone it takes that of an RWMutex, whose release
// serves readers. Redisson shares mutexes only, and strict order is of mutexes alone.
func (w *waiting) locker(c *connection, key string) locker {
	switch {
	case w.limit != 0:
		return w.permits(c, key)
	case w.elect != nil:
		return candidate{c.Election(key, redlock.AutoRenew(c.set.TTL)), *w.elect}
	case w.shared:
		return reader{c.RWMutex(key)}
	case w.fair || c.set.Interop:
		return c.Mutex(key, w.options()...)
	}
	return c.RWMutex(key)
}

// obtain takes a lock within the patience. The section is good for all of ttl when obtain returns: what
// is granted while waiting is shorter at first.
func obtain[S section](ctx context.Context, w *waiting, m lock[S], patience, ttl time.Duration) (none S, _ error) {
	get := m.Lock
	switch {
	case patience == 0:
		get = m.TryLock
	case patience > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	held, err := get(ctx)
	if err != nil && patience > 0 && errors.Is(err, redlock.ErrHeld) && errors.Is(err, context.DeadlineExceeded) && w.elect == nil {
		held, err = lastTry(context.WithoutCancel(ctx), m, fmt.Errorf("%w: --wait %s is over", err, w.wait))
	}
	if err != nil {
		if notObtained(err) && !errors.As(context.Cause(ctx), new(signalError)) {
			return none, &exitError{w.code, err}
		}
		return none, err
	}
	if err := fill(context.WithoutCancel(ctx), held, ttl); err != nil {
		return none, errors.Join(err, held.Unlock(context.WithoutCancel(ctx)))
	}
	return held, nil
}

// lastTry asks once more when the patience is over, because a try that is refused is told who has the lock, if that one has
// a label. waited is why the wait ended.
func lastTry[S section](ctx context.Context, m lock[S], waited error) (held S, _ error) {
	held, err := m.TryLock(ctx)
	var who *redlock.QuorumError
	switch {
	case err == nil:
		return held, nil
	case errors.As(err, &who) && len(who.Who) > 0:
		return held, fmt.Errorf("%w: held by %s", waited, strings.Join(who.Who, ", "))
	}
	return held, fmt.Errorf("%w: redlock inspect shows who has it", waited)
}

// fill extends a section for ttl, if it is good for much less.
func fill(ctx context.Context, held section, ttl time.Duration) error {
	if clock.Until(held.ValidUntil(), time.Now()) >= ttl*2/3 {
		return nil
	}
	return held.Extend(ctx, ttl)
}

type runFlags struct {
	common
	waiting
	killAfter  time.Duration
	keep       bool
	statusFile string
}

func newRun() *cobra.Command {
	f := &runFlags{common: common{aside: true, takes: true}}
	cmd := &cobra.Command{
		Use:     "run KEY... [flags] -- COMMAND [ARG...]",
		Aliases: []string{"exec"},
		Short:   "Run a command while holding a lock, or several",
		Long: `run takes the lock KEY, runs the command while it holds the lock, and releases it when the command
and everything that it started have ended: flock(1) for a fleet.

With --shared, which takes one key only, the lock is a reader's. Readers hold it together, and nobody
else holds it meanwhile. A run without --shared that waits keeps new readers out until it had its
turn.

With --elect VALUE, which takes one key only, run campaigns. While the command runs, this process
leads, and "redlock leader KEY" prints the value everywhere. If it crashes, the next candidate leads
when --ttl has passed at the latest.

With --limit K, KEY is a semaphore of K slots, and run takes one of them: at most K commands run at
the same time, each with a slot of its own. With --permits N it takes N slots, all or none. All users
of a semaphore give the same --limit. It has nothing to do with a lock of the same name, and
"redlock semaphore KEY" shows it.

With several keys, at most 64, run takes all of those locks or none. It takes them in the order of
their bytes, so that two commands never wait for each other, whatever order they are written in.

run renews the lease while the command runs. If it cannot renew, because no majority of the members
answers, it stops the command before the lease ends. It sends SIGTERM --kill-after before the end of
the validity, and SIGKILL half of that before it, at most 1s. So the section is over while it is
still exclusive. If a majority says that the lease is no longer ours (somebody forced the lock
open), run kills the command at once.

The command has a process group of its own, unless there is a controlling terminal, where it shares
ours. It gets the signals INT, TERM, HUP, QUIT, USR1, USR2, CONT and WINCH that redlock gets. What was
ignored when redlock began stays ignored, as under nohup. A stopped command goes on with any of the
first four, and redlock says that it is stopped. Ctrl-Z (TSTP) stops neither, because a stopped command
would hold the lock, and a stopped redlock would lose it. The environment of the command has

  REDLOCK_KEY          the lock's name
  REDLOCK_TOKEN        the fencing token: give it to the storage with each write
  REDLOCK_VALID_UNTIL  end of the validity when the command was started (RFC 3339); renewals move it
  REDLOCK_VOTES        members that granted, of how many: 3/5
  REDLOCK_HELD         1

With several keys, REDLOCK_KEY and REDLOCK_TOKEN are missing, and REDLOCK_VALID_UNTIL and
REDLOCK_VOTES are the least of all. Instead it has

  REDLOCK_KEYS                      how many there are
  REDLOCK_KEY_1, REDLOCK_TOKEN_1    the first lock's name and token, as written; and so on

With --limit, it has the slot too. With several permits, REDLOCK_TOKEN is missing, and it has instead

  REDLOCK_SLOT                      the slot, from 0 to the limit - 1
  REDLOCK_SLOTS                     how many there are
  REDLOCK_SLOT_1, REDLOCK_TOKEN_1   the lowest slot and its token; and so on

and for a redlock that the command starts

  REDLOCK_HOLDING      the locks around it, with their tokens: it does not wait for one of them
  REDLOCK_REMOVED      the names of the variables that run removed

Settings that are no secret stay. run removes all others that begin with REDLOCK_: a password,
REDLOCK_MEMBERS where a URL has one, REDLOCK_LEASE.

On Linux run stops the process group and every process that descends from the command, wherever it
went. Children that this process had before, by exec, are left alone. On other systems run stops the
process group, or at a terminal the command alone. If redlock itself is killed with SIGKILL, the
command dies with it (Linux), unless it is a set-user-ID program. Processes that the command started
live on. A process in an uninterruptible system call dies when that call returns.

run can stop nothing in time if redlock is stopped (SIGSTOP), gets no processor time for half of
--kill-after (at most 1s), or the machine is suspended. Then only the fencing token protects the
storage.

Exit codes: the command's own, or 128 + the signal that ended it; 69 no quorum, 75 the lock was not obtained
in time (-E changes it), 77 the members refuse the user, 78 configuration or TLS, 79 the lock was lost and
the command stopped, 126 the command cannot be executed, 127 it was not found, 130 or 143 interrupted
while waiting. --status-file says whether an exit code is the command's or redlock's.

With --at-least D, run holds the lock for D after it was obtained, even if the command ends sooner.
Use it with --wait 5s for a job that cron starts on many machines. If the clock of one machine is
behind by less than D less 5s, its run finds the lock held and skips the job. The exit code of the
command does not matter. A signal that would end a program (INT, TERM, HUP, QUIT) ends the wait and not the hold:
run exits at once with the command's code, and the lock frees itself after the rest of D. The
members keep a lock for --max-ttl at most, and for what is left of --ttl at least. So a lock that is
left may be free sooner than D, or up to --ttl later. If run itself is killed, the lock is free
when its lease ends, at most --ttl later. If the command cannot be started, or was stopped because
the lock was lost, run does not wait.

If a key begins with -, put a -- of its own before it: redlock run [flags] -- KEY... -- COMMAND.

` + configHelp,
		Example: `  redlock run nightly -- ./nightly.sh                  wait, run, release
  redlock run nightly -n -E 0 -- ./nightly.sh          skip it where another machine runs it
  redlock run nightly --wait 5s -E 0 --at-least 1m -- ./nightly.sh   once in a fleet of crontabs
  redlock run deploy --wait 5m --ttl 10s -- make deploy
  redlock run prices --shared -- ./report.sh           beside other readers, and beside no writer
  redlock run scheduler --elect "$(hostname)" --ttl 10s -- ./scheduler
  redlock run downloads --limit 8 -- ./download.sh     at most eight at the same time
  redlock run host:1 host:2 host:3 -- ./migrate.sh     all three, or wait
  redlock run report --status-file /run/report.json -- ./report.sh`,
		Annotations: map[string]string{ownSignals: "yes", flagHint: "if a key begins with -, put a -- of its own before it: redlock run [flags] -- KEY... -- COMMAND"},
		Args: func(cmd *cobra.Command, args []string) error {
			keys, command := parts(cmd, args)
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 && len(args) > 1:
				return fmt.Errorf("-- is missing between the keys and the command, as in: redlock run %s -- %s", args[0], strings.Join(args[1:], " "))
			case dash == 0 && len(keys) == 0:
				return errors.New("usage: redlock run KEY... [flags] -- COMMAND [ARG...]")
			case len(keys) == 0 || len(command) == 0:
				return errors.New("run needs a key and a command: usage: redlock run KEY... [flags] -- COMMAND [ARG...]")
			case len(keys) > 1 && f.shared:
				return fmt.Errorf("--shared is for one key, and there are %d", len(keys))
			case len(keys) > 1 && f.elect != nil:
				return fmt.Errorf("--elect is for one key, and there are %d", len(keys))
			case len(keys) > 1 && (f.limit != 0 || f.seats != 0):
				return fmt.Errorf("--limit and --permits are for one key, and there are %d", len(keys))
			case len(keys) > mostKeys:
				return fmt.Errorf("%d keys, but at most %d are allowed", len(keys), mostKeys)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, command := parts(cmd, args)
			status, err := f.run(cmd, keys, command)
			code := 0
			if err != nil {
				code = codeOf(cmd.Context(), err)
			}
			unreported := f.report(status, code, err)
			if unreported == nil {
				err = f.shown(err)
			}
			return errors.Join(err, unreported)
		},
	}
	f.common.flags(cmd.Flags())
	f.waiting.flags(cmd.Flags())
	f.candidate(cmd.Flags())
	cmd.Flags().DurationVar(&f.killAfter, "kill-after", 0, "SIGTERM so long before the validity ends (default a third of --ttl, at most 5s)")
	cmd.Flags().DurationVar(&f.atLeast, "at-least", 0, "hold the lock for at least so long, even if the command ends sooner (for cron, with --wait)")
	cmd.Flags().BoolVar(&f.keep, "keep-children", false, "leave alone what the command left running when it ended: it goes on without the lock")
	cmd.Flags().BoolVar(&f.json, "json", false, "log one JSON object a line")
	cmd.Flags().StringVar(&f.statusFile, "status-file", "", "write how it ended to this file, as JSON")
	return cmd
}

// parts tells the keys from the command. The keys may have a -- of their own before them: run [flags]
// -- KEY... -- COMMAND.
func parts(cmd *cobra.Command, args []string) (keys, command []string) {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return args, nil
	case dash > 0:
		return args[:dash], args[dash:]
	}
	if own := slices.Index(args, "--"); own > 0 {
		return args[:own], args[own+1:]
	}
	return nil, args
}

// runStatus is what --status-file holds.
type runStatus struct {
	Key     string     `json:"key"` // "" if there are several
	Token   uint64     `json:"token,omitempty"`
	Keys    []string   `json:"keys,omitempty"` // with several, in the order of the arguments
	Tokens  []uint64   `json:"tokens,omitempty"`
	Slots   []slotJSON `json:"slots,omitempty"` // of a semaphore
	Outcome string     `json:"outcome"`         // command, lost, not_obtained, or failed
	Code    int        `json:"exit_code"`       // of this program
	Command *int       `json:"command_code"`    // of the command, null if it did not run
	Reason  string     `json:"reason,omitempty"`
}

func (f *runFlags) report(s runStatus, code int, err error) error {
	if unwritable := (*statusError)(nil); f.statusFile == "" || errors.As(err, &unwritable) {
		return nil
	}
	s.Code = code
	if s.Outcome == "" {
		s.Outcome = "failed"
		if notObtained(err) {
			s.Outcome = "not_obtained"
		}
		if err != nil {
			s.Reason = err.Error()
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(f.statusFile, append(text, '\n'), 0o644)
}

// writable returns an error unless the status can be written to path, as far as one can know without
// touching what is there: before anything is locked. A pipe or a terminal is taken at its word.
func writable(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular() && !info.IsDir():
		return nil
	case err == nil:
		var file *os.File
		if file, err = os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			err = file.Close()
		}
	case errors.Is(err, fs.ErrNotExist):
		var file *os.File
		if file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			err = errors.Join(file.Close(), os.Remove(path))
		}
	}
	if err != nil {
		return &statusError{usage("--status-file: %w", err)}
	}
	return nil
}

// statusError: the status cannot be written, so nobody tries.
type statusError struct{ error }

func (e *statusError) Unwrap() error { return e.error }

func (f *runFlags) run(cmd *cobra.Command, keys, command []string) (runStatus, error) {
	status := runStatus{Keys: keys}
	if len(keys) == 1 {
		status = runStatus{Key: keys[0]}
	}
	patience, err := f.patience()
	if err != nil {
		return status, err
	}
	path, err := child.Find(command[0])
	if err != nil {
		return status, notStarted(command[0], err)
	}
	s, err := f.load()
	if err != nil {
		return status, err
	}
	f.exact = f.killAfter != 0 // which was meant for a lease of --ttl
	if _, err := planFor(f.killAfter, s); err != nil {
		return status, err
	}
	if err := f.within(f.atLeast, s); err != nil {
		return status, err
	}
	if err := writable(f.statusFile); err != nil {
		return status, err
	}

	child.Holding()
	signals := make(chan os.Signal, 32)
	child.Notify(signals, child.Signals...)
	defer signal.Stop(signals)
	ctx, stop := endedBy(cmd.Context(), signals)
	began := time.Now()
	conn, plan, err := f.openPlanned(ctx, cmd, patience, f.killAfter)
	if err != nil {
		stop()
		return status, endedOr(ctx, err)
	}
	defer conn.close()
	held, leases, err := f.section(ctx, conn, keys, rest(patience, began))
	stop()
	if err != nil {
		return status, endedOr(ctx, err)
	}
	if ctx.Err() != nil { // granted at the moment of the signal
		return status, errors.Join(context.Cause(ctx), held.Unlock(context.Background()))
	}
	least := least{f.atLeast, time.Now()}
	if status.Token = leases[0].Token(); len(leases) > 1 {
		status.Token = 0
		for _, l := range leases {
			status.Tokens = append(status.Tokens, l.Token())
		}
	}
	status.Slots = slotsToJSON(leases[0].Slots())
	for _, l := range leases {
		conn.log.Info("lock obtained", "key", l.Key(), "token", l.Token(), "votes", l.Votes(), "until", l.ValidUntil())
	}

	p, err := child.Start(child.Command{
		Path: path, Args: command, Env: conn.environment(os.Environ(), held, leases),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return status, errors.Join(notStarted(command[0], err), held.Unlock(context.Background()))
	}
	out := child.Supervise(p, held, plan, f.keep, signals, conn.log)
	status.Command = &out.Code
	if out.Left {
		status.Outcome, status.Reason = "lost", "something of the command cannot be ended"
		return status, &exitError{exitLost, fmt.Errorf("%s lost, and something of the command still runs: it cannot be killed", lostLocks(lost(held.Err(), leases, plan.KillAfter)))}
	}
	if !out.Stopped && linger(least, held, out.Told, signals, conn.log) {
		least.leave(held, leases, s, conn.log)
		status.Outcome = "command"
		return status, exited(out.Code)
	}
	capped := s.MaxHold > 0 && clock.Until(held.ValidUntil(), least.from) > s.MaxHold-s.TTL/3
	return f.release(conn.log, held, leases, out, status, plan.KillAfter, capped)
}

// openPlanned connects, and makes the plan for the TTL that is taken: it is less than the default where the members know less.
func (c *common) openPlanned(ctx context.Context, cmd *cobra.Command, patience, killAfter time.Duration) (*connection, child.Plan, error) {
	conn, err := c.openWithin(ctx, cmd, patience)
	if err != nil {
		return nil, child.Plan{}, err
	}
	plan, err := planFor(killAfter, conn.set)
	if err != nil {
		conn.close()
	}
	return conn, plan, err
}

// planFor is the plan by which a command is stopped before its lease ends.
func planFor(killAfter time.Duration, s *settings.Settings) (child.Plan, error) {
	plan := child.DefaultPlan(s.TTL)
	if killAfter != 0 {
		if killAfter < 10*time.Millisecond || killAfter > s.TTL/2 {
			return plan, usage("--kill-after is %v, must be between 10ms and half of --ttl (%v)", killAfter, s.TTL/2)
		}
		plan = child.PlanFor(killAfter)
	}
	if s.MaxHold > 0 && s.MaxHold <= plan.KillAfter {
		return plan, usage("--max-hold is %v, must be more than --kill-after (%v): the command would be asked to end when it starts", s.MaxHold, plan.KillAfter)
	}
	return plan, nil
}

// section takes the locks of some keys. It returns what they are held by together, and their leases in
// the order of the keys.
func (f *runFlags) section(ctx context.Context, conn *connection, keys []string, patience time.Duration) (section, []*redlock.Lease, error) {
	if err := conn.nested(ctx, keys, &f.waiting, patience); err != nil {
		return nil, nil, err
	}
	if len(keys) == 1 {
		lease, err := obtain(ctx, &f.waiting, f.locker(conn, keys[0]), patience, conn.set.TTL)
		return lease, []*redlock.Lease{lease}, err
	}
	set, err := obtain(ctx, &f.waiting, conn.Multi(keys, f.options()...), patience, conn.set.TTL)
	if err != nil {
		return nil, nil, err
	}
	leases := make([]*redlock.Lease, len(keys))
	for i, key := range keys {
		leases[i] = set.Of(key)
	}
	return set, leases, nil
}

// lost names the locks for which a command was stopped: the one whose lease has ended as err
// says, or else those whose validity ends within the time that the command gets to end. What is
// renewed lasts longer.
func lost(err error, leases []*redlock.Lease, within time.Duration) (names []string) {
	if first := (*redlock.LostError)(nil); errors.As(err, &first) {
		return []string{first.Key}
	}
	var all []string
	for _, l := range leases {
		all = append(all, l.Key())
		if clock.Until(l.ValidUntil(), time.Now()) <= within {
			names = append(names, l.Key())
		}
	}
	if len(names) == 0 {
		return all
	}
	return names
}

// lostLocks is a sentence about them without its end: the lock A was; the locks A, B and C were.
func lostLocks(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return "the lock " + names[0] + " was"
	}
	return "the locks " + strings.Join(names[:last], ", ") + " and " + names[last] + " were"
}

// release gives the lock back after the command, and says how it went. capped: what ends the
// lease is --max-hold, beyond which it is not renewed, or would have been before the renewal
// after. killAfter is that of the plan.
func (f *runFlags) release(log *slog.Logger, held section, leases []*redlock.Lease, out child.Outcome, status runStatus, killAfter time.Duration, capped bool) (runStatus, error) {
	ended := held.Err()
	names := lost(ended, leases, killAfter)
	err := held.Unlock(context.Background())
	if out.Stopped {
		status.Outcome = "lost"
		why := "it could not be renewed in time"
		if capped {
			why = string(redlock.LostMaxHold)
		}
		if lost := (*redlock.LostError)(nil); errors.As(ended, &lost) {
			why = string(lost.Reason)
		}
		status.Reason = why
		return status, &exitError{exitLost, fmt.Errorf("%s lost (%s): the command was stopped", lostLocks(names), why)}
	}
	status.Outcome = "command"
	switch {
	case errors.Is(err, redlock.ErrLost): // between the command's end and the release, or nobody told us in time
		log.Warn("the lease had ended when the command did", "error", err)
	case err != nil:
		log.Warn("the release is in doubt: the lock frees itself when its lease ends", "error", err)
	default:
		for _, l := range leases {
			log.Info("lock released", "key", l.Key(), "token", l.Token())
		}
	}
	return status, exited(out.Code)
}

// exited is the end of this program with the exit code of the command.
func exited(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code, nil}
}

func notStarted(name string, err error) error {
	code := exitNotRunnable
	if errors.Is(err, child.ErrNotFound) {
		code = exitNotFound
	}
	return &exitError{code, fmt.Errorf("%s: %w", name, err)}
}

// endedBy returns a context that ends with the first of the signals that would end a program. stop gives
// the signals back.
func endedBy(ctx context.Context, signals <-chan os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, endWith(cancel, signals)
}

// endWith calls cancel with the first of the signals that would end a program, until stop.
func endWith(cancel context.CancelCauseFunc, signals <-chan os.Signal) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // until stop
		defer close(done)
		for {
			select {
			case s := <-signals:
				if child.Ends(s) {
					cancel(signalError{s.(syscall.Signal)})
				}
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// endedOr prefers the signal that ended ctx to the error that it led to.
func endedOr(ctx context.Context, err error) error {
	if s := (signalError{}); errors.As(context.Cause(ctx), &s) && !errors.As(err, &s) {
		return &endedError{s, err}
	}
	return err
}

// endedError is an error to which a signal led.
type endedError struct {
	signal signalError
	err    error
}

// Error has the name of the program once: main puts it in front.
func (e *endedError) Error() string {
	return e.signal.Error() + ": " + strings.TrimPrefix(e.err.Error(), "redlock: ")
}

func (e *endedError) Unwrap() []error { return []error{e.signal, e.err} }
