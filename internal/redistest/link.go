package redistest

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Dialer opens connections; *net.Dialer and *Link are Dialers.
type Dialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// Delay is Fixed plus a random part, uniform in [0, Jitter).
type Delay struct{ Fixed, Jitter time.Duration }

// flow is what happens to the bytes of one direction.
type flow uint8

const (
	flowing flow = iota
	held         // kept, and delivered later
	lost         // thrown away
)

// Link is a network path to one server, and a Dialer. Without faults it delivers at once and in
// order. Its buffers have no limit (but see Window), so a write does not wait for the server.
//
// A fault applies to all connections of the Link from the moment of the call. Bytes that the client
// could already read stay readable. A Link is safe for concurrent use. A Link that is used inside a
// synctest bubble must be made there, and lead to an embedded server.
type Link struct {
	server target
	wg     sync.WaitGroup // one goroutine per connection, and for TCP a reader

	// mu guards everything below, and the state of all connections. It is never held over a call to
	// a server or to a user's function.
	mu     sync.Mutex
	change *sync.Cond // for dials that wait: flows, refuse, closed
	conns  map[*relay]struct{}
	closed bool
	seed   uint64     // of the delays of dials
	rand   *rand.Rand // for the seeds of connections, and for pushes that are lost

	requests, replies           flow
	requestDelay, repliesDelay  Delay
	refuse                      bool
	window                      int
	rules                       []*Rule
	losePush                    int
	losePushRate                float64
	delayPush                   Delay
	dials, commands, pushesLost int
}

// target is what a Link leads to.
type target interface {
	// open connects. What the server sends goes to r.fromServer, its end to r.serverGone.
	open(ctx context.Context, r *relay) (backend, error)
	Addr() string
}

// backend is the server's side of one connection.
type backend interface {
	// start lets bytes arrive. Called once, when the connection is registered.
	start()
	// send forwards whole commands. It may block until abort.
	send(cmds []command) error
	// sendRaw forwards bytes that are not RESP.
	sendRaw(p []byte) error
	// close ends the connection behind what was sent, abort at once. Both may be called repeatedly.
	close()
	abort()
}

func newLink(server target) *Link {
	l := &Link{server: server, conns: map[*relay]struct{}{}, seed: 1, rand: newRand(1)}
	l.change = sync.NewCond(&l.mu)
	return l
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// Seed restarts the random numbers behind jitter and LosePushRate. A new Link has seed 1. Delays
// are drawn from the seed, the connection, the direction and the instant, and not from one
// sequence. So in fake time they are the same, whatever the order of things that happen at one
// instant.
func (l *Link) Seed(seed uint64) {
	l.set(func() {
		l.seed, l.rand = seed, newRand(seed)
		for _, r := range l.orderedLocked() {
			r.seedLocked()
		}
	})
}

// orderedLocked is the connections in the order of their dials: a map has none.
func (l *Link) orderedLocked() []*relay {
	all := make([]*relay, 0, len(l.conns))
	for r := range l.conns {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *relay) int { return a.serial - b.serial })
	return all
}

// set changes faults and wakes everything that may now go on, or must stop.
func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, r := range l.orderedLocked() {
		r.settleLocked(now)
	}
	f()
	l.wakeLocked()
}

func (l *Link) wakeLocked() {
	l.change.Broadcast()
	for _, r := range l.orderedLocked() {
		r.change.Broadcast()
	}
}

// SetDelay delays all bytes on their way to the server and back. It keeps their order. A dial takes
// both delays.
func (l *Link) SetDelay(request, reply Delay) {
	l.set(func() { l.requestDelay, l.repliesDelay = request, reply })
}

// Pause holds the bytes of both directions, and dials, until Resume.
func (l *Link) Pause() { l.set(func() { l.requests, l.replies = held, held }) }

// PauseRequests holds what clients send until Resume.
func (l *Link) PauseRequests() { l.set(func() { l.requests = held }) }

