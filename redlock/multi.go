package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// maxNames is how many names one Multi may have.
const maxNames = 64

// Multi takes several locks, all or none. It is made of ordinary locks: each name has its own
// majority, lease and token, and excludes the Mutex of that name. A Multi is safe for concurrent
// use, and holds no state of its own.
//
// Everybody takes names in one order, that of their bytes. Who waits for a name has nothing behind
// it. So callers of Multi never wait for each other in a circle: docs/protocol.md, "Several names".
type Multi struct {
	locks []*Mutex // in the order in which everybody takes them
	err   error    // why it cannot work
}

// Multi returns a Multi of 1 to 64 names, which must differ. The options are those of each
// name. Lock and TryLock report mistakes in names and options.
func (c *Client) Multi(names []string, opts ...LockOption) *Multi {
	all, locks := make([]Mutex, len(names)), make([]*Mutex, len(names))
	for i, name := range names {
		all[i].init(c, &exclusive, name, opts)
		locks[i] = &all[i]
	}
	return join(locks)
}

// Join returns a Multi of locks with terms of their own, also of several clients, that is, of
// several deployments. If two deployments have a lock of one name, these two are taken in the order
// of the arguments, which must then be the same everywhere.
func Join(locks ...*Mutex) *Multi { return join(slices.Clone(locks)) }

// join is Join of a slice that is the Multi's from then on.
func join(locks []*Mutex) *Multi {
	m := &Multi{locks: locks}
	switch {
	case len(locks) == 0:
		m.err = errors.New("no names")
		return m
	case len(locks) > maxNames:
		m.err = fmt.Errorf("%d names, but at most %d are allowed", len(locks), maxNames)
		return m
	case slices.Contains(locks, nil):
		m.err = errors.New("nil lock")
		return m
	case slices.ContainsFunc(locks, func(l *Mutex) bool { return l.c == nil }):
		m.err = errors.New("a lock of no client: make it with Client.Mutex")
		return m
	}
	slices.SortStableFunc(m.locks, func(x, y *Mutex) int { return cmp.Compare(x.key(), y.key()) })
	for i, x := range m.locks {
		for _, y := range m.locks[i+1:] {
			if y.key() != x.key() {
				break
			}
			if y.c == x.c {
				m.err = fmt.Errorf("the name %s is there twice", printable.Quote(x.name))
			}
		}
	}
	return m
}

// Lock waits until it has all locks, until ctx ends, or until no majority of the members can be
// asked for Config.NoQuorumAfter. While the names are free, it takes one round trip. Otherwise it
// waits for one name after the other. Meanwhile it holds the names before that one, and the client
// renews them.
//
// A lease with a fixed TTL, and MaxHold, count from the moment at which Lock has the last name.
//
// After an error, nothing of the call is left at the members. The error is that of the name which
// was not obtained, as of Mutex.Lock, or one of these:
//
//   - A *LostError, if leases in hand were lost three times while Lock waited for others.
//   - ErrOrder, if the owner (As) holds a name behind one that Lock would have to wait for.
//   - ErrInput.
func (m *Multi) Lock(ctx context.Context) (*Leases, error) { return m.acquire(ctx, opLock, false) }

// TryLock asks once and does not wait for any lock. If another owner has one of them, the error is
// ErrHeld and names the first such lock.
func (m *Multi) TryLock(ctx context.Context) (*Leases, error) {
	return m.acquire(ctx, opTryLock, true)
}

// Do runs fn while it holds all locks. The context that fn gets is a child of ctx and ends with the
// first lease that ends, so fn must stop when it ends. fn may unlock the leases early. Do returns
// fn's error, joined with any error of the leases or their release that fn has not returned already.
// It matches ErrRan as that of Mutex.Do.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context, leases *Leases) error) error {
	if fn == nil {
		return badInput(opLock, "nil function")
	}
	leases, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return duringAll(ctx, leases, fn)
}

// TryDo runs fn as Do does if it gets all locks at once, and says whether fn ran: see Mutex.TryDo.
func (m *Multi) TryDo(ctx context.Context, fn func(ctx context.Context, leases *Leases) error) (ran bool, err error) {
	if fn == nil {
		return false, badInput(opTryLock, "nil function")
	}
	leases, err := m.TryLock(ctx)
	if err != nil {
		return false, unlessHeld(ctx, false, err)
	}
	return true, duringAll(ctx, leases, fn)
}

