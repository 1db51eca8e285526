package node

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	hashslot "github.com/redquorum/redquorum/slot"
)

// Shard makes a Node one master of a Redis Cluster, which is one member together with the others. What a
// plain member keeps once, a master keeps per slot it serves, so that it moves with the slot:
//
//	member.TokensKey:{t}              the slot's counters, and `id`, the marker id it was stamped with
//	member.MarkerKey:{t}:<node id>    the master's marker, in one of its slots (its home)
//	redquorum:quarantine:{t}:<node id>
//
// t is hashslot.TagOf the slot. The memory of a master is that of its process and of its replication id: a
// promotion changes the latter.
type Shard struct {
	// Group is the member's, shared by its masters.
	Group *Group
	// Slots returns the slots that the master is known to serve, ascending; nil while that is not known.
	Slots func() []uint16
	// Unknown is called when the node cannot tell what it is good for, because Slots knows nothing of it
	// or the server disagrees. It must not block.
	Unknown func()
}

// Group is what the masters of one Redis Cluster share.
type Group struct {
	era    atomic.Uint64 // generation of the member: grows before any master of it begins a new one
	epochs atomic.Uint64 // connections, so that no two masters have the same epoch
	// Changed is called when the era has grown: inboxes of earlier ones count for nothing.
	Changed func()
	// Masters is how many masters serve slots, 0 while that is not known.
	Masters func() int

	mu      sync.Mutex           // a leaf
	covered [hashslot.Count]bool // slots of masters that had a marker
	lonely  time.Time            // since when too few members tell how long a slot must rest; zero: enough did
	last    time.Time            // when that was found last
}

// patient reports whether other members are still waited for: for a ping, as at a restore.
func (g *Group) patient(ping time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lonely.IsZero() || time.Since(g.last) > 10*ping {
		g.lonely = time.Now()
	}
	g.last = time.Now()
	return time.Since(g.lonely) < ping
}

// asked books that other members were asked, and whether enough of them told.
func (g *Group) asked(enough bool) {
	if enough {
		g.mu.Lock()
		g.lonely = time.Time{}
		g.mu.Unlock()
	}
}

// cover notes that the master of these slots has a marker.
func (g *Group) cover(slots []uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range slots {
		g.covered[s] = true
	}
}

// covers reports whether a master of one of these slots had a marker: if there is none now, it forgot.
func (g *Group) covers(slots []uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(slots, func(s uint16) bool { return g.covered[s] })
}

// Era is the generation of the member.
func (g *Group) Era() uint64 { return g.era.Load() }

// Recheck has the node compare its inbox with its commands' connection, and with the era.
func (n *Node) Recheck() { n.signalRecheck() }

var (
	//go:embed script/shard.lua
	shardLua string
	//go:embed script/carry.lua
	carryOnlyLua string
	//go:embed script/rename.lua
	renameLua string
	//go:embed script/stamp.lua
	stampLua string
	//go:embed script/refill.lua
	refillLua string

	carryLua = raiseLua + carryOnlyLua

	// The look at a master that Sentinels watch.
	groupLookCommand = guardCommand(shardLua + "return look()")

	clusterMyID = resp.Command("CLUSTER", "MYID")
	asking      = resp.Command("ASKING")
)

// shardScripts are those of the guard that only masters of a cluster run.
func shardScripts() []string { return []string{shardLua, carryLua, renameLua, stampLua, refillLua} }

// errSlots: a topology that names this master must come first.
var errSlots = fmt.Errorf("%w: the server is not known to serve any slot", member.ErrConnecting)

// errReplica: the server became a replica, or was one all along.
var errReplica = errors.New("the server is a replica")

func tokensOf(s uint16) string { return member.TokensKey + ":{" + hashslot.TagOf(s) + "}" }

// home is where a master's marker is: a place in one of its slots.
type home struct {
	slot                       uint16
	marker, quarantine, tokens string
	look                       []byte
}

func newHome(s uint16, id string) *home {
	tag := ":{" + hashslot.TagOf(s) + "}"
	h := &home{slot: s, marker: member.MarkerKey + tag + ":" + id, quarantine: quarantineKey + tag + ":" + id, tokens: tokensOf(s)}
	h.look = h.command("return look()")
	return h
}

// MarkerKeys names the restart guard's marker at a master of a cluster, which serves these slots (ascending)
// and has this id (CLUSTER MYID), and the key that is there during a quarantine. Without slots: at any other member.
func MarkerKeys(slots []uint16, id string) (marker, quarantine string) {
	if len(slots) == 0 {
		return member.MarkerKey, quarantineKey
	}
	h := newHome(homeOf(slots), id)
	return h.marker, h.quarantine
}

func (h *home) command(source string, args ...string) []byte {
	all := append([]string{"EVAL", lookLua + shardLua + source, "3", h.marker, h.quarantine, h.tokens}, args...)
	return resp.Command(all...)
}

