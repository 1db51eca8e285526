package redlock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
)

// keeper renews and ends the leases of a client. It never waits for a member and calls nothing of
// the user's where it ends leases, so that their contexts end on time even if every member hangs
// and a Tracer blocks; what the members answer is booked by the renewal, on the goroutines that
// read the answers.
//
// Two goroutines: run ends what is over, and gives back at the members what was ended; renewing
// sends the renewals that run has found due. A third tells the user: see teller.
type keeper struct {
	c      *Client
	poke   chan struct{} // capacity 1: run looks again
	asked  chan struct{} // capacity 1: there is something in queue
	done   chan struct{} // run has ended
	paused chan struct{} // renewing has ended

	rejoins atomic.Int64 // outside of renewals, without an answer

	mu     sync.Mutex // guards the fields below and pos, gone, queued of every lease
	leases leaseHeap
	queue  []*lease      // to be renewed now
	back   memberset.Set // members that vote again: they may lack leases
	armed  time.Time     // when run looks again; zero: when poked
	wall   time.Time     // a reading since which wall and monotonic clock have run together
	ended  bool
	put    time.Time // when a lease was put last
}

const (
	// lookAgain bounds how long the keeper sleeps while there are leases: after a suspend its timer
	// is late by as long as the machine slept, since it runs on the monotonic clock.
	lookAgain = 100 * time.Millisecond
	// apart is by how much the wall clock may gain on the monotonic one before all leases are dated
	// anew: less than the allowance for drift of the shortest lease (clock.Drift).
	apart = time.Millisecond
	// perCall is how many leases one extend script carries: enough to save the cost of a call, few
	// enough not to hold up a member.
	perCall = 64 // no more: renewal.book has a bit for each
	// atOnce is how many renewals go out together where so many are due soon: what a client pays
	// for them is mostly that it wakes up. Eight calls take a server two or three milliseconds, and
	// it serves others after each 16 kB of them; with a Redis Cluster it may be a call per lease,
	// spread over its masters.
	atOnce = 8 * perCall
	// bytesPerCall bounds the names of one such script: names may be so long (longestName) that
	// a full one would never fit into a member's queue.
	bytesPerCall = 64 << 10
	// bytesAtOnce bounds the names of those that are renewed before they are due.
	bytesAtOnce = 4 * bytesPerCall
	// releasesAtOnce is how many leases that are over are released before the keeper looks for
	// others that are.
	releasesAtOnce = 64
)

func (k *keeper) init(c *Client) {
	k.c, k.poke, k.asked = c, make(chan struct{}, 1), make(chan struct{}, 1)
	k.done, k.paused = make(chan struct{}), make(chan struct{})
}

