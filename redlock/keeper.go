package redlock

import (
	"cmp"
	"context"
	"iter"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// keeper renews and ends the leases of a client. It never waits for a member and calls nothing of
// the user's where it ends leases, so that their contexts end on time even if every member hangs
// and a Tracer blocks; what the members answer is booked by the renewal, on the goroutines that
// read the answers.
//
// Two goroutines: run ends what is over, and gives back at the members what was ended; renewing
// sends the renewals that run has found due. A third tells the user: see teller.
type keeper struct {
	c      *Client
	poke   chan struct{} // capacity 1: run looks again
	asked  chan struct{} // capacity 1: there is something in queue
	done   chan struct{} // run has ended
	paused chan struct{} // renewing has ended

	rejoins atomic.Int64 // outside of renewals, without an answer

	mu     sync.Mutex // guards the fields below and pos, gone, queued of every lease
	leases leaseHeap
	queue  []*Lease   // to be renewed now
	back   quorum.Set // members that vote again: they may lack leases
	armed  time.Time  // when run looks again; zero: when poked
	wall   time.Time  // a reading since which wall and monotonic clock have run together
	ended  bool
	used   bool // a lease was put since run has looked
}

const (
	// lookAgain bounds how long the keeper sleeps while there are leases: after a suspend its timer
	// is late by as long as the machine slept, since it runs on the monotonic clock.
	lookAgain = 100 * time.Millisecond
	// apart is by how much the wall clock may gain on the monotonic one before all leases are dated
	// anew: less than the allowance for drift of the shortest lease (clock.Delta).
	apart = time.Millisecond
	// perCall is how many leases one extend script carries: enough to save the cost of a call, few
	// enough not to hold up a member.
	perCall = 64 // no more: renewal.book has a bit for each
	// atOnce is how many renewals go out together where so many are due soon: what a client pays
	// for them is mostly that it wakes up. Eight calls take a server two or three milliseconds, and
	// it serves others after each 16 kB of them; with a Redis Cluster it may be a call per lease,
	// spread over its masters.
	atOnce = 8 * perCall
	// bytesPerCall bounds the names of one such script: names may be so long (Config.MaxName) that
	// a full one would never fit into a member's queue.
	bytesPerCall = 64 << 10
	// bytesAtOnce bounds the names of those that are renewed before they are due.
	bytesAtOnce = 4 * bytesPerCall
	// releasesAtOnce is how many leases that are over are released before the keeper looks for
	// others that are.
	releasesAtOnce = 64
)

func (k *keeper) init(c *Client) {
	k.c, k.poke, k.asked = c, make(chan struct{}, 1), make(chan struct{}, 1)
	k.done, k.paused = make(chan struct{}), make(chan struct{})
}

// run is owned by the client: started by New, ended by Close, which waits for it. Contexts end
// first, and the members hear of it afterwards.
func (k *keeper) run() {
	defer close(k.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var over []*LostError
	var owed []*hold
	for {
		now := time.Now()
		for _, l := range k.takeDue(now) {
			err, left := l.over(l.lapsed())
			for range left.losses {
				over = append(over, err)
			}
			if left.release != nil {
				owed = append(owed, left.release)
			}
		}
		k.c.teller.tell(over...)
		over = over[:0]
		n := min(len(owed), releasesAtOnce)
		for _, h := range owed[:n] {
			h.release(true).Free()
		}
		if owed = owed[n:]; len(owed) > 0 {
			continue
		}
		owed = nil
		k.c.lines.sweep(now)
		if sleep, ok := k.arm(time.Now()); ok {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-k.poke:
		case <-k.c.closed:
			return
		}
	}
}

// takeDue takes the leases that are over, and queues those that are to be renewed for renewing,
// which it wakes. With the latter go, up to a multiple of atOnce, those that are to be renewed
// soon: most of the cost of a renewal is that of the call and of the write.
func (k *keeper) takeDue(now time.Time) (over []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.datedLocked(now)
	for n, size := 0, 0; len(k.leases) > 0; {
		first := k.leases[0]
		if clock.Until(first.due, now) > 0 && (n%atOnce == 0 || size >= bytesAtOnce || !first.l.renewSoon(now)) {
			break
		}
		held, ask := first.l.ask(now)
		if !held {
			k.leases.remove(0)
			over = append(over, first.l)
			continue
		}
		k.putLocked(first.l, now, time.Time{})
		if ask && !first.l.queued {
			first.l.queued = true
			k.queue = append(k.queue, first.l)
			n, size = n+1, size+len(first.l.key)
		}
	}
	if len(k.queue) > 0 {
		signal(k.asked)
	}
	return over
}

// datedLocked dates all leases anew where the wall clock has gained on the monotonic one: after a
// suspend, or where it was set. The heap compares monotonic readings, by which a lease from before
// would hide behind younger ones.
func (k *keeper) datedLocked(now time.Time) {
	gained := now.Round(0).Sub(k.wall.Round(0)) - now.Sub(k.wall)
	if k.wall.IsZero() || gained < 0 {
		k.wall = now
	}
	if k.wall.IsZero() || gained <= apart {
		return
	}
	k.wall = now
	for _, e := range slices.Clone(k.leases) {
		k.putLocked(e.l, now, time.Time{})
	}
}

func (l *Lease) renewSoon(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewSoonLocked(now)
}

// renewSoonLocked: a renewal may come before its time by a part of the pause after one that was not
// confirmed, never by all of it, or it would be asked for again at once.
func (l *Lease) renewSoonLocked(now time.Time) bool {
	return !l.renewAt.IsZero() && clock.Until(l.renewAt, now) <= l.retryLocked(now)/4
}

// retryLocked is the pause before a renewal that was not confirmed is asked for again: there must
// be several before the validity is over, however little is left of it.
func (l *Lease) retryLocked(now time.Time) time.Duration {
	return min(retryAfter(l.ttl), max(clock.Until(l.term.Until(), now)/3, time.Millisecond))
}

// ask reports whether a lease is held and valid, and whether it is to be renewed, which is booked
// then.
func (l *Lease) ask(now time.Time) (held, ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held = l.term.Held(now)
	if ask = held && l.renewSoonLocked(now); ask {
		l.renewAt = now.Add(l.retryLocked(now)) // unless this one succeeds
	}
	return held, ask
}

// renewing sends the renewals that are due. It is owned by the client as run is. It calls
// RenewalTracer: one that blocks ends leases, by their validity, and does not keep any alive.
func (k *keeper) renewing() {
	defer close(k.paused)
	var lacking []*Lease // that may lack votes of the members in at
	var at quorum.Set
	for {
		select {
		case <-k.asked:
		case <-k.c.closed:
			return
		}
		k.mu.Lock()
		due, back := k.queue, k.back
		k.queue, k.back = nil, 0
		if back != 0 {
			lacking, at = lacking[:0], at|back
			for _, e := range k.leases {
				lacking = append(lacking, e.l)
			}
		}
		for _, l := range due {
			l.queued = false
		}
		k.mu.Unlock()
		if lacking = k.regain(lacking, at); len(lacking) == 0 {
			lacking, at = nil, 0
		}
		k.renewAll(due, time.Now())
	}
}

// regained is called with each answer to a re-join outside of renewals.
func (k *keeper) regained() {
	if k.rejoins.Add(-1) == atOnce/2 {
		signal(k.asked)
	}
}

// votesAgain has the leases that are renewed regain their votes at a member at once, and not with
// their next renewals: until then a further member that forgets could end them.
func (k *keeper) votesAgain(i int) {
	k.mu.Lock()
	k.back = k.back.With(i)
	k.mu.Unlock()
	signal(k.asked)
}

// regain asks some members for the votes that leases lack there, and returns the leases for which it will when others have
// been answered: a member's queue has room for a few thousand calls, and renewals need some of it.
func (k *keeper) regain(leases []*Lease, back quorum.Set) (rest []*Lease) {
	for n, l := range leases {
		if k.rejoins.Load() >= atOnce {
			return leases[n:]
		}
		ttl, now := l.regains(), time.Now()
		if ttl <= 0 {
			continue
		}
		to := quorum.Set(0)
		for i := range k.c.members {
			if back.Has(i) && k.c.briefOf(i, l.hold.wire.Slot()).Votes && l.hold.lacks(i, now) {
				to = to.With(i)
			}
		}
		if to != 0 {
			l.hold.regain(to, ttl, ttl)
		}
	}
	return nil
}

// regains is for how long the lease asks for votes that it lacks; 0: it does not.
func (l *Lease) regains() time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch limit := l.term.Limit(); {
	case !l.term.Held(now), l.renewAt.IsZero():
		return 0
	case !limit.IsZero():
		return min(l.ttl, clock.Until(limit, now))
	}
	return l.ttl
}

// renewAll renews those of some leases that are held, in calls for each script and, if a member is
// several servers, slot.
func (k *keeper) renewAll(due []*Lease, now time.Time) {
	batch := make([]renewItem, 0, len(due))
	for _, l := range due {
		l.mu.Lock()
		ttl, held := l.ttl, l.term.Held(now)
		if limit := l.term.Limit(); !limit.IsZero() {
			ttl = min(ttl, clock.Until(limit, now))
		}
		l.mu.Unlock()
		if held && clock.Validity(ttl, k.c.cfg.Drift) > 0 {
			batch = append(batch, l.toRenew(ttl))
		}
	}
	slices.SortStableFunc(batch, k.apart)
	for len(batch) > 0 {
		n := k.together(batch[:callSize(batch)])
		k.renew(&renewal{items: batch[:n:n]}, now).Free()
		batch = batch[n:]
	}
}

// callSize is how many leases of the batch go into the next call: always one, then as many as the
// bounds allow.
func callSize(batch []renewItem) int {
	size := 0
	for n := range batch {
		if size += batch[n].l.hold.wire.RenewalBytes(); n > 0 && (n == perCall || size > bytesPerCall) {
			return n
		}
	}
	return len(batch)
}

// together is how many leases of the batch may travel in the call of the first.
func (k *keeper) together(batch []renewItem) int {
	for n := range batch {
		if k.apart(batch[0], batch[n]) != 0 {
			return n
		}
	}
	return len(batch)
}

// apart orders leases by the calls that can carry them: 0 means that one call can carry both. A
// call is that of one script. If a member is several servers, the keys of a call are in one slot.
func (k *keeper) apart(x, y renewItem) int {
	a, b := &x.l.hold.wire, &y.l.hold.wire
	if d := cmp.Compare(a.Extends().SHA, b.Extends().SHA); d != 0 {
		return d
	}
	if k.c.perSlot {
		return cmp.Compare(a.Bucket, b.Bucket)
	}
	return 0
}

// retryAfter is the pause before a renewal that was not confirmed is asked for again.
func retryAfter(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 5*time.Millisecond), time.Second)
}