// homeOf chooses the slot for the marker: the last one of the longest run of slots, because resharding
// takes slots from the beginning.
func homeOf(slots []uint16) uint16 {
	best, length, run := uint16(0), 0, 0
	for i, s := range slots {
		if run++; i > 0 && slots[i-1]+1 != s {
			run = 1
		}
		if run > length {
			length = run
		}
		if run == length {
			best = s
		}
	}
	return best
}

// settle chooses the home of a master, before its marker is read.
func (n *Node) settle() error {
	slots := n.cfg.Shard.Slots()
	if len(slots) == 0 {
		n.cfg.Shard.Unknown()
		return errSlots
	}
	if s := homeOf(slots); n.home.Load() == nil || n.home.Load().slot != s {
		n.home.Store(newHome(s, n.masterID))
	}
	return nil
}

// guardCommand encodes one of the guard's scripts for this node.
func (n *Node) guardCommand(source string, args ...string) []byte {
	if h := n.home.Load(); h != nil {
		return h.command(source, args...)
	}
	if n.replicated() {
		return guardCommand(shardLua+source, args...)
	}
	return guardCommand(source, args...)
}

func (n *Node) lookCommand() []byte {
	if h := n.home.Load(); h != nil {
		return h.look
	}
	if n.replicated() {
		return groupLookCommand
	}
	return lookCommand
}

// nextEpoch numbers connections.
func (n *Node) nextEpoch(old uint64) uint64 {
	if n.cfg.Shard == nil {
		return old + 1
	}
	return n.cfg.Shard.Group.epochs.Add(1)
}

// newEra is called before a new generation of this node is published.
func (n *Node) newEra() {
	if n.cfg.Shard != nil {
		n.cfg.Shard.Group.era.Add(1)
		n.cfg.Shard.Group.Changed()
	}
}

func (n *Node) era() uint64 {
	if n.cfg.Shard == nil {
		return 0
	}
	return n.cfg.Shard.Group.Era()
}

// appendCall writes a call, with the keys of its slot in the place of those that all locks share.
func (n *Node) appendCall(b []byte, c *member.Call) []byte { return n.appendFrom(b, c, 0) }

// appendFrom writes what a call has from there on, which is in front of its shared keys.
func (n *Node) appendFrom(b []byte, c *member.Call, from int) []byte {
	m := &c.Marks
	if n.cfg.Shard == nil || m.Sharing == 0 {
		return append(b, c.Cmd[from:]...)
	}
	b = append(b, c.Cmd[from:m.Shared]...)
	for range m.Sharing { // the script finds its marker's id in the same key
		b = appendTokens(b, c.Slot)
	}
	return append(b, c.Cmd[m.More:]...)
}

// tokensHead begins the name of a slot's counters as a bulk string. All tags have one length.
var tokensHead = func() string {
	name := tokensOf(0)
	head, _, _ := strings.Cut(name, hashslot.TagOf(0))
	return "$" + strconv.Itoa(len(name)) + "\r\n" + head
}()

// appendTokens writes the name of a slot's counters.
func appendTokens(b []byte, s uint16) []byte {
	b = append(b, tokensHead...)
	b = append(b, hashslot.TagOf(s)...)
	return append(b, "}\r\n"...)
}

// memory is what a master's script says of its process, beside the marker.
type recall struct {
	repl  string // replication id when it was marked
	now   string // replication id now
	older string // the one before it, where it was promoted
	role  string
	stamp string // what the home's slot is stamped with
}

// known reports whether the marker was made for the memory that the process has now.
func (m recall) known() bool { return m.repl == m.now }

// renamed reports whether the replication id changed without a promotion: a first replica came, or the
// last one was gone for long.
func (m recall) renamed() bool { return m.repl != m.now && !m.promoted() }

// promoted reports whether the process was a replica before, or at least not whether it never was.
func (m recall) promoted() bool { return strings.Trim(m.older, "0") != "" }

func readMemory(e []member.Reply) recall {
	if len(e) < 10 {
		return recall{}
	}
	info := e[8].Str
	return recall{repl: string(e[7].Str), now: field(info, "master_replid:"), older: field(info, "master_replid2:"), role: field(info, "role:"), stamp: string(e[9].Str)}
}

// rehome carries the marker along when the slot it is in was given away. It runs on the supervisor.
func (n *Node) rehome(s *session) error {
	old := n.home.Load()
	if err := n.settle(); err != nil || n.home.Load() == old {
		return err
	}
	p := n.published.Load()
	m := p.admission.marker
	if !p.admitted {
		return nil
	}
	left := max(0, m.left-time.Since(m.arrived), time.Until(p.admission.votesFrom)) // of the quarantine
	now, err := n.askMarker(n.ctx, s, n.guardCommand(carryLua, m.id, m.state, millis(m.q), flag(m.clk), m.recall.repl, millis(left)))
	if err != nil {
		n.home.Store(old)
		return err
	}
	if now.id != m.id {
		return errMarker
	}
	n.take(now)
	n.signalRecheck() // the sharded inbox goes along
	return nil
}

