package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// How often the topology is asked for: not more often than the first, however many calls are redirected;
// at least as often as the last, if nothing happens at all.
const (
	refreshMin   = 100 * time.Millisecond
	refreshEvery = 15 * time.Second
	patchLasts   = time.Second // a MOVED is believed against a topology that says otherwise
)

var (
	clusterShards = resp.Command("CLUSTER", "SHARDS")
	clusterSlots  = resp.Command("CLUSTER", "SLOTS")
)

// refreshSoon wants the topology anew. It does not block.
func (cl *cluster) refreshSoon() {
	select {
	case cl.renew <- struct{}{}:
	default:
	}
}

// refresh is the one goroutine that learns the topology. It ends with Close.
func (cl *cluster) refresh() {
	timer := time.NewTimer(refreshEvery)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-cl.renew:
		case <-timer.C:
		case <-cl.ctx.Done():
			return
		}
		if !cl.sleep(refreshMin - time.Since(cl.learnt)) {
			return
		}
		select { // what was wanted meanwhile is about to be had
		case <-cl.renew:
		default:
		}
		cl.tellDropped()
		cl.learnt = time.Now()
		wait := refreshEvery
		if err := cl.learn(); err != nil {
			if failures++; failures == 1 {
				cl.log.Warn("no topology", "member", cl.name, "err", err)
			}
			wait = min(refreshMin<<min(failures, 4), time.Second)
		} else {
			failures = 0
		}
		timer.Reset(wait)
	}
}

// tellDropped warns of releases that were dropped. Whoever released must not wait for the Logger: it ends leases.
func (cl *cluster) tellDropped() {
	if cl.dropped.CompareAndSwap(true, false) {
		cl.log.Warn("too many releases are owed, some are dropped: their keys last until their TTL", "member", cl.name)
	}
}

// sleep returns false when the cluster closes.
func (cl *cluster) sleep(d time.Duration) bool {
	if d <= 0 {
		return cl.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-cl.ctx.Done():
		return false
	}
}

// learn asks one server after the other until one tells a topology that makes sense: the masters that are
// up, then the seeds, beginning with another one each time. Where a master is not what the last topology
// said, or is not in it, masters and seeds take turns: whoever is wrong is not believed alone.
func (cl *cluster) learn() error {
	cl.mu.Lock()
	var up []*master
	for _, m := range cl.masters {
		if m.node.State().Up {
			up = append(up, m)
		}
	}
	cl.mu.Unlock()
	slices.SortFunc(up, func(x, y *master) int {
		if x.addr < y.addr {
			return -1
		}
		return 1
	})
	cl.sources++
	type source func() ([]masterInfo, error)
	var masters, seeds []source
	for i := range up {
		m := up[(i+cl.sources)%len(up)]
		masters = append(masters, func() ([]masterInfo, error) { return cl.askMaster(m) })
	}
	for i := range cl.cfg.Seeds {
		seed := cl.cfg.Seeds[(i+cl.sources)%len(cl.cfg.Seeds)]
		seeds = append(seeds, func() ([]masterInfo, error) { return cl.askSeed(seed) })
	}
	all := append(masters, seeds...)
	if cl.doubt.Swap(false) && cl.sources%2 == 0 {
		all = append(seeds, masters...)
	}
	var errs []error
	for _, ask := range all {
		infos, err := ask()
		if err == nil {
			cl.apply(infos)
			return nil
		}
		errs = append(errs, err)
		if cl.ctx.Err() != nil {
			break
		}
	}
	err := errors.Join(errs...)
	cl.mu.Lock()
	if cl.seen = err; !strings.HasPrefix(err.Error(), cl.name+":") { // the seed may be the name
		cl.seen = fmt.Errorf("%s: %w", cl.name, err)
	}
	l := cl.listener
	none := len(cl.masters) == 0
	cl.mu.Unlock()
	if l != nil && none {
		l.Changed(cl.State())
	}
	return err
}

func (cl *cluster) timeout() time.Duration {
	if d := cl.cfg.Node.DialTimeout; d > 0 {
		return d
	}
	return time.Second
}

// doubted wants the topology anew, and not from whom it came.
func (cl *cluster) doubted() {
	cl.doubt.Store(true)
	cl.refreshSoon()
}

func (cl *cluster) askMaster(m *master) ([]masterInfo, error) {
	ctx, cancel := context.WithTimeout(cl.ctx, cl.timeout())
	defer cancel()
	r, err := member.Ask(ctx, m.node, member.Command{Cmd: clusterShards})
	if err == nil {
		if infos, doubt := parseShards(&r, m.addr, cl.cfg.Node.TLS != nil); doubt == nil {
			return infos, nil
		}
	}
	var refused *member.ReplyError
	if err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	if r, err = member.Ask(ctx, m.node, member.Command{Cmd: clusterSlots}); err != nil {
		return nil, err
	}
	return parseSlots(&r, m.addr)
}

