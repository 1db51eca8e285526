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
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/redlock"
)

// waiting are the flags of every command that obtains a lock.
type waiting struct {
	wait   string
	once   bool
	code   int
	fair   bool
	shared bool
	seats  int
}

func (w *waiting) flags(f *pflag.FlagSet) {
	f.StringVarP(&w.wait, "wait", "w", "forever", "how long to wait for the lock, or for a majority of the members: 0, a duration such as 30s, or forever")
	f.BoolVarP(&w.once, "nonblock", "n", false, "the same as --wait 0")
	f.IntVarP(&w.code, "conflict-exit-code", "E", exitNotObtained, "exit code when the lock is not obtained in time")
	f.BoolVar(&w.fair, "fair", false, "wait in strict order with all other callers that say --fair")
	f.BoolVar(&w.shared, "shared", false, "reserved for read locks")
	f.IntVar(&w.seats, "permits", 0, "reserved for semaphores")
	_ = f.MarkHidden("shared")
	_ = f.MarkHidden("permits")
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
	if w.shared || w.seats != 0 {
		return 0, usage("--shared and --permits are reserved: this version has exclusive locks only")
	}
	if w.code < 0 || w.code > 255 {
		return 0, usage("--conflict-exit-code is %d, must be between 0 and 255", w.code)
	}
	switch {
	case w.once:
		return 0, nil
	case w.wait == "forever":
		return -1, nil
	}
	d, err := time.ParseDuration(w.wait)
	if err != nil || d < 0 {
		return 0, usage("--wait must be 0, a duration such as 30s, or forever")
	}
	return d, nil
}

// obtain takes the lock within the patience. The lease is good for all of ttl when it returns: what is
// granted while waiting is shorter at first.
func (w *waiting) obtain(ctx context.Context, m *redlock.Mutex, patience, ttl time.Duration) (*redlock.Lease, error) {
	get := m.Lock
	switch {
	case patience == 0:
		get = m.TryLock
	case patience > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	lease, err := get(ctx)
	if err != nil {
		if errors.Is(err, redlock.ErrHeld) && !errors.As(context.Cause(ctx), new(signalError)) {
			return nil, &exitError{w.code, err}
		}
		return nil, err
	}
	if clock.Until(lease.ValidUntil(), time.Now()) < ttl*2/3 {
		if err := lease.Extend(context.WithoutCancel(ctx), ttl); err != nil {
			return nil, errors.Join(err, lease.Unlock(context.WithoutCancel(ctx)))
		}
	}
	return lease, nil
}

type runFlags struct {
	common
	waiting
	killAfter  time.Duration
	keep       bool
	statusFile string
}

func newRun() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:     "run KEY [flags] -- COMMAND [ARG...]",
		Aliases: []string{"exec"},
		Short:   "Run a command while holding a lock",
		Long: `run takes the lock KEY, runs the command while it holds the lock, and releases it when the command
and everything that it started have ended: flock(1) for a fleet.

run renews the lease while the command runs. If it cannot renew, because no majority of the members
answers, it stops the command before the lease ends. It sends SIGTERM --kill-after before the end of
the validity, and SIGKILL half of that before it, at most 1s. So the section is over while it is
still exclusive. If a majority says that the lease is no longer ours (somebody forced the lock
open), run kills the command at once.

The command has a process group of its own, unless stdin is a terminal, where it shares ours. It
gets the signals INT, TERM, HUP, QUIT, USR1, USR2, CONT and WINCH that redlock gets. A stopped
command goes on with any of the first four. Ctrl-Z (TSTP) stops neither, because a stopped command
would hold the lock, and a stopped redlock would lose it. The environment of the command has

  REDLOCK_KEY          the lock's name
  REDLOCK_TOKEN        the fencing token: give it to the storage with each write
  REDLOCK_VALID_UNTIL  end of the validity when the command was started (RFC 3339); renewals move it
  REDLOCK_VOTES        members that granted, of how many: 3/5
  REDLOCK_HELD         1

and no other REDLOCK_ variable. run removes settings, because they may be secret.

On Linux run stops the process group and every process that descends from the command, wherever it
went. On other systems it stops the process group. If redlock itself is killed with SIGKILL, the
command dies with it (Linux), unless it is a set-user-ID program. Processes that the command started
live on. A process in an uninterruptible system call dies when that call returns.

run can stop nothing in time if redlock is stopped (SIGSTOP), gets no processor time for half of
--kill-after (at most 1s), or the machine is suspended. Then only the fencing token protects the
storage.

Exit codes: the command's own, or 128 + the signal that ended it; 69 no quorum, 75 the lock was not obtained
in time (-E changes it), 77 the members refuse the user, 78 configuration or TLS, 79 the lock was lost and
the command stopped, 126 the command cannot be executed, 127 it was not found, 130 or 143 interrupted
while waiting. --status-file says whether an exit code is the command's or redlock's.

If a key begins with -, put a -- of its own before it: redlock run [flags] -- KEY -- COMMAND.

` + configHelp,
		Example: `  redlock run nightly -- ./nightly.sh                  wait, run, release
  redlock run nightly -n -E 0 -- ./nightly.sh          skip it where another machine runs it
  redlock run deploy --wait 5m --ttl 10s -- make deploy
  redlock run report --status-file /run/report.json -- ./report.sh`,
		Annotations: map[string]string{ownSignals: "yes", flagHint: "if a key begins with -, put a -- of its own before it: redlock run [flags] -- KEY -- COMMAND"},
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case ownDash(cmd, args):
				return nil
			case dash < 0 && len(args) > 1, dash > 1, dash == 0:
				return errors.New("write: redlock run KEY [flags] -- COMMAND [ARG...]")
			case len(args) < 2:
				return errors.New("run needs a key and a command: redlock run KEY -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if ownDash(cmd, args) {
				command = args[2:]
			}
			status, err := f.run(cmd, args[0], command)
			code := 0
			if err != nil {
				code = codeOf(cmd.Context(), err)
			}
			return errors.Join(err, f.report(status, code, err))
		},
	}
	f.common.flags(cmd.Flags())
	f.waiting.flags(cmd.Flags())
	cmd.Flags().DurationVar(&f.killAfter, "kill-after", 0, "SIGTERM so long before the validity ends (default a third of --ttl, at most 5s)")
	cmd.Flags().BoolVar(&f.keep, "keep-children", false, "leave alone what the command left running when it ended: it goes on without the lock")
	cmd.Flags().BoolVar(&f.json, "json", false, "log one JSON object a line")
	cmd.Flags().StringVar(&f.statusFile, "status-file", "", "write how it ended to this file, as JSON")
	return cmd
}