// stray carries the marker of this process home from where resharding left it: in another slot of the master, because
// no client was there to carry it when the home became another one. Where a slot bears the stamp of a later marking,
// whose marker is gone, what is found is not believed. The zero marker: there is none.
func (n *Node) stray(s *session, runID string) (marker, error) {
	slots := n.cfg.Shard.Slots()
	cmds := make([][]byte, 0, 2*len(slots))
	for _, sl := range slots {
		cmds = append(cmds, resp.Command("HGET", newHome(sl, n.masterID).marker, "id"), resp.Command("HGET", tokensOf(sl), "id"))
	}
	var id string
	var at uint16
	var made, stamped int64
	i := -1
	err := n.bulk(n.ctx, s, cmds, func(c *member.Call) {
		i++
		found, micros := strings.CutPrefix(string(c.Reply.Str), runID+" ")
		if c.Outcome != member.Answered || !micros {
			return
		}
		when, err := strconv.ParseInt(found, 10, 64)
		switch {
		case err != nil:
		case i%2 == 1:
			stamped = max(stamped, when)
		case when > made:
			id, at, made = string(c.Reply.Str), slots[i/2], when
		}
	})
	if err != nil || id == "" || stamped > made {
		return marker{}, err
	}
	m, err := n.askMarker(n.ctx, s, newHome(at, n.masterID).look)
	if err != nil || m.id != id || !m.of(runID) {
		return marker{}, err
	}
	m, err = n.askMarker(n.ctx, s, n.guardCommand(carryLua, m.id, m.state, millis(m.q), flag(m.clk), m.recall.repl, millis(m.left)))
	if err == nil {
		n.cfg.Logger.Info("marker is carried along: a slot range grew or shrank while no client was there", "member", n.name, "from", at)
	}
	return m, err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// stampAll writes the marker's id into every slot of the master, so that a grant which meets a new bucket
// there finds it. If it forgot, their counters are not to be trusted, and are deleted. While it does not vote,
// neither does who gets one of the slots: see Stamp.
func (n *Node) stampAll(s *session, m marker) error {
	var cmds [][]byte
	for _, sl := range n.cfg.Shard.Slots() {
		stamp := []string{"HSET", tokensOf(sl), "id", m.id}
		if m.state == forgot {
			cmds = append(cmds, resp.Command("DEL", tokensOf(sl)))
		}
		if m.state == forgot || m.left > 0 {
			stamp = append(stamp, "forgot", "1")
		}
		cmds = append(cmds, resp.Command(stamp...))
	}
	return n.bulk(n.ctx, s, cmds, func(*member.Call) {})
}

// bulk puts many small commands to the server, some at a time. What the server refuses is left to each.
func (n *Node) bulk(ctx context.Context, s *session, cmds [][]byte, each func(c *member.Call)) error {
	for len(cmds) > 0 {
		part := cmds[:min(len(cmds), 1024)]
		cmds = cmds[len(part):]
		ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout)
		calls, err := n.ask(ctx, s, part)
		cancel()
		if err != nil {
			return err
		}
		for i := range calls {
			each(&calls[i])
		}
	}
	return nil
}

// inherited reports whether a master without a marker has all its slots from masters that remember, by the
// stamps in them: it is new in the cluster, and forgot nothing. They are looked at once more, so that its q is no
// less than theirs: leases came with the slots. A replica that took over has the stamps of a
// master that is none any more, perhaps without our knowing: see promoted.
func (n *Node) inherited(s *session) bool {
	good := make(map[string]bool)
	for _, o := range n.cfg.Guard.masters(n.cfg.Shard.Group) {
		p := o.published.Load()
		if o == n || !p.state.Votes || !p.admitted {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, n.cfg.DialTimeout)
		r, err := member.Ask(ctx, o, member.Command{Cmd: o.lookCommand()})
		cancel()
		if err != nil {
			continue
		}
		if m, err := readMarker(&r, time.Now()); err == nil && m.id == p.admission.marker.id {
			n.cfg.Guard.heard(m.q)
			good[m.id] = true
		}
	}
	var cmds [][]byte
	for _, sl := range n.cfg.Shard.Slots() {
		cmds = append(cmds, resp.Command("HGET", tokensOf(sl), "id"))
	}
	all := len(cmds) > 0 && len(good) > 0
	err := n.bulk(n.ctx, s, cmds, func(c *member.Call) { all = all && c.Outcome == member.Answered && good[string(c.Reply.Str)] })
	return err == nil && all
}