func (cl *cluster) askSeed(seed string) ([]masterInfo, error) { return cl.cfg.ask(cl.ctx, seed) }

func (cfg *Config) ask(ctx context.Context, seed string) ([]masterInfo, error) {
	c := cfg.Node
	c.Addr, c.Guard, c.Scripts = cfg.dial(seed), nil, nil
	replies, err := node.Query(ctx, c, clusterShards, clusterSlots)
	if err != nil {
		return nil, err
	}
	infos, err := parseShards(&replies[0], seed, c.TLS != nil)
	if err != nil {
		infos, err = parseSlots(&replies[1], seed)
	}
	if refused := node.Refusal(&replies[1]); err != nil && refused != nil {
		err = refused
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", seed, node.Expect(ctx, c, node.RedisCluster, err))
	}
	return infos, nil
}

// dial is the address to dial for an announced one.
func (cfg *Config) dial(addr string) string {
	if to, ok := cfg.Dial[addr]; ok {
		return to
	}
	return addr
}

// apply makes a topology the table, opens nodes that are new in it and closes those that are not in it any more.
func (cl *cluster) apply(infos []masterInfo) {
	cl.mu.Lock()
	if cl.masters == nil {
		cl.mu.Unlock()
		return
	}
	next := &table{masters: []*master{nil}, known: len(infos)}
	keep := make(map[*master]bool)
	for _, info := range infos {
		slots := info.slots
		m, err := cl.openLocked(info.addr, &slots)
		if err != nil {
			cl.log.Warn("a master cannot be reached as announced", "member", cl.name, "err", err)
			continue
		}
		m.slots.Store(&slots)
		keep[m] = true
		next.masters = append(next.masters, m)
		for _, s := range info.slots {
			next.owner[s] = uint16(len(next.masters) - 1)
		}
	}
	now := time.Now()
	again := false
	for s, p := range cl.patches {
		switch {
		case next.of(s) == p.to || now.Sub(p.at) >= patchLasts:
			delete(cl.patches, s)
		default:
			again = true
			keep[p.to] = true
			next.owner[s] = next.index(p.to)
		}
	}
	var gone []*master
	for addr, m := range cl.masters {
		if !keep[m] {
			gone = append(gone, m)
			delete(cl.masters, addr)
		}
	}
	cl.table.Store(next)
	l := cl.listener
	cl.mu.Unlock()
	for _, m := range gone {
		cl.wg.Go(func() { // calls that are on their way there come to an end
			ctx, cancel := context.WithTimeout(cl.ctx, cl.patience)
			defer cancel()
			_ = m.node.Close(ctx)
		})
	}
	if again {
		time.AfterFunc(patchLasts, cl.refreshSoon)
	}
	cl.wakeAll()
	if l != nil {
		l.Changed(cl.State())
	}
}

// index finds m in the table, or adds it.
func (t *table) index(m *master) uint16 {
	for i, x := range t.masters {
		if x == m {
			return uint16(i)
		}
	}
	t.masters = append(t.masters, m)
	return uint16(len(t.masters) - 1)
}

// moved gives a slot to the master at an address at once, ahead of the next topology.
func (cl *cluster) moved(s uint16, addr string) *master {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	m, err := cl.openLocked(addr, nil)
	if err != nil {
		return nil
	}
	old := cl.table.Load()
	if old.of(s) != m {
		next := &table{masters: slices.Clone(old.masters), owner: old.owner, known: old.known}
		next.owner[s] = next.index(m)
		cl.table.Store(next)
	}
	cl.patches[s] = patch{m, time.Now()}
	return m
}

// masterAt returns the node for an announced address.
func (cl *cluster) masterAt(addr string) *master {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	m, err := cl.openLocked(addr, nil)
	if err != nil {
		return nil
	}
	return m
}

var errClosing = errors.New("closing")

// openLocked returns the node for an announced address, and opens it if there is none; slots are those
// that a topology says it serves.
func (cl *cluster) openLocked(addr string, slots *[]uint16) (*master, error) {
	if m := cl.masters[addr]; m != nil {
		return m, nil
	}
	if cl.masters == nil || cl.closed.Load() {
		return nil, errClosing
	}
	m := &master{cl: cl, addr: addr}
	m.slots.Store(slots)
	c := cl.cfg.Node
	c.Network, c.Addr = "tcp", cl.cfg.dial(addr)
	c.Shard = &node.Shard{Group: cl.group, Unknown: cl.doubted, Slots: func() []uint16 {
		if s := m.slots.Load(); s != nil {
			return *s
		}
		return nil
	}}
	n, err := node.New(c)
	if err != nil {
		return nil, err
	}
	m.node = n
	cl.masters[addr] = m
	if cl.listener != nil {
		n.Listen(cl.channel, m)
	}
	return m, nil
}
