package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
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
	dialer
	scripts scripts
	waits   []byte // WAIT, where votes must be acknowledged by replicas
	owed    *owed
	dropped atomic.Bool // releases that were owed, and the Logger is to be told of it

	refusals // made once, with the name
	life     // since when it takes no calls, and when it is over
	board    // what it is good for, and who is told
	hearing  // its inbox
	greeting // what the supervisor knows of connections before

	seat      *guard.Seat
	suspect   chan struct{}  // capacity 1: a reply says that the member may not be what it was
	seek      chan struct{}  // capacity 1: Sentinels may name another master
	sentinels sync.WaitGroup // the goroutines that listen to them; the supervisor waits for it
}

// refusals are the errors of calls that a node does not take.
type refusals struct{ errOverflow, errClosed, errEnded error }

// life is how a node ends.
type life struct {
	accepting context.Context // ends when Close begins
	refuse    context.CancelFunc
	ctx       context.Context // ends when Close has nothing to wait for, or no patience
	cancel    context.CancelFunc
	closeOnce sync.Once
	done      chan struct{} // the supervisor has ended
}

// hearing is the inbox of a node.
type hearing struct {
	recheck   chan struct{} // capacity 1: the inbox compares its server with ours again
	alter     chan struct{} // capacity 1: there is something in altered
	listening chan struct{} // closed by Listen

	// guarded by board.mu
	channel string              // of the inbox
	wanted  map[string]int      // channels beside the inbox, and how often they were asked for
	altered map[string]struct{} // those of them that the inbox has not been told of
}

// greeting is the supervisor's.
type greeting struct {
	before   predecessor
	slow     int // attempts in a row that were accepted and not answered in time
	warnings map[string]bool
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

var errConnecting = member.ErrConnecting

// Name is the address of the server, or the name of the master and its Sentinels.
func (n *Node) Name() string { return n.name }

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

func (n *Node) isClosing() bool { return n.accepting.Err() != nil }

// suspicion has the supervisor look whether the member is what it was.
func (n *Node) suspicion() {
	wake(n.suspect)
}

// signalRecheck has the inbox look whether it stands at the same process, with the same memory.
func (n *Node) signalRecheck() {
	wake(n.recheck)
}

// Recheck has the node compare its inbox with its commands' connection, and with the era.
func (n *Node) Recheck() { n.signalRecheck() }

// Stamp puts a slot that a grant found without the marker's id under this master's marker: one that
// came from another master and was not used before. It returns nil if the slot may be used now.
func (n *Node) Stamp(ctx context.Context, slot uint16) error { return n.seat.Stamp(ctx, slot) }

// ClockOffset implements ability.Clocked. It is as old as the last look at the marker: a
// PingInterval or so, and up to ten while the client is at rest. Without a restart guard ok is false.
func (n *Node) ClockOffset() (ahead, within time.Duration, ok bool) {
	o, ok := n.seat.HeardOffset()
	return o.Ahead, o.Within, ok
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