// Stamp puts a slot that a grant found without the marker's id under this master's marker: one that came
// from another master and was not used before. It reports nil if the slot may be used now. The marker is
// looked at again after the stamp: whatever empties the master empties both.
func (n *Node) Stamp(ctx context.Context, s uint16) error {
	p := n.published.Load()
	if p.session == nil || !p.admitted || !p.state.Votes {
		return fmt.Errorf("%s: %w", n.name, member.ErrDown)
	}
	id := p.admission.marker.id
	stamp := func(longest time.Duration, told bool) ([]member.Call, error) {
		cmd := resp.Command("EVAL", stampLua, "1", tokensOf(s), id, millis(longest+n.cfg.FailoverLag+time.Second), flag(told))
		return n.ask(ctx, p.session, [][]byte{cmd, n.lookCommand()})
	}
	g := n.cfg.Guard
	calls, err := stamp(g.longest(), false)
	if err == nil && calls[0].Outcome == member.Answered && calls[0].Reply.Int < 0 {
		// As at a restore: the master that the slot came from was marked by somebody who may not have known.
		sources := g.sources(ctx, n.seat)
		if len(sources) < g.enough() && (g.cfg.Mode == GuardStrict || n.cfg.Shard.Group.patient(n.cfg.PingInterval)) {
			return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT slot: it came from a master that forgot, and too few members tell for how long"}
		}
		n.cfg.Shard.Group.asked(len(sources) >= g.enough())
		calls, err = stamp(longestOf(g.longest(), sources), true)
	}
	if err != nil {
		return err
	}
	for i := range calls {
		if calls[i].Outcome != member.Answered {
			return calls[i].Err
		}
	}
	m, err := readMarker(&calls[1].Reply, calls[1].At)
	if err != nil || m.id != id || !m.known() {
		select {
		case n.suspect <- struct{}{}:
		default:
		}
		return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT marker"}
	}
	if calls[0].Reply.Int != 1 {
		return &member.ReplyError{Kind: member.KindForgot, Text: "FORGOT slot: it came from a master that forgot a moment ago"}
	}
	return nil
}

// slotCounters reads the counters of every slot of the master.
func (n *Node) slotCounters(ctx context.Context, into map[string]int64) error {
	p := n.published.Load()
	if !p.state.Votes {
		return member.ErrDown
	}
	slots := n.cfg.Shard.Slots()
	cmds := make([][]byte, len(slots))
	for i, s := range slots {
		cmds[i] = resp.Command("HGET", tokensOf(s), strconv.Itoa(int(s)))
	}
	var bad error
	i := -1
	err := n.bulk(ctx, p.session, cmds, func(c *member.Call) {
		i++
		switch {
		case c.Outcome != member.Answered:
			bad = c.Err
		case c.Reply.Kind == '$':
			token, err := strconv.ParseInt(string(c.Reply.Str), 10, 64)
			if err != nil {
				bad = errMarker
			}
			into[strconv.Itoa(int(slots[i]))] = token
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

// counters of a whole cluster, if all its masters know. The marker is read before and after: what one of
// them forgot in between may be missing.
func clusterCounters(ctx context.Context, masters []*Node) (source, bool) {
	src := source{counters: make(map[string]int64)}
	if len(masters) == 0 || len(masters) != masters[0].cfg.Shard.Group.Masters() {
		return source{}, false
	}
	for _, n := range masters {
		before := n.published.Load()
		if err := n.slotCounters(ctx, src.counters); err != nil {
			return source{}, false
		}
		r, err := member.Ask(ctx, n, member.Command{Cmd: n.lookCommand()})
		if err != nil {
			return source{}, false
		}
		m, err := readMarker(&r, time.Now())
		if err != nil || m.id != before.admission.marker.id || !m.known() || m.state == forgot || m.left > 0 {
			return source{}, false
		}
		src.clk, src.q = src.clk || m.clk, max(src.q, m.q)
	}
	return src, true
}

// refill raises the counters of a master's slots to a table, each slot only while it has the stamp of
// the marking that the table was made for.
func (n *Node) refill(ctx context.Context, id string, table map[string]int64) error {
	var cmds [][]byte
	for _, s := range n.cfg.Shard.Slots() {
		bucket := strconv.Itoa(int(s))
		if token, ok := table[bucket]; ok {
			cmds = append(cmds, resp.Command("EVAL", refillLua, "1", tokensOf(s), id, bucket, strconv.FormatInt(token, 10)))
		}
	}
	p := n.published.Load()
	if p.session == nil {
		return member.ErrDown
	}
	var bad error
	err := n.bulk(ctx, p.session, cmds, func(c *member.Call) {
		if c.Outcome != member.Answered {
			bad = c.Err
		} else if c.Reply.Int != 1 {
			bad = errMarker
		}
	})
	if err == nil {
		err = bad
	}
	return err
}
