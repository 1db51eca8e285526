package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/nodes"
	"github.com/redquorum/redquorum/redlock"
)

func newNodes() *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Run a local set of Redis servers, and break them",
		Long: `nodes starts redis-server processes on this machine, without containers, and stops, pauses and kills
them. It keeps what it knows in --dir. So each call finds the set as the last one left it, and
repeating a call does no harm. It is for development only, because members that share a machine fail
together.`,
		Example: `  eval "$(redlock nodes up)"      three servers, and REDLOCK_MEMBERS
  redlock nodes ls
  redlock nodes pause 2           member 2 hangs
  redlock nodes resume 2
  redlock nodes kill 3            member 3 dies, and its memory is what is on its disk
  redlock nodes up                member 3 comes back, and votes again 30s after a client has asked it
  redlock nodes down`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "where the set lives (default redlock/nodes below $XDG_STATE_HOME or ~/.local/state)")
	cmd.AddCommand(newNodesUp(&dir), newNodesDown(&dir), newNodesLs(&dir),
		newNodesSignal(&dir, "kill", "End servers with SIGKILL", (*nodes.Set).Kill),
		newNodesSignal(&dir, "pause", "Stop servers with SIGSTOP, so that they hang", (*nodes.Set).Pause),
		newNodesSignal(&dir, "resume", "Let paused servers go on", (*nodes.Set).Resume))
	return cmd
}

// nodesDir is where the set lives.
func nodesDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "redlock", "nodes"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "redlock", "nodes"), err
}

func openNodes(dir string) (*nodes.Set, error) {
	path, err := nodesDir(dir)
	if err != nil {
		return nil, err
	}
	set, err := nodes.Open(path)
	if err != nil {
		return nil, &exitError{exitUnavailable, err}
	}
	return set, nil
}

func newNodesUp(dir *string) *cobra.Command {
	count, port, binary := 3, 7001, ""
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the servers that are not running",
		Long: `up makes a set, or starts the servers of the present set that are not running. It prints
REDLOCK_MEMBERS for eval. The servers write every command to disk (appendfsync always) and listen on
127.0.0.1. A new set votes at once (init --fresh). A server that was killed votes again as in
production: when the longest lease has passed since a client found it restarted.

--count and --port are for a new set. A present set keeps its own, and up refuses others.`,
		Example: `  eval "$(redlock nodes up)"
  eval "$(redlock nodes up --count 5 --port 7101 --dir ./nodes)"
  eval "$(redlock nodes up --server /opt/valkey/bin)"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || count > 32 {
				return usage("--count is %d, must be between 1 and 32", count)
			}
			if last := 65536 - count; port < 1024 || port > last {
				return usage("--port is %d, must be between 1024 and %d for --count %d", port, last, count)
			}
			path, err := nodesDir(*dir)
			if err != nil {
				return err
			}
			server, err := serverBinary(binary)
			if err != nil {
				return &exitError{exitUnavailable, err}
			}
			set, err := nodes.Open(path)
			fresh := errors.Is(err, nodes.ErrNone)
			switch {
			case fresh:
				set, err = nodes.Create(path, count, port)
			case err != nil:
			case cmd.Flags().Changed("count") && count != set.Len():
				return usage("the present set has %d servers: run \"redlock nodes down\" first", set.Len())
			case cmd.Flags().Changed("port") && port != set.Port():
				return usage("the present set begins at port %d: run \"redlock nodes down\" first", set.Port())
			}
			if err != nil {
				return err
			}
			started, err := set.Up(cmd.Context(), server)
			if err == nil && fresh {
				err = markNew(cmd.Context(), set.URLs())
			}
			if err != nil {
				if fresh {
					err = errors.Join(fmt.Errorf("the servers that were started are ended again: %w", err), set.Down(false))
				}
				return &exitError{exitUnavailable, err}
			}
			did := fmt.Sprintf("%d of %d servers started", started, set.Len())
			if started == 0 {
				did = fmt.Sprintf("all %d servers run already", set.Len())
			}
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s, in %s\n", did, path)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "export REDLOCK_MEMBERS=%s\n", strings.Join(set.URLs(), ","))
			return err
		},
	}
	cmd.Flags().IntVar(&count, "count", count, "how many servers, 1 to 32")
	cmd.Flags().IntVar(&port, "port", port, "port of the first server; the others follow")
	cmd.Flags().StringVar(&binary, "server", "", "the program, or its folder (default redis-server or valkey-server)")
	return cmd
}

func serverBinary(given string) (string, error) {
	names := []string{"redis-server", "valkey-server"}
	if is, err := os.Stat(given); err == nil && is.IsDir() {
		for i := range names {
			names[i] = given + string(filepath.Separator) + names[i] // not Join: "./x" is not looked for in PATH
		}
	} else if given != "" {
		names = []string{given}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found; install it (Debian: apt-get install redis-server, macOS: brew install redis)", strings.Join(names, ", "))
}

// markNew says that servers that were just made hold nothing.
func markNew(ctx context.Context, urls []string) error {
	const within = 30 * time.Second // a busy machine is no reason to fail: they have answered once
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client, err := redlock.Open(ctx, urls, redlock.Config{DialTimeout: within, FreshMembers: true})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return awaitVotes(ctx, client)
}

func newNodesDown(dir *string) *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "End all servers and delete their data",
		Example: "  redlock nodes down\n  redlock nodes down --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := openNodes(*dir)
			if errors.Is(err, nodes.ErrNone) {
				return nil
			}
			if err != nil {
				return err
			}
			return set.Down(keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the data: the next \"up\" restarts the servers, which vote after the longest lease")
	return cmd
}

func newNodesLs(dir *string) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the servers and their states: running, paused, dead",
		Example: "  redlock nodes ls\n  redlock nodes ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := openNodes(*dir)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				for _, n := range set.Nodes() {
					if err := e.Encode(n); err != nil {
						return err
					}
				}
				return nil
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			for _, n := range set.Nodes() {
				pid := "-"
				if n.Pid != 0 {
					pid = strconv.Itoa(n.Pid)
				}
				_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", n.N, n.Addr, n.State, pid)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func newNodesSignal(dir *string, verb, short string, do func(*nodes.Set, int) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " N...",
		Short:   short,
		Example: "  redlock nodes " + verb + " 2\n  redlock nodes " + verb + " 1 3",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("no server: usage: redlock nodes %s N..., with numbers from \"redlock nodes ls\"", verb)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			numbers := make([]int, len(args))
			for i, a := range args {
				n, err := strconv.Atoi(a)
				if err != nil {
					return usage("%q is no number of a server: \"redlock nodes ls\" has them", a)
				}
				numbers[i] = n
			}
			set, err := openNodes(*dir)
			if err != nil {
				return err
			}
			for _, n := range numbers { // before anything is done
				if n < 1 || n > set.Len() {
					return usage("there is no member %d: members are 1 to %d", n, set.Len())
				}
			}
			var failed []error
			for _, n := range numbers {
				failed = append(failed, do(set, n))
			}
			if err := errors.Join(failed...); err != nil {
				return &exitError{exitFailed, err}
			}
			return nil
		},
	}
}
