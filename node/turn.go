package node

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// handshakes is how many nodes of this process shake hands with one server at a time. A server that
// comes back to thousands of them would otherwise answer most only when they have given up.
const handshakes = 128

// turns are the handshakes of this process, by the address of the server. It is safe for concurrent
// use.
type turns struct {
	limit int

	mu sync.Mutex // a leaf
	at map[string]*rank
}

// rank is who shakes hands with one server, and who waits for that.
type rank struct {
	busy    int
	waiting list.List // of chan struct{}, which is closed when it is its turn
}

// every is the turns of the whole process.
var every = turns{limit: handshakes}

// take waits for a turn at addr, first come, first served. It does not wait any more when hurry ends,
// because whoever closes has no time. When ctx ends before, ok is false. Otherwise the caller must call
// done once.
func (t *turns) take(ctx context.Context, hurry <-chan struct{}, addr string) (done func(), ok bool) {
	t.mu.Lock()
	r := t.at[addr]
	if r == nil {
		if t.at == nil {
			t.at = make(map[string]*rank)
		}
		r = new(rank)
		t.at[addr] = r
	}
	done = func() { t.give(addr) }
	if r.busy < t.limit {
		r.busy++
		t.mu.Unlock()
		return done, true
	}
	mine := make(chan struct{})
	place := r.waiting.PushBack(mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return done, true
	case <-hurry:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // given meanwhile
		return done, true
	default:
	}
	r.waiting.Remove(place)
	if ctx.Err() != nil {
		return nil, false
	}
	r.busy++ // beyond the limit
	return done, true
}

// give ends a turn. The next in the rank has it then.
func (t *turns) give(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.at[addr]
	r.busy--
	for r.busy < t.limit && r.waiting.Len() > 0 {
		r.busy++
		close(r.waiting.Remove(r.waiting.Front()).(chan struct{}))
	}
	if r.busy == 0 {
		delete(t.at, addr)
	}
}

// turn waits until the node may shake hands with the server at addr, as turns.take does. A Dialer of the
// user's may lead anywhere, so its handshakes have no turns.
func (n *Node) turn(ctx context.Context, addr string) (done func(), ok bool) {
	if _, ours := n.cfg.Dialer.(*net.Dialer); !ours {
		return func() {}, true
	}
	return every.take(ctx, n.accepting.Done(), n.cfg.Network+" "+addr)
}