// run is owned by the client: started by newClient, ended by Close, which waits for it. Contexts end
// first, and the members hear of it afterwards.
func (k *keeper) run() {
	defer close(k.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var over []*LostError
	var owed []*hold
	for {
		now := time.Now()
		for _, l := range k.takeDue(now) {
			err, left := l.over(l.lapsed())
			for range left.losses {
				over = append(over, err)
			}
			if left.release != nil {
				owed = append(owed, left.release)
			}
		}
		k.c.notifier.tell(over...)
		over = over[:0]
		n := min(len(owed), releasesAtOnce)
		for _, h := range owed[:n] {
			h.release(true).Free()
		}
		if owed = owed[n:]; len(owed) > 0 {
			continue
		}
		owed = nil
		sitesOf.of(k.c).sweep(now)
		if sleep, ok := k.arm(time.Now()); ok {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-k.poke:
		case <-k.c.closed:
			return
		}
	}
}

// takeDue takes the leases that are over, and queues those that are to be renewed for renewing,
// which it wakes. With the latter go, up to a multiple of atOnce, those that are to be renewed
// soon: most of the cost of a renewal is that of the call and of the write.
func (k *keeper) takeDue(now time.Time) (over []*lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.datedLocked(now)
	for n, size := 0, 0; len(k.leases) > 0; {
		first := k.leases[0]
		if clock.Until(first.due, now) > 0 && (n%atOnce == 0 || size >= bytesAtOnce || !first.l.renewSoon(now)) {
			break
		}
		held, ask := first.l.ask(now)
		if !held {
			k.leases.remove(0)
			over = append(over, first.l)
			continue
		}
		k.putLocked(first.l, now, time.Time{})
		if ask && !first.l.queued {
			first.l.queued = true
			k.queue = append(k.queue, first.l)
			n, size = n+1, size+len(first.l.key)
		}
	}
	if len(k.queue) > 0 {
		signal(k.asked)
	}
	return over
}

// datedLocked dates all leases anew where the wall clock has gained on the monotonic one: after a
// suspend, or where it was set. The heap compares monotonic readings, by which a lease from before
// would hide behind younger ones.
func (k *keeper) datedLocked(now time.Time) {
	gained := now.Round(0).Sub(k.wall.Round(0)) - now.Sub(k.wall)
	if k.wall.IsZero() || gained < 0 {
		k.wall = now
	}
	if k.wall.IsZero() || gained <= apart {
		return
	}
	k.wall = now
	for _, e := range slices.Clone(k.leases) {
		k.putLocked(e.l, now, time.Time{})
	}
}

func (l *lease) renewSoon(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewSoonLocked(now)
}

// renewSoonLocked: a renewal may come before its time by a part of the pause after one that was not
// confirmed, never by all of it, or it would be asked for again at once.
func (l *lease) renewSoonLocked(now time.Time) bool {
	return !l.renewAt.IsZero() && clock.Until(l.renewAt, now) <= l.retryLocked(now)/4
}

// retryLocked is the pause before a renewal that was not confirmed is asked for again: there must
// be several before the validity is over, however little is left of it.
func (l *lease) retryLocked(now time.Time) time.Duration {
	return min(retryAfter(l.ttl), max(clock.Until(l.term.Until(), now)/3, time.Millisecond))
}

// ask reports whether a lease is held and valid, and whether it is to be renewed, which is booked
// then.
func (l *lease) ask(now time.Time) (held, ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held = l.term.Held(now)
	if ask = held && l.renewSoonLocked(now); ask {
		l.renewAt = now.Add(l.retryLocked(now)) // unless this one succeeds
	}
	return held, ask
}

// regained is called with each answer to a re-join outside of renewals.
func (k *keeper) regained() {
	if k.rejoins.Add(-1) == atOnce/2 {
		signal(k.asked)
	}
}

// votesAgain has the leases that are renewed regain their votes at a member at once, and not with
// their next renewals: until then a further member that forgets could end them.
func (k *keeper) votesAgain(i int) {
	k.mu.Lock()
	k.back = k.back.With(i)
	k.mu.Unlock()
	signal(k.asked)
}

// retryAfter is the pause before a renewal that was not confirmed is asked for again.
func retryAfter(ttl time.Duration) time.Duration {
	return min(max(ttl/10, 5*time.Millisecond), time.Second)
}

// arm says how long to sleep, and books it. Leases that come and go do not each wake run: it rests when none has come
// for lookAgain.
func (k *keeper) arm(now time.Time) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sleep := contendedFor // a name is forgotten that late at most
	switch {
	case len(k.leases) > 0:
		sleep = max(0, min(lookAgain, clock.Until(k.leases[0].due, now)))
	case clock.Elapsed(k.put, now) < lookAgain:
		sleep = lookAgain
	case sitesOf.of(k.c).empty():
		k.armed = time.Time{}
		return 0, false
	}
	k.armed = now.Add(sleep)
	return sleep, true
}

// nudgeLocked makes run look again at t, the next event of a lease, and within lookAgain, unless it will; or t is zero.
func (k *keeper) nudgeLocked(t, now time.Time) {
	if t.IsZero() {
		return
	}
	if k.armed.IsZero() || clock.Until(t, k.armed) < 0 || clock.Until(k.armed, now) > lookAgain {
		signal(k.poke)
	}
}

// awake makes run keep looking while there is something to sweep.
func (k *keeper) awake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.armed.IsZero() {
		signal(k.poke)
	}
}

// add takes over a lease; false: the client is closed.
func (k *keeper) add(l *lease) bool {
	k.update(l)
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	if ended { // perhaps after endAll looked
		l.lose(LostClosed)
	}
	return !ended
}

// update puts a lease where its next event belongs.
func (k *keeper) update(l *lease) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nudgeLocked(k.putLocked(l, now, time.Time{}), now)
}

// putLocked returns the moment of the lease's next event, or first if that is sooner. It is counted
// from now, by the reading of the clock that leaves less, so that the heap may compare it with
// others by either. Both mutexes at once, the keeper's first: of two updates the later must not be
// overtaken by what the earlier has read.
func (k *keeper) putLocked(l *lease, now, first time.Time) time.Time {
	if l.gone {
		return first
	}
	l.mu.Lock()
	left := clock.Until(l.term.Until(), now)
	if !l.renewAt.IsZero() {
		left = min(left, clock.Until(l.renewAt, now))
	}
	l.mu.Unlock()
	due := now.Add(left)
	k.put = now
	k.leases.put(l, due)
	if first.IsZero() || due.Before(first) {
		return due
	}
	return first
}

func (k *keeper) remove(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.gone = true
	if l.pos >= 0 {
		k.leases.remove(int(l.pos))
	}
}

// endAll ends every lease because the client closes. Those that run has in hand are over, and it
// ends them before it returns.
func (k *keeper) endAll() {
	k.mu.Lock()
	k.ended = true
	all := append(leaseHeap(nil), k.leases...)
	k.mu.Unlock()
	for _, e := range all {
		e.l.lose(LostClosed)
	}
}
