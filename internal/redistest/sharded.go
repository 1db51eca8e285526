package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// Sharded is a Redis Cluster of real servers: the masters first, then the replicas of each in turn.
type Sharded struct {
	Servers []*Real
	IDs     []string // node ids
	Masters int      // at the start

	ports []int // that they know one another by
}

// ShardedConfig describes a Redis Cluster. The zero value of a field is its default.
type ShardedConfig struct {
	Masters, Replicas int           // default 3, and no replica per master
	Spare             int           // number of masters, the last ones, that have no slots
	NodeTimeout       time.Duration // default 1 s
	Server            RealConfig
	// TLS is a certificate for servers and bus. Clients need one of this authority, too. With it,
	// servers speak TLS on a port of their own (see TLSAddrs), and plain text on Addrs.
	TLS       *Certificate
	Authority string
}

// StartSharded starts a Redis Cluster whose slots are spread evenly, and waits until all servers
// agree.
func StartSharded(ctx context.Context, c ShardedConfig) (*Sharded, error) {
	if c.Masters == 0 {
		c.Masters = 3
	}
	if c.NodeTimeout == 0 {
		c.NodeTimeout = time.Second
	}
	c.Server.cluster = true
	c.Server.Args = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", strconv.FormatInt(c.NodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no",
	}, c.Server.Args...)
	n := c.Masters * (1 + c.Replicas)
	s := &Sharded{Servers: make([]*Real, n), IDs: make([]string, n), Masters: c.Masters, ports: make([]int, n)}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { s.ports[i], s.Servers[i], errs[i] = c.start(ctx) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		for i, r := range s.Servers {
			if s.ports[i] == 0 {
				s.ports[i] = r.port
			}
		}
		err = s.form(ctx, c.Masters-c.Spare)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts one server, and returns the port of its TLS, or 0. A process that does not ask TakePorts may take that port
// before the server does: then it gets another one.
func (c *ShardedConfig) start(ctx context.Context) (port int, r *Real, err error) {
	if c.TLS == nil {
		r, err = StartReal(ctx, c.Server)
		return 0, r, err
	}
	for tries := 1; ; tries++ {
		var held io.Closer
		if port, held, err = TakePorts(1); err != nil {
			return 0, nil, err
		}
		one := c.Server
		one.Args = slices.Concat(one.Args, []string{"--tls-port", strconv.Itoa(port), "--tls-cluster", "yes", "--tls-replication", "yes",
			"--tls-cert-file", c.TLS.Cert, "--tls-key-file", c.TLS.Key, "--tls-ca-cert-file", c.Authority, "--tls-auth-clients", "yes"})
		if r, err = StartReal(ctx, one); err == nil {
			r.held = append(r.held, held)
			return port, r, nil
		}
		_ = held.Close()
		if tries == 5 || !strings.Contains(err.Error(), "Address already in use") {
			return 0, nil, err
		}
	}
}

func (s *Sharded) form(ctx context.Context, serving int) error {
	for i, r := range s.Servers {
		id, err := r.Do(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		s.IDs[i], _ = id.(string)
		if _, err := r.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < serving {
			add := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE came with Redis 7.0
			for n := i * Slots / serving; n < (i+1)*Slots/serving; n++ {
				add = append(add, strconv.Itoa(n))
			}
			if _, err := r.Do(ctx, add...); err != nil {
				return err
			}
		}
		if i > 0 {
			if _, err := r.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.ports[0])); err != nil {
				return err
			}
		}
	}
	if err := s.Await(ctx); err != nil {
		return err
	}
	for i, r := range s.Servers[s.Masters:] {
		master := s.IDs[i%s.Masters]
		if err := until(ctx, func() bool { _, err := r.Do(ctx, "CLUSTER", "REPLICATE", master); return err == nil }); err != nil {
			return err
		}
	}
	for _, r := range s.Servers[s.Masters:] {
		if err := s.Synced(ctx, r); err != nil {
			return err
		}
	}
	return s.Await(ctx)
}

// until asks again and again until ok.
func until(ctx context.Context, ok func() bool) error {
	for !ok() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Synced waits until a replica has what its master has.
func (s *Sharded) Synced(ctx context.Context, r *Real) error {
	return until(ctx, func() bool {
		info, _ := r.Do(ctx, "INFO", "replication")
		text, _ := info.(string)
		return strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up")
	})
}

// Await waits until every running server knows all others and finds the cluster in order.
func (s *Sharded) Await(ctx context.Context) error {
	return until(ctx, func() bool {
		for _, r := range s.Servers {
			if r.Pid() == 0 {
				continue
			}
			v, err := r.Do(ctx, "CLUSTER", "INFO")
			info, _ := v.(string)
			if err != nil || !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(s.Servers))) {
				return false
			}
		}
		return true
	})
}

// Addrs returns the addresses of all servers.
func (s *Sharded) Addrs() []string {
	out := make([]string, len(s.Servers))
	for i, r := range s.Servers {
		out[i] = r.Addr()
	}
	return out
}

// TLSAddrs returns the addresses at which all servers speak TLS.
func (s *Sharded) TLSAddrs() []string {
	out := make([]string, len(s.Servers))
	for i := range s.Servers {
		out[i] = "127.0.0.1:" + strconv.Itoa(s.ports[i])
	}
	return out
}

