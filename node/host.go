package node

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/guard"
)

// The restart guard's types have their names here, too, for those who make a Config.
type (
	// Guard is the restart guard of one client. Every Node of the client has the same Guard in Config.Guard.
	Guard = guard.Guard
	// GuardConfig is what all members of a client share.
	GuardConfig = guard.Config
	// GuardEvent is one step of the restart guard at one member.
	GuardEvent = guard.Event
	// RestartGuard says what happens to a member that may have forgotten.
	RestartGuard = guard.Mode
	// Shard makes a Node one master of a Redis Cluster.
	Shard = guard.Shard
	// Group is what the masters of one Redis Cluster share.
	Group = guard.Group
)

// The modes of the restart guard: see guard.Mode.
const (
	GuardQuarantine = guard.Quarantine
	GuardStrict     = guard.Strict
	GuardOff        = guard.Off
)

// NewGuard makes the guard for cfg.Members nodes.
func NewGuard(cfg GuardConfig) *Guard { return guard.New(cfg) }

// GuardScripts returns the Lua sources of the restart guard, for those who write the permissions of a user at the
// members.
func GuardScripts() []string { return guard.Scripts() }

// MarkerKeys names two keys of a master of a cluster that serves these slots (ascending) and has this id (CLUSTER
// MYID): the restart guard's marker, and the key that is there during a quarantine. Without slots it names those of
// any other member.
func MarkerKeys(slots []uint16, id string) (marker, quarantine string) {
	return guard.MarkerKeys(slots, id)
}

// Recheck has the node compare its inbox with its commands' connection, and with the era.
func (n *Node) Recheck() { n.signalRecheck() }

// Stamp puts a slot that a grant found without the marker's id under this master's marker: one that came from another
// master and was not used before. It returns nil if the slot may be used now.
func (n *Node) Stamp(ctx context.Context, slot uint16) error { return n.seat.Stamp(ctx, slot) }

// ClockOffset implements member.Clocked. It is as old as the last look at the marker, PingInterval or so. Without a
// restart guard ok is false.
func (n *Node) ClockOffset() (ahead, within time.Duration, ok bool) {
	o, ok := n.seat.HeardOffset()
	return o.Ahead, o.Within, ok
}

// suspicion has the supervisor look whether the member is what it was.
func (n *Node) suspicion() {
	select {
	case n.suspect <- struct{}{}:
	default:
	}
}

// host is the Node as the guard sees it.
type host Node

var _ guard.Host = (*host)(nil)

func (h *host) Name() string             { return h.name }
func (h *host) Recheck()                 { (*Node)(h).signalRecheck() }
func (h *host) Suspect()                 { (*Node)(h).suspicion() }
func (h *host) Closing() bool            { return (*Node)(h).isClosing() }
func (h *host) Context() context.Context { return h.ctx }

// Now costs one atomic load.
func (h *host) Now() guard.Present {
	p := h.published.Load()
	now := guard.Present{State: p.state, Standing: p.standing}
	if p.session != nil {
		now.Session = p.session
	}
	return now
}

// Publish is change.
func (h *host) Publish(edit func(gen *uint64, s *guard.Standing)) {
	(*Node)(h).change(func(p *published) { edit(&p.state.Gen, &p.standing) })
}

// Ask is member.Ask.
func (h *host) Ask(ctx context.Context, cmd []byte) (member.Reply, error) {
	return member.Ask(ctx, (*Node)(h), member.Command{Cmd: cmd})
}

var _ guard.Session = (*session)(nil)

// Ask implements guard.Session.
func (s *session) Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error) {
	return s.node.ask(ctx, s, cmds)
}

// Queue implements guard.Session.
func (s *session) Queue(c *member.Call) error { return s.submit(c, true) }

// Pause implements guard.Session.
func (s *session) Pause(news <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-s.broken:
		return s.cause()
	case <-s.node.accepting.Done():
		return s.node.errClosed
	}
	return nil
}