// duringAll runs fn while leases are held, as Do does, and ends them.
func duringAll(ctx context.Context, leases *Leases, fn func(ctx context.Context, leases *Leases) error) (err error) {
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(leases.Context(), func() { cancel(context.Cause(leases.Context())) })
	defer func() { // also when fn panics
		stop()
		cancel(context.Canceled)
		var said []error
		if !leases.spent.Load() { // by fn
			said = leases.unlock(context.WithoutCancel(ctx))
		}
		err = afterwards(err, said...)
	}()
	return fn(setContext{held, leases, cancel}, leases)
}

func (m *Multi) acquire(ctx context.Context, op string, try bool) (*Leases, error) {
	switch {
	case m.err != nil:
		return nil, badInput(op, "%v", m.err)
	case len(m.locks) == 0: // not made by Join
		return nil, badInput(op, "no names")
	}
	g := gathering{try: try, parts: make([]part, len(m.locks))}
	for i, l := range m.locks {
		if err := l.c.check(ctx, op, l.name, l.terms.ttl); err != nil {
			return nil, err
		}
		if err := l.terms.check(&l.c.cfg); err != nil {
			return nil, badInput(op, "%v", err)
		}
		p := &g.parts[i]
		*p = part{c: l.c, terms: &l.terms, inHand: l.terms, wire: l.terms.kind.of(l.name, &l.c.cfg, &l.terms)}
		p.inHand.renew, p.inHand.maxHold = true, -1
		p.want = want{op: op, name: l.name, terms: &p.inHand, try: try, set: true}
	}
	if err := ctx.Err(); err != nil {
		return nil, &keyError{op: op, key: m.locks[0].name, err: err}
	}
	end := g.begin(ctx)
	leases, err := g.obtain(ctx)
	end(err)
	return leases, err
}

// gathering is one Lock or TryLock of a Multi.
type gathering struct {
	try    bool
	waited bool // for a name, while those before it were in hand
	parts  []part

	refused int // with try: the part that was not won
}

// part is one lock of a gathering. It goes from asked to won, and from there into hand as a lease.
type part struct {
	c    *Client
	wire script.Lock
	want want
	// terms are the caller's. While another name is waited for, inHand takes their place: the client
	// renews the lease, and nothing limits it.
	terms  *terms
	inHand terms
	in     context.Context // of the acquisition for the tracer, nil without one

	asked *attempt // until it is a lease
	step  wait.Step
	won   bool

	res   result
	lease *Lease // in hand
	again bool   // by re-entry: others may be users of it
}

// errLost says that a lease in hand was lost.
var errLost = errors.New("a lease in hand was lost")

// obtain gathers all locks. If a lease in hand is lost meanwhile, it begins again.
func (g *gathering) obtain(ctx context.Context) (*Leases, error) {
	once := retry{began: time.Now()}
	for lost := 1; ; lost++ {
		err := g.gather(ctx)
		if err == nil {
			return g.leases(ctx), nil
		}
		cause := g.lostInHand()
		g.giveUp()
		switch {
		case g.try && g.parts[g.refused].comesBack(ctx, err, &once):
			continue
		case !errors.Is(err, errLost):
			return nil, err
		case cause == nil: // by its owner, with As
			cause = &keyError{op: g.parts[0].want.op, key: g.parts[0].want.name, err: ErrNotHeld}
		}
		if lost == gatherings {
			return nil, cause
		}
	}
}

// gatherings is how often a lease in hand may be lost.
const gatherings = 3

