package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/kinds/election"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Leader is who leads an election, as the members say.
type Leader struct {
	Value []byte // what the leader has proclaimed; not nil unless None
	Token uint64 // of its lease: its term
	None  bool   // nobody leads
}

// Election chooses one leader among the processes that campaign. It is the Mutex of its name, with a
// value beside the vote: who leads has the lock, and tells others a value, such as its address. So
// Inspect and ForceUnlock see it, and a Mutex of that name excludes leaders. An Election holds no
// state of its own, is safe for concurrent use, and is cheap to make.
//
// A leader is a *Lease. Its Token is the term: greater than that of every earlier leader. Its
// Context ends before another can lead. Give the token to the storages that the leader writes to.
// Lease.Unlock resigns: the members tell the observers, and give the lock to the next candidate.
type Election struct{ lock Mutex }

// maxValue is how many bytes a value of Election.Campaign and Election.Proclaim may have.
const maxValue = 4096

// shortestTerm is the least time from the begin of one term of Run to that of the next. So a function
// that returns at once does not keep the members busy.
const shortestTerm = time.Second

// electionTTL is the length of a leader's lease if no option says another: so long after its crash
// the next one leads.
const electionTTL = 10 * time.Second

// What callers of an Election ask for. The first and the last are questions of a round, too.
const (
	opProclaim = "proclaim"
	opCampaign = "campaign"
	opResign   = "resign"
	opElection = "run election"
	opLeader   = "leader"
	opObserve  = "observe"
)

// electionKind is the kind of Client.Election. It has the keys and scripts of a mutex.
var electionKind = kind{
	name: KindElection, lock: script.Exclusive, rules: &wait.Exclusive, width: 1, format: 2,
	extra: noExtra{}, hooks: electionHooks{},
}

var _ = register(&electionKind)

// electionHooks keep what a leader has proclaimed known, and have it resign.
type electionHooks struct{ plain }

func (electionHooks) renewed(l *lease) { l.proclaimAgain() }

func (electionHooks) ending(h *hold, to memberset.Set, late bool) { h.lastWord(to, late) }

// Election returns the election of a name. Names and options are those of Mutex, but for Fair and
// As, with which every call returns ErrInput. Without options, the client renews the lease of a
// leader as with AutoRenew(10 s), or AutoRenew(Config.MaxTTL) if that is less. So another process
// leads 10 s after a leader has crashed, at the latest. A leader leads for Config.MaxHold at most;
// MaxHold(-1) has no limit. With Config.Interop, every call returns
// ErrInput.
func (c *Client) Election(name string, opts ...LockOption) *Election {
	short := AutoRenew(min(electionTTL, c.cfg.MaxTTL))
	return &Election{*c.mutex(&electionKind, name, append([]LockOption{short}, opts...))}
}

// check explains why a call cannot begin.
func (e *Election) check(ctx context.Context, op string, value []byte) error {
	m := &e.lock
	if err := m.c.check(ctx, op, m.name, m.terms.ttl); err != nil {
		return err
	}
	if err := m.terms.check(&m.c.cfg); err != nil {
		return badInput(op, "%v", err)
	}
	if m.terms.as != "" {
		return badInput(op, "an election has no option As: a leader is not elected again")
	}
	if len(value) > maxValue {
		return badInput(op, "the value has %d bytes, but at most %d are allowed", len(value), maxValue)
	}
	return nil
}

// Campaign waits until this process leads, as Mutex.Lock waits for the lock. Then it proclaims the
// value, of at most 4096 bytes, and returns when a majority of the members have recorded it. If
// too few do so within Config.MemberTimeout, Campaign returns the lease all the same, and the log
// says so: the client repeats the value with each renewal.
//
// ctx bounds this call and never the lease. If ctx ends before the value is recorded, Campaign
// resigns and returns the error. After an error this process does not lead. Errors are those of
// Mutex.Lock, and:
//
//   - ErrNoQuorum, wrapped with ctx's error, if ctx ended while the value was being recorded.
//   - A *LostError if the lease was lost meanwhile.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Lease, error) {
	if err := e.check(ctx, opCampaign, value); err != nil {
		return nil, err
	}
	c := e.lock.c
	l, err := e.lock.acquire(ctx, opCampaign, false)
	if err != nil {
		return nil, err
	}
	err = l.say(ctx, opCampaign, speakersOf.of(c).of(l.lease), value)
	switch {
	case l.Err() != nil:
		return nil, l.notHeld(opCampaign)
	case ctx.Err() != nil && err != nil:
		_ = l.Unlock(ctx)
		return nil, err
	case err != nil:
		c.log.Warn("too few members have recorded what the leader proclaims", "key", logged(l.key), "token", l.token, "err", err)
	}
	return l, nil
}

