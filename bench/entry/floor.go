package entry

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const deleteScript = `if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0`
const extendScript = `if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0`

func init() {
	register(Spec{
		Name: "floor", Kind: Redis, Floor: true,
		Note:   "raw sockets: SET NX PX and a delete script, batched writes, majority wait; no fencing, no validity",
		Shapes: []string{Uncontended, Shared, Separate, Renewed},
		Inner:  []string{"get", "del", "pexpire"},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			return openFloor(ctx, env, bareRequests)
		},
	})
}

// requests encodes the two or three requests of a floor.
type requests struct {
	scripts []string
	acquire func(b []byte, name string, owner []byte, ms string) []byte
	release func(b []byte, name string, owner []byte) []byte
	extend  func(b []byte, name string, owner []byte, ms string) []byte
	granted func(reply) bool
}

// appendCall begins a call of a script, up to its keys.
func appendCall(b []byte, sha string, keys, args int) []byte {
	return appendIntBulk(appendBulk(appendBulk(appendHead(b, 3+keys+args), "EVALSHA"), sha), int64(keys))
}

var deleteSHA, extendSHA = sha1hex(deleteScript), sha1hex(extendScript)

var bareRequests = requests{
	scripts: []string{deleteScript, extendScript},
	acquire: func(b []byte, name string, owner []byte, ms string) []byte {
		b = appendBulk(appendBulk(appendBulk(appendHead(b, 6), "SET"), name), owner)
		return appendBulk(appendBulk(appendBulk(b, "NX"), "PX"), ms)
	},
	release: func(b []byte, name string, owner []byte) []byte {
		return appendBulk(appendBulk(appendCall(b, deleteSHA, 1, 1), name), owner)
	},
	extend: func(b []byte, name string, owner []byte, ms string) []byte {
		return appendBulk(appendBulk(appendBulk(appendCall(b, extendSHA, 1, 2), name), owner), ms)
	},
	granted: func(r reply) bool { return r.kind == '+' },
}

// floor is the least that a lock on a majority of members has to do.
type floor struct {
	requests
	wires *wires
	ms    string
	lease time.Duration
	pfx   string
	seq   atomic.Uint64
	local *localQueue // contenders of one client queue here (Shared)

	renewals atomic.Int64
	mu       sync.Mutex // guards held
	held     map[*floorHeld]struct{}
	done     chan struct{}
	wg       sync.WaitGroup
}

func openFloor(ctx context.Context, env Env, r requests) (*floor, error) {
	ws, err := dialWires(ctx, env.Members, r.scripts...)
	if err != nil {
		return nil, err
	}
	f := &floor{requests: r, wires: ws, lease: env.Lease, ms: strconv.FormatInt(env.Lease.Milliseconds(), 10),
		pfx: strconv.FormatUint(rand.Uint64()|1<<63, 36), done: make(chan struct{})}
	if env.Shape == Shared || env.Shape == Memory {
		f.local = &localQueue{names: map[string][]*localWaiter{}}
	}
	if env.Renew {
		f.held = map[*floorHeld]struct{}{}
		f.wg.Go(f.renew)
	}
	return f, nil
}

func (f *floor) Close() {
	close(f.done)
	f.wg.Wait()
	f.wires.Close()
}

type floorHeld struct {
	f     *floor
	name  string
	owner []byte
	sent  uint32
}

var floorHelds = sync.Pool{New: func() any { return &floorHeld{owner: make([]byte, 0, 40)} }}

func (f *floor) newHeld(name string) *floorHeld {
	h := floorHelds.Get().(*floorHeld)
	h.f, h.name, h.sent = f, name, 0
	h.owner = strconv.AppendUint(append(append(h.owner[:0], f.pfx...), ':'), f.seq.Add(1), 36)
	return h
}

func truth(r reply) bool { return r.n == 1 }

// try asks once. It does not look at a context: answers come, or the connections end.
func (f *floor) try(name string) *floorHeld {
	h := f.newHeld(name)
	buf := buffers.Get().(*[]byte)
	*buf = f.acquire((*buf)[:0], name, h.owner, f.ms)
	fan := newFan(len(f.wires.addrs), f.granted)
	h.sent = f.wires.ask(*buf, fan, 0, f.wires.everybody(), true)
	buffers.Put(buf)
	if fan.decided() {
		return h
	}
	h.free(nil)
	floorHelds.Put(h)
	return nil
}

// free sends the release; nobody waits for it if to is nil.
func (h *floorHeld) free(to answerer) {
	buf := buffers.Get().(*[]byte)
	*buf = h.f.release((*buf)[:0], h.name, h.owner)
	h.f.wires.ask(*buf, to, 0, h.sent, false)
	buffers.Put(buf)
}