// gather brings all locks into hand, or returns why that cannot be. It leaves it to its caller to
// give up what it has.
func (g *gathering) gather(ctx context.Context) error {
	if err := g.enterAgain(ctx); err != nil {
		return err
	}
	for i := range g.parts {
		if p := &g.parts[i]; !p.again {
			if err := p.c.unlessUnreachable(ctx, &p.want); err != nil {
				return err
			}
		}
	}
	for {
		j, now, err := g.ask(ctx)
		if err != nil {
			return g.unlessClosed(err)
		}
		if j == len(g.parts) {
			return g.complete(ctx)
		}
		if g.try {
			p := &g.parts[j]
			g.refused = j
			return g.unlessClosed(p.asked.run(ctx, &p.step, now))
		}
		g.releaseBehind(j)
		if name, behind := g.heldBehind(j); behind {
			return &keyError{op: opLock, key: g.parts[j].want.name, err: ErrOrder, cause: fmt.Errorf("the owner holds %s", printable.Quote(name))}
		}
		g.waited = true
		if err := g.keep(ctx, g.parts[:j]); err != nil {
			return err
		}
		if err := g.wait(ctx, j, now); err != nil {
			return err
		}
	}
}

// enterAgain takes what the owner (As) holds already.
func (g *gathering) enterAgain(ctx context.Context) error {
	for i := range g.parts {
		p := &g.parts[i]
		if err := p.enterAgain(); err != nil {
			return err
		}
		if p.again {
			continue
		}
		if err := p.c.nested(ctx, &p.want); err != nil {
			return err
		}
	}
	return nil
}

// heldBehind returns a name behind part j that an owner (As) of these locks holds, through these
// clients. Whoever waits for part j then may wait for a caller that waits for that name.
func (g *gathering) heldBehind(j int) (name string, behind bool) {
	for i := range g.parts {
		p := &g.parts[i]
		if i > j && p.lease != nil && p.again {
			return p.want.name, true
		}
		if name, behind = ownersOf.of(p.c).behind(g.parts[j].want.name, p.terms.as); behind {
			return name, true
		}
	}
	return "", false
}

func (p *part) comesBack(ctx context.Context, err error, m *retry) bool {
	return p.c.comesBack(ctx, p.wire.Slot(), err, m)
}

func (p *part) enterAgain() (err error) {
	p.lease, err = p.c.again(&p.want)
	p.again = p.lease != nil
	return err
}

// ask asks for all locks that are not in hand, in one group for each member, and waits until it is
// known which of them are won. It returns the first that is not, whose step of that moment is to be
// carried out; or the number of parts. Those behind the first may be won, too.
func (g *gathering) ask(ctx context.Context) (first int, now time.Time, err error) {
	now = time.Now()
	for i := range g.parts {
		if p := &g.parts[i]; p.lease == nil && p.asked == nil {
			if err := g.askAt(p.c, g.parts[i:]); err != nil {
				return 0, now, err
			}
		}
	}
	first = len(g.parts)
	g.hearLast(ctx, now)
	now = time.Now() // it may have waited for as long as is waited for any
	for open := true; open; {
		open = false
		for i := range g.parts[:first] {
			p := &g.parts[i]
			if p.lease != nil || p.won {
				continue
			}
			if err := p.asked.sleep(ctx, &p.step, now); err != nil { // at once, if its time was over before
				return 0, now, err
			}
			now = p.asked.next(&p.step)
			if p.step.Do == wait.Win || p.step.Poll {
				p.asked.do(&p.step, now)
				p.won = p.step.Do == wait.Win
				open = open || !p.won
				continue
			}
			first = i // those before it may still be asked for a second round
			break
		}
	}
	return first, now, nil
}

// hearLast waits for the answers to the last part. A member answers the parts in their order. So the
// caller wakes once for all of them, and not once for each. If the parts ask different servers, a slow
// one must not hold up what another one has refused: then hearLast does not wait.
func (g *gathering) hearLast(ctx context.Context, now time.Time) {
	last := len(g.parts) - 1
	p := &g.parts[last]
	for i := range g.parts {
		if q := &g.parts[i]; q.c != p.c || q.c.perSlot {
			return
		}
	}
	if p.asked != nil && p.step.Poll {
		_ = p.asked.sleep(ctx, &p.step, now) // whoever sleeps next gets the error, too
	}
}