// Proclaim replaces the value of a leader: l is its lease, from Campaign or from Adopt. It returns
// when a majority of the members have recorded the value. The client repeats it with each renewal,
// whatever Proclaim returned. A lease of a fixed TTL is not renewed, so there nobody repeats it. An
// adopted lease keeps the value for a while only: proclaim it again.
//
// Errors:
//   - ErrNotHeld or a *LostError if the lease has ended.
//   - ErrNoQuorum if too few members have recorded the value, wrapped with ctx's error if that ended
//     first.
//   - ErrInput if the value is too long, or l is not a lease of this election.
func (e *Election) Proclaim(ctx context.Context, l *Lease, value []byte) error {
	if err := e.check(ctx, opProclaim, value); err != nil {
		return err
	}
	if err := e.leases(opProclaim, l); err != nil {
		return err
	}
	if l.Err() != nil {
		return l.notHeld(opProclaim)
	}
	err := l.say(ctx, opProclaim, speakersOf.of(l.c).of(l.lease), value)
	if l.Err() != nil {
		return l.notHeld(opProclaim)
	}
	return err
}

// leases explains why l is not a lease of the election.
func (e *Election) leases(op string, l *Lease) error {
	switch {
	case l == nil:
		return badInput(op, "nil lease")
	case l.c != e.lock.c || l.key != e.lock.name || l.hold.terms.kind != &electionKind:
		return badInput(op, "the lease is not one of this election: pass what Campaign returned")
	}
	return nil
}

// Run campaigns, and runs fn while this process leads. When fn returns, or when the lease is lost
// and fn has returned, Run campaigns again, until ctx ends. The context of fn ends with the lease
// and with ctx, so fn must stop then. Give lease.Token to the storages that fn writes to.
//
// Run leads at most once a second. If a term was shorter, Run waits for the rest of the second
// before it campaigns again. Meanwhile another candidate leads.
//
// Run waits for fn, however long it takes after its context has ended. If several goroutines call
// Run for one name of one client, they take turns: two fn of one client never run at once.
//
// If no majority of the members can be asked, Run tries again. It returns:
//
//   - The error of fn, if fn returned one while the lease was held.
//   - ctx's error, joined with that of fn if it is another one, if ctx has ended.
//   - ErrForeignKey, ErrTokensExhausted, ErrNested, ErrClosed, ErrInput.
func (e *Election) Run(ctx context.Context, value []byte, fn func(ctx context.Context, lease *Lease) error) error {
	if fn == nil {
		return badInput(opElection, "nil function")
	}
	if err := e.check(ctx, opElection, value); err != nil {
		return err
	}
	w := e.lock.want(opElection, false)
	if err := e.lock.c.nested(ctx, &w); err != nil {
		return err
	}
	for {
		led, began, err := e.term(ctx, value, fn)
		switch {
		case ctx.Err() != nil && !led && errors.Is(err, ctx.Err()):
			return err
		case ctx.Err() != nil:
			return also(&keyError{op: opElection, key: e.lock.name, err: ctx.Err()}, err)
		case err == nil:
			e.lock.c.pause(ctx, shortestTerm-clock.Elapsed(began, time.Now()))
		case led || e.lock.c.isClosed() || !passes(err):
			return err
		default:
			e.lock.c.rest(ctx)
		}
	}
}

