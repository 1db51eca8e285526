package redlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Client takes locks from one set of members. It is safe for concurrent use. A process needs one
// Client per deployment, however many locks it takes. Call Close when you are done with it.
type Client struct {
	cfg     Config
	log     *slog.Logger
	trace   Tracer
	members []member.Member
	slotted []ability.Slotted // nil where a member is one server
	spread  []ability.Spread  // the same
	perSlot bool              // one of them is not
	briefed []ability.Briefed // nil where only the whole State is told
	links   []*link
	need    int
	uuid    string // this client, at the members: never logged
	seq     atomic.Uint64
	number  func() uint64 // of the next attempt

	rounds  quorum.Rounds
	buffers sync.Pool // *[]byte for encoding
	holds   holds
	lines   lines
	dark    dark
	owners  owners
	kept    []any // see keep
	keeper  keeper
	teller  teller
	alive   alive        // what Close waits for
	crowd   atomic.Int64 // callers that wait for room in our own lines

	changes struct { // a channel that is closed and replaced at each change of a member
		mu sync.Mutex
		ch chan struct{}
	}
	barring sync.Mutex
	barred  atomic.Uint32 // members that turned out to be one Redis with another: they do not vote
	// Written under barring. With the processes behind these connections barred is known: those up to an Epoch, or, where a
	// member has several at a time, those of a list. There a lesser one may come after a greater one.
	compared [quorum.MaxMembers]struct {
		epoch  atomic.Uint64
		epochs atomic.Pointer[[]uint64]
	}
	closing atomic.Bool
	closed  chan struct{} // Close has begun
	gone    chan struct{} // Close has ended
	told    chan struct{} // tellWho has ended
}

// newClient makes a client over members: those of Open, or fakes in tests. The client owns them from
// then on, and Close closes them. If newClient returns an error, they are still the caller's.
func newClient(members []member.Member, cfg Config) (*Client, error) {
	cfg.untilClosed()
	cfg = cfg.withDefaults()
	if err := errors.Join(checkMembers(len(members)), cfg.validate()); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, log: cfg.Logger, trace: cfg.Tracer,
		members: members, need: member.Majority(len(members)),
		kept: newKept(), uuid: rand.Text(), closed: make(chan struct{}), gone: make(chan struct{}), told: make(chan struct{}),
	}
	c.number = c.nextNumber
	c.alive.none = make(chan struct{}, 1)
	c.changes.ch = make(chan struct{})
	for _, m := range members {
		s, _ := m.(ability.Slotted)
		c.slotted = append(c.slotted, s)
		p, _ := m.(ability.Spread)
		c.spread = append(c.spread, p)
		c.perSlot = c.perSlot || s != nil
		b, _ := m.(ability.Briefed)
		c.briefed = append(c.briefed, b)
	}
	c.keeper.init(c)
	c.teller.init(c)
	go c.keeper.run()
	go c.keeper.renewing()
	go c.teller.run()
	for i, m := range members {
		l := &link{c: c, i: i, state: standingOf(m.State()), since: time.Now()}
		c.links = append(c.links, l)
		m.Listen(script.Inbox(c.uuid), l)
	}
	go c.tellWho()
	return c, nil
}

// Close gives back everything that the client has at the members, and ends its goroutines. When
// Close returns:
//
//   - The context of every lease has ended. If the lease was held, its error matches ErrClosed.
//   - Each Lock, TryLock and Adopt that was running has returned ErrClosed, or is about to.
//   - No member that the client can reach has a vote, an entry or a subscription of this client.
//   - Neither the Logger nor the Tracer is called any more.
//
// Leases that were handed off no longer belong to the client. Close returns within about two
// seconds, even if members hang or a Tracer blocks. What it could not give back by then ends with
// its TTL.
//
// Close may be called twice, and from any goroutine. It does not wait for functions of Do: the context of
// such a function has ended when Close returns, also where the function itself calls Close. A Tracer or a
// Logger should not wait for Close, because Close waits for it, until those two seconds are over: such a
// callback calls Close on a goroutine of its own.
func (c *Client) Close() error {
	if c == nil { // what an Open that has failed returns
		return nil
	}
	if c.closing.CompareAndSwap(false, true) {
		c.close()
		close(c.gone)
	}
	<-c.gone
	return nil
}

