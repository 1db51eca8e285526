package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// ackPatience is how long a server waits for its replicas before it answers what is behind a WAIT.
const ackPatience = 100 * time.Millisecond

// New starts to connect to the server in the background and returns at once. An error lists every
// mistake in the Config. The caller must close the Node.
func New(c Config) (*Node, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	n := &Node{scripts: newScripts(&c), suspect: make(chan struct{}, 1), seek: make(chan struct{}, 1)}
	n.to(c, cmp.Or(c.Addr, c.Sentinels.nameOrNone()))
	n.recheck, n.alter, n.listening = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	n.done, n.warnings = make(chan struct{}), make(map[string]bool)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.accepting, n.refuse = context.WithCancel(n.ctx)
	n.errOverflow = fmt.Errorf("%s: %w", n.name, member.ErrOverflow)
	n.errClosed = fmt.Errorf("%s: %w", n.name, member.ErrClosed)
	n.errEnded = fmt.Errorf("%s: %w", n.name, ability.ErrEnded)
	n.owed = newOwed(c.PingInterval/16, c.PingInterval, func() { n.dropped.Store(true) })
	if c.MinReplicasAck > 0 {
		n.waits = resp.Command("WAIT", strconv.Itoa(c.MinReplicasAck), strconv.FormatInt(ackPatience.Milliseconds(), 10))
	}
	first := &published{state: member.State{Brief: member.Brief{Gen: 1}, Acks: n.waits != nil}}
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

// Listen subscribes channel, now and after every reconnect, and reports to l. A second call panics. After Close, Listen does
// nothing.
func (n *Node) Listen(channel string, l member.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		panic("node: Listen called twice")
	}
	if n.isClosing() {
		return
	}
	n.listener, n.channel = l, channel
	close(n.listening)
}