// arm says how long to sleep, and books it. Leases that come and go do not each wake run: it rests when none has come
// between two looks.
func (k *keeper) arm(now time.Time) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep := contendedFor // a name is forgotten that late at most
	used := k.used
	k.used = false
	switch {
	case len(k.leases) > 0:
		sleep = max(0, min(lookAgain, clock.Until(k.leases[0].due, now)))
	case used:
		sleep = lookAgain
	case k.c.lines.empty():
		k.armed = time.Time{}
		return 0, false
	}
	k.armed = now.Add(sleep)
	return sleep, true
}

// nudgeLocked makes run look again at t, the next event of a lease, and within lookAgain, unless it will; or t is zero.
func (k *keeper) nudgeLocked(t, now time.Time) {
	if t.IsZero() {
		return
	}
	if k.armed.IsZero() || clock.Until(t, k.armed) < 0 || clock.Until(k.armed, now) > lookAgain {
		signal(k.poke)
	}
}

// awake makes run keep looking while there is something to sweep.
func (k *keeper) awake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.armed.IsZero() {
		signal(k.poke)
	}
}

// add takes over a lease; false: the client is closed.
func (k *keeper) add(l *Lease) bool {
	k.update(l)
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	if ended { // perhaps after endAll looked
		l.lose(LostClosed)
	}
	return !ended
}

