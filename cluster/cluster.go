package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

var (
	_ ability.Slotted = (*cluster)(nil)
	_ ability.Spread  = (*cluster)(nil)
)

// Config says how to reach a Redis Cluster.
type Config struct {
	// Seeds are addresses, host:port, of nodes of the cluster, masters or replicas. One that
	// answers is enough, at the start and whenever no known master answers.
	Seeds []string
	// Node is what all connections have in common. Its Addr and Shard are not used. It needs a
	// Guard.
	Node node.Config
	// Dial maps addresses that the cluster announces to addresses to dial, for NAT and containers.
	// Any other address is dialled as announced.
	Dial map[string]string
}

// Cluster is one Redis Cluster as a member. It is safe for concurrent use.
type cluster struct {
	cfg      Config
	name     string
	log      *slog.Logger
	patience time.Duration // of a call for a slot that nobody serves
	group    *node.Group

	table   atomic.Pointer[table]
	tracks  [slot.Count]track
	queued  atomic.Int64  // calls in detours
	ear     atomic.Uint64 // the greatest of any inbox: see member.State
	closing atomic.Bool   // no calls from outside any more
	closed  atomic.Bool   // no call is sent anywhere any more
	tried   atomic.Bool   // every master that the first topology named

	errClosed, errOverflow, errEnded, errNobody, errMoving error

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // router, refresher, and nodes that are being closed

	ready struct { // slots whose detour can go on
		mu    sync.Mutex
		slots []uint16
		kick  chan struct{} // capacity 1
	}
	routes  sync.Pool // of *route
	owed    owed
	dropped atomic.Bool   // releases that were owed, and the Logger is to be told of it
	renew   chan struct{} // capacity 1: the topology is wanted
	learnt  time.Time     // the refresher's: when the topology was asked for last
	sources int           // the refresher's: turns
	doubt   atomic.Bool   // the last topology may be wrong

	mu       sync.Mutex // guards the fields below and the making of tables; not held during I/O
	masters  map[string]*master
	patches  map[uint16]patch // slots that a MOVED put elsewhere than the last topology did
	listener member.Listener
	channel  string
	seen     error // why there is no topology
}

// master is one node of the cluster that serves slots, or is about to.
type master struct {
	cl    *cluster
	addr  string // announced
	node  *node.Node
	slots atomic.Pointer[[]uint16] // as a topology named them; nil before one did
}

// table says who owns which slot. It is replaced as a whole.
type table struct {
	masters []*master // [0] is nil: nobody
	owner   [slot.Count]uint16
	known   int // masters that a topology named
}

func (t *table) of(s uint16) *master { return t.masters[t.owner[s&(slot.Count-1)]] }

type patch struct {
	to *master
	at time.Time
}

// track is the order of one slot's calls.
type track struct {
	open atomic.Int32 // calls that came in, and neither their owners nor owed know the outcome yet

	mu     sync.Mutex // never held around Submit or Done
	calls  int32      // passed on and not done
	owner  *master    // where they went
	detour *detour    // not nil while new calls must wait
}

// New returns a member that learns the topology and connects in the background.
func New(c Config) (ability.Slotted, error) {
	cl, err := newCluster(c)
	if err != nil {
		return nil, err
	}
	return cl, nil
}