// passes reports whether a campaign may succeed later that has failed like this.
func passes(err error) bool {
	for _, kind := range []error{ErrNoQuorum, ErrHeld, ErrQuarantined, ErrTooSlow, ErrLost} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// term is one turn of Run. led: this process has led since began, and err is that of fn, unless the
// lease was lost.
func (e *Election) term(ctx context.Context, value []byte, fn func(ctx context.Context, lease *Lease) error) (led bool, began time.Time, err error) {
	c, line := e.lock.c, ownNames+"run:"+e.lock.name // no lock has this name
	turn, _, err := sitesOf.of(c).enter(ctx, line, 1, c.closed, nil)
	if err != nil {
		return false, began, &keyError{op: opElection, key: e.lock.name, err: err}
	}
	defer sitesOf.of(c).leave(line, turn)
	l, err := e.Campaign(ctx, value)
	if err != nil {
		return false, began, err
	}
	began = time.Now()
	lost := false
	_ = during(ctx, l, func(ctx context.Context, l *Lease) error { // what the release says is the tracer's
		err = fn(ctx, l)
		lost = errors.Is(l.Err(), ErrLost)
		return nil
	})
	if lost && ctx.Err() == nil {
		err = nil
	}
	return true, began, err
}

// Leader asks every member once who leads. The answer is the owner that a majority of the members
// name and that has proclaimed a value. It led at some moment of the call, or its lease had just
// ended. So the answer is a hint: pass the token to whom you ask.
//
// Leader returns as soon as a majority agree. It waits at most Config.MemberTimeout for members that
// do not answer. If nobody leads, it returns a Leader that is None: the lock is free, or its holder has
// proclaimed nothing. Errors:
//
//   - ErrNoQuorum if too few members answered to tell.
//   - ErrClosed, ErrInput.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.check(ctx, opLeader, nil); err != nil {
		return Leader{}, err
	}
	c := e.lock.c
	p := &poll{e: e, ctx: ctx, wakeup: make(chan struct{}, 1), State: election.New(len(c.members), c.need), open: len(c.members)}
	wire := e.lock.terms.kind.of(e.lock.name, &c.cfg, &e.lock.terms)
	r := c.round()
	r.Question = quorum.Question{
		Op: opObserve, Sent: time.Now(), To: memberset.All(len(c.members)), Need: len(c.members), Judge: p, Command: wire.Observe(&r.Buf, "", 0),
	}
	defer r.Start().Free()
	timeout := time.NewTimer(c.cfg.MemberTimeout)
	defer timeout.Stop()
	for {
		leader, found, done := p.count()
		if found {
			return leader, nil
		}
		if done {
			break
		}
		select {
		case <-p.wakeup:
			continue
		case <-timeout.C:
		case <-ctx.Done():
		case <-c.closed:
			return Leader{}, &keyError{op: opLeader, key: e.lock.name, err: ErrClosed}
		}
		break
	}
	p.mu.Lock()
	vacant := p.Vacant(time.Now())
	p.mu.Unlock()
	if vacant {
		return Leader{None: true}, nil
	}
	why := &QuorumError{
		Failure: quorum.Failure{Op: opLeader, Key: e.lock.name, Need: c.need, Votes: r.Votes(c.members)}, kind: ErrNoQuorum, cause: ctx.Err(),
	}
	c.waited(&why.Failure, quorum.Undecided, ctx.Err())
	return Leader{}, c.orClosed(opLeader, e.lock.name, why)
}

// poll hears one question to all members.
type poll struct {
	e      *Election
	ctx    context.Context // of the caller, for the tracer
	wakeup chan struct{}   // capacity 1: a member has answered

	mu sync.Mutex // guards the fields below
	election.State
	open int // members that are still to answer
}

// count looks at what was heard so far. done: what others answer changes nothing, or nobody else will.
func (p *poll) count() (l Leader, found, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	t, found := p.Leader(now)
	return Leader(t), found, p.open == 0 || p.Decided(now)
}

// Judge implements quorum.Judge.
func (p *poll) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	said, ok := p.e.readAnswer(p.ctx, r, c)
	p.mu.Lock()
	if p.open--; ok {
		p.Heard(c.Index, said, r.Sent, c.At)
	}
	p.mu.Unlock()
	signal(p.wakeup)
	return wait.VoteOf(c.Outcome, ok && said.Owner != "")
}

// readAnswer reads the answer to Observe, and tells the tracer. ok is false if the member has not
// answered, or does not vote.
func (e *Election) readAnswer(ctx context.Context, r *quorum.Round, c *member.Call) (s script.ElectionAnswer, ok bool) {
	m := &e.lock
	m.c.requested(ctx, LockName{Kind: m.terms.kind.name, Key: m.name}, r, c)
	if c.Outcome != member.Answered {
		return s, false
	}
	if st := m.c.briefOf(c.Index, c.Slot); !st.Votes || st.Gen != c.State.Gen {
		return s, false
	}
	return script.ReadElection(&c.Reply)
}

// speech is what a leader has proclaimed.
type speech struct {
	token int64

	mu      sync.Mutex // guards the fields below; never held around Submit
	adopted bool       // members may have words of a client before this one, with the same sequences
	seq     int64      // of the value; 0: it has said nothing
	value   []byte
}

var speakersOf = keep[speakers]()

// speakers finds the words of the leaders of a client. A hold has them from its election until it is
// released, or handed off.
type speakers struct{ table[*hold, *speech] }

// of returns the words of a lease: new ones if it has said nothing here. If the lease has ended, nobody
// finds them.
func (s *speakers) of(l *lease) *speech {
	s.mu.Lock()
	w, had := s.m[l.hold]
	if !had {
		w = &speech{token: int64(l.token), adopted: l.hold.n == 0}
		if s.m == nil {
			s.m = make(map[*hold]*speech)
		}
		s.m[l.hold] = w
	}
	s.mu.Unlock()
	switch {
	case had:
	case l.err() != nil:
		s.take(l.hold) // perhaps its last word was said before
	default:
		context.AfterFunc(l.own.Context(), func() {
			if errors.Is(l.err(), ErrHandedOff) { // whatever else ends it says a last word
				s.take(l.hold)
			}
		})
	}
	return w
}

