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
	acquire func(b []byte, name, owner, ms string) []byte
	release func(b []byte, name, owner string) []byte
	extend  func(b []byte, name, owner, ms string) []byte
	granted func(reply) bool
}

var deleteSHA, extendSHA = sha1hex(deleteScript), sha1hex(extendScript)

var bareRequests = requests{
	scripts: []string{deleteScript, extendScript},
	acquire: func(b []byte, name, owner, ms string) []byte {
		return appendCommand(b, "SET", name, owner, "NX", "PX", ms)
	},
	release: func(b []byte, name, owner string) []byte {
		return appendCommand(b, "EVALSHA", deleteSHA, "1", name, owner)
	},
	extend: func(b []byte, name, owner, ms string) []byte {
		return appendCommand(b, "EVALSHA", extendSHA, "1", name, owner, ms)
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
	f           *floor
	name, owner string
	sent        uint32
}

func (f *floor) owner() string {
	var b [40]byte
	return string(strconv.AppendUint(append(append(b[:0], f.pfx...), ':'), f.seq.Add(1), 36))
}

func truth(r reply) bool { return r.n == 1 }

func (f *floor) try(ctx context.Context, name string) (*floorHeld, bool, error) {
	h := &floorHeld{f: f, name: name, owner: f.owner()}
	n := len(f.wires.addrs)
	buf := buffers.Get().(*[]byte)
	*buf = f.acquire((*buf)[:0], name, h.owner, f.ms)
	fan := newFan(n, f.granted)
	h.sent = f.wires.ask(*buf, fan, f.wires.everybody(), true)
	buffers.Put(buf)
	won, err := fan.wait(ctx)
	if won {
		return h, true, nil
	}
	h.free()
	return nil, false, err
}

// free sends the release without waiting for it.
func (h *floorHeld) free() *fan {
	buf := buffers.Get().(*[]byte)
	*buf = h.f.release((*buf)[:0], h.name, h.owner)
	fan := newFan(len(h.f.wires.addrs), truth)
	h.f.wires.ask(*buf, fan, h.sent, false)
	buffers.Put(buf)
	return fan
}

// Acquire asks, and where somebody else has it asks again after a random 0.5–2 ms.
func (f *floor) Acquire(ctx context.Context, name string) (Held, error) {
	if f.local != nil {
		if h, err := f.local.enter(ctx, name); h != nil || err != nil {
			return h, err
		}
	}
	for {
		h, won, err := f.try(ctx, name)
		if won {
			f.keep(h)
			return h, nil
		}
		if err == nil {
			err = pause(ctx, 500*time.Microsecond+rand.N(1500*time.Microsecond))
		}
		if err != nil {
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
// release in the same write.
func (h *floorHeld) Release(ctx context.Context) error {
	f := h.f
	f.forget(h)
	if f.local != nil {
		if w := f.local.pop(h.name); w != nil {
			return f.handOver(ctx, h, w)
		}
	}
	won, err := h.free().wait(ctx)
	if err == nil && !won {
		err = errNotHeld
	}
	return err
}

func (f *floor) handOver(ctx context.Context, h *floorHeld, w *localWaiter) error {
	next := &floorHeld{f: f, name: h.name, owner: f.owner()}
	n := len(f.wires.addrs)
	free, ask := newFan(n, truth), newFan(n, f.granted)
	buf := f.release(nil, h.name, h.owner)
	cut := len(buf)
	buf = f.acquire(buf, h.name, next.owner, f.ms)
	for i := range f.wires.at {
		wire := f.wires.at[i].Load()
		if wire == nil || h.sent>>i&1 == 0 {
			free.answer(reply{}, false)
			ask.answer(reply{}, false)
			continue
		}
		if wire.sendTwo(buf, cut, booking{fan: free}, booking{fan: ask}) == nil {
			next.sent |= 1 << i
		} else {
			free.answer(reply{}, false)
			ask.answer(reply{}, false)
		}
	}
	// The waiter is woken by its own answers.
	w.given <- floorGrant{held: next, fan: ask}
	won, err := free.wait(ctx)
	if err == nil && !won {
		err = errNotHeld
	}
	return err
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

// enter returns nothing where the caller has to ask the members, and the lock once it was handed over.
func (q *localQueue) enter(ctx context.Context, name string) (Held, error) {
	q.mu.Lock()
	line, busy := q.names[name]
	if !busy {
		q.names[name] = nil
		q.mu.Unlock()
		return nil, nil
	}
	w := &localWaiter{given: make(chan floorGrant, 1)}
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
	won, err := g.fan.wait(context.WithoutCancel(ctx))
	if err == nil && !won {
		err = errNotHeld
	}
	if err == nil && ctx.Err() != nil {
		_ = g.held.Release(context.WithoutCancel(ctx))
		return nil, ctx.Err()
	}
	if err != nil {
		g.held.free()
		q.leave(name, err)
		return nil, err
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
		fan.need, fan.deny = n*(len(f.wires.addrs)/2+1), len(f.wires.addrs)*n+1
		for i := range f.wires.at {
			w := f.wires.at[i].Load()
			if w == nil || w.sendMany(batch, n, booking{fan: fan}, false) != nil {
				for range n {
					fan.answer(reply{}, false)
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