func newCluster(c Config) (*cluster, error) {
	if len(c.Seeds) == 0 {
		return nil, errors.New("cluster: Config.Seeds is empty")
	}
	if c.Node.Guard == nil {
		return nil, errors.New("cluster: Config.Node.Guard is missing")
	}
	if c.Node.DB != 0 {
		return nil, errors.New("cluster: a Redis Cluster has only database 0")
	}
	log := c.Node.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cl := &cluster{
		cfg: c, name: strings.Join(c.Seeds, ","), log: log, patience: c.Node.StallTimeout,
		group: &node.Group{}, renew: make(chan struct{}, 1),
		masters: make(map[string]*master), patches: make(map[uint16]patch), seen: member.ErrConnecting,
	}
	if cl.patience <= 0 {
		cl.patience = 2 * time.Second
	}
	for _, e := range []struct {
		err   *error
		cause error
	}{{&cl.errClosed, member.ErrClosed}, {&cl.errOverflow, member.ErrOverflow}, {&cl.errEnded, ability.ErrEnded},
		{&cl.errNobody, errNobody}, {&cl.errMoving, errMoving}} {
		*e.err = fmt.Errorf("%s: %w", cl.name, e.cause)
	}
	cl.group.Changed, cl.group.Masters = cl.eraChanged, func() int { return cl.table.Load().known }
	cl.table.Store(&table{masters: []*master{nil}})
	cl.ready.kick = make(chan struct{}, 1)
	cl.owed.init(func() {
		cl.dropped.Store(true)
		cl.refreshSoon()
	})
	cl.ctx, cl.cancel = context.WithCancel(context.Background())
	cl.wg.Go(cl.route)
	cl.wg.Go(cl.refresh)
	cl.refreshSoon()
	return cl, nil
}

// What a call gets that could not be passed on. Both are NotSent.
var (
	errNobody = fmt.Errorf("%w: no master is known for the slot", member.ErrDown)
	errMoving = fmt.Errorf("%w: the slot is being moved", member.ErrDown)
)

// Name returns the list of seeds.
func (cl *cluster) Name() string { return cl.name }

// Submit passes c on to the master of its slot. See member.Member.
func (cl *cluster) Submit(c *member.Call) { cl.submit(c, &cl.closing) }

// submit is Submit until refused. For what is owed that is later than for calls from outside.
func (cl *cluster) submit(c *member.Call, refused *atomic.Bool) {
	cl.begin(c)
	t := cl.track(c)
	t.open.Add(1)
	if refused.Load() {
		cl.end(c, member.NotSent, cl.errClosed)
		return
	}
	t.mu.Lock()
	want := cl.table.Load().of(c.Slot)
	if t.detour != nil || t.calls > 0 && t.owner != want {
		ok := cl.queueLocked(t, c)
		t.mu.Unlock()
		if !ok {
			cl.end(c, member.NotSent, cl.errOverflow)
		}
		return
	}
	if want == nil {
		t.mu.Unlock()
		cl.refreshSoon()
		cl.end(c, member.NotSent, cl.errNobody)
		return
	}
	t.owner = want
	t.calls++
	t.mu.Unlock()
	want.node.Submit(c)
}

func (cl *cluster) track(c *member.Call) *track { return &cl.tracks[c.Slot&(slot.Count-1)] }

// done is told of calls that were passed on: it takes back those that were not executed because of where they went. It
// runs on readers.
func (cl *cluster) done(c *member.Call) {
	t, r := cl.track(c), routeOf(c)
	t.mu.Lock()
	t.calls--
	st := cl.judge(c, t.owner)
	if st.do != deliver && st.do != giveUp {
		c.Item = nil // by itself: then it is told where it belongs
		if r.since.IsZero() {
			r.since = time.Now()
		}
		if t.detour == nil {
			t.detour = &detour{}
		}
		if t.detour.alone {
			t.detour.back = slices.Insert(t.detour.back, 0, c)
		} else {
			t.detour.back = append(t.detour.back, c)
		}
		t.detour.step = st
		cl.queued.Add(1)
		if r.hops > 1 { // they disagree: a moment for them to agree
			t.detour.at = r.since.Add(time.Millisecond << r.hops)
		}
	} else if t.detour != nil {
		t.detour.at, t.detour.tries = time.Time{}, 0
	}
	if t.detour != nil {
		t.detour.alone = false
	}
	ready := t.detour != nil && t.calls == 0
	t.mu.Unlock()
	if ready {
		cl.goOn(c.Slot)
	}
	switch st.do {
	case giveUp:
		last, _ := c.Err.(*member.ReplyError)
		cl.end(c, member.Refused, fmt.Errorf("redirected %d times: %w", r.hops, last))
	case deliver:
		if c.Outcome == member.NotSent && c.Err != cl.errEnded || c.Outcome == member.Unknown {
			cl.refreshSoon()
		}
		cl.end(c, c.Outcome, c.Err)
	}
}

