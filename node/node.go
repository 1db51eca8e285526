package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/guard"
)

var _ member.Member = (*Node)(nil)

// Node is one Redis server as a voter. It connects in the background, from New on, and connects
// again whenever the connection breaks. Safe for concurrent use.
//
// While it is down, Submit costs one atomic load: the call is NotSent with an error that was made
// when the connection broke.
type Node struct {
	cfg     Config
	name    string
	tls     *tls.Config
	scripts map[string]string // SHA1 in hex to source
	loads   [][]byte          // SCRIPT LOAD of each
	waits   []byte            // WAIT, where votes must be acknowledged by replicas
	owed    *owed

	errOverflow, errClosed, errEnded error // made once, with the name

	accepting context.Context // ends when Close begins
	refuse    context.CancelFunc
	ctx       context.Context // ends when Close has nothing to wait for, or no patience
	cancel    context.CancelFunc
	closeOnce sync.Once
	done      chan struct{} // the supervisor has ended
	recheck   chan struct{} // capacity 1: the inbox compares its server with ours again
	alter     chan struct{} // capacity 1: there is something in altered

	published atomic.Pointer[published]
	seat      *guard.Seat
	suspect   chan struct{}  // capacity 1: a reply says that the member may not be what it was
	seek      chan struct{}  // capacity 1: Sentinels may name another master
	sentinels sync.WaitGroup // the goroutines that listen to them; the supervisor waits for it

	mu         sync.Mutex // guards what follows; held neither during I/O nor around a Listener
	listener   member.Listener
	inboxDone  chan struct{} // not nil after Listen
	inbox      *inbox        // whose subscription is confirmed
	deaf       error         // why there was none, the last time that one was tried
	changes    []member.State
	delivering bool
	wanted     map[string]int      // channels beside the inbox, and how often they were asked for
	altered    map[string]struct{} // those of them that the inbox has not been told of

	dropped atomic.Bool // releases that were owed, and the Logger is to be told of it

	// the supervisor's
	before   predecessor
	warnings map[string]bool
}

// published is everything that Submit and State look at, replaced as a whole.
type published struct {
	state   member.State
	session *session // nil unless state.Up
	err     error    // what a call gets while session is nil
	tag     string   // appended to Tagged calls: the guard's, and where the inbox is sharded
	barred  error    // not nil while the member may not vote: what a Tagged call gets then

	standing guard.Standing
}

// ackPatience is how long a server waits for its replicas before it answers what is behind a WAIT.
const ackPatience = 100 * time.Millisecond

var errConnecting = member.ErrConnecting

// New starts to connect to the server in the background and returns at once. An error lists every
// mistake in the Config. The Node must be closed.
func New(c Config) (*Node, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: c, name: cmp.Or(c.Addr, c.Sentinels.nameOrNone()),
		done: make(chan struct{}), recheck: make(chan struct{}, 1), alter: make(chan struct{}, 1), suspect: make(chan struct{}, 1), seek: make(chan struct{}, 1),
		scripts: make(map[string]string, len(c.Scripts)), warnings: make(map[string]bool),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.accepting, n.refuse = context.WithCancel(n.ctx)
	n.errOverflow = fmt.Errorf("%s: %w", n.name, member.ErrOverflow)
	n.errClosed = fmt.Errorf("%s: %w", n.name, member.ErrClosed)
	n.errEnded = fmt.Errorf("%s: %w", n.name, member.ErrEnded)
	n.owed = newOwed(c.PingInterval/16, c.PingInterval, func() { n.dropped.Store(true) })
	for _, source := range c.Scripts {
		n.scripts[scriptSHA(source)] = source
		n.loads = append(n.loads, resp.Command("SCRIPT", "LOAD", source))
	}
	if c.MinReplicasAck > 0 {
		n.waits = resp.Command("WAIT", strconv.Itoa(c.MinReplicasAck), strconv.FormatInt(ackPatience.Milliseconds(), 10))
	}
	if c.TLS != nil {
		n.tls = tlsConfig(c)
	}
	first := &published{state: member.State{Gen: 1, Acks: n.waits != nil}}
	n.fall(first, errConnecting)
	n.published.Store(first)
	n.seat = guard.NewSeat(c.Guard, (*host)(n), guard.Terms{
		Ping: c.PingInterval, Patience: c.DialTimeout, Lag: c.FailoverLag, Logger: c.Logger,
		Shard: c.Shard, Replicated: c.Shard != nil || c.Sentinels != nil,
	})
	n.seat.Join() // from here on the guard looks at what is published
	if c.Sentinels != nil {
		for _, addr := range c.Sentinels.Addrs {
			n.sentinels.Go(func() { n.attend(addr) })
		}
	}
	go n.supervise()
	return n, nil
}

