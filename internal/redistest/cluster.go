package redistest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
)

// Cluster is a number of independent servers, the members of a quorum.
type Cluster struct{ Servers []Server }

// NewEmbeddedCluster starts n embedded servers.
func NewEmbeddedCluster(n int) *Cluster {
	c := &Cluster{}
	for range n {
		c.Servers = append(c.Servers, NewEmbedded())
	}
	return c
}

// StartRealCluster starts n real servers.
func StartRealCluster(ctx context.Context, n int, config RealConfig) (*Cluster, error) {
	c := &Cluster{Servers: make([]Server, n)}
	err := c.each(c.all(), func(i int) error {
		r, err := StartReal(ctx, config)
		if err == nil {
			c.Servers[i] = r
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Len is the number of servers.
func (c *Cluster) Len() int { return len(c.Servers) }

// URLs is where the servers are.
func (c *Cluster) URLs() (urls []string) {
	for _, s := range c.Servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	return urls
}

// ServeEmbedded starts n embedded servers that listen on ports of their own, for examples: it panics if it cannot.
func ServeEmbedded(n int) (urls []string, stop func()) {
	c := NewEmbeddedCluster(n)
	for i := range n {
		if err := c.Embedded(i).ServeTCP("127.0.0.1:0"); err != nil {
			panic(err)
		}
	}
	return c.URLs(), func() { _ = c.Close() }
}

// Embedded returns member i of an embedded cluster, for what only embedded servers can do.
func (c *Cluster) Embedded(i int) *Embedded { return c.Servers[i].(*Embedded) }

// Real returns member i of a real cluster.
func (c *Cluster) Real(i int) *Real { return c.Servers[i].(*Real) }

// Faults is the default network path to member i.
func (c *Cluster) Faults(i int) *Link { return c.Servers[i].Faults() }

// all lists the members; the methods below take it for an empty list.
func (c *Cluster) all() []int {
	list := make([]int, len(c.Servers))
	for i := range list {
		list[i] = i
	}
	return list
}

// each calls f for the given members at the same time, and waits.
func (c *Cluster) each(members []int, f func(i int) error) error {
	if len(members) == 0 {
		members = c.all()
	}
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for k, i := range members {
		wg.Go(func() {
			if err := f(i); err != nil {
				errs[k] = fmt.Errorf("member %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) do(members []int, f func(s Server)) {
	_ = c.each(members, func(i int) error { f(c.Servers[i]); return nil })
}

// Kill kills the given members. Here and below, no argument means all members.
func (c *Cluster) Kill(members ...int) { c.do(members, Server.Kill) }

// Restart restarts members, all at the same time.
func (c *Cluster) Restart(keepMemory bool, members ...int) error {
	return c.each(members, func(i int) error { return c.Servers[i].Restart(keepMemory) })
}

// Pause pauses members.
func (c *Cluster) Pause(members ...int) { c.do(members, Server.Pause) }

// Resume resumes members.
func (c *Cluster) Resume(members ...int) { c.do(members, Server.Resume) }

// Flush empties members.
func (c *Cluster) Flush(members ...int) error {
	return c.each(members, func(i int) error { return c.Servers[i].Flush() })
}

// Cut breaks the connections to members.
func (c *Cluster) Cut(members ...int) { c.do(members, func(s Server) { s.Faults().Cut() }) }

// Heal ends the faults of the default paths.
func (c *Cluster) Heal(members ...int) { c.do(members, func(s Server) { s.Faults().Heal() }) }

// Keys lists the keys of each member, sorted.
func (c *Cluster) Keys(ctx context.Context) ([][]string, error) {
	keys := make([][]string, len(c.Servers))
	err := c.each(nil, func(i int) error {
		v, err := c.Servers[i].Do(ctx, "KEYS", "*")
		if err != nil {
			return err
		}
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("KEYS: %v", v)
		}
		for _, k := range list {
			keys[i] = append(keys[i], fmt.Sprint(k))
		}
		sort.Strings(keys[i])
		return nil
	})
	return keys, err
}

// Leftovers lists, as "member/key", the keys that match none of the patterns (as of KEYS). Such
// keys should not have been left behind.
func (c *Cluster) Leftovers(ctx context.Context, allowed ...string) ([]string, error) {
	keys, err := c.Keys(ctx)
	var left []string
	for i, list := range keys {
		for _, k := range list {
			if !matchesAny(allowed, k) {
				left = append(left, fmt.Sprintf("%d/%s", i, k))
			}
		}
	}
	return left, err
}

func matchesAny(patterns []string, key string) bool {
	for _, p := range patterns {
		if globMatch(p, key) {
			return true
		}
	}
	return false
}

// Close closes all members.
func (c *Cluster) Close() error {
	return c.each(nil, func(i int) error {
		if c.Servers[i] == nil {
			return nil
		}
		return c.Servers[i].Close()
	})
}