// askAt asks the members of one client for the locks of theirs.
func (g *gathering) askAt(c *Client, parts []part) error {
	asked := make([]*part, 0, len(parts))
	past := wait.Past{Start: wait.AskFirst}
	if g.try {
		past.Start = wait.TryOnce
	}
	for i := range parts {
		p := &parts[i]
		if p.c != c || p.lease != nil {
			continue
		}
		a := c.newAttempt(p.wire, &p.inHand, past, p.in)
		if a == nil {
			return &keyError{op: p.want.op, key: p.want.name, err: ErrClosed}
		}
		p.asked, p.won = a, false
		asked = append(asked, p)
	}
	rounds := c.startAll(len(asked), func(i int) *quorum.Round {
		p := asked[i]
		return p.asked.question(&p.step, p.asked.next(&p.step))
	})
	for i, r := range rounds {
		asked[i].asked.poll(r)
	}
	return nil
}

// keep makes leases of what was won.
func (g *gathering) keep(ctx context.Context, parts []part) error {
	for i := range parts {
		p := &parts[i]
		if p.asked == nil {
			continue
		}
		a := p.asked
		p.asked = nil
		a.stopListening()
		if !g.waited { // these fields alone: late answers look at others
			a.terms.renew, a.terms.maxHold = p.terms.renew, p.terms.maxHold
		}
		p.res = result{Grant: p.step.Grant, waited: a.b.Waited()}
		l, err := a.lease(ctx, p.res, nil)
		if err != nil {
			return err
		}
		p.lease = l
	}
	return nil
}

// wait waits for part j, as Mutex.Lock does: in the line of its name, and with the votes that it
// has, if nobody stands there. In line it must have no votes, because who has the turn may need them.
func (g *gathering) wait(ctx context.Context, j int, now time.Time) error {
	p := &g.parts[j]
	a := p.asked
	p.asked = nil
	whole := ctx
	ctx, stop := g.unlessLost(ctx, j)
	defer stop()
	var place *place
	past := wait.Past{Start: wait.WaitFirst}
	var err error
	if !p.c.stepIntoLine(&p.want) {
		a.stopListening()
		a.abandon()
		a = nil
		if place, _, err = p.c.standInLine(ctx, &p.want); err != nil {
			return g.why(whole, ctx, err)
		}
	}
	defer p.c.leaveLine(&p.want, place)
	if a == nil {
		if err := p.enterAgain(); p.again || err != nil {
			return err
		}
		p.lease, p.res, err = p.c.attempts(ctx, p.in, &p.want, past)
	} else {
		p.lease, p.res, err = p.c.follow(ctx, p.in, &p.want, a, &p.step, now)
	}
	return g.why(whole, ctx, err)
}

