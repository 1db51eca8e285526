package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/redlock"
)

// common are the flags of every command that talks to members.
type common struct {
	file    string
	verbose int
	quiet   bool
	aside   bool // who logs never waits for whoever reads it
	json    bool
	takes   bool          // it takes leases of --ttl
	exact   bool          // and not of less, where members know less and nobody gave --ttl
	atLeast time.Duration // that run holds its locks for
	given   map[string]string
	loaded  *settings.Settings
}

// show prints what a command has looked at, with --json in that form.
func (c *common) show(cmd *cobra.Command, asJSON func() any, print func(w io.Writer) error) error {
	if c.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(asJSON())
	}
	return print(cmd.OutOrStdout())
}

// raw is a flag whose value settings.Load reads.
type raw struct {
	c    *common
	name string
	kind string
	def  string
}

func (r *raw) String() string     { return r.def }
func (r *raw) Set(v string) error { r.c.given[r.name] = v; return nil }
func (r *raw) Type() string       { return r.kind }

const configHelp = "Settings come from flags, then the environment (REDLOCK_MEMBERS, REDLOCK_PASSWORD_FILE, …: each flag's\n" +
	"name), then the file of --config, then defaults; \"redlock doctor --show-config\" prints the result."

func (c *common) flags(f *pflag.FlagSet) {
	c.given = make(map[string]string)
	f.StringVar(&c.file, "config", "", "JSON file of settings, with _ for - in their names (or REDLOCK_CONFIG)")
	for _, o := range settings.Options {
		if o.NoFlag {
			continue
		}
		flag := f.VarPF(&raw{c: c, name: o.Name, kind: o.Kind, def: o.Default}, o.Name, "", o.Help)
		if o.Kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	f.CountVarP(&c.verbose, "verbose", "v", "say more on stderr: changes of state; if given twice, details too")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "say nothing on stderr but errors")
}

// load reads the settings, once: a file may be a pipe.
func (c *common) load() (_ *settings.Settings, err error) {
	if c.loaded != nil {
		return c.loaded, nil
	}
	file := c.file
	if file == "" {
		file = os.Getenv("REDLOCK_CONFIG")
	}
	if c.loaded, err = settings.Load(c.given, os.LookupEnv, file); err != nil {
		c.loaded = nil
	}
	return c.loaded, err
}

// logger writes to stderr: text, or one JSON object a line. What it says may be changed by the level.
func (c *common) logger(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := slog.LevelWarn
	switch {
	case c.quiet:
		level = slog.LevelError
	case c.verbose == 1:
		level = slog.LevelInfo
	case c.verbose > 1:
		level = slog.LevelDebug
	}
	v := new(slog.LevelVar)
	v.Set(level)
	opts := &slog.HandlerOptions{Level: v}
	if c.json {
		return slog.New(slog.NewJSONHandler(w, opts)), v
	}
	return slog.New(slog.NewTextHandler(w, opts)), v
}

// shown is the error that people see: one that -E 0 makes a success is for -v.
func (c *common) shown(err error) error {
	if e := (*exitError)(nil); c.verbose == 0 && errors.As(err, &e) && e.code == 0 {
		return &exitError{0, nil}
	}
	return err
}

// connection is a client with what it was made from.
type connection struct {
	*redlock.Client
	set   *settings.Settings
	log   *slog.Logger
	flush func() // has what was logged written
}

// open connects once.
func (c *common) open(ctx context.Context, cmd *cobra.Command, more ...func(*redlock.Config)) (*connection, error) {
	return c.openWithin(ctx, cmd, 0, more...)
}

// connected is a command that does something with a connection, which ends with it.
func (c *common) connected(do func(cmd *cobra.Command, conn *connection, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		conn, err := c.open(cmd.Context(), cmd)
		if err != nil {
			return err
		}
		defer conn.close()
		return do(cmd, conn, args)
	}
}