// update puts a lease where its next event belongs.
func (k *keeper) update(l *Lease) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nudgeLocked(k.putLocked(l, now, time.Time{}), now)
}

// putLocked returns the moment of the lease's next event, or first if that is sooner. It is counted
// from now, by the reading of the clock that leaves less, so that the heap may compare it with
// others by either. Both mutexes at once, the keeper's first: of two updates the later must not be
// overtaken by what the earlier has read.
func (k *keeper) putLocked(l *Lease, now, first time.Time) time.Time {
	if l.gone {
		return first
	}
	l.mu.Lock()
	left := clock.Until(l.term.Until(), now)
	if !l.renewAt.IsZero() {
		left = min(left, clock.Until(l.renewAt, now))
	}
	l.mu.Unlock()
	due := now.Add(left)
	k.used = true
	k.leases.put(l, due)
	if first.IsZero() || due.Before(first) {
		return due
	}
	return first
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.gone = true
	if l.pos >= 0 {
		k.leases.remove(int(l.pos))
	}
}

// endAll ends every lease because the client closes. Those that run has in hand are over, and it
// ends them before it returns.
func (k *keeper) endAll() {
	k.mu.Lock()
	k.ended = true
	all := append(leaseHeap(nil), k.leases...)
	k.mu.Unlock()
	for _, e := range all {
		e.l.lose(LostClosed)
	}
}