// PauseReplies holds what the server sends, until Resume.
func (l *Link) PauseReplies() { l.set(func() { l.replies = held }) }

// Resume lets held bytes go on.
func (l *Link) Resume() {
	l.set(func() {
		if l.requests == held {
			l.requests = flowing
		}
		if l.replies == held {
			l.replies = flowing
		}
	})
}

// DropReplies loses everything that the server sends. Requests are executed and not answered.
// Connecting works. A connection that has lost a byte stays mute for good, even after Heal. It ends
// by Cut, by its client or by its server.
func (l *Link) DropReplies() {
	l.set(func() {
		l.replies = lost
		for _, r := range l.orderedLocked() {
			r.dropLocked(&r.down)
		}
	})
}

// DropRequests loses everything that clients send.
func (l *Link) DropRequests() {
	l.set(func() {
		l.requests = lost
		for _, r := range l.orderedLocked() {
			r.dropLocked(&r.up)
		}
	})
}

// BlackHole loses the bytes of both directions without any error, and dials wait. Connections that
// lost something stay mute, as with DropReplies.
func (l *Link) BlackHole() {
	l.set(func() {
		l.requests, l.replies = lost, lost
		for _, r := range l.orderedLocked() {
			r.dropLocked(&r.up)
			r.dropLocked(&r.down)
		}
	})
}

// Refuse makes new connections fail, or lets them pass again.
func (l *Link) Refuse(on bool) { l.set(func() { l.refuse = on }) }

// Window limits the bytes of one connection that the server has not taken. A write beyond the limit
// waits, as on a full socket. 0 means no limit.
func (l *Link) Window(bytes int) { l.set(func() { l.window = bytes }) }

// Heal ends all faults, rules included. It does not repair connections that lost bytes.
func (l *Link) Heal() {
	l.set(func() {
		l.requests, l.replies = flowing, flowing
		l.requestDelay, l.repliesDelay = Delay{}, Delay{}
		l.refuse, l.window = false, 0
		for _, r := range l.rules {
			r.left = 0
		}
		l.rules = nil
		l.losePush, l.losePushRate, l.delayPush = 0, 0, Delay{}
		for _, r := range l.orderedLocked() {
			r.zombieArmed = false
		}
	})
}

// Cut breaks all open connections, as a reset does. It loses what is under way in both directions,
// and both sides see an error. It returns the number of connections. It does not cut zombies.
func (l *Link) Cut() int {
	return l.cut(func(*relay) bool { return true })
}

// CutMute is Cut for the connections that have lost bytes, in either direction. The others go on.
func (l *Link) CutMute() int {
	return l.cut(func(r *relay) bool { return r.up.lost && !r.dead || r.down.lost })
}

func (l *Link) cut(which func(r *relay) bool) int {
	l.mu.Lock()
	var cut []*relay
	for _, r := range l.orderedLocked() {
		if !r.zombie && which(r) {
			r.cutLocked()
			cut = append(cut, r)
		}
	}
	l.mu.Unlock()
	abort(cut)
	return len(cut)
}

// Zombie turns each open connection into one that its client believes dead while its last bytes are
// still under way. They reach the server after d and are executed, unless the server has closed the
// connection by then (CLIENT KILL). A connection with requests under way breaks at once. Any other
// breaks with its client's next write. New connections are not affected.
func (l *Link) Zombie(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.orderedLocked() {
		if len(r.up.queue) > 0 {
			r.zombieLocked(d)
		} else {
			r.zombieArmed, r.zombieDelay = true, d
		}
	}
}

// Conns is the number of connections that neither side has ended.
func (l *Link) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.orderedLocked() {
		if !r.zombie && !r.dead {
			n++
		}
	}
	return n
}

// Counts are what a Link has seen since it was made.
type Counts struct {
	Dials      int // connections opened
	Commands   int // commands that came to the server or to a rule
	PushesLost int // pub/sub messages lost by LosePush and LosePushRate
}

// Counts returns the counters.
func (l *Link) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Counts{Dials: l.dials, Commands: l.commands, PushesLost: l.pushesLost}
}