// say proclaims a value at all members, and waits until a majority have recorded it.
func (l *lease) say(ctx context.Context, op string, w *speech, value []byte) error {
	value = append([]byte{}, value...)
	for tries := 0; ; tries++ {
		w.mu.Lock()
		w.seq++
		seq := w.seq
		w.value = value
		w.mu.Unlock()
		heard := &recorded{h: l.hold}
		r := l.hold.proclaim(w.token, seq, value, false, heard)
		v, cause := r.Wait(ctx, r.Sent, l.c.cfg.MemberTimeout)
		votes := r.Votes(l.c.members)
		r.Free()
		switch {
		case w.overtaken(heard.most.Load()) && tries < mostSaid:
			continue
		case v == quorum.Won:
			return nil
		}
		e := &QuorumError{Failure: quorum.Failure{Op: op, Key: l.key, Need: l.c.need, Votes: votes}, kind: ErrNoQuorum, cause: cause}
		l.c.waited(&e.Failure, v, cause)
		return e
	}
}

const (
	// mostSaid is how often say begins again. Once is enough, unless a lease was adopted twice.
	mostSaid = 3
	// leap is how far the words of an adopted lease stay from those before it. It is more than a
	// member can have missed.
	leap = 1 << 20
)

// overtaken reports whether members may have a word of the owner from before the lease was adopted
// that is as late as any that was said here, or later. Then the next word must come after that one.
// A member replies the sequence that it has. So if that is the one of the first word, nobody can tell
// which of the two words the member has.
func (w *speech) overtaken(most int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if most == 0 || most == script.LastWord || most < w.seq || most == w.seq && !w.adopted {
		return false
	}
	w.seq, w.adopted = most+leap, false
	return true
}

// proclaim submits a value to all members. late says that the goroutine must not write to a socket.
// The caller frees the round.
func (h *hold) proclaim(token, seq int64, value []byte, late bool, j quorum.Judge) *quorum.Round {
	r := h.c.round()
	r.Question = quorum.Question{
		Op: opProclaim, Sent: time.Now(), To: memberset.All(len(h.c.members)), Need: h.c.need, Judge: j,
		Command:  h.wire.Proclaim(&r.Buf, h.owner, token, seq, 2*h.c.cfg.MaxTTL, value),
		Delivery: member.Delivery{Late: late, Ended: &h.ended},
	}
	return r.Start()
}

// recorded hears the answers to a proclamation.
type recorded struct {
	h    *hold
	most atomic.Int64 // the greatest sequence that a member has
}

// Judge implements quorum.Judge.
func (j *recorded) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	n := int64(0)
	if c.Outcome == member.Answered {
		n = c.Reply.Int
	}
	for most := j.most.Load(); n > most && !j.most.CompareAndSwap(most, n); most = j.most.Load() {
	}
	j.h.c.requested(j.h.traced.of(r.Op), j.h.lock(), r, c)
	return wait.VoteOf(c.Outcome, n > 0)
}

// proclaimAgain repeats what a leader has proclaimed: a majority has just renewed its lease. Members
// that have forgotten it, or have joined since, hear of it so. It waits for nobody.
func (l *lease) proclaimAgain() {
	w := speakersOf.of(l.c).get(l.hold)
	if w == nil {
		return // adopted, and nothing said since
	}
	w.mu.Lock()
	seq, value := w.seq, w.value
	w.mu.Unlock()
	if seq > 0 {
		l.hold.proclaim(w.token, seq, value, true, &recorded{h: l.hold}).Free()
	}
}

// lastWord resigns at members to which the release of the hold is about to be submitted. A session
// keeps the order: behind the release the vote would be another's, and nobody would be told.
func (h *hold) lastWord(to memberset.Set, late bool) {
	w := speakersOf.of(h.c).take(h)
	switch {
	case w == nil && h.n != 0:
		return // it was never elected
	case w == nil:
		w = &speech{} // adopted: a client before this one may have proclaimed
	}
	r := h.c.round()
	r.Question = quorum.Question{
		Op: opResign, Sent: time.Now(), To: to, Need: h.c.need, Judge: &recorded{h: h},
		Command: h.wire.Resign(&r.Buf, h.owner, w.token, h.c.cfg.Entry), Delivery: member.Delivery{Late: late},
	}
	r.Start().Free()
}