// extend renews one lease for its holder and waits for the decision.
func (k *keeper) extend(ctx context.Context, l *Lease, ttl time.Duration) error {
	now := time.Now()
	if l.clamp(now.Add(clock.Validity(ttl, k.c.cfg.Drift))) {
		return nil
	}
	err := k.confirm(ctx, l, ttl, now)
	for err != nil && k.c.comesBack(ctx, l.hold.wire.Slot(), err, now) {
		err = k.confirm(ctx, l, ttl, time.Now())
	}
	return err
}

// confirm asks all members to keep one lease, and waits for the decision.
func (k *keeper) confirm(ctx context.Context, l *Lease, ttl time.Duration, now time.Time) error {
	l.hold.asks(ttl)
	n := &renewal{items: []renewItem{l.toRenew(ttl)}, manual: true, ctx: ctx}
	r := k.renew(n, now)
	defer r.Free()
	v, cause := r.Wait(ctx, now, k.c.cfg.MemberTimeout)
	n.settle()
	if l.Err() != nil {
		return l.notHeld(opExtend)
	}
	if v == quorum.Won {
		return nil
	}
	e := &QuorumError{Failure: quorum.Failure{Op: opExtend, Key: l.key, Need: k.c.need, Votes: r.Votes(k.c.members)}, kind: ErrNoQuorum, cause: cause}
	k.c.waited(&e.Failure, v, cause)
	return e
}

// extendAll renews several leases for their holder, each for its own TTL, and waits until all are
// decided, until every member has been heard, or until ctx or MemberTimeout ends. Leases that may
// travel together share a call. It returns those that were not renewed, with what the members said
// of each.
func (k *keeper) extendAll(ctx context.Context, items []renewItem) (failed []*QuorumError) {
	now := time.Now()
	for i := range items {
		items[i].l.hold.asks(items[i].TTL())
	}
	slices.SortStableFunc(items, k.apart)
	var calls []*extension
	for rest := items; len(rest) > 0; {
		size := k.together(rest[:callSize(rest)])
		e := &extension{renewal: renewal{items: rest[:size:size], manual: true, ctx: ctx}, all: make(chan struct{}, 1)}
		k.start(&e.renewal, e, now).Free()
		calls = append(calls, e)
		rest = rest[size:]
	}
	timeout := time.NewTimer(k.c.cfg.MemberTimeout)
	defer timeout.Stop()
	var cause error
	for _, e := range calls {
		if cause == nil {
			select {
			case <-e.all:
			case <-timeout.C:
				cause = context.DeadlineExceeded
			case <-ctx.Done():
				cause = ctx.Err()
			}
		}
		failed = append(failed, e.undecided()...)
	}
	if ctx.Err() != nil {
		for _, e := range failed {
			e.cause = ctx.Err()
		}
	}
	return failed
}

