package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
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

// board is what a node publishes.
type board struct {
	published atomic.Pointer[published]

	mu         sync.Mutex // guards what follows, and the inbox; held neither during I/O nor around a Listener
	listener   member.Listener
	changes    []member.State
	delivering bool
	serving    bool // a session was published, and not all of its calls are done
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

// hearing is the inbox of a node.
type hearing struct {
	recheck   chan struct{} // capacity 1: the inbox compares its server with ours again
	alter     chan struct{} // capacity 1: there is something in altered
	listening chan struct{} // closed by Listen

	// guarded by board.mu
	channel string              // of the inbox
	inbox   *inbox              // whose subscription is confirmed
	deaf    error               // why there was none, the last time that one was tried
	wanted  map[string]int      // channels beside the inbox, and how often they were asked for
	altered map[string]struct{} // those of them that the inbox has not been told of

	// the supervisor's
	stopEar context.CancelFunc // of listen, while it runs
	ear     sync.WaitGroup
	apart   bool // a message was refused on the commands' connection
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