func tlsConfig(c Config) *tls.Config {
	t := c.TLS.Clone()
	if t.MinVersion == 0 {
		t.MinVersion = tls.VersionTLS12
	}
	if t.ServerName == "" && c.Network == "tcp" && c.Addr != "" {
		t.ServerName, _, _ = net.SplitHostPort(c.Addr)
	}
	return t
}

// Name is the address of the server, or the name of the master and its Sentinels.
func (n *Node) Name() string { return n.name }

// State costs one atomic load.
func (n *Node) State() member.State { return n.published.Load().state }

// WhyNot is what keeps the node from voting: what a call gets, member.ErrDown or member.ErrQuarantined with
// the rest. nil while it votes.
func (n *Node) WhyNot() error {
	p := n.published.Load()
	if p.session == nil {
		return p.err
	}
	return p.barred
}

// Submit queues c and returns. See member.Member and member.Call.
//
// The goroutine that calls it may write what is queued to the socket, while so little is unanswered
// that the socket's buffer takes it; unless c.Late.
func (n *Node) Submit(c *member.Call) {
	for {
		p := n.published.Load()
		if p.session == nil {
			c.State = p.state
			n.finish(c, member.NotSent, p.err)
			return
		}
		err := p.session.submit(c, false)
		if err == nil {
			return
		}
		if now := n.published.Load(); now.session != nil && now.session != p.session {
			continue // broke and was succeeded while we looked
		}
		c.State = p.state
		n.finish(c, member.NotSent, err)
		return
	}
}

// finish completes a call that has no reply but an error, and takes on the debt of a release that was
// not delivered. A call of ErrEnded or ErrClosed leaves none: the first is no release, the second has nobody left to
// pay.
// Nor does one with a Hop: what is owed then may have to go to another server.
func (n *Node) finish(c *member.Call, outcome member.Outcome, err error) {
	c.Outcome, c.Err = outcome, err
	if !c.OweUntil.IsZero() && c.Undelivered() && err != n.errEnded && err != n.errClosed && c.Hop == nil {
		n.owed.add(c)
	}
	c.Finish()
}

// Listen subscribes channel on a connection of its own, now and after every reconnect, and reports to
// l. Called once; a second call panics. It does nothing after Close.
func (n *Node) Listen(channel string, l member.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		panic("node: Listen called twice")
	}
	if n.isClosing() {
		return
	}
	n.listener, n.inboxDone = l, make(chan struct{})
	go n.listen(channel, l)
}

// Close refuses new calls, waits until those in flight are done and owed releases were answered, then
// ends the connections and all goroutines: the server has ended the subscriptions by then. Where the server is down
// and releases are owed, it tries once more to connect, and more often if the server is there and cannot serve, or the
// connection breaks. When ctx ends first, calls in flight are Unknown and the error wraps ctx's.
// Close may be called again, and concurrently; it must not be called from a Sink or a Listener.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(n.stop)
	n.mu.Lock()
	inboxDone := n.inboxDone
	n.mu.Unlock()
	var err error
	for _, done := range []chan struct{}{n.done, inboxDone} {
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
			select {
			case <-done:
			default:
				err = fmt.Errorf("%s: closed before everything was answered: %w", n.name, context.Cause(ctx))
				n.cancel()
				<-done
			}
		}
	}
	n.cancel()
	n.seat.Leave()
	return err
}

func (n *Node) stop() {
	n.mu.Lock()
	old := n.published.Load()
	if old.session != nil {
		old.session.refuse()
	}
	p := *old
	p.state.Up, p.state.Err, p.session, p.err = false, n.errClosed, nil, n.errClosed
	n.publishLocked(&p)
	n.refuse()
	n.mu.Unlock()
	if old.session == nil && !n.owed.any(time.Now()) {
		n.cancel() // nothing to wait for, not even for a dial
	}
}

// fall edits p to say that there is no connection, because of cause.
func (n *Node) fall(p *published, cause error) {
	reason := cause
	if b, ok := cause.(*broke); ok {
		reason = b.cause // what is refused from now on was not on that connection
	}
	p.state.Up, p.session = false, nil
	p.state.Err = fmt.Errorf("%s: %w", n.name, cause)
	p.err = fmt.Errorf("%s: %w: %w", n.name, member.ErrDown, reason)
}