// extension is a renewal whose caller waits for all of its leases.
type extension struct {
	renewal
	all  chan struct{} // capacity 1: all leases are decided, or all members have been heard
	ears quorum.Set    // the members that have been; guarded by the renewal's mutex
}

// Judge implements quorum.Judge.
func (e *extension) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	v := e.renewal.Judge(r, c)
	e.mu.Lock()
	e.ears = e.ears.With(c.Index)
	open := slices.ContainsFunc(e.items, func(it renewItem) bool { return !it.Done })
	complete := !open || e.ears.Len() == len(e.k.c.members)
	e.mu.Unlock()
	if complete {
		signal(e.all)
	}
	return v
}

// undecided returns an error for each lease that a majority has neither renewed nor refused.
func (n *renewal) undecided() (all []*QuorumError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.items {
		it := &n.items[i]
		if it.Verdict() != quorum.Undecided {
			continue
		}
		votes := make([]quorum.MemberVote, len(n.k.c.members))
		for m := range votes {
			votes[m] = quorum.MemberVote{Member: n.k.c.members[m].Name(), Vote: it.Vote(m)}
		}
		all = append(all, &QuorumError{
			Failure: quorum.Failure{Op: opExtend, Key: it.l.key, Need: n.k.c.need, Votes: votes}, kind: ErrNoQuorum,
		})
	}
	return all
}

// renewal is one call for up to perCall leases, by the script that lengthens them all. It goes to
// all members. Each lease is decided on its own: docs/protocol.md, "Renewal".
type renewal struct {
	k      *keeper
	sent   time.Time
	manual bool            // asked for by a caller, who waits for the round
	adopt  bool            // not known to be held: nothing is given back to members that do not have it
	ctx    context.Context // of the caller, or of the round's own trace; or nil
	trace  *renewalTrace   // nil without a RenewalTracer, and for a caller's

	mu    sync.Mutex // guards the counts of the items; never held around Submit
	items []renewItem
}

// renewItem is a lease, and what the members say of it. Its lease and TTL never change.
type renewItem struct {
	l *Lease
	core.Count
}

// toRenew is the lease, as the members are asked to keep it for ttl.
func (l *Lease) toRenew(ttl time.Duration) renewItem {
	return renewItem{l, core.Asks(ttl, len(l.c.members))}
}

func (k *keeper) renew(n *renewal, now time.Time) *quorum.Round { return k.start(n, n, now) }

// start submits a renewal whose answers go to j.
func (k *keeper) start(n *renewal, j quorum.Judge, now time.Time) *quorum.Round {
	n.k, n.sent = k, now
	if t := k.c.trace.renewal; t != nil && !n.manual {
		n.traced(t)
	}
	h, delivery := n.items[0].l.hold, member.Delivery{Late: !n.manual}
	if n.moves() {
		h.takes(len(k.c.members))
		delivery.Ended = &h.ended
	}
	cmd := k.c.buffer()
	command := n.encode(cmd)
	r := k.c.rounds.Start(k.c.members, &quorum.Question{
		Op: opExtend, Sent: now, TTL: n.items[0].TTL(), To: quorum.All(len(k.c.members)), Need: k.c.need, Judge: j,
		Command:  command,
		Delivery: delivery,
	})
	k.c.buffers.Put(cmd)
	if n.moves() { // some may have refused while others were not asked yet
		for i := range k.c.members {
			h.overtaken(i)
		}
	}
	return r
}

// moves reports whether the members are to move the votes of a former owner: a call that comes late leaves a vote, as a
// re-join does.
func (n *renewal) moves() bool { return n.adopt && n.items[0].l.hold.former != "" }

