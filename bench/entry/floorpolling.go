package entry

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

func init() {
	register(Spec{
		Name: "floor-polling", Kind: Redis, Floor: true,
		Note: "raw sockets: readers and writers that poll, as redsync does for a mutex: a writer's key and a hash of readers at each member. " +
			"A majority of the keys makes a writer and keeps new readers out, then it waits for those inside. Back-off from 0.25–0.75 ms to 4–12 ms, " +
			"0.2–0.6 ms while readers leave; no fencing, no validity",
		Shapes: []string{ReadWrite, Together},
		Inner:  []string{"get", "set", "del", "exists", "hlen", "hset", "hdel", "pexpire"},
		Open:   openPolling,
	})
}

// KEYS are the writer's key and the readers' hash. A reader that dies stays until the hash ends. No
// new reader puts that off while a writer is there.
const (
	pollWrite = `local w=redis.call('GET',KEYS[1])
if w and w~=ARGV[1] then return 0 end
if not w then redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2]) end
if redis.call('HLEN',KEYS[2])==0 then return 1 end
return 2`
	pollRead = `if redis.call('EXISTS',KEYS[1])==1 then return 0 end
redis.call('HSET',KEYS[2],ARGV[1],1) redis.call('PEXPIRE',KEYS[2],ARGV[2])
return 1`
	pollUnread = `return redis.call('HDEL',KEYS[1],ARGV[1])`
)

var pollWriteSHA, pollReadSHA, pollUnreadSHA = sha1hex(pollWrite), sha1hex(pollRead), sha1hex(pollUnread)

type polling struct {
	wires *wires
	ms    string
	pfx   string
	seq   atomic.Uint64
}

func openPolling(ctx context.Context, env Env) (Locker, error) {
	ws, err := dialWires(ctx, env.Members, pollWrite, pollRead, pollUnread, deleteScript)
	if err != nil {
		return nil, err
	}
	return &polling{wires: ws, ms: strconv.FormatInt(env.Lease.Milliseconds(), 10), pfx: strconv.FormatUint(rand.Uint64()|1<<63, 36)}, nil
}

func (p *polling) Close() { p.wires.Close() }

func (p *polling) ask(request []byte, yes func(reply) bool, limited bool) *fan {
	f := newFan(len(p.wires.addrs), yes)
	p.wires.ask(request, f, 0, p.wires.everybody(), limited)
	return f
}

func (p *polling) held(name string) *pollingHeld {
	return &pollingHeld{p: p, name: name, readers: name + ":readers", owner: p.pfx + ":" + strconv.FormatUint(p.seq.Add(1), 36)}
}

// backOff is how long a poller pauses: twice as long after each refusal, up to a bound. So a crowd
// of pollers does not keep the servers from serving releases.
type backOff struct{ next time.Duration }

const leastBackOff, mostBackOff = 500 * time.Microsecond, 8 * time.Millisecond

func (b *backOff) pause(ctx context.Context) error {
	b.next = min(max(2*b.next, leastBackOff), mostBackOff)
	return pause(ctx, b.next/2+rand.N(b.next))
}

// mine reports whether the writer's key is this caller's, with or without readers inside.
func mine(r reply) bool { return r.n > 0 }

func (p *polling) Acquire(ctx context.Context, name string) (Held, error) {
	h := p.held(name)
	write := command("EVALSHA", pollWriteSHA, "2", h.name, h.readers, h.owner, p.ms)
	var again backOff
	for {
		// If no reader is inside at a majority, this round is the last one.
		var free atomic.Int64
		won, err := p.ask(write, func(r reply) bool {
			if r.n == 1 {
				free.Add(1)
			}
			return mine(r)
		}, true).wait(ctx)
		for err == nil && won {
			if int(free.Load()) > len(p.wires.addrs)/2 {
				return h, nil
			}
			if err = pause(ctx, 200*time.Microsecond+rand.N(400*time.Microsecond)); err != nil {
				break
			}
			var empty bool
			if empty, err = p.ask(write, truth, true).wait(ctx); empty {
				return h, nil
			}
		}
		h.free()
		if err == nil {
			err = again.pause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *polling) AcquireShared(ctx context.Context, name string) (Held, error) {
	h := p.held(name)
	h.read = true
	read := command("EVALSHA", pollReadSHA, "2", h.name, h.readers, h.owner, p.ms)
	var again backOff
	for {
		won, err := p.ask(read, truth, true).wait(ctx)
		if won {
			return h, nil
		}
		h.free()
		if err == nil {
			err = again.pause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

type pollingHeld struct {
	p                    *polling
	name, readers, owner string
	read                 bool
}

// free sends the release without waiting for it.
func (h *pollingHeld) free() *fan {
	if h.read {
		return h.p.ask(command("EVALSHA", pollUnreadSHA, "1", h.readers, h.owner), truth, false)
	}
	return h.p.ask(command("EVALSHA", deleteSHA, "1", h.name, h.owner), truth, false)
}

func (h *pollingHeld) Release(ctx context.Context) error {
	won, err := h.free().wait(ctx)
	if err == nil && !won {
		err = errNotHeld
	}
	return err
}