// fell publishes that s has broken, if s was up.
func (n *Node) fell(s *session) {
	n.change(func(p *published) {
		if p.session == s {
			n.fall(p, s.cause())
		}
	})
}

// change edits a copy of what is published and publishes it, unless the node is closing: then what
// Close published is final. It is the one way for the state to change, and the hook for whatever
// decides on Gen, Votes and tag. edit runs under mu.
func (n *Node) change(edit func(p *published)) {
	n.mu.Lock()
	if !n.isClosing() {
		p := *n.published.Load()
		edit(&p)
		n.publishLocked(&p)
	}
	n.mu.Unlock()
	n.deliver()
}

func (n *Node) publishLocked(p *published) {
	v := n.seat.Verdict(p.standing, p.state.Up)
	p.state.Votes, p.state.Quarantine, p.barred, p.tag = v.Votes, v.Quarantine, v.Barred, v.Tag
	if in := n.inbox; in != nil && in.id == v.Tag && in.sharded.heard != "" {
		p.tag = in.id + "/" + in.sharded.heard
	}
	p.state.Inbox, p.state.Ear, p.state.Deaf = p.state.Up && n.inbox != nil && n.inbox.same(p), 0, nil
	switch {
	case p.state.Inbox:
		p.state.Ear = n.inbox.ear
	case p.state.Up && n.inbox == nil:
		p.state.Deaf = n.deaf
	}
	old := n.published.Load()
	if !p.state.Up && !old.state.Up && p.state.Err.Error() == old.state.Err.Error() {
		p.state.Err, p.err = old.state.Err, old.err // the same failure again is no change
	}
	n.published.Store(p)
	if p.state != old.state && n.listener != nil {
		n.changes = append(n.changes, p.state)
	}
}

// deliver reports changes to the listener, each once and in order. Only goroutines of the node call
// it; one of them delivers for all.
func (n *Node) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.delivering {
		return
	}
	n.delivering = true
	for len(n.changes) > 0 {
		st := n.changes[0]
		n.changes = n.changes[1:]
		n.mu.Unlock()
		n.listener.Changed(st)
		n.mu.Lock()
	}
	n.changes, n.delivering = nil, false
}

// supervise owns the command connection: it is the only goroutine that opens and ends sessions. It
// ends after Close.
func (n *Node) supervise() {
	defer close(n.done)
	defer n.sentinels.Wait()
	last := false
	for failures := 0; ; {
		n.tellDropped()
		s, err := n.connect()
		there := err == nil || passes(err)
		if err == nil {
			failures = 0
			err = n.serve(s)
			s.end(err)
		}
		n.change(func(p *published) { n.fall(p, err) })
		n.seat.Fell()
		if !n.isClosing() {
			wait := n.pause(failures, err)
			n.logFailure("member is down", failures, err, wait)
			failures++
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-n.accepting.Done():
				timer.Stop()
			}
		}
		if n.isClosing() {
			n.deliver()
			if n.ctx.Err() != nil || !n.owed.any(time.Now()) || last && (!there || !n.rest(err)) {
				return
			}
			last = true // once more, at once, for the owed releases; and again while the server is there
		}
	}
}

// tellDropped warns of releases that were dropped. Whoever released must not wait for the Logger: it ends leases.
func (n *Node) tellDropped() {
	if n.dropped.CompareAndSwap(true, false) {
		n.cfg.Logger.Warn("too many releases are owed, the oldest are dropped: their keys last until their TTL", "member", n.name)
	}
}

// passes reports whether a server was reached that refused for a reason that passes.
func passes(err error) bool {
	var refused *member.ReplyError
	return errors.As(err, &refused) && refused.Kind.Passes()
}

// rest is the pause between two attempts while the node is closing. It reports whether there is time for another.
func (n *Node) rest(err error) bool {
	timer := time.NewTimer(n.pause(0, err))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-n.ctx.Done():
		return false
	}
}

// logFailure warns of the first failure in a row and keeps the others for debugging.
func (n *Node) logFailure(what string, failures int, err error, wait time.Duration) {
	level := slog.LevelDebug
	if failures == 0 {
		level = slog.LevelWarn
	}
	n.cfg.Logger.Log(n.ctx, level, what, "member", n.name, "err", err, "retry_in", wait)
}