func (n *renewal) encode(buf *[]byte) member.Command {
	first := n.items[0].l.hold
	if n.moves() {
		return first.having().Adopt(buf, first.owner, first.former, n.items[0].TTL())
	}
	renewal := first.wire.Renew(buf, len(n.items))
	for i := range n.items {
		renewal.Lock(n.items[i].l.hold.wire.Name)
	}
	for i := range n.items {
		renewal.Lease(n.items[i].l.hold.owner, n.items[i].TTL(), n.items[i].l.hold.b.Permits())
	}
	return renewal.Command(first.wire.Slot())
}

// Judge books one member's answer for every lease of the script. Its vote is that for the first
// lease: only Extend, which asks for one, waits for the round.
func (n *renewal) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	n.requested(r, c)
	defer n.heard(c.Outcome == member.Answered)
	if n.moves() {
		defer n.items[0].l.hold.took()
	}
	if c.Outcome != member.Answered || len(c.Reply.Elems) != len(n.items) || c.State.Gen != n.k.c.state(c.Index).Gen {
		return wait.VoteOf(c.Outcome, false)
	}
	// Above 0: it is ours there, and which number it is may say more. 0: it is not. Below 0: there is
	// another's data under the name, and nothing to be had.
	if told := n.items[0].l.hold.terms.kind.word; told != nil { // by one script: its words mean one thing
		for j := range c.Reply.Elems {
			if word := c.Reply.Elems[j].Int; word > 0 { // before anything is decided by it
				told(n.items[j].l, c.Index, word, n.sent)
			}
		}
	}
	n.book(c.Index, c.State.Gen, 0, c.Reply.Elems)
	for j := range c.Reply.Elems {
		if c.Reply.Elems[j].Int == 0 && !n.adopt {
			n.rejoin(j, c.Index)
		}
	}
	return wait.VoteOf(c.Outcome, c.Reply.Elems[0].Int > 0)
}

// requested tells the tracer.
func (n *renewal) requested(r *quorum.Round, c *member.Call) {
	if n.k.c.trace.request == nil {
		return
	}
	var lock LockName // of several: none
	if len(n.items) == 1 {
		lock = n.items[0].l.hold.lock()
	}
	n.k.c.requested(n.ctx, lock, r, c)
}

// book counts one member's word for the leases from first on, and acts where that decides: a
// majority of ours renews a lease, a majority of refusals ends it at once. Silence is neither; the
// validity ends it in time. All of a script at once: with thousands of leases, what is done for
// each is what they cost.
func (n *renewal) book(i int, gen uint64, first int, words []member.Reply) {
	var won, lost uint64 // by item; perCall of them
	n.mu.Lock()
	for j := range words {
		switch n.items[first+j].Book(i, words[j].Int > 0) {
		case quorum.Won:
			won |= 1 << (first + j)
		case quorum.Lost:
			lost |= 1 << (first + j)
		}
	}
	n.mu.Unlock()
	if won|lost != 0 {
		n.k.c.dark.set(time.Time{}) // a majority has decided: see dark
	}

	var end time.Time
	ttl := time.Duration(-1)
	for j := range words {
		it := &n.items[first+j]
		if it.TTL() != ttl {
			ttl = it.TTL()
			end = n.end(ttl)
		}
		it.l.hold.mu.Lock()
		it.l.hold.b.Renewed(i, gen, words[j].Int > 0, end)
		it.l.hold.mu.Unlock()
	}
	if won|lost == 0 {
		return
	}
	now, trace := time.Now(), n.k.c.trace.renew
	var renewed uint64
	for j := range among(won) {
		it := &n.items[j]
		ok := it.l.renewed(&it.Count, n.sent, n.manual, now)
		if ok {
			renewed |= 1 << j
			if tell := it.l.hold.terms.kind.renewed; tell != nil {
				tell(it.l)
			}
		}
		if trace != nil {
			trace.Renewed(it.l.renewal(ok, clock.Until(it.l.ValidUntil(), now)))
		}
	}
	var next time.Time
	n.k.mu.Lock()
	for j := range among(renewed) {
		next = n.k.putLocked(n.items[j].l, now, next)
	}
	n.k.nudgeLocked(next, now)
	n.k.mu.Unlock()
	for j := range among(lost) {
		if trace != nil {
			trace.Renewed(n.items[j].l.renewal(false, 0))
		}
		n.lose(n.items[j].l)
	}
	n.mu.Lock()
	for j := range among(won | lost) {
		n.items[j].Done = true
	}
	if n.trace != nil {
		n.countLocked(renewed, lost, won|lost)
	}
	n.mu.Unlock()
}

