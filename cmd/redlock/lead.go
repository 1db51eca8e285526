package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/redlock"
)

type leadFlags struct {
	common
	value     string
	killAfter time.Duration
}

func newLead() *cobra.Command {
	f := &leadFlags{common: common{aside: true, takes: true}}
	cmd := &cobra.Command{
		Use:   "lead KEY [flags] -- COMMAND [ARG...]",
		Short: "Run a command while this process leads, and again when it leads once more",
		Long: `lead campaigns for KEY. While this process leads, it runs the command, and "redlock leader KEY" prints
its --value everywhere. It is the lock that "redlock run KEY --elect VALUE" takes.

When the leadership ends, lead stops the command in time, as "redlock run" does: SIGTERM --kill-after
before the end of the validity, and SIGKILL half of that before it, at most 1s. Then it campaigns
again, and starts the command again when it leads once more. The leadership ends if no majority
of the members renews the lease, if somebody forces the lock open, and after --max-hold (24h;
negative: never).

If the command ends by itself, the term is over. lead resigns, so that another candidate leads at
once. After the exit code 0 it campaigns again. It starts the command at most once a second. After
any other exit code, lead ends with that code: let what started lead start it again.

The signals INT, TERM, HUP and QUIT end lead. The command gets the signal, lead resigns when it has
ended, and the exit code is the command's. lead passes on USR1, USR2, CONT and WINCH. The
processes that the command started end with it, and its environment is that of "redlock run".

If the process crashes, another candidate leads when --ttl has passed at the latest. A short --ttl,
such as 10s, is usual. While no majority of the members answers, lead waits. When it starts, it
waits for --no-quorum-after only.

Exit codes: the command's own, or 128 + the signal that ended it; 69 no quorum at the start, 77 the members
refuse the user, 78 configuration or TLS, 79 leadership was lost and something of the command cannot be
killed, 126 the command cannot be executed, 127 it was not found, 130 or 143 interrupted while another led.

` + configHelp,
		Example: `  redlock lead scheduler --ttl 10s -- ./scheduler
  redlock lead scheduler --ttl 10s --value 10.0.0.7:8080 -- ./scheduler
  redlock leader scheduler --watch                     who leads, in another terminal`,
		Annotations: map[string]string{ownSignals: "yes", flagHint: "if the key begins with -, put a -- of its own before it: redlock lead [flags] -- KEY -- COMMAND"},
		Args: func(cmd *cobra.Command, args []string) error {
			switch keys, command := parts(cmd, args); {
			case len(keys) == 0 || len(command) == 0:
				return fmt.Errorf("lead needs a key and a command: usage: redlock %s", cmd.Use)
			case len(keys) > 1:
				return fmt.Errorf("%q is too much, because lead takes one key: usage: redlock %s", keys[1], cmd.Use)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, command := parts(cmd, args)
			return f.lead(cmd, keys[0], command)
		},
	}
	f.common.flags(cmd.Flags())
	cmd.Flags().StringVar(&f.value, "value", "", "what the leader proclaims, such as its address (default the name of this host)")
	cmd.Flags().DurationVar(&f.killAfter, "kill-after", 0, "SIGTERM so long before the validity ends (default a third of --ttl, at most 5s)")
	cmd.Flags().BoolVar(&f.json, "json", false, "log one JSON object a line")
	return cmd
}

func (f *leadFlags) lead(cmd *cobra.Command, key string, command []string) error {
	if len(f.value) > mostValue {
		return usage("--value has %d bytes, but at most %d are allowed", len(f.value), mostValue)
	}
	if !cmd.Flags().Changed("value") {
		f.value, _ = os.Hostname() // a leader without a name leads all the same
	}
	path, err := child.Find(command[0])
	if err != nil {
		return notStarted(command[0], err)
	}
	s, err := f.load()
	if err != nil {
		return err
	}
	f.exact = f.killAfter != 0 // which was meant for a lease of --ttl
	if _, err := planFor(f.killAfter, s); err != nil {
		return err
	}

	child.Holding()
	signals := make(chan os.Signal, 32)
	child.Notify(signals, child.Signals...)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(cmd.Context())
	stop := endWith(cancel, signals)
	defer func() { stop() }()
	conn, plan, err := f.openPlanned(ctx, cmd, -1, f.killAfter)
	if err != nil {
		return endedOr(ctx, err)
	}
	defer conn.close()
	if err := conn.nested(ctx, []string{key}, &waiting{code: exitNotObtained}, -1); err != nil {
		return endedOr(ctx, err)
	}
	t := &turn{conn: conn, plan: plan, path: path, command: command, signals: signals}
	err = conn.Election(key, redlock.AutoRenew(s.TTL)).Run(ctx, []byte(f.value), func(ctx context.Context, lease *redlock.Lease) error {
		stop() // the signals are the command's now
		defer func() { stop = endWith(cancel, signals) }()
		if ctx.Err() != nil { // of the moment before
			return nil
		}
		err := t.run(ctx, lease)
		if t.over {
			cancel(nil)
		}
		return err
	})
	if t.over {
		return t.err
	}
	return endedOr(ctx, err)
}

// turn is what a leader does, in each of its terms.
type turn struct {
	conn    *connection
	plan    child.Plan
	path    string
	command []string
	signals chan os.Signal
	over    bool  // there is no further term
	err     error // if over: how redlock ends
}

// run runs the command while lease lasts. It returns nil if the process may lead again.
func (t *turn) run(ctx context.Context, lease *redlock.Lease) error {
	set := t.conn.set
	if err := fill(ctx, lease, set.TTL); err != nil { // what is granted while waiting is shorter at first
		t.conn.log.Warn("elected, and the lease could not be extended: resigning", "key", lease.Key(), "error", err)
		return nil
	}
	t.conn.log.Info("leading", "key", lease.Key(), "token", lease.Token(), "votes", lease.Votes(), "until", lease.ValidUntil())
	p, err := child.Start(child.Command{
		Path: t.path, Args: t.command, Env: t.conn.environment(os.Environ(), lease, []*redlock.Lease{lease}),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return t.end(notStarted(t.command[0], err))
	}
	out := child.Supervise(p, lease, t.plan, false, t.signals, t.conn.log)
	switch {
	case out.Left:
		return t.end(&exitError{exitLost, fmt.Errorf("the lock %s was lost, and something of the command still runs: it cannot be killed", lease.Key())})
	case out.Told:
		return t.end(exited(out.Code))
	case out.Stopped:
		reason := "it could not be renewed in time"
		if lost := (*redlock.LostError)(nil); errors.As(out.Reason, &lost) {
			reason = string(lost.Reason)
		}
		t.conn.log.Warn("leading no more, the command was stopped: campaigning again", "key", lease.Key(), "token", lease.Token(), "reason", reason)
	case out.Code != 0:
		return t.end(exited(out.Code))
	default:
		t.conn.log.Info("the command has ended: resigning, and campaigning again", "key", lease.Key(), "token", lease.Token())
	}
	return nil
}

// end makes this term the last one.
func (t *turn) end(err error) error {
	t.over, t.err = true, err
	return err
}