// judge decides what becomes of a call that is done. It counts hops: servers that disagree, one after the other. A
// pause begins anew: while a slot moves its owner says ASK and the other one TRYAGAIN, again and again, and agree.
func (cl *cluster) judge(c *member.Call, by *master) step {
	r := routeOf(c)
	var st step
	switch {
	case c.Outcome == member.Answered || c.Outcome == member.Unknown:
		return step{}
	case c.Outcome == member.NotSent:
		// The node is new, or left the cluster a moment ago.
		if cl.closed.Load() || !errors.Is(c.Err, member.ErrConnecting) && !errors.Is(c.Err, member.ErrClosed) {
			return step{}
		}
		if st = (step{do: backoff}); r.waited() >= cl.patience {
			return step{}
		}
	default:
		refused, ok := c.Err.(*member.ReplyError)
		if !ok {
			return step{}
		}
		st = decide(refusal{refused.Kind, refused.Text, by.addr, c.Slot, r.hops, r.waited()}, cl.patience)
		if st.do == follow || st.do == ask {
			r.hops++
		}
		if st.do == backoff && interrupted(refused.Text) {
			c.Interrupted = true
		}
	}
	if st.do == deliver || st.do == giveUp {
		return st
	}
	if st.do == backoff {
		r.hops = 0
	}
	if ability.Over(&c.Delivery) || cl.closed.Load() {
		// Its release has begun, and may have been executed: the call must not be, any more.
		if !c.Interrupted {
			c.Outcome, c.Err = member.NotSent, cl.errEnded
		}
		return step{}
	}
	return st
}

// end delivers a call.
func (cl *cluster) end(c *member.Call, outcome member.Outcome, err error) {
	c.Outcome, c.Err = outcome, err
	c.State.Gen = routeOf(c).gen
	if !c.OweUntil.IsZero() && err != nil && err != cl.errClosed && err != cl.errEnded && ability.Undelivered(&c.Result) {
		cl.owed.add(c)
	}
	cl.forget(c)
	t := cl.track(c)
	c.Sink.Done(c)
	t.open.Add(-1) // behind what is owed: see settled
}

// StateOf implements ability.Slotted.
func (cl *cluster) StateOf(s uint16) member.State {
	m := cl.table.Load().of(s)
	if m == nil {
		return member.State{Brief: member.Brief{Gen: cl.group.Era()}, Err: cl.errNobody}
	}
	st := m.node.State()
	st.Gen, st.Ear = cl.group.Era(), cl.ear.Load()
	return st
}

// Waiting implements ability.Paced, for the master that serves the slot.
func (cl *cluster) Waiting(s uint16) (since time.Time, ok bool) {
	if m := cl.table.Load().of(s); m != nil {
		return m.node.Waiting(s)
	}
	return time.Time{}, false
}

// Processes implements ability.Spread: those of the masters that serve slots, as far as is known.
func (cl *cluster) Processes() (out []ability.Process) {
	for _, m := range cl.table.Load().masters[1:] {
		if st := m.node.State(); st.Epoch > 0 {
			out = append(out, ability.Process{Epoch: st.Epoch, RunID: st.RunID})
		}
	}
	return out
}