// among ranges over the bits that are set.
func among(bitset uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; bitset != 0; bitset &= bitset - 1 {
			if !yield(bits.TrailingZeros64(bitset)) {
				return
			}
		}
	}
}

// end is until when a member that has a lease keeps it, by its answer to this renewal.
func (n *renewal) end(ttl time.Duration) time.Time {
	return n.sent.Add(clock.Validity(ttl, n.k.c.cfg.Drift))
}

// settle does what was decided of the first lease. Members are heard on goroutines of their own:
// the one that booked the deciding word may not have come to it when the round, by the others'
// words, has ended.
func (n *renewal) settle() {
	n.mu.Lock()
	it := n.items[0]
	n.mu.Unlock()
	switch v := it.Verdict(); {
	case v == quorum.Undecided, it.Done:
	case v == quorum.Lost:
		n.lose(it.l)
	default:
		if it.l.renewed(&it.Count, n.sent, n.manual, time.Now()) {
			n.k.update(it.l)
		}
	}
}

// lose ends a lease that a majority do not have. One that was to be adopted was nobody's here: who asked for it is told,
// and nobody else.
func (n *renewal) lose(l *Lease) {
	if !n.adopt {
		l.lose(LostRefused)
		return
	}
	if _, owed := l.over(LostRefused); owed.release != nil {
		owed.release.release(true).Free()
	}
}

// rejoin gives the lease back to a member that does not have it: one that forgot it, or was not
// reached before. Only while it is held and valid.
func (n *renewal) rejoin(j, i int) {
	l, ttl := n.items[j].l, n.items[j].TTL()
	if !n.k.c.alive.enter() {
		return
	}
	defer n.k.c.alive.leave() // not before what overtaken makes of it is submitted
	to := quorum.Set(0).With(i)
	h := l.hold
	now := time.Now()
	if !l.alive(now) || !h.takes(1) {
		return
	}
	if n.trace != nil {
		n.mu.Lock()
		n.trace.left++
		n.mu.Unlock()
	}
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	cmd := n.k.c.buffer()
	h.adoptFirst(cmd, to, ttl, now)
	wire := h.having().Wishing(ttl)
	command := wire.Rejoin(cmd, h.owner, ttl, int64(l.token))
	n.k.c.rounds.Start(n.k.c.members, &quorum.Question{
		Op: opRejoin, Sent: now, To: to, Need: 1, Judge: rejoinJudge{n, j},
		Command: command, Delivery: member.Delivery{Late: true, Ended: &h.ended},
	}).Free()
	n.k.c.buffers.Put(cmd)
	h.overtaken(i) // the lease may have ended since it was found alive
}

type rejoinJudge struct {
	n *renewal
	j int
}

// Judge counts a member that took the lease back as a vote of the renewal: it did so after the
// renewal was sent.
func (r rejoinJudge) Judge(round *quorum.Round, c *member.Call) quorum.Vote {
	if r.n.k.c.trace.request != nil {
		r.n.k.c.requested(r.n.ctx, r.n.items[r.j].l.hold.lock(), round, c)
	}
	took := c.Outcome == member.Answered && c.Reply.Int > 0
	r.n.items[r.j].l.hold.rejoined(round, c)
	yes := took && c.State.Gen == r.n.k.c.state(c.Index).Gen
	if yes {
		r.n.book(c.Index, c.State.Gen, r.j, []member.Reply{{Int: 1}})
	}
	r.n.heard(false)
	return wait.VoteOf(c.Outcome, yes)
}