// Close cuts all connections, zombies included, and waits for their goroutines. Dials fail from
// then on.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	var cut []*relay
	for _, r := range l.orderedLocked() {
		r.cutLocked()
		cut = append(cut, r)
	}
	l.wakeLocked()
	l.mu.Unlock()
	abort(cut)
	l.wg.Wait()
	return nil
}

func abort(cut []*relay) {
	for _, r := range cut {
		r.server.abort()
	}
}

// DialContext connects to the server that the Link leads to. addr is only a name for errors.
func (l *Link) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := l.dial(ctx, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: err}
	}
	return c, nil
}

func (l *Link) dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := l.awaitOpen(ctx); err != nil {
		return nil, err
	}
	r := newRelay(l, addr)
	server, err := l.server.open(ctx, r)
	if err != nil {
		return nil, err
	}
	r.server = server
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		server.abort()
		return nil, net.ErrClosed
	}
	l.dials++
	r.serial = l.dials
	r.seedLocked()
	l.conns[r] = struct{}{}
	l.wg.Go(r.run)
	server.start()
	l.mu.Unlock()
	return (*conn)(r), nil
}

// awaitOpen waits while the path swallows or holds the packets of a handshake, and then for as long
// as they travel.
func (l *Link) awaitOpen(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	arrive := time.Time{}
	for {
		switch {
		case l.closed:
			return net.ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case l.refuse:
			return os.NewSyscallError("connect", syscall.ECONNREFUSED)
		case l.requests != flowing || l.replies == held:
			l.change.Wait()
			continue
		case arrive.IsZero():
			now := time.Now()
			arrive = now.Add(draw(l.seed, now, l.requestDelay) + draw(^l.seed, now, l.repliesDelay))
		}
		if !time.Now().Before(arrive) {
			return nil
		}
		waitUntil(l.change, arrive)
	}
}

// draw is the delay of what is sent at an instant: the same for all that one direction of a connection
// carries then, in one piece or in several, so that how pieces fall together changes nothing.
func draw(seed uint64, now time.Time, d Delay) time.Duration {
	if d.Jitter <= 0 {
		return d.Fixed
	}
	var at rand.PCG
	at.Seed(seed, uint64(now.UnixNano()))
	return d.Fixed + time.Duration(at.Uint64()%uint64(d.Jitter))
}

// pickLocked returns the rule for a command, and the functions to call before it.
func (l *Link) pickLocked(cmd []string) (hit *Rule, calls []func([]string)) {
	l.commands++
	for _, r := range l.rules {
		if (r.act != callBack && hit != nil) || !r.match(cmd) {
			continue
		}
		r.hitLocked()
		if r.act == callBack {
			calls = append(calls, r.call)
		} else {
			hit = r
		}
	}
	if hit != nil || calls != nil {
		l.sweepRulesLocked()
	}
	return hit, calls
}

// pushFateLocked decides whether a pub/sub message is lost, or how late it is.
func (l *Link) pushFateLocked(seed uint64) (late time.Duration, lost bool) {
	switch {
	case l.losePush != 0:
		l.losePush--
		lost = true
	case l.losePushRate > 0:
		lost = l.rand.Float64() < l.losePushRate
	}
	if lost {
		l.pushesLost++
		return 0, true
	}
	return draw(seed, time.Now(), l.delayPush), false
}

// waitUntil waits for a change, or until t; zero means a change only. A wake-up proves nothing.
func waitUntil(change *sync.Cond, t time.Time) {
	if t.IsZero() {
		change.Wait()
		return
	}
	d := time.Until(t)
	if d <= 0 {
		return
	}
	timer := time.AfterFunc(d, func() {
		change.L.Lock()
		defer change.L.Unlock()
		change.Broadcast()
	})
	change.Wait()
	timer.Stop()
}

// address is the net.Addr of a connection that has no socket.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func reset(call string) error { return os.NewSyscallError(call, syscall.ECONNRESET) }
