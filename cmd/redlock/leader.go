package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/redlock"
)

// leaderJSON is redlock.Leader for scripts.
type leaderJSON struct {
	At         *time.Time `json:"at,omitempty"` // with --watch
	Key        string     `json:"key"`
	KeyBytes   []byte     `json:"key_base64,omitempty"` // the name, if it is no UTF-8
	Leads      bool       `json:"leads"`                // false: nobody does
	Value      string     `json:"value"`
	ValueBytes []byte     `json:"value_base64,omitempty"`
	Token      uint64     `json:"token,omitempty"`
}

func leaderToJSON(at *time.Time, key string, l redlock.Leader) leaderJSON {
	value := string(l.Value)
	return leaderJSON{At: at, Key: key, KeyBytes: exact(key), Leads: !l.None, Value: value, ValueBytes: exact(value), Token: l.Token}
}

func newLeader() *cobra.Command {
	var c common
	watch := false
	cmd := &cobra.Command{
		Use:   "leader KEY",
		Short: "Print the value of the process that leads",
		Long: `leader prints the value that the leader of KEY has proclaimed: its address, for example. A value that
is not plain text is printed in quotes. The answer is what a majority of the members say, and may be
out of date when it arrives. So let the leader show its token to whom it writes to.

With --watch it prints a line with the time whenever another process leads, the value changes, or
nobody leads any more. The members push each change. It ends with Ctrl-C.

To lead, run a command with "redlock lead", or once with redlock run KEY --elect VALUE -- COMMAND.

The exit code is 0 if somebody leads; 1 if nobody does; 69 if too few members answer to tell.

` + configHelp,
		Example: `  redlock leader scheduler
  redlock leader scheduler --watch
  redlock run scheduler --elect "$(hostname)" --ttl 10s -- ./scheduler   in another terminal`,
		Args: oneKey,
		RunE: c.connected(func(cmd *cobra.Command, conn *connection, args []string) error {
			key := args[0]
			if watch {
				return watchLeader(cmd.Context(), cmd.OutOrStdout(), conn, key, c.json)
			}
			l, err := conn.Election(key).Leader(cmd.Context())
			switch {
			case err != nil:
				return endedOr(cmd.Context(), err)
			case l.None && c.json:
				err = &exitError{exitFailed, nil}
			case l.None:
				return &exitError{exitFailed, fmt.Errorf("nobody leads %s", printable.Quote(key))}
			}
			if c.json {
				return errors.Join(json.NewEncoder(cmd.OutOrStdout()).Encode(leaderToJSON(nil, key, l)), err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), plain(l.Value))
			return err
		}),
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON, with the token")
	cmd.Flags().BoolVar(&watch, "watch", false, "print a line for each change, until Ctrl-C")
	return cmd
}

// watchLeader prints each change until ctx ends.
func watchLeader(ctx context.Context, w io.Writer, conn *connection, key string, asJSON bool) error {
	e := conn.Election(key)
	if _, err := e.Leader(ctx); errors.Is(err, redlock.ErrInput) || errors.Is(err, redlock.ErrNoQuorum) {
		return endedOr(ctx, err) // Observe would say nothing
	}
	for l := range e.Observe(ctx) {
		if err := printLeader(w, key, l, asJSON); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func printLeader(w io.Writer, key string, l redlock.Leader, asJSON bool) error {
	now := time.Now()
	if asJSON {
		return json.NewEncoder(w).Encode(leaderToJSON(&now, key, l))
	}
	line := "nobody leads"
	if !l.None {
		line = fmt.Sprintf("%s leads, token %d", plain(l.Value), l.Token)
	}
	_, err := fmt.Fprintln(w, now.Format("15:04:05.000"), line)
	return err
}

// plain is a value as it can be printed: in quotes unless it is one line of text.
func plain(value []byte) string {
	text := string(value)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// candidate takes a lock as a leader does.
type candidate struct {
	e     *redlock.Election
	value string
}

func (c candidate) Lock(ctx context.Context) (*redlock.Lease, error) {
	return c.e.Campaign(ctx, []byte(c.value))
}

// TryLock is never called: see waiting.patience.
func (c candidate) TryLock(context.Context) (*redlock.Lease, error) {
	return nil, errors.ErrUnsupported
}

// leads returns the value of the leader of a lock that is held, if its holder is one. What cannot be
// told is no value: the lock has been looked at.
func (c *connection) leads(ctx context.Context, in *redlock.Inspection) *string {
	if len(in.Holders) == 0 || c.set.Interop {
		return nil
	}
	l, err := c.Election(in.Key).Leader(ctx)
	if err != nil || l.None {
		return nil
	}
	value := string(l.Value)
	return &value
}

// leading is what a line says of a leader.
func leading(value *string) string {
	if value == nil {
		return ""
	}
	return ", leads as " + printable.Quote(*value)
}