// Acquire asks, and where somebody else has it asks again after a random 0.5–2 ms.
func (f *floor) Acquire(ctx context.Context, name string) (Held, error) {
	if f.local != nil {
		if h, err := f.local.enter(ctx, name); h != nil || err != nil {
			return h, err
		}
	}
	for {
		if h := f.try(name); h != nil {
			f.keep(h)
			return h, nil
		}
		if err := pause(ctx, 500*time.Microsecond+rand.N(1500*time.Microsecond)); err != nil {
			if f.local != nil {
				f.local.leave(name, err)
			}
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNotHeld = errors.New("not held at a majority")

// Release frees the lock. Where a caller of the same client waits, its request goes out behind the
// release in the same write. The lock must not be used any more.
func (h *floorHeld) Release(context.Context) error {
	f := h.f
	f.forget(h)
	free := newFan(len(f.wires.addrs), truth)
	var next *localWaiter
	if f.local != nil {
		next = f.local.pop(h.name)
	}
	if next != nil {
		f.handOver(h, next, free)
	} else {
		h.free(free)
	}
	won := free.decided()
	floorHelds.Put(h)
	if !won {
		return errNotHeld
	}
	return nil
}

func (f *floor) handOver(h *floorHeld, w *localWaiter, free *fan) {
	next := f.newHeld(h.name)
	ask := newFan(len(f.wires.addrs), f.granted)
	buf := buffers.Get().(*[]byte)
	*buf = f.release((*buf)[:0], h.name, h.owner)
	cut := len(*buf)
	*buf = f.acquire(*buf, h.name, next.owner, f.ms)
	for i := range f.wires.at {
		first, second := booking{to: free, member: i}, booking{to: ask, member: i}
		wire := f.wires.at[i].Load()
		if wire != nil && h.sent>>i&1 == 1 && wire.sendTwo(*buf, cut, first, second) == nil {
			next.sent |= 1 << i
			continue
		}
		first.answer(reply{}, false)
		second.answer(reply{}, false)
	}
	buffers.Put(buf)
	// The waiter is woken by its own answers.
	w.given <- floorGrant{held: next, fan: ask}
}

// sendTwo queues two requests in one piece.
func (w *wire) sendTwo(both []byte, cut int, first, second booking) error {
	w.mu.Lock()
	if w.dead != nil {
		w.mu.Unlock()
		return w.dead
	}
	w.asked = append(w.asked, first)
	w.queued = append(w.queued, both[:cut]...)
	w.mu.Unlock()
	return w.send(both[cut:], second, false)
}

// localQueue makes the callers of one client wait for one another, first come first served.
type localQueue struct {
	mu    sync.Mutex
	names map[string][]*localWaiter // a name that is held or asked for has an entry
}

type floorGrant struct {
	held *floorHeld
	fan  *fan
	err  error
}

type localWaiter struct{ given chan floorGrant }

var localWaiters = sync.Pool{New: func() any { return &localWaiter{given: make(chan floorGrant, 1)} }}

// enter returns nothing where the caller has to ask the members, and the lock once it was handed over.
func (q *localQueue) enter(ctx context.Context, name string) (Held, error) {
	q.mu.Lock()
	line, busy := q.names[name]
	if !busy {
		q.names[name] = nil
		q.mu.Unlock()
		return nil, nil
	}
	w := localWaiters.Get().(*localWaiter)
	defer localWaiters.Put(w) // nobody else has it when enter returns
	q.names[name] = append(line, w)
	q.mu.Unlock()
	var g floorGrant
	select {
	case g = <-w.given:
	case <-ctx.Done():
		q.mu.Lock()
		for i, other := range q.names[name] {
			if other == w {
				q.names[name] = append(q.names[name][:i:i], q.names[name][i+1:]...)
				q.mu.Unlock()
				return nil, ctx.Err()
			}
		}
		q.mu.Unlock()
		g = <-w.given // it was handed over just now
	}
	if g.err != nil {
		return nil, g.err
	}
	if !g.fan.decided() {
		g.held.free(nil)
		q.leave(name, errNotHeld)
		return nil, errNotHeld
	}
	if ctx.Err() != nil {
		_ = g.held.Release(ctx)
		return nil, ctx.Err()
	}
	return g.held, nil
}

// pop returns who comes next, or frees the name.
func (q *localQueue) pop(name string) *localWaiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.names[name]
	if len(line) == 0 {
		delete(q.names, name)
		return nil
	}
	q.names[name] = line[1:]
	return line[0]
}

// leave fails everybody who waits behind a caller that could not get it.
func (q *localQueue) leave(name string, err error) {
	q.mu.Lock()
	line := q.names[name]
	delete(q.names, name)
	q.mu.Unlock()
	for _, w := range line {
		w.given <- floorGrant{err: err}
	}
}

func (f *floor) keep(h *floorHeld) {
	if f.held != nil {
		f.mu.Lock()
		f.held[h] = struct{}{}
		f.mu.Unlock()
	}
}

func (f *floor) forget(h *floorHeld) {
	if f.held != nil {
		f.mu.Lock()
		delete(f.held, h)
		f.mu.Unlock()
	}
}

// renew extends all locks every third of the lease, in one pipeline per member.
func (f *floor) renew() {
	tick := time.NewTicker(f.lease / 3)
	defer tick.Stop()
	var batch []byte
	for {
		select {
		case <-f.done:
			return
		case <-tick.C:
		}
		f.mu.Lock()
		batch = batch[:0]
		n := len(f.held)
		for h := range f.held {
			batch = f.extend(batch, h.name, h.owner, f.ms)
		}
		f.mu.Unlock()
		if n == 0 {
			continue
		}
		fan := newFan(len(f.wires.addrs)*n, truth)
		fan.need, fan.deny = int64(n*(len(f.wires.addrs)/2+1)), fan.expected+1
		for i := range f.wires.at {
			b := booking{to: fan, member: i}
			w := f.wires.at[i].Load()
			if w == nil || w.sendMany(batch, n, b, false) != nil {
				for range n {
					b.answer(reply{}, false)
				}
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), f.lease/3)
		if won, _ := fan.wait(ctx); won {
			f.renewals.Add(int64(n))
		}
		cancel()
	}
}

// Renewals counts the leases that were renewed.
func (f *floor) Renewals() int64 { return f.renewals.Load() }