// ownDash reports whether the key has a -- of its own: run [flags] -- KEY -- COMMAND.
func ownDash(cmd *cobra.Command, args []string) bool {
	return cmd.ArgsLenAtDash() == 0 && len(args) > 2 && args[0] != "--" && args[1] == "--"
}

// runStatus is what --status-file holds.
type runStatus struct {
	Key     string `json:"key"`
	Token   uint64 `json:"token,omitempty"`
	Outcome string `json:"outcome"`      // command, lost, not_obtained, or failed
	Code    int    `json:"exit_code"`    // of this program
	Command *int   `json:"command_code"` // of the command, null if it did not run
	Reason  string `json:"reason,omitempty"`
}

func (f *runFlags) report(s runStatus, code int, err error) error {
	if unwritable := (*statusError)(nil); f.statusFile == "" || errors.As(err, &unwritable) {
		return nil
	}
	s.Code = code
	if s.Outcome == "" {
		s.Outcome = "failed"
		if errors.Is(err, redlock.ErrHeld) {
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

func (f *runFlags) run(cmd *cobra.Command, key string, command []string) (runStatus, error) {
	status := runStatus{Key: key}
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
	plan := child.DefaultPlan(s.TTL)
	if f.killAfter != 0 {
		if f.killAfter < 10*time.Millisecond || f.killAfter > s.TTL/2 {
			return status, usage("--kill-after is %v, must be between 10ms and half of --ttl (%v)", f.killAfter, s.TTL/2)
		}
		plan = child.PlanFor(f.killAfter)
	}
	if s.MaxHold > 0 && s.MaxHold <= plan.KillAfter {
		return status, usage("--max-hold is %v, must be more than --kill-after (%v): the command would be asked to end when it starts", s.MaxHold, plan.KillAfter)
	}
	if err := writable(f.statusFile); err != nil {
		return status, err
	}

	signals := make(chan os.Signal, 32)
	signal.Notify(signals, child.Signals...)
	defer signal.Stop(signals)
	ctx, stop := endedBy(cmd.Context(), signals)
	began := time.Now()
	conn, err := f.openWithin(ctx, cmd, patience)
	if err != nil {
		stop()
		return status, endedOr(ctx, err)
	}
	defer conn.close()
	key = conn.name(key)
	lease, err := f.obtain(ctx, conn.Mutex(key, f.options()...), rest(patience, began), s.TTL)
	stop()
	if err != nil {
		return status, endedOr(ctx, err)
	}
	if ctx.Err() != nil { // granted at the moment of the signal
		return status, errors.Join(context.Cause(ctx), lease.Unlock(context.Background()))
	}
	obtained := time.Now()
	status.Token = lease.Token()
	conn.log.Info("lock obtained", "key", key, "token", lease.Token(), "votes", lease.Votes(), "until", lease.ValidUntil())

	p, err := child.Start(child.Command{
		Path: path, Args: command, Env: environment(os.Environ(), key, lease, len(s.Members)),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		OwnGroup: !term.IsTerminal(int(os.Stdin.Fd())),
	})
	if err != nil {
		return status, errors.Join(notStarted(command[0], err), lease.Unlock(context.Background()))
	}
	out := child.Supervise(p, lease, plan, f.keep, signals, conn.log)
	status.Command = &out.Code
	if out.Left {
		status.Outcome, status.Reason = "lost", "something of the command cannot be ended"
		return status, &exitError{exitLost, fmt.Errorf("the lease of %s has ended, and something of the command still runs: it cannot be killed", key)}
	}
	capped := s.MaxHold > 0 && clock.Until(lease.ValidUntil(), obtained) > s.MaxHold-s.TTL/3
	return f.release(conn.log, lease, out, status, capped)
}

// release gives the lock back after the command, and says how it went. capped: what ends the lease is
// --max-hold, beyond which it is not renewed, or would have been before the renewal after.
func (f *runFlags) release(log *slog.Logger, lease *redlock.Lease, out child.Outcome, status runStatus, capped bool) (runStatus, error) {
	ended := lease.Err()
	err := lease.Unlock(context.Background())
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
		return status, &exitError{exitLost, fmt.Errorf("the lock %s was lost (%s): the command was stopped", lease.Key(), why)}
	}
	status.Outcome = "command"
	switch {
	case errors.Is(err, redlock.ErrLost): // between the command's end and the release, or nobody told us in time
		log.Warn("the lease had ended when the command did", "error", err)
	case err != nil:
		log.Warn("the release is in doubt: the lock frees itself when its lease ends", "error", err)
	default:
		log.Info("lock released", "key", lease.Key(), "token", lease.Token())
	}
	if out.Code != 0 {
		return status, &exitError{out.Code, nil}
	}
	return status, nil
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
	return ctx, func() { close(quit); <-done }
}

// endedOr prefers the signal that ended ctx to the error that it led to.
func endedOr(ctx context.Context, err error) error {
	if s := (signalError{}); errors.As(context.Cause(ctx), &s) && !errors.As(err, &s) {
		return fmt.Errorf("%w: %w", s, err)
	}
	return err
}

// environment is ours without any setting, and with what the command may know.
func environment(ours []string, key string, lease *redlock.Lease, members int) []string {
	out := make([]string, 0, len(ours)+5)
	for _, v := range ours {
		if !strings.HasPrefix(strings.ToUpper(v), "REDLOCK_") {
			out = append(out, v)
		}
	}
	return append(out, lines(lease, members)...)
}

// lines describe a lease as NAME=value.
func lines(lease *redlock.Lease, members int) []string {
	return []string{
		"REDLOCK_KEY=" + lease.Key(),
		fmt.Sprintf("REDLOCK_TOKEN=%d", lease.Token()),
		"REDLOCK_VALID_UNTIL=" + lease.ValidUntil().Format(time.RFC3339Nano),
		fmt.Sprintf("REDLOCK_VOTES=%d/%d", lease.Votes(), members),
		"REDLOCK_HELD=1",
	}
}