// Close refuses new calls and waits until the server has answered the calls in flight and the owed
// releases. Then it ends the connections and all goroutines; the server has ended the subscriptions
// by then.
//
// If the server is down and releases are owed, Close tries once more to connect. If the server is
// there and cannot serve, or the connection breaks, Close tries again. If ctx ends first, the calls
// in flight are Unknown and the error wraps the cause of ctx. Close may be called again and
// concurrently. A Sink or a Listener must not call it.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(n.stop)
	var err error
	select {
	case <-n.done:
	case <-ctx.Done():
		select {
		case <-n.done:
		default:
			err = fmt.Errorf("%s: closed before everything was answered: %w", n.name, context.Cause(ctx))
			n.cancel()
			<-n.done
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
	serving := n.serving
	n.mu.Unlock()
	if !serving && !n.owed.any(time.Now()) {
		n.cancel() // nothing to wait for, not even for a dial
	}
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
			n.opened(s)
			up := time.Now()
			err = n.serve(s)
			s.end(err)
			n.mu.Lock()
			n.serving = false
			n.mu.Unlock()
			if proved(up, s.heard, time.Now(), err, n.cfg.backoffMin) {
				failures = 0
			}
		}
		n.change(func(p *published) { n.fall(p, err) })
		n.seat.Fell()
		if !n.isClosing() {
			wait := n.pause(failures, err)
			n.logFailure("member is down", failures, err, wait)
			failures++
			select {
			case <-time.After(wait):
			case <-n.accepting.Done():
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

// tellDropped warns of releases that were dropped. Whoever released must not wait for the Logger:
// it ends leases.
func (n *Node) tellDropped() {
	if n.dropped.CompareAndSwap(true, false) {
		n.cfg.Logger.Warn("too many releases are owed, the oldest are dropped: their keys last until their TTL", "member", n.name)
	}
}

// passes reports whether a server was reached that refused for a reason that passes.
func passes(err error) bool {
	var refused *member.ReplyError
	return errors.As(err, &refused) && ability.Passes(refused.Kind)
}

// rest is the pause between two attempts while the node is closing. It reports whether there is
// time for another.
func (n *Node) rest(err error) bool {
	select {
	case <-time.After(n.pause(0, err)):
		return true
	case <-n.ctx.Done():
		return false
	}
}

// serve watches over a session that is up, with one timer: it sends the pings and the releases that
// become owed, and ends the session when it stalls. It returns why the session is over; the caller
// ends it.
func (n *Node) serve(s *session) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	vigil := n.vigil(s.link, 0)
	next := func(wait time.Duration) {
		now := time.Now()
		wait = s.sleep(now, wait)
		vigil.plan(now, wait)
		timer.Reset(wait)
	}
	watch := n.seat.Watch(s, s.process)
	defer watch.Stop()
	seeker := newSeeker(s)
	defer seeker.stop()
	renewal := newRenewal(s)
	defer renewal.stop()
	closing, listening := n.accepting.Done(), n.listening
	drain := &drainer{empty: make(chan struct{}, 1)}
	unpaid := false            // closing, nothing is in flight, but debts must wait for a moment
	var again <-chan time.Time // the inbox was refused, and is asked for once more
	refusals := 0
	for {
		select {
		case <-s.broken:
			return s.cause()
		case <-s.woken:
			next(min(n.tick(s, vigil), watch.Tick(time.Now())))
		case <-n.owed.kick:
			next(min(n.tick(s, vigil), watch.Tick(time.Now())))
		case <-timer.C:
			if err := n.attune(s); err != nil { // a sharded channel may have been refused
				return err
			}
			s.shrink()
			wait := watch.Tick(time.Now()) // first: a look is an answer to come, and spares the PING
			next(min(n.tick(s, vigil), wait))
			if unpaid {
				unpaid = false
				drain.ask(s)
			}
		case <-listening:
			listening = nil // once
			if err := n.attune(s); err != nil {
				return err
			}
		case <-n.recheck:
			if err := n.attune(s); err != nil {
				return err
			}
		case <-n.alter:
			if err := n.attune(s); err != nil {
				return err
			}
		case why := <-s.refusal:
			wait := n.pause(refusals, why)
			n.logFailure("inbox is closed", refusals, why, wait)
			refusals++
			again = time.After(wait)
		case <-again:
			again, s.tuned.refused = nil, true
			if err := n.attune(s); err != nil {
				return err
			}
		case <-n.suspect:
			if err := watch.Suspected(); err != nil {
				return err
			}
			next(0)
		case <-watch.Results:
			if err := watch.Take(); err != nil {
				return err
			}
			wait := watch.Tick(time.Now())
			next(min(n.tick(s, vigil), wait))
		case <-renewal.due:
			renewal.ask()
		case c := <-renewal.asked:
			renewal.use(c)
		case <-renewal.done:
			renewal.took()
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
				next(n.tick(s, vigil))
			default:
				watch.Stop() // a claim that it has is given up on this connection
				n.farewell(s)
				return n.errClosed
			}
		case <-n.ctx.Done():
			return errors.New("closed before it answered")
		}
	}
}

// drainer finds out when everything in line is done: a PING behind it is answered last. What
// entered behind the PING, a repaired call or a debt, takes another one.
type drainer struct {
	call  member.Call
	empty chan struct{}
}

func (d *drainer) ask(s *session) {
	d.call = *ownCall(ping, d)
	_ = s.submit(own, &d.call) // an error means that it is broken, and serve ends by that
}

func (d *drainer) Done(*member.Call) {
	wake(d.empty)
}

// tick does what is due and returns the time until it must be called again at the latest.
func (n *Node) tick(s *session, v *vigil) time.Duration {
	n.tellDropped()
	wait := min(n.cfg.PingInterval, n.cfg.StallTimeout)
	more := n.pay(s, false)
	if more > 0 {
		wait = min(wait, more)
	}
	now := time.Now()
	since, busy := s.waiting()
	if !busy && n.seat.AtRest() { // the guard's next look is the PING
		return cmp.Or(more, time.Hour)
	}
	if busy {
		stalled, left := v.stalled(since, now)
		if stalled {
			s.fail(member.ErrStalled, fmt.Errorf("no answer for %v", v.limit))
			return wait
		}
		return min(wait, left)
	}
	silence := now.Sub(since)
	switch {
	case silence >= n.cfg.PingInterval:
		_ = s.submit(own, ownCall(ping, discard{}))
	default:
		wait = min(wait, n.cfg.PingInterval-silence)
	}
	return wait
}