func (n *Node) isClosing() bool { return n.accepting.Err() != nil }

// serve watches over a session that is up, with one timer: it sends the pings and the releases that
// become owed, and ends the session when it stalls. It returns why the session is over; the caller
// ends it.
func (n *Node) serve(s *session) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watch := n.seat.Watch(s, s.process)
	defer watch.Stop()
	seeker := newSeeker(s)
	defer seeker.stop()
	closing := n.accepting.Done()
	drain := &drainer{empty: make(chan struct{}, 1)}
	unpaid := false // closing, nothing is in flight, but debts must wait for a moment
	for {
		select {
		case <-s.broken:
			return s.cause()
		case <-n.owed.kick:
			timer.Reset(min(n.tick(s), watch.Tick(time.Now())))
		case <-timer.C:
			timer.Reset(min(n.tick(s), watch.Tick(time.Now())))
			if unpaid {
				unpaid = false
				drain.ask(s)
			}
		case <-n.suspect:
			if err := watch.Suspected(); err != nil {
				return err
			}
			timer.Reset(0)
		case r := <-watch.Results:
			if err := watch.Take(r); err != nil {
				return err
			}
			timer.Reset(0)
		case <-n.seek:
			seeker.seek()
		case still := <-seeker.sought:
			if err := seeker.found(still); err != nil {
				return err
			}
		case <-closing:
			closing = nil // once
			n.deliver()
			drain.ask(s)
		case <-drain.empty:
			switch calls, _ := s.inFlight(); {
			case calls > 0:
				drain.ask(s)
			case n.owed.any(time.Now()):
				unpaid = true
				timer.Reset(n.tick(s))
			default:
				return n.errClosed
			}
		case <-n.ctx.Done():
			return errors.New("closed before it answered")
		}
	}
}

// drainer finds out when everything in line is done: a PING behind it is answered last. What entered
// behind the PING, a repaired call or a debt, takes another one.
type drainer struct {
	call  member.Call
	empty chan struct{}
}

func (d *drainer) ask(s *session) {
	d.call = *ownCall(ping, d)
	_ = s.submit(&d.call, true) // an error means that it is broken, and serve ends by that
}

func (d *drainer) Done(*member.Call) {
	select {
	case d.empty <- struct{}{}:
	default:
	}
}

var ping = resp.Command("PING")

// discard is the Sink of calls whose outcome does not matter.
type discard struct{}

func (discard) Done(*member.Call) {}

// tick does what is due and returns the time until it must be called again at the latest.
func (n *Node) tick(s *session) time.Duration {
	n.tellDropped()
	wait := min(n.cfg.PingInterval, n.cfg.StallTimeout)
	if more := n.pay(s, false); more > 0 {
		wait = min(wait, more)
	}
	now := time.Now()
	since, busy := s.waiting()
	silence := now.Sub(since)
	switch {
	case busy && silence >= n.cfg.StallTimeout:
		s.fail(member.ErrStalled, fmt.Errorf("no answer for %v", n.cfg.StallTimeout))
	case busy:
		wait = min(wait, n.cfg.StallTimeout-silence)
	case silence >= n.cfg.PingInterval:
		_ = s.submit(ownCall(ping, discard{}), true)
	default:
		wait = min(wait, n.cfg.PingInterval-silence)
	}
	return wait
}

// room is the pause before another look when the line is full and releases are owed.
const room = 20 * time.Millisecond

// pay submits the debts that are due, as many as half of the line takes: the other half is for calls from outside.
// all ignores how full the line is: for a new connection, on which debts come before anything else. It returns the
// time until more are due, 0 for none.
func (n *Node) pay(s *session, all bool) time.Duration {
	limit := math.MaxInt
	if !all {
		if n.owed.none() {
			return 0
		}
		if limit = n.places(s); limit <= 0 {
			return room
		}
	}
	debts, more := n.owed.due(time.Now(), limit, all)
	for i, d := range debts {
		if !all && n.places(s) <= 0 {
			n.owed.release(debts[i:])
			return room
		}
		if err := s.submit(&d.call, true); err != nil {
			n.owed.release(debts[i:])
			return more
		}
	}
	if len(debts) == limit {
		return room
	}
	return more
}

// places is how many debts the line takes now.
func (n *Node) places(s *session) int {
	calls, size := s.inFlight()
	if 2*size > int64(n.cfg.MaxBytes) {
		return 0
	}
	return n.cfg.MaxCalls/2 - calls + 1
}
