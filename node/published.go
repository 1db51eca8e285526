package node

import (
	"sync"
	"sync/atomic"

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
	n.hearsLocked(p)
	if old := n.published.Swap(p); p.state != old.state && n.listener != nil {
		n.changes = append(n.changes, p.state)
	}
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
