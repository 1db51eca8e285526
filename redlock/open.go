package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Open connects to the Redis masters at urls, each of them one vote, and returns a client when a
// majority of them is up. It logs the members that are missing, and they join when they come up.
// Choose 3 or 5 masters that do not replicate one another and do not share a machine. With 1 you
// get a plain lock on a single Redis. There is one Config at most, and without one it is LAN.
//
//	redis://[user:password@]host[:port][/db]     rediss://… with TLS     redis+unix:///path
//	redis-cluster://[user:password@]host[:port],host[:port]…     a Redis Cluster; rediss-cluster://…
//	redis-sentinel://[user:password@]host[:port],host[:port]…/name     a master that Sentinels watch; rediss-sentinel://…
//
// A URL takes options, ?name=value&name=value: db, client_name; dial_timeout, stall_timeout
// (500ms); password_env, password_file; tls_ca, tls_cert, tls_key, tls_server_name;
// min_replicas_ack; for a cluster or Sentinels also addr_map, failover_lag, and sentinel_user,
// sentinel_password (or with _env, _file).
//
// ctx bounds Open alone. Open decides when it has tried every member, or after two and a half times
// the longest dial time-out. If too few members vote then, and enough would with those whose quarantine
// is over, it waits for these to be restored, for one dial time-out at most. Errors:
//
//   - ErrNoQuorum, with the cause of each member, if fewer than a majority are up. If a server is
//     of another kind than its URL says, the cause is a *node.SchemeError.
//   - ErrDuplicateMember, ErrInput.
func Open(ctx context.Context, urls []string, config ...Config) (*Client, error) {
	if ctx == nil {
		return nil, badInput("open", "nil context")
	}
	cfg, err := theOnly(config)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkMembers(len(urls)), cfg.Validate()); err != nil {
		return nil, err
	}
	cfg.untilClosed()
	members := make([]member.Member, 0, len(urls))
	closeAll := func() {
		for _, m := range members {
			_ = m.Close(context.WithoutCancel(ctx))
		}
	}
	var bad []error
	rotates, patience := false, time.Duration(0)
	targets := make([]node.Target, len(urls))
	seen := make(map[string]int)
	for i, u := range urls {
		t, err := node.ParseTarget(u)
		if err != nil {
			bad = append(bad, badInput("open", "member %d: %v", i+1, err))
			continue
		}
		if cfg.Interop && t.Kind != node.OneServer {
			bad = append(bad, badInput("open", "member %d: Config.Interop works with plain masters only", i+1))
		}
		for _, addr := range addresses(t) {
			if j, dup := seen[addr]; dup {
				bad = append(bad, &keyError{op: "open", key: addr, err: ErrDuplicateMember,
					cause: fmt.Errorf("members %d and %d are one server, whatever their databases: list it once", j+1, i+1)})
			}
			seen[addr] = i
		}
		t.Config = cfg.withDefaults().node(t.Config)
		t.Config.Credentials = cfg.credentialsOf(t)
		if t.Config.Credentials == nil && t.Config.PasswordFile == "" {
			t.Config.CredentialsEvery = 0 // of this member they never change
		}
		rotates = rotates || t.Config.CredentialsEvery > 0
		patience = max(patience, cmp.Or(t.Config.DialTimeout, time.Second))
		targets[i] = t
	}
	if cfg.CredentialsEvery > 0 && !rotates && len(bad) == 0 {
		bad = append(bad, badInput("open", "CredentialsEvery is set, but there is neither Config.Credentials nor a URL with password_file"))
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("redlock: open: %w", err)
	}
	guard := cfg.withDefaults().guard(len(urls))
	for _, t := range targets {
		m, err := memberOf(t, guard)
		if err != nil {
			closeAll()
			return nil, badInput("open", "%v", err)
		}
		members = append(members, m)
	}
	c, err := newClient(members, cfg)
	if err != nil {
		closeAll()
		return nil, err
	}
	if err := c.ready(ctx, patience); err != nil {
		_ = c.Close()
		return nil, err
	}
	if c.inflight.enter() {
		go c.warnOfMemory() // it ends with the answers, after MemberTimeout, or with the client
	}
	return c, nil
}

// infoMemory asks for the section of INFO that has the policy and the limit.
var infoMemory = []byte("*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n")