const (
	closeWithin = 2 * time.Second
	// calls that have begun end within so long, or what they have is released under them.
	callsWithin = closeWithin / 2
	// members cut their connections then, which takes no longer unless the user's code blocks the reader of one.
	cutWithin = closeWithin / 8
	// calls of Logger and Tracer have returned then, unless one blocks.
	hushWithin = closeWithin / 16
)

// close is what Close does. First nothing new begins, then everything that has begun comes to
// its release, and only then are the members closed: they carry out what was submitted before.
func (c *Client) close() {
	hushed, cancel := context.WithTimeout(context.Background(), closeWithin+cutWithin+hushWithin)
	defer cancel()
	defer c.cfg.callbacks.hush(hushed)
	last, stopCut := context.WithTimeout(hushed, closeWithin+cutWithin)
	defer stopCut()
	ctx, end := context.WithTimeout(last, closeWithin)
	defer end()
	c.alive.end()
	close(c.closed)
	<-c.keeper.done
	c.keeper.endAll()
	calls, stop := context.WithTimeout(ctx, callsWithin)
	defer stop()
	select {
	case <-c.alive.none:
	case <-calls.Done():
		c.holds.each(func(h *hold) { h.release(true).Free() })
	}
	c.teller.end()
	select {
	case <-c.told:
	case <-ctx.Done():
	}
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(func() {
			if err := m.Close(ctx); err != nil {
				c.log.Warn("redlock: member closed with work undone", "member", m.Name(), "error", err)
			}
		})
	}
	cut := make(chan struct{})
	go func() { wg.Wait(); close(cut) }()
	// Unless the user's code blocks them:
	select {
	case <-cut:
	case <-last.Done():
	}
	for _, done := range []chan struct{}{c.keeper.paused, c.teller.done} {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// alive counts what Close waits for: attempts until nothing of them is left to be submitted, and calls that may have to be
// followed by another.
type alive struct {
	n    atomic.Int64  // with aliveEnded added when no more may enter
	none chan struct{} // capacity 1: there are none, and no more may enter
}

const aliveEnded = 1 << 62

// enter reports whether there may be one more. Each that may is followed by leave.
func (a *alive) enter() bool {
	if a.n.Add(1) > aliveEnded {
		a.leave()
		return false
	}
	return true
}

func (a *alive) leave() {
	if a.n.Add(-1) == aliveEnded {
		signal(a.none)
	}
}

func (a *alive) end() {
	if a.n.Add(aliveEnded) == aliveEnded {
		signal(a.none)
	}
}

// nextNumber is one that no other attempt of this client has, and none of a copy of this process either: a snapshot of
// a machine that runs twice has the client's name and its counter twice, and members would take both for one owner. So a
// part of it is drawn from the system at that moment, which draws anew after a snapshot where it can tell.
func (c *Client) nextNumber() uint64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return c.seq.Add(1)<<24 | uint64(binary.BigEndian.Uint32(b[:])>>8)
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// orClosed is the error of a call, or ErrClosed if the members could not be asked because the client is
// being closed.
func (c *Client) orClosed(op, key string, err error) error {
	if errors.Is(err, ErrNoQuorum) && c.isClosed() {
		return &keyError{op: op, key: key, err: ErrClosed}
	}
	return err
}

func (c *Client) buffer() *[]byte {
	if b, ok := c.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 512)
	return &b
}

// contended notes that a name was seen to be another's, and has the keeper forget it in time.
func (c *Client) contended(name string, at time.Time) {
	if c.lines.contended(name, at) {
		c.keeper.awake()
	}
}

// link hears one member.
type link struct {
	c *Client
	i int
	// up as it was last told, so that the tracer hears of each change once.
	mu    sync.Mutex
	up    bool
	state string    // as Members tells it
	since time.Time // of state
}

// Push implements member.Listener.
func (l *link) Push(msg []byte, st member.State, at time.Time) {
	p, ok := pushOf(msg, st)
	if !ok {
		for _, kept := range l.c.kept {
			if kept, ok := kept.(hearing); ok {
				kept.hear(l.i, msg, st, at)
			}
		}
		return
	}
	if h := l.c.holds.get(p.N); h != nil {
		h.hear(l.i, p, st, at)
	}
}

