package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

var (
	_ ability.Grouped = (*Node)(nil)
	_ ability.Briefed = (*Node)(nil)
)

// Node is one Redis server as a voter. From New on it connects in the background, and connects
// again whenever the connection breaks. A Node is safe for concurrent use.
//
// While the Node is down, Submit costs one atomic load: the call is NotSent with an error that the
// Node made when the connection broke.
type Node struct {
	cfg     Config
	name    string
	tls     *tls.Config
	scripts scripts
	waits   []byte // WAIT, where votes must be acknowledged by replicas
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
	listening chan struct{} // closed by Listen

	published atomic.Pointer[published]
	seat      *guard.Seat
	suspect   chan struct{}  // capacity 1: a reply says that the member may not be what it was
	seek      chan struct{}  // capacity 1: Sentinels may name another master
	sentinels sync.WaitGroup // the goroutines that listen to them; the supervisor waits for it

	mu         sync.Mutex // guards what follows; held neither during I/O nor around a Listener
	listener   member.Listener
	channel    string // of the inbox
	inbox      *inbox // whose subscription is confirmed
	deaf       error  // why there was none, the last time that one was tried
	changes    []member.State
	delivering bool
	serving    bool                // a session was published, and not all of its calls are done
	wanted     map[string]int      // channels beside the inbox, and how often they were asked for
	altered    map[string]struct{} // those of them that the inbox has not been told of

	dropped atomic.Bool // releases that were owed, and the Logger is to be told of it

	// the supervisor's
	before   predecessor
	slow     int                // attempts in a row that were accepted and not answered in time
	stopEar  context.CancelFunc // of listen, while it runs
	ear      sync.WaitGroup
	apart    bool // a message was refused on the commands' connection
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

var errConnecting = member.ErrConnecting

// Name is the address of the server, or the name of the master and its Sentinels.
func (n *Node) Name() string { return n.name }

// Guarded implements ability.Guarded.
func (n *Node) Guarded() bool { return n.cfg.Guard != nil }

// State costs one atomic load.
func (n *Node) State() member.State { return n.published.Load().state }

// Brief implements ability.Briefed.
func (n *Node) Brief() member.Brief { return n.published.Load().state.Brief() }

// Waiting implements ability.Paced.
func (n *Node) Waiting(uint16) (since time.Time, ok bool) {
	if s := n.published.Load().session; s != nil {
		return s.waiting()
	}
	return time.Time{}, false
}

// WhyNot returns what keeps the node from voting, and nil while it votes. It is the error that a
// call gets: one that wraps member.ErrDown, member.ErrConnecting or member.ErrQuarantined.
func (n *Node) WhyNot() error {
	p := n.published.Load()
	if p.session == nil {
		return p.err
	}
	return p.barred
}

// Submit queues c and returns. See member.Member and member.Call.
//
// While little is unanswered, the goroutine that calls Submit may write the queue to the socket,
// because the socket's buffer takes it. If c.Late, another goroutine writes.
func (n *Node) Submit(c *member.Call) {
	for {
		p := n.published.Load()
		if p.session == nil {
			c.State = p.state.Brief()
			n.finish(c, member.NotSent, p.err)
			return
		}
		err := p.session.submit(c, false)
		if err == nil {
			return
		}
		if n.succeeded(p) {
			continue
		}
		c.State = p.state.Brief()
		n.finish(c, member.NotSent, err)
		return
	}
}

// SubmitGroup queues calls one behind the other, with none of others between: see ability.Grouped.
// All are queued, or none.
func (n *Node) SubmitGroup(calls []*member.Call) {
	for {
		p := n.published.Load()
		err := p.err
		if p.session != nil {
			if err = p.session.submitGroup(calls); err == nil {
				return
			}
			if n.succeeded(p) {
				continue
			}
		}
		for _, c := range calls {
			c.State = p.state.Brief()
			n.finish(c, member.NotSent, err)
		}
		return
	}
}

// succeeded reports whether the session of p has a successor, which is to be tried too.
func (n *Node) succeeded(p *published) bool {
	now := n.published.Load()
	return now.session != nil && now.session != p.session // broke while we looked
}

// finish completes a call that has no reply but an error, and takes on the debt of a release that
// was not delivered. A call of ErrEnded or ErrClosed leaves none: the first is no release, the
// second has nobody left to pay. Nor does one with a Hop: what is owed then may have to go to
// another server.
func (n *Node) finish(c *member.Call, outcome member.Outcome, err error) {
	c.Outcome, c.Err = outcome, err
	if !c.OweUntil.IsZero() && c.Undelivered() && err != n.errEnded && err != n.errClosed && c.Hop == nil {
		n.owed.add(c)
	}
	c.Finish()
}

// fall edits p to say that there is no connection, because of cause.
func (n *Node) fall(p *published, cause error) {
	reason := cause
	if b, ok := cause.(*broke); ok {
		reason = b.cause // what is refused from now on was not on that connection
	}
	p.state.Up, p.session = false, nil
	if n.inbox != nil && n.inbox.session != nil {
		n.inbox = nil // ended with the connection
	}
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

// logFailure warns of the first failure in a row and keeps the others for debugging.
func (n *Node) logFailure(what string, failures int, err error, wait time.Duration) {
	level := slog.LevelDebug
	if failures == 0 {
		level = slog.LevelWarn
	}
	n.cfg.Logger.Log(n.ctx, level, what, "member", n.name, "err", err, "retry_in", wait)
}

func (n *Node) isClosing() bool { return n.accepting.Err() != nil }

// pause is the time to wait after the k-th failure in a row, which was cause.
func (n *Node) pause(k int, cause error) time.Duration {
	var refused *member.ReplyError
	var missing *CredentialsError
	switch auth := errors.As(cause, &refused) && refused.Kind == member.KindAuth; {
	case n.cfg.rotates() && (auth || errors.As(cause, &missing)):
		// They may be others next time, and soon: but a provider that fails is not asked in a storm.
		return n.cfg.jitter(ceiling(k, n.cfg.BackoffMin, AuthBackoff))
	case auth:
		return AuthBackoff
	}
	return n.cfg.jitter(ceiling(k, n.cfg.BackoffMin, n.cfg.BackoffMax))
}

// suspicion has the supervisor look whether the member is what it was.
func (n *Node) suspicion() {
	select {
	case n.suspect <- struct{}{}:
	default:
	}
}

// signalRecheck has the inbox look whether it stands at the same process, with the same memory.
func (n *Node) signalRecheck() {
	select {
	case n.recheck <- struct{}{}:
	default:
	}
}

// predecessor is the last connection that carried commands. What was written to it may still be on
// its way, and would be executed when it arrives; so before the next connection carries commands,
// the server is told to close it. There is never more than one: a connection whose handshake failed
// carried nothing that could do harm late (SCRIPT LOAD, and CLIENT KILL of ids that a process does
// not use twice), and where it succeeded, its own predecessor is dead.
type predecessor struct {
	runID string
	id    int64 // CLIENT ID, 0 if the server would not tell
}

var ping = resp.Command("PING")