// warnOfMemory asks the members once whether they may evict a held lock, and whether they are full. It warns of those.
// Nobody waits for it but Close. Of a cluster one master is asked; "redlock doctor" asks all.
func (c *Client) warnOfMemory() {
	defer c.inflight.leave()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.askForMemory(ctx)
	}()
	select {
	case <-told:
	case <-c.closed:
		cancel()
		<-told
	}
}

func (c *Client) askForMemory(ctx context.Context) {
	c.askAll(ctx, member.Command{Cmd: infoMemory}, func(i int, r member.Reply, err error) {
		if err != nil {
			return // not permitted, or the member is away
		}
		policy, limited, full := memoryOf(string(r.Str))
		if policy != "" {
			level := slog.LevelWarn
			if limited {
				level = slog.LevelError
			}
			c.log.Log(context.Background(), level, "member may evict a held lock, and two clients may hold it: set maxmemory-policy noeviction",
				"member", c.members[i].Name(), "maxmemory_policy", policy, "maxmemory_is_set", limited)
		} else if full {
			c.log.Warn("member is full, so it grants no locks: raise maxmemory, or delete what else is there",
				"member", c.members[i].Name())
		}
	})
}

// memoryOf reads a policy other than noeviction from INFO, and whether maxmemory is set, without which nothing is evicted.
// If more is used than that, the member is full: it refuses writes that need memory.
func memoryOf(info string) (policy string, limited, full bool) {
	var used, limit uint64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch {
		case name == "maxmemory_policy" && value != "noeviction":
			policy = value
		case name == "maxmemory":
			limit = n
		case name == "used_memory":
			used += n
		case name == "mem_not_counted_for_evict":
			used -= n
		}
	}
	return policy, limit > 0, limit > 0 && used > limit
}

// addresses tell one member from another.
func addresses(t node.Target) []string {
	switch t.Kind {
	case node.RedisCluster:
		return t.Seeds
	case node.BySentinel:
		var names []string // the same Sentinels may watch many masters
		for _, addr := range t.Config.Sentinels.Addrs {
			names = append(names, t.Config.Sentinels.Master+"@"+addr)
		}
		return names
	}
	if t.Config.Network == "unix" {
		return []string{"unix:" + t.Config.Addr}
	}
	return []string{t.Config.Addr}
}

// memberOf makes what a URL names.
func memberOf(t node.Target, guard *node.Guard) (member.Member, error) {
	t.Config.Guard = guard
	if t.Kind == node.RedisCluster {
		return cluster.New(cluster.Config{Seeds: t.Seeds, Node: t.Config, Dial: t.Dial})
	}
	return node.New(t.Config)
}

// node fills in what a URL does not say.
func (c Config) node(n node.Config) node.Config {
	set(&n.ClientName, "redquorum")
	set(&n.DialTimeout, c.DialTimeout)
	set(&n.StallTimeout, c.StallTimeout)
	set(&n.CredentialsEvery, c.CredentialsEvery)
	set(&n.PingInterval, c.PingInterval)
	if c.Dialer != nil {
		n.Dialer = &dialer{dial: c.Dialer}
	}
	n.DefaultTLS(c.TLS)
	n.Scripts, n.Preload = c.scripts(), len(script.First())
	n.Logger = c.Logger
	return n
}

// credentialsOf is Config.Credentials for one member, which has several connections: one call at a time.
func (c Config) credentialsOf(t node.Target) func(ctx context.Context) (user, password string, err error) {
	if c.Credentials == nil {
		return nil
	}
	name, asking := t.Name(), make(chan struct{}, 1)
	return func(ctx context.Context) (user, password string, err error) {
		select {
		case asking <- struct{}{}:
		case <-ctx.Done():
			return "", "", fmt.Errorf("an earlier call has not returned: %w", ctx.Err())
		}
		defer func() { <-asking }()
		return c.Credentials(ctx, name)
	}
}

// dialer is Config.Dialer for one member, as a node takes it.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	late atomic.Int64 // calls whose context has ended
}

// mostLate is how many calls that have not returned in time may run at once for one member. A node
// does not wait for them, so without a limit a Dialer that never returns would be called for ever.
const mostLate = 16

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if late := d.late.Load(); late >= mostLate {
		return nil, fmt.Errorf("Config.Dialer, of %s: %d calls have not returned, and their contexts ended", address, late)
	}
	stop := context.AfterFunc(ctx, func() { d.late.Add(1) })
	defer func() {
		if !stop() {
			d.late.Add(-1)
		}
	}()
	return d.dial(ctx, network, address)
}