// Owner returns the server that says it serves a slot, or nil if there is none now.
func (s *Sharded) Owner(ctx context.Context, slot int) *Real {
	for i, r := range s.Servers {
		if r.Pid() != 0 && s.owns(ctx, i, slot) {
			return r
		}
	}
	return nil
}

func (s *Sharded) owns(ctx context.Context, i, slot int) bool {
	v, err := s.Servers[i].Do(ctx, "CLUSTER", "NODES")
	text, _ := v.(string)
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(f[2], "myself") || !strings.Contains(f[2], "master") {
			continue
		}
		return serves(f[8:], slot)
	}
	return false
}

// serves reports whether a slot is among those that a line of CLUSTER NODES has.
func serves(parts []string, slot int) bool {
	for _, part := range parts {
		lo, hi, ok := strings.Cut(part, "-")
		if !ok {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 == nil && err2 == nil && a <= slot && slot <= b {
			return true
		}
	}
	return false
}

// Index returns the position of a server.
func (s *Sharded) Index(r *Real) int {
	for i, x := range s.Servers {
		if x == r {
			return i
		}
	}
	return -1
}

// Move gives a slot with its keys from one server to another, as redis-cli does.
func (s *Sharded) Move(ctx context.Context, slot, from, to int) error {
	return s.MoveWith(ctx, slot, from, to, func() {})
}

// MoveWith is Move with a call in between, when the keys have gone and the slot is not given yet.
func (s *Sharded) MoveWith(ctx context.Context, slot, from, to int, between func()) error {
	number := strconv.Itoa(slot)
	for _, step := range []struct {
		at   int
		args []string
	}{
		{to, []string{"IMPORTING", s.IDs[from]}},
		{from, []string{"MIGRATING", s.IDs[to]}},
	} {
		if _, err := s.Servers[step.at].Do(ctx, append([]string{"CLUSTER", "SETSLOT", number}, step.args...)...); err != nil {
			return err
		}
	}
	if err := s.MoveKeys(ctx, slot, from, to); err != nil {
		return err
	}
	between()
	for _, at := range []int{to, from} {
		if _, err := s.Servers[at].Do(ctx, "CLUSTER", "SETSLOT", number, "NODE", s.IDs[to]); err != nil {
			return err
		}
	}
	return nil
}

// Promote makes a replica take its master's place, and waits until it serves slots. It uses CLUSTER
// FAILOVER with the option that how names ("", "FORCE", "TAKEOVER"). The other servers may refuse
// their votes for a while after an earlier failover, so Promote asks until they agree.
func (s *Sharded) Promote(ctx context.Context, i int, how string) error {
	cmd := []string{"CLUSTER", "FAILOVER"}
	if how != "" {
		cmd = append(cmd, how)
	}
	var next time.Time
	return until(ctx, func() bool {
		if time.Now().After(next) {
			_, _ = s.Servers[i].Do(ctx, cmd...)
			next = time.Now().Add(5 * time.Second) // as long as a server keeps at it
		}
		return s.serves(ctx, i)
	})
}

// Cut ends the link of a replica to its master for good. The replica keeps what it has, and gets
// nothing that the master executes after Cut has returned. The servers still reach one another by
// the bus.
func (s *Sharded) Cut(ctx context.Context, r *Real) error {
	for _, cmd := range [][]string{
		{"CONFIG", "SET", "masterauth", "refused"}, // by a master without a password
		{"CLIENT", "KILL", "TYPE", "master"},
	} {
		if _, err := r.Do(ctx, cmd...); err != nil {
			return err
		}
	}
	return until(ctx, func() bool {
		info, _ := r.Do(ctx, "INFO", "replication")
		text, _ := info.(string)
		return strings.Contains(text, "master_link_status:down")
	})
}

// Epoch returns the configuration epoch of a server, as it says itself. Taking over gives it a
// greater one.
func (s *Sharded) Epoch(ctx context.Context, i int) (int, error) {
	v, err := s.Servers[i].Do(ctx, "CLUSTER", "INFO")
	if err != nil {
		return 0, err
	}
	info, _ := v.(string)
	_, rest, _ := strings.Cut(info, "cluster_my_epoch:")
	text, _, _ := strings.Cut(rest, "\r")
	return strconv.Atoi(text)
}

// serves reports whether a server is a master with slots, by its own word.
func (s *Sharded) serves(ctx context.Context, i int) bool {
	v, err := s.Servers[i].Do(ctx, "CLUSTER", "NODES")
	text, _ := v.(string)
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 8 && strings.Contains(f[2], "myself") && strings.Contains(f[2], "master") {
			return true
		}
	}
	return false
}

// MoveKeys moves the keys of a slot that is being given away.
func (s *Sharded) MoveKeys(ctx context.Context, slot, from, to int) error {
	for {
		v, err := s.Servers[from].Do(ctx, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100")
		if err != nil {
			return err
		}
		keys, _ := v.([]any)
		if len(keys) == 0 {
			return nil
		}
		args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(s.ports[to]), "", "0", "5000", "KEYS"}
		for _, k := range keys {
			args = append(args, k.(string))
		}
		if _, err := s.Servers[from].Do(ctx, args...); err != nil {
			return err
		}
	}
}

// Close kills all servers.
func (s *Sharded) Close() error {
	var errs []error
	for _, r := range s.Servers {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}
