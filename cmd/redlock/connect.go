package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

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
	json    bool
	given   map[string]string
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
	f.CountVarP(&c.verbose, "verbose", "v", "say more on stderr: changes of state; twice: details as well")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "say nothing on stderr but errors")
}

func (c *common) load() (*settings.Settings, error) {
	file := c.file
	if file == "" {
		file = os.Getenv("REDLOCK_CONFIG")
	}
	return settings.Load(c.given, os.LookupEnv, file)
}

// logger writes to stderr: text, or one JSON object a line.
func (c *common) logger(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case c.quiet:
		level = slog.LevelError
	case c.verbose == 1:
		level = slog.LevelInfo
	case c.verbose > 1:
		level = slog.LevelDebug
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.json {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// connection is a client with what it was made from.
type connection struct {
	*redlock.Client
	set *settings.Settings
	log *slog.Logger
}

// name puts the prefix before a lock's name.
func (c *connection) name(key string) string { return c.set.Prefix + key }

func (c *common) open(ctx context.Context, cmd *cobra.Command, more ...redlock.Option) (*connection, error) {
	s, err := c.load()
	if err != nil {
		return nil, err
	}
	if len(s.Members) == 0 {
		return nil, &settings.Error{Problem: "no members: give --members, or set REDLOCK_MEMBERS to the URLs of 1, 3 or 5 independent Redis masters"}
	}
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	log := c.logger(cmd.ErrOrStderr())
	for _, w := range s.Warnings {
		log.Warn(w)
	}
	opts := append([]redlock.Option{redlock.WithConfig(cfg), redlock.WithLogger(log)}, more...)
	client, err := redlock.Open(ctx, s.URLs(), opts...)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return &connection{client, s, log}, nil
}

func (c *connection) close() { _ = c.Client.Close() }