// scripts are the Lua sources that a member must know before it can vote.
func (c Config) scripts() []string {
	list := script.Own()
	if c.Interop {
		list = script.Redisson()
	}
	var all []string
	for _, s := range list {
		all = append(all, s.Source)
	}
	return all
}

// guard is the restart guard that all members of a client share.
func (c Config) guard(members int) *node.Guard {
	g := node.GuardConfig{Members: members, MaxTTL: c.MaxTTL, Fresh: c.FreshMembers, Logger: c.Logger}
	switch c.RestartGuard {
	case Strict:
		g.Mode = node.GuardStrict
	case GuardOff:
		g.Mode = node.GuardOff
	}
	if tell := c.Tracer.Guard; tell != nil {
		g.Event = func(e node.GuardEvent) { tell(e.Member, e.Step, e.Until) }
	}
	return node.NewGuard(g)
}

// ready waits until every member is up or has failed once, and decides whether that is enough. If too few
// vote, but enough would with those that are to be restored, it waits for these, too: a process that does
// not live for long would always come too early. patience is the longest DialTimeout of a member.
func (c *Client) ready(ctx context.Context, patience time.Duration) error {
	// A dial, and the restart guard's patience with the first answers of the others.
	timer := time.NewTimer(2*patience + patience/2)
	defer timer.Stop()
	var restored <-chan time.Time
	for {
		// The channel is taken before the look, so that no change between the two is missed.
		changed := c.changed()
		up, tried, vote, soon := 0, 0, 0, 0
		for _, st := range c.states() {
			if st.Up {
				up++
			}
			switch {
			case st.Votes:
				vote++
			case st.Up && clock.Until(st.Quarantine, time.Now()) <= 0:
				soon++
			}
			if st.Up || st.Err != nil && !errors.Is(st.Err, member.ErrConnecting) {
				tried++
			}
		}
		c.barDuplicates() // perhaps before the listener is told; the state of a cluster has no epoch: see compare
		if c.barred.Load() != 0 {
			return c.notReady(ErrDuplicateMember, nil)
		}
		if tried == len(c.members) {
			if vote >= c.need || vote+soon < c.need {
				return c.enough(up)
			}
			if restored == nil {
				late := time.NewTimer(patience)
				defer late.Stop()
				restored = late.C
			}
		}
		select {
		case <-changed:
		case <-restored:
			return c.enough(up)
		case <-timer.C:
			return c.enough(up)
		case <-ctx.Done():
			return c.notReady(ErrNoQuorum, ctx.Err())
		}
	}
}

func (c *Client) enough(up int) error {
	if up < c.need {
		return c.notReady(ErrNoQuorum, nil)
	}
	for i, st := range c.states() {
		if !st.Up {
			c.log.Warn("started without a member", "member", c.members[i].Name(), "err", st.Err)
		}
	}
	return nil
}

// withNeed says which keys or channels a user lacks to whom the server forbids some, because the server does not.
func withNeed(err error) error {
	var reply *member.ReplyError
	if !errors.As(err, &reply) || reply.Kind != member.KindAuth {
		return err
	}
	for _, need := range []struct{ what, pattern string }{{"one of the keys", "~redquorum:*"}, {"one of the channels", "&redquorum:inbox:*"}} {
		if strings.Contains(reply.Text, need.what) {
			return fmt.Errorf("%w: the user needs %s besides the names of its locks: docs/servers.md, \"Permissions\"", err, need.pattern)
		}
	}
	return err
}

func (c *Client) notReady(kind, cause error) error {
	f := quorum.Failure{Op: "open", Need: c.need}
	for i, st := range c.states() {
		v := quorum.MemberVote{Member: c.members[i].Name(), Vote: quorum.Yes}
		if !st.Up {
			v.Vote, v.Err = quorum.No, withNeed(st.Err)
		}
		if c.isBarred(i) {
			v.Vote, v.Err = quorum.No, c.duplicate(i)
			f.Need = len(c.members) // each has to be a Redis of its own
		}
		f.Votes = append(f.Votes, v)
	}
	return &QuorumError{Failure: f, kind: kind, cause: cause}
}