// unlessLost returns a context that ends with the first of the leases before part j that ends.
func (g *gathering) unlessLost(ctx context.Context, j int) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, 0, j)
	for i := range g.parts[:j] {
		stops = append(stops, context.AfterFunc(g.parts[i].lease.Context(), func() { cancel(errLost) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// why says that a wait was ended by the loss of a lease in hand, if it was.
func (g *gathering) why(whole, ctx context.Context, err error) error {
	if err != nil && whole.Err() == nil && context.Cause(ctx) == errLost {
		return errLost
	}
	return err
}

// lostInHand is why a lease in hand was lost; nil: none was.
func (g *gathering) lostInHand() error {
	for i := range g.parts {
		if l := g.parts[i].lease; l != nil && errors.Is(l.Err(), ErrLost) {
			return l.Err()
		}
	}
	return nil
}

// complete makes leases of what is left, gives all of them the terms of their caller, and makes sure
// that all are valid at one instant.
func (g *gathering) complete(ctx context.Context) error {
	if err := g.keep(ctx, g.parts); err != nil {
		return err
	}
	if g.waited {
		g.setTerms(ctx)
	}
	now := time.Now()
	for i := range g.parts {
		if !g.parts[i].lease.alive(now) {
			return errLost
		}
	}
	return nil
}

// setTerms gives leases that were renewed in hand the terms of their caller, from now on. Those of a
// fixed TTL are extended first, so that all have what was asked for.
func (g *gathering) setTerms(ctx context.Context) {
	now := time.Now()
	short := make(map[*Client][]renewItem)
	for i := range g.parts {
		if p := &g.parts[i]; !p.again && !p.terms.renew {
			short[p.c] = append(short[p.c], p.lease.toRenew(p.terms.ttl))
		}
	}
	for c, items := range short {
		c.keeper.extendAll(ctx, items) // a lease that it does not renew keeps the validity that it has
	}
	for i := range g.parts {
		if p := &g.parts[i]; !p.again {
			p.lease.setTerms(p.terms, now)
		}
	}
}

// setTerms gives a lease other terms, which count from now.
func (l *lease) setTerms(t *terms, now time.Time) {
	l.mu.Lock()
	switch l.renew = t.renew; {
	case !t.renew:
		l.term.Bound(now.Add(t.ttl))
		if clock.Until(l.term.Until(), now) >= clock.Validity(t.ttl, l.c.cfg.Drift) {
			l.renewAt = time.Time{} // it has all of it; otherwise it is renewed once more
		}
	case t.maxHold > 0:
		l.term.Bound(now.Add(t.maxHold))
	}
	if limit := l.term.Limit(); !limit.IsZero() {
		l.term.Shorten(limit)
	}
	l.mu.Unlock()
	l.c.keeper.update(l)
}

// releaseBehind gives back what was asked for behind part j. Whoever waits for j has nothing behind
// it, not even a minority: otherwise two callers may each have what the other one needs.
func (g *gathering) releaseBehind(j int) { g.release(g.parts[j+1:]) }

// release gives back what was asked for, in one group for each member.
func (g *gathering) release(parts []part) {
	var holds []*hold
	for i := range parts {
		p := &parts[i]
		if p.asked != nil {
			p.asked.stopListening()
			holds = append(holds, &p.asked.hold)
			p.asked, p.won = nil, false
		}
	}
	releaseEach(holds)
}

// releaseEach releases holds of any clients, and waits for nothing.
func releaseEach(holds []*hold) {
	for len(holds) > 0 {
		c := holds[0].c
		var own, others []*hold
		for _, h := range holds {
			if h.c == c {
				own = append(own, h)
			} else {
				others = append(others, h)
			}
		}
		for _, r := range c.releaseAll(own, false) {
			r.Free()
		}
		holds = others
	}
}

// giveUp gives back everything.
func (g *gathering) giveUp() {
	g.release(g.parts)
	var holds []*hold
	for i := range g.parts {
		p := &g.parts[i]
		if p.lease != nil {
			switch inner, ended, _ := p.lease.leave(); {
			case ended:
				holds = append(holds, p.lease.hold)
			case inner && !p.again: // its owner has entered it meanwhile, and keeps it
				p.lease.setTerms(p.terms, time.Now())
			}
			p.lease, p.again = nil, false
		}
	}
	releaseEach(holds)
}

// unlessClosed says that a call failed because its client was closed, if it was.
func (g *gathering) unlessClosed(err error) error {
	for i := range g.parts {
		if p := &g.parts[i]; err != nil && p.c.isClosed() {
			return &keyError{op: p.want.op, key: p.want.name, err: ErrClosed}
		}
	}
	return err
}

// leases is what the caller gets.
func (g *gathering) leases(ctx context.Context) *Leases {
	all := make([]*Lease, len(g.parts))
	for i := range g.parts {
		p := &g.parts[i]
		if all[i] = p.lease; p.terms.as != "" {
			all[i] = p.lease.user()
		}
	}
	return newLeases(ctx, all)
}

// begin tells the tracers that the acquisition of each name begins. The function that it returns
// tells them how it ended.
func (g *gathering) begin(ctx context.Context) (end func(error)) {
	start := time.Now()
	for i := range g.parts {
		p := &g.parts[i]
		p.in = p.c.trace.start(ctx, p.called())
	}
	return func(err error) {
		now := time.Now()
		for i := range g.parts {
			p := &g.parts[i]
			if p.c.trace.CallEnd != nil {
				p.c.trace.CallEnd(p.in, ended(p.called(), start, now, p.lease, p.res, err))
			}
		}
	}
}

// called is the call as the tracer hears of it.
func (p *part) called() CallStart {
	return CallStart{LockName: LockName{p.terms.kind.name, p.want.name}, Op: p.want.op, TTL: p.terms.ttl}
}