// openWithin connects, and tries again for as long as waiting for a lock goes on without a majority: for
// patience (negative: for ever), --no-quorum-after at most. What another try does not mend, such as a wrong password,
// ends it at once.
func (c *common) openWithin(ctx context.Context, cmd *cobra.Command, patience time.Duration, more ...func(*redlock.Config)) (*connection, error) {
	s, err := c.load()
	if err != nil {
		return nil, err
	}
	if len(s.Members) == 0 {
		return nil, &settings.Error{Problem: "no members: use --members, or set REDLOCK_MEMBERS to the URLs of 1, 3 or 5 independent Redis masters"}
	}
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	out, flush := cmd.ErrOrStderr(), func() {}
	if c.aside {
		a := newAside(out)
		out, flush = a, a.close
	}
	opened := false
	defer func() {
		if !opened {
			flush()
		}
	}()
	log, level := c.logger(out)
	for _, w := range s.Warnings {
		log.Warn(w)
	}
	cfg.Logger = log
	for _, change := range more {
		change(&cfg)
	}
	try, usual := newRetry(patience, s.NoQuorumAfter), level.Level()
	for {
		c.learnMaxTTL(ctx, s)
		cfg.TTL, cfg.MaxTTL = s.TTL, s.MaxTTL
		client, err := try.open(ctx, s.URLs(), cfg)
		level.Set(usual)
		if err == nil {
			opened = true
			conn := &connection{client, s, log, flush}
			if try.n > 0 {
				conn.tellMissing()
			}
			return conn, nil
		}
		if ctx.Err() != nil || codeOf(ctx, err) != exitUnavailable || !try.again() {
			return nil, fmt.Errorf("%w", err)
		}
		if try.n == 1 {
			log.Warn("no majority of the members answers: asking again", "error", err)
		}
		if usual == slog.LevelWarn { // each try would say the same of each member
			level.Set(slog.LevelError)
		}
		select {
		case <-time.After(try.pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w", err)
		}
	}
}

// tellMissing says after several tries what the library says at the first.
func (c *connection) tellMissing() {
	for _, m := range c.Members() {
		if m.State == redlock.MemberDown {
			c.log.Warn("started without a member", "member", m.Name, "error", m.Err)
		}
	}
}

// retry says how long to go on trying to connect.
type retry struct {
	began time.Time
	limit time.Duration // 0: one try; negative: for ever
	n     int           // tries that failed
	last  error         // of the last try that was not cut short
	pause time.Duration // before the next
}

func newRetry(patience, noQuorumAfter time.Duration) *retry {
	if noQuorumAfter == 0 {
		noQuorumAfter = redlock.LAN().NoQuorumAfter
	}
	if patience < 0 || noQuorumAfter >= 0 && noQuorumAfter < patience {
		patience = noQuorumAfter
	}
	return &retry{began: time.Now(), limit: patience, pause: 25 * time.Millisecond}
}

// open tries once. The first try has the time that it takes, further ones what is left.
func (r *retry) open(ctx context.Context, urls []string, cfg redlock.Config) (*redlock.Client, error) {
	within := ctx
	if r.n > 0 && r.limit > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, r.limit-time.Since(r.began))
		defer cancel()
	}
	client, err := redlock.Open(within, urls, cfg)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, r.last // which says more
	}
	r.last = err
	return client, err
}

// again reports, after a try that failed, whether there is time for another, and sets the pause before it.
func (r *retry) again() bool {
	r.n++
	r.pause = min(2*r.pause, time.Second)
	if r.limit < 0 {
		return true
	}
	left := r.limit - time.Since(r.began)
	r.pause = min(r.pause, left)
	return left > 0
}

// rest is what is left of the patience with a lock, since the start; it is 0, for one try, once there is nothing.
func rest(patience time.Duration, since time.Time) time.Duration {
	if patience <= 0 {
		return patience
	}
	return max(0, patience-time.Since(since))
}

func (c *connection) close() {
	_ = c.Client.Close()
	c.flush()
}
