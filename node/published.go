package node

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// board is what a node publishes.
type board struct {
	published atomic.Pointer[published]

	mu         sync.Mutex // guards what follows; held neither during I/O nor around a Listener
	listener   member.Listener
	changes    []member.State
	delivering bool
	serving    bool   // a session was published, and not all of its calls are done
	inbox      *inbox // whose subscription is confirmed
	deaf       error  // why there was none, the last time that one was tried
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

// State costs one atomic load.
func (n *Node) State() member.State { return n.published.Load().state }

// Brief implements ability.Briefed.
func (n *Node) Brief() member.Brief { return n.published.Load().state.Brief }

// finish completes a call that has no reply but an error, and takes on the debt of a release that
// was not delivered. A call of ErrEnded or ErrClosed leaves none: the first is no release, the
// second has nobody left to pay. Nor does one with a Hop: what is owed then may have to go to
// another server.
func (n *Node) finish(c *member.Call, outcome member.Outcome, err error) {
	c.Outcome, c.Err = outcome, err
	if !c.OweUntil.IsZero() && ability.Undelivered(&c.Result) && err != n.errEnded && err != n.errClosed && c.Hop == nil {
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

// stands publishes the standing that what is owed is paid under, also while the node is closing.
func (n *Node) stands(a guard.Standing) {
	n.mu.Lock()
	p := *n.published.Load()
	p.standing = a
	n.publishLocked(&p)
	n.mu.Unlock()
	n.deliver()
}
