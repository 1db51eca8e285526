package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

func newInit() *cobra.Command {
	var c common
	fresh, yes := false, false
	cmd := &cobra.Command{
		Use:   "init --fresh",
		Short: "Mark new members as holding nothing, so that they vote at once",
		Long: `Members that no client has used do not vote for --max-ttl from the first client on. They might
be a deployment that lost everything at once, while somebody still holds a lock. With init --fresh a
person declares that nobody has ever held a lock at these members, so that a first deployment need
not wait.

init asks before it acts. It refuses if a member is already in use, because then the set is not new,
and two holders could get one lock. Never put it into a service's start, because the service would
repeat it after a disaster.

In a Redis Cluster init marks every master, and through Sentinels the master that they name.

Exit codes: 0 all members vote; 1 the set is not new, or you said no; 64 usage; 69 a member cannot be reached.

` + configHelp,
		Example: `  redlock init --fresh
  redlock init --fresh --yes --members redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !fresh {
				return usage("init needs --fresh: you declare that nobody has ever held a lock at these members")
			}
			return c.initFresh(cmd, yes)
		},
	}
	c.flags(cmd.Flags())
	cmd.Flags().BoolVar(&fresh, "fresh", false, "nobody has ever held a lock at these members")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c *common) initFresh(cmd *cobra.Command, yes bool) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	members, err := rawMembers(cmd.Context(), s)
	if err != nil {
		return err
	}
	defer closeAll(members)
	var known, names []string
	for _, m := range members {
		if err := m.ready(cmd.Context(), s.DialTimeout); err != nil {
			return &exitError{codeOfMembers([]error{err}, 1), fmt.Errorf("init needs all members: %w", err)}
		}
		used, err := m.used(cmd.Context())
		if err != nil {
			return &exitError{codeOfMembers([]error{err}, 1), err}
		}
		names = append(names, m.name)
		if used {
			known = append(known, m.name)
		}
	}
	if len(known) > 0 {
		return &exitError{exitFailed, fmt.Errorf("not a new set: already in use: %s (\"redlock doctor\" says which of them vote)", strings.Join(known, ", "))}
	}
	if !yes {
		if err := confirm(cmd, "Was no lock ever held at "+strings.Join(names, ", ")+"?"); err != nil {
			return err
		}
	}
	conn, err := c.open(cmd.Context(), cmd, func(c *redlock.Config) { c.FreshMembers = true })
	if err != nil {
		return err
	}
	defer conn.close()
	err = awaitVotes(cmd.Context(), conn.Client)
	for _, m := range members {
		if err == nil {
			err = m.awaitMarkers(cmd.Context())
		}
	}
	if err != nil {
		return endedOr(cmd.Context(), err)
	}
	if len(names) == 1 {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "1 member votes")
		return err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d members vote\n", len(names))
	return err
}

// awaitVotes waits until every member votes. Those that are quarantined now were first asked by a client that does not know
// that they are new.
func awaitVotes(ctx context.Context, client *redlock.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		var not []error
		var late error
		for _, m := range client.Members() {
			if m.State == redlock.MemberQuarantined {
				late = errors.New("another client asked first, so they wait as if they had forgotten: end it, or wait")
			}
			switch {
			case m.State != redlock.MemberVoting:
				not = append(not, fmt.Errorf("%s is %s: %w", m.Name, m.State, errors.Join(m.Err, redlock.ErrNoQuorum)))
			case m.Silent > 0:
				not = append(not, fmt.Errorf("%s does not vote in %d slots: %w", m.Name, m.Silent, errors.Join(m.Err, redlock.ErrNoQuorum)))
			}
		}
		if len(not) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(append(not, late)...)
		}
	}
}

// used reports whether a client has ever used the member: whether a server has the restart guard's marker or,
// in a Redis Cluster, any slot bears the stamp of one, which stays with it wherever the slot goes.
func (m *rawMember) used(ctx context.Context) (bool, error) {
	for _, s := range m.servers {
		if m.target.Kind != node.OneServer {
			if err := s.isMaster(ctx); err != nil {
				return false, err
			}
		}
		var keys []string
		for _, sl := range s.slots {
			keys = append(keys, "redquorum:tokens:{"+slot.TagOf(sl)+"}")
		}
		if m.target.Kind != node.RedisCluster {
			boot, _ := node.MarkerKeys(nil, "")
			keys = []string{boot}
		}
		for part := range slices.Chunk(keys, 512) {
			there, failed := make([]bool, len(part)), make([]error, len(part))
			var wg sync.WaitGroup
			for i, key := range part { // all at once: one connection, in a pipeline
				wg.Go(func() {
					var r member.Reply
					r, failed[i] = ask(ctx, s.Node, "EXISTS", key)
					there[i] = r.Int == 1
				})
			}
			wg.Wait()
			if err := errors.Join(failed...); err != nil || slices.Contains(there, true) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// awaitMarkers waits until every master of a cluster has its marker: a cluster votes as soon as one of them does.
func (m *rawMember) awaitMarkers(ctx context.Context) error {
	if m.target.Kind != node.RedisCluster {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, s := range m.servers {
		id, err := ask(ctx, s.Node, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		boot, quarantine := node.MarkerKeys(s.slots, string(id.Str))
		for {
			marked, err1 := ask(ctx, s.Node, "EXISTS", boot)
			silent, err2 := ask(ctx, s.Node, "EXISTS", quarantine)
			if err := errors.Join(err1, err2, ctx.Err()); err != nil {
				return fmt.Errorf("%s does not vote: %w", s.name, errors.Join(err, redlock.ErrNoQuorum))
			}
			if marked.Int == 1 && silent.Int == 0 {
				break
			}
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	}
	return nil
}
