package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Group is a master, its replicas, and the Sentinels that watch them, all real processes.
type Group struct {
	Name      string
	Servers   []*Real // the first was the master at the start
	Sentinels []*Real
}

// GroupConfig describes a Group. The zero value of a field is its default.
type GroupConfig struct {
	Replicas, Sentinels int // default 1 and 3
	// silence after which a Sentinel considers a server dead; default 1 s
	DownAfter time.Duration
	Server    RealConfig
	Sentinel  []string // further lines of the Sentinels' configuration
}

// StartGroup starts a Group and waits until its Sentinels know one another and the replicas.
func StartGroup(ctx context.Context, c GroupConfig) (*Group, error) {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&c.Replicas, 1)
	set(&c.Sentinels, 3)
	if c.DownAfter == 0 {
		c.DownAfter = time.Second
	}
	g := &Group{Name: "mymaster"}
	err := g.start(ctx, c)
	if err == nil {
		err = g.await(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Group) start(ctx context.Context, c GroupConfig) error {
	master, err := StartReal(ctx, c.Server)
	if err != nil {
		return err
	}
	g.Servers = make([]*Real, 1+c.Replicas)
	g.Servers[0] = master
	g.Sentinels = make([]*Real, c.Sentinels)
	port := strconv.Itoa(master.port)
	errs := make([]error, c.Replicas+c.Sentinels)
	var wg sync.WaitGroup
	for i := range c.Replicas {
		config := c.Server
		config.Args = append([]string{"--replicaof", "127.0.0.1", port}, config.Args...)
		wg.Go(func() { g.Servers[1+i], errs[i] = StartReal(ctx, config) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var known []string // or they would look for replicas after ten seconds
	for _, r := range g.Servers[1:] {
		known = append(known, fmt.Sprintf("sentinel known-replica %s 127.0.0.1 %d", g.Name, r.port))
	}
	for i := range c.Sentinels {
		config := RealConfig{Persist: Volatile, Ready: c.Server.Ready, sentinel: append([]string{
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", g.Name, port, c.Sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", g.Name, c.DownAfter.Milliseconds()),
			"sentinel failover-timeout " + g.Name + " 3000",
		}, append(known, c.Sentinel...)...)}
		wg.Go(func() { g.Sentinels[i], errs[c.Replicas+i] = StartReal(ctx, config) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// await waits until every Sentinel knows the others and all replicas.
func (g *Group) await(ctx context.Context, c GroupConfig) error {
	return until(ctx, func() bool {
		for _, s := range g.Sentinels {
			v, err := s.Do(ctx, "SENTINEL", "MASTER", g.Name)
			fields, _ := v.([]any)
			seen := make(map[string]string)
			for i := 0; i+1 < len(fields); i += 2 {
				name, _ := fields[i].(string)
				seen[name], _ = fields[i+1].(string)
			}
			if err != nil || seen["num-slaves"] != strconv.Itoa(c.Replicas) || seen["num-other-sentinels"] != strconv.Itoa(c.Sentinels-1) || seen["flags"] != "master" {
				return false
			}
		}
		for _, r := range g.Servers[1:] {
			info, _ := r.Do(ctx, "INFO", "replication")
			if text, _ := info.(string); !strings.Contains(text, "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// Master returns the address that a majority of the Sentinels name, or "" if there is none. During
// a failover the former master may still be one.
func (g *Group) Master(ctx context.Context) string {
	count := make(map[string]int)
	for _, s := range g.Sentinels {
		v, _ := s.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.Name)
		if addr, _ := v.([]any); len(addr) == 2 {
			name := fmt.Sprintf("%v:%v", addr[0], addr[1])
			if count[name]++; count[name] > len(g.Sentinels)/2 {
				return name
			}
		}
	}
	return ""
}

// Server returns the server at an address, or nil if there is none.
func (g *Group) Server(addr string) *Real {
	for _, r := range g.Servers {
		if r.Addr() == addr {
			return r
		}
	}
	return nil
}

// Addrs returns the addresses of the Sentinels.
func (g *Group) Addrs() (out []string) {
	for _, s := range g.Sentinels {
		out = append(out, s.Addr())
	}
	return out
}

// Close kills everything.
func (g *Group) Close() error {
	var errs []error
	for _, r := range append(g.Sentinels, g.Servers...) {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}
