package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redquorum/redquorum/redlock"
)

// detachedLease is what acquire and extend print.
type detachedLease struct {
	Key      string     `json:"key"`
	KeyBytes []byte     `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Token    uint64     `json:"token"`
	Until    time.Time  `json:"valid_until"`
	Votes    int        `json:"votes"`
	Members  int        `json:"members"`
	Lease    string     `json:"lease"`           // the authority to extend and to release
	Slots    []slotJSON `json:"slots,omitempty"` // of a semaphore
}

func (d detachedLease) print(w io.Writer, format string) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(d)
	}
	tokens := ""
	for _, line := range tokenLines(d.Token, d.Slots) {
		tokens += "export " + line + "\n"
	}
	_, err := fmt.Fprintf(w, "export REDLOCK_KEY=%s\n%sexport REDLOCK_VALID_UNTIL=%s\nexport REDLOCK_VOTES=%d/%d\nexport REDLOCK_LEASE=%s\n",
		quoted(d.Key), tokens, d.Until.Format(time.RFC3339Nano), d.Votes, d.Members, d.Lease)
	return err
}

// quoted is one word of the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// detach ends our part in a lease without ending the lease, and prints what goes on with it. Where that
// cannot be printed, nobody could release the lock: so it is given back.
func (c *connection) detach(ctx context.Context, w io.Writer, lease *redlock.Lease, format string) error {
	d := detachedLease{Key: lease.Key(), KeyBytes: exact(lease.Key()), Token: lease.Token(), Until: lease.ValidUntil(), Votes: lease.Votes(), Members: len(c.set.Members), Slots: slotsToJSON(lease.Slots())}
	h, err := lease.Handoff()
	if err != nil {
		return err
	}
	d.Lease = h.Secret()
	if err := d.print(w, format); err != nil {
		if back, adoptErr := c.Adopt(ctx, h); adoptErr == nil {
			return errors.Join(err, back.Unlock(ctx))
		}
		return err
	}
	return nil
}

func checkFormat(format string) error {
	if format != "env" && format != "json" {
		return usage("--format must be env or json")
	}
	return nil
}

const leaseHelp = `The command reads the lease from REDLOCK_LEASE, or from --lease-file (- is standard input). The
lease is the authority to release the lock, so keep it from other users.`

func newAcquire() *cobra.Command {
	c := common{takes: true, exact: true}
	var w waiting
	format := "env"
	cmd := &cobra.Command{
		Use:   "acquire KEY",
		Short: "Take a lock and leave it held, for scripts",
		Long: `acquire takes the lock KEY for --ttl and ends. The lock stays held until "redlock release", or until
--ttl has passed. Only "redlock extend" renews it. If one command needs the lock, "redlock run" is
safer, because it renews the lease and stops the command in time.

acquire prints variables for eval, or JSON. One of them, REDLOCK_LEASE, is the authority to release,
so treat it as a secret. If acquire does not obtain the lock, for whatever reason, it prints "(exit N)"
instead, so that eval fails too. Look at the exit code all the same, because eval of nothing succeeds.
If nobody reads what acquire prints, it gives the lock back. It refuses -E 0, because the script would go on.

With --limit, KEY is a semaphore, and acquire prints the slots as "redlock run" has them. A permit is
extended and released as a lock is.

` + configHelp,
		Example: `  lease=$(redlock acquire nightly --ttl 30s --wait 0) && eval "$lease" || exit
  redlock extend nightly >/dev/null
  redlock release nightly
  redlock acquire nightly --format json`,
		Annotations: map[string]string{rawOutput: "stdout", forEval: "yes"},
		Args:        oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			patience, err := w.patience()
			if err == nil && w.code == 0 {
				err = usage("--conflict-exit-code is 0: the script would go on without the lock")
			}
			if err == nil {
				err = checkFormat(format)
			}
			if err != nil {
				return err
			}
			began := time.Now()
			conn, err := c.openWithin(cmd.Context(), cmd, patience)
			if err != nil {
				return endedOr(cmd.Context(), err)
			}
			defer conn.close()
			if err := conn.nested(cmd.Context(), args, &w, patience); err != nil {
				return err
			}
			var m locker = conn.Mutex(args[0], w.options(redlock.TTL(conn.set.TTL))...) // every version of extend and release knows its leases
			switch {
			case w.limit != 0:
				m = w.permits(conn, args[0], redlock.TTL(conn.set.TTL))
			case w.shared:
				m = reader{conn.RWMutex(args[0], redlock.TTL(conn.set.TTL))}
			}
			lease, err := obtain(cmd.Context(), &w, m, rest(patience, began), conn.set.TTL)
			if err != nil {
				return err
			}
			return conn.detach(context.WithoutCancel(cmd.Context()), cmd.OutOrStdout(), lease, format)
		},
	}
	c.flags(cmd.Flags())
	w.flags(cmd.Flags())
	cmd.Flags().StringVar(&format, "format", "env", "env or json")
	return cmd
}

// readLease finds the lease of key.
func readLease(cmd *cobra.Command, file, key string) (redlock.Handoff, error) {
	text := os.Getenv("REDLOCK_LEASE")
	var none redlock.Handoff
	if file != "" {
		in := cmd.InOrStdin()
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return none, &exitError{exitUsage, err}
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		raw, err := io.ReadAll(io.LimitReader(in, 1<<16))
		if err != nil {
			return none, &exitError{exitUsage, err}
		}
		text = string(raw)
	}
	if text = strings.TrimSpace(text); text == "" {
		return none, usage("no lease: eval what \"redlock acquire\" prints, or use --lease-file")
	}
	h, err := redlock.ParseHandoff(text)
	if err != nil {
		return none, err
	}
	if h.Key() != key {
		return none, usage("the lease is not a lease of %q", key)
	}
	return h, nil
}

func newExtend() *cobra.Command {
	c := common{takes: true, exact: true}
	format, file := "env", ""
	cmd := &cobra.Command{
		Use:   "extend KEY",
		Short: "Lengthen a lease that acquire left",
		Long: `extend asks the members to keep the lease for --ttl from now, and prints it again. Exit code 79 says
that it is no longer held: stop.

` + leaseHelp + "\n\n" + configHelp,
		Example:     `  lease=$(redlock extend nightly --ttl 30s) && eval "$lease" || exit`,
		Annotations: map[string]string{rawOutput: "stdout", forEval: "yes"},
		Args:        oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			conn, lease, err := c.take(cmd, file, args[0], (*redlock.Client).Borrow) // what acquire printed stays good
			if err != nil {
				return err
			}
			defer conn.close()
			ctx := context.WithoutCancel(cmd.Context())
			if err := lease.Extend(ctx, conn.set.TTL); err != nil {
				_, _ = lease.Handoff() // the old validity stands, and Close must not release it
				return err
			}
			return conn.detach(ctx, cmd.OutOrStdout(), lease, format)
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().StringVar(&format, "format", "env", "env or json")
	cmd.Flags().StringVar(&file, "lease-file", "", "file with the lease; - is standard input")
	return cmd
}

// take connects and goes on with the lease that acquire left.
func (c *common) take(
	cmd *cobra.Command, file, key string, how func(*redlock.Client, context.Context, redlock.Handoff) (*redlock.Lease, error),
) (*connection, *redlock.Lease, error) {
	s, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	h, err := readLease(cmd, file, s.Prefix+key)
	if err != nil {
		return nil, nil, err
	}
	conn, err := c.open(cmd.Context(), cmd)
	if err != nil {
		return nil, nil, err
	}
	lease, err := how(conn.Client, cmd.Context(), h)
	if err != nil {
		if e := (*redlock.QuorumError)(nil); errors.As(err, &e) {
			e.Op = cmd.Name() // of the user, who adopts nothing
		}
		conn.close()
		return nil, nil, err
	}
	return conn, lease, nil
}

func newRelease() *cobra.Command {
	var c common
	var force, yes bool
	var token uint64
	file, n := "", 0
	cmd := &cobra.Command{
		Use:   "release KEY",
		Short: "Release a lock that acquire left, or take it from its holder",
		Long: `release frees a lock that "redlock acquire" took. Exit code 79 says that it was no longer held.

With --force it takes the lock from its holder. It is for a person who knows that the holder is
gone. It shows the holder, asks, and takes the lock from that holder alone. Each member compares the
holder in the step that takes its vote, so an owner that got the lock in the meantime keeps it. Exit
code 75 says that the holder had changed and nothing was done. If nobody holds the lock, release
--force does nothing and exits with 0.

With --if-token N, the holder must also have the token N, as printed by "redlock inspect", "redlock
token" or the holder's own log. The holder learns of the loss at its next renewal, or when its
validity ends, whichever comes first. Until then two holders believe that they hold the lock, and
only fencing tells them apart.

With --force --slot N, KEY is a semaphore. The holder of the slot N loses all slots that it took at
once. --if-token is then the token of the slot N.

` + leaseHelp + "\n\n" + configHelp,
		Example: `  redlock release nightly
  redlock release nightly --force
  redlock release downloads --force --slot 3
  redlock release nightly --force --if-token 1795255221307363 --yes 2>>audit.log`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			var only *uint64
			if cmd.Flags().Changed("if-token") {
				only = &token
			}
			slot := cmd.Flags().Changed("slot")
			switch {
			case slot && (n < 0 || n >= mostSlots):
				return usage("--slot is %d, must be between 0 and %d", n, mostSlots-1)
			case force && slot:
				return c.forceSlot(cmd, args[0], n, yes, only)
			case force:
				return c.force(cmd, args[0], yes, only)
			case yes, only != nil, slot:
				return usage("--yes, --if-token and --slot are for --force")
			}
			conn, lease, err := c.take(cmd, file, args[0], (*redlock.Client).Borrow) // not Adopt: if this process ends now, the next one knows only the lease
			if err != nil {
				return err
			}
			defer conn.close()
			return lease.Unlock(context.WithoutCancel(cmd.Context()))
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "take the lock from its holder")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --force: do not ask")
	cmd.Flags().Uint64Var(&token, "if-token", 0, "with --force: only if this is the token of the holder")
	cmd.Flags().IntVar(&n, "slot", 0, "with --force: KEY is a semaphore, and this is a slot of the holder; it loses all its slots")
	cmd.Flags().StringVar(&file, "lease-file", "", "file with the lease; - is standard input")
	return cmd
}

// force takes the lock from its holder; only, if not nil, is the holder's token.
func (c *common) force(cmd *cobra.Command, key string, yes bool, only *uint64) error {
	ctx := cmd.Context()
	conn, err := c.open(ctx, cmd)
	if err != nil {
		return err
	}
	defer conn.close()
	seen, err := conn.Inspect(ctx, key)
	if err != nil {
		return err
	}
	printInspection(cmd.ErrOrStderr(), seen, conn.leads(ctx, seen))
	if err := answered(seen); err != nil {
		return err
	}
	if only != nil {
		if err := holds(seen, *only); err != nil {
			return err
		}
	}
	if !yes {
		if err := confirm(cmd, "Take the lock from its holder?"); err != nil {
			return err
		}
	}
	freed, err := conn.ForceUnlockSeen(ctx, seen)
	if freed == 0 && err == nil && anybody(seen) {
		return &exitError{exitNotObtained, errors.New("the holder has changed in the meantime: nothing was done")}
	}
	who, host := operator()
	what := "audit: lock forced open"
	if freed == 0 {
		what = "audit: lock not forced open"
	}
	owners, tokens := []string{}, []uint64{}
	for _, h := range seen.Holders {
		owners, tokens = append(owners, h.Owner), append(tokens, h.Token)
	}
	about := []any{"key", key, "holders", owners, "tokens", tokens, "was_held", len(owners) > 0,
		"members_freed", freed, "by", who, "host", host}
	if err != nil {
		about = append(about, "error", err)
	}
	conn.log.Warn(what, about...)
	return err
}

// operator names the user of this process, and the machine.
func operator() (who, host string) {
	who = "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	host, _ = os.Hostname()
	return who, host
}

// holds returns an error unless n is the token of the holder.
func holds(seen *redlock.Inspection, n uint64) error {
	switch verified(seen, n) {
	case yes:
		return nil
	case no:
		return &exitError{exitNotObtained, fmt.Errorf("%d is not the token of the holder: nothing was done", n)}
	}
	return &exitError{exitUnavailable, fmt.Errorf("too few members answered to tell whose token %d is: %w", n, errorsOf(seen))}
}

// anybody reports whether a member has given its vote to somebody.
func anybody(seen *redlock.Inspection) bool {
	return slices.ContainsFunc(seen.Members, func(v redlock.MemberView) bool { return len(v.Votes) > 0 })
}

// confirm asks on the terminal. Without one, nobody can answer.
func confirm(cmd *cobra.Command, question string) error {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return usage("standard input is not a terminal, so nobody can answer: use --yes")
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s [yes/no] ", question)
	answer, _ := bufio.NewReader(f).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &exitError{exitFailed, errors.New("not confirmed: nothing was done")}
	}
	return nil
}