// State returns the state of the cluster. Up, Votes and Inbox are true if they are true of any
// master. The cluster is not up before New has tried every master once. It has no RunID: see Processes.
func (cl *cluster) State() member.State {
	t := cl.table.Load()
	out := member.State{Brief: member.Brief{Gen: cl.group.Era()}}
	untried := false
	for _, m := range t.masters[1:] {
		st := m.node.State()
		untried = untried || !st.Up && errors.Is(st.Err, member.ErrConnecting)
		out.Up = out.Up || st.Up
		out.Votes = out.Votes || st.Votes
		out.Inbox = out.Inbox || st.Inbox
		if out.Deaf == nil {
			out.Deaf = st.Deaf
		}
		if st.Quarantine.After(out.Quarantine) {
			out.Quarantine = st.Quarantine
		}
		if out.Err == nil {
			out.Err = st.Err
		}
	}
	if out.Votes {
		out.Quarantine = time.Time{}
	}
	if len(t.masters) == 1 {
		cl.mu.Lock()
		out.Err = cl.seen
		cl.mu.Unlock()
	}
	if untried && !cl.tried.Load() {
		out.Up, out.Votes, out.Inbox, out.Err = false, false, false, member.ErrConnecting
	}
	if !untried && len(t.masters) > 1 {
		cl.tried.Store(true) // masters that come later do not take away what the others are good for
	}
	if out.Up {
		out.Err = nil
	}
	return out
}

// Listen subscribes an inbox at every master. See member.Member.
func (cl *cluster) Listen(channel string, l member.Listener) {
	cl.mu.Lock()
	twice := cl.listener != nil
	if !twice {
		cl.listener, cl.channel = l, channel
	}
	var all []*master
	for _, m := range cl.masters {
		all = append(all, m)
	}
	cl.mu.Unlock()
	if twice {
		panic("cluster: Listen called twice")
	}
	for _, m := range all {
		m.node.Listen(channel, m)
	}
}

// Push implements member.Listener for one master's inbox.
func (m *master) Push(msg []byte, st member.State, at time.Time) {
	st.Gen = m.cl.group.Era()
	m.cl.listener.Push(msg, st, at)
}

// Changed implements member.Listener for one master.
func (m *master) Changed(st member.State) {
	cl := m.cl
	// A new inbox at any master concerns the waiters of every slot: it is not known for certain whose a slot
	// was when something was pushed.
	for old := cl.ear.Load(); old < st.Ear && !cl.ear.CompareAndSwap(old, st.Ear); {
		old = cl.ear.Load()
	}
	if !st.Up {
		cl.refreshSoon()
	}
	cl.wakeAll()
	cl.listener.Changed(cl.State())
}

// eraChanged makes every inbox look whether it belongs to an earlier era.
func (cl *cluster) eraChanged() {
	for _, m := range cl.table.Load().masters[1:] {
		m.node.Recheck()
	}
}

// Close refuses new calls. It waits until earlier calls are done and owed releases are answered,
// wherever they are sent meanwhile. Then it ends everything. If ctx ends first, Close returns its
// error.
func (cl *cluster) Close(ctx context.Context) error {
	cl.closing.Store(true)
	unsettled := cl.settle(ctx)
	cl.closed.Store(true)
	cl.wakeAll()
	cl.cancel()
	cl.mu.Lock()
	all := cl.masters
	cl.masters = nil
	cl.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	i := 0
	for _, m := range all {
		at := &errs[i]
		i++
		wg.Go(func() { *at = m.node.Close(ctx) })
	}
	wg.Wait()
	cl.wg.Wait()
	cl.abandon()
	return errors.Join(append(errs, unsettled)...)
}

// settle waits until everything is settled. An error says that ctx ended first.
func (cl *cluster) settle(ctx context.Context) error {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for !cl.settled() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: closed before everything was answered: %w", cl.name, context.Cause(ctx))
		case <-cl.ctx.Done(): // closed by somebody else
			return nil
		}
	}
	return nil
}

// settled reports whether no call is on its way or waits, and nothing is owed. Of a call that is not open any more
// the debt is on the list, and one on the list leaves it only when it is paid: so that looking at both, one after
// the other, misses none.
func (cl *cluster) settled() bool {
	for i := range cl.tracks {
		if cl.tracks[i].open.Load() > 0 {
			return false
		}
	}
	return cl.owed.none(time.Now())
}