// pushOf reads a push of a member. A grant that no replica has acknowledged has no date: the attempt asks for it, and the
// member answers behind a WAIT.
func pushOf(msg []byte, st member.State) (script.Push, bool) {
	p, ok := script.ParsePush(string(msg))
	if st.Acks {
		p.Server = 0
	}
	return p, ok
}

// Changed implements member.Listener.
func (l *link) Changed(st member.State) {
	l.mu.Lock()
	told := l.up == st.Up
	l.up = st.Up
	again := st.Votes && (l.state != MemberVoting || l.c.slotted[l.i] != nil) // of several servers, any
	if s := standingOf(st); s != l.state {
		l.state, l.since = s, time.Now()
	}
	l.mu.Unlock()
	if !told && l.c.trace.Member != nil {
		l.c.trace.Member(l.c.members[l.i].Name(), st.Up, st.Err)
	}
	if st.RunID != "" || l.c.spread[l.i] != nil {
		l.c.barDuplicates()
	}
	l.c.changes.mu.Lock()
	close(l.c.changes.ch)
	l.c.changes.ch = make(chan struct{})
	l.c.changes.mu.Unlock()
	up := 0
	for _, st := range l.c.states() {
		if st.Votes {
			up++
		}
	}
	if up >= l.c.need {
		l.c.dark.set(time.Time{})
	}
	if again {
		l.c.keeper.votesAgain(l.i)
	}
	for _, kept := range l.c.kept {
		if kept, ok := kept.(changing); ok {
			kept.memberChanged()
		}
	}
}

// changed returns a channel that is closed at the next change of a member.
func (c *Client) changed() <-chan struct{} {
	c.changes.mu.Lock()
	defer c.changes.mu.Unlock()
	return c.changes.ch
}

// holds finds a hold by the number in its owner's name: all that may hear of waiters or grants. It is sharded, because
// every acquisition passes here.
type holds struct {
	shards [32]struct {
		mu sync.Mutex
		m  map[uint64]*hold
	}
}

func (s *holds) put(h *hold) {
	sh := &s.shards[h.n%uint64(len(s.shards))]
	sh.mu.Lock()
	if sh.m == nil {
		sh.m = make(map[uint64]*hold)
	}
	sh.m[h.n] = h
	sh.mu.Unlock()
}

func (s *holds) get(n uint64) *hold {
	sh := &s.shards[n%uint64(len(s.shards))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.m[n]
}

// each calls f for all of them, under no lock.
func (s *holds) each(f func(h *hold)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		all := slices.Collect(maps.Values(sh.m))
		sh.mu.Unlock()
		for _, h := range all {
			f(h)
		}
	}
}

func (s *holds) remove(h *hold) {
	sh := &s.shards[h.n%uint64(len(s.shards))]
	sh.mu.Lock()
	if sh.m[h.n] == h {
		delete(sh.m, h.n)
	}
	sh.mu.Unlock()
}

// dark is since when fewer than a majority of the members could be asked, zero while they can: shared
// by the attempts of a client, so that callers in one line do not each wait out their patience after
// the one before. A majority that decides anything ends it: a lock that is had or held, a renewal.
type dark struct{ since atomic.Pointer[time.Time] } // nil: zero

func (d *dark) get() time.Time {
	if since := d.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

func (d *dark) set(since time.Time) {
	switch {
	case !since.IsZero():
		kept := since // the parameter stays on the stack
		d.since.Store(&kept)
	case d.since.Load() != nil:
		d.since.Store(nil)
	}
}

var waitingOf = keep[waiting]()

// waiting is the set of attempts that wait, to be woken when a member comes or goes.
type waiting struct {
	mu sync.Mutex
	m  map[*attempt]struct{}
}

func (w *waiting) add(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = make(map[*attempt]struct{})
	}
	w.m[a] = struct{}{}
}

func (w *waiting) remove(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.m, a)
}

// memberChanged implements changing.
func (w *waiting) memberChanged() {
	w.mu.Lock()
	all := make([]*attempt, 0, len(w.m))
	for a := range w.m {
		all = append(all, a)
	}
	w.mu.Unlock()
	for _, a := range all {
		a.mu.Lock()
		wake := a.wake
		a.mu.Unlock()
		signal(wake)
	}
}
