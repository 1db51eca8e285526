package entry

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

const notifyScript = `if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end
redis.call('DEL',KEYS[1]) redis.call('PUBLISH','freed:'..KEYS[1],ARGV[1]) return 1`

func init() {
	register(Spec{
		Name: "floor-notify", Kind: Redis, Floor: true,
		Note:   "raw sockets: SET NX GET PX, and a release that wakes all waiters; the best that broadcasting can do",
		Shapes: []string{Separate},
		Inner:  []string{"get", "del", "publish"},
		Open:   openNotify,
	})
}

// notify is a client for one caller at a time.
type notify struct {
	mu      sync.Mutex // held from Acquire to Release
	raw     *raw
	ms      string
	pfx     string
	seq     uint64
	release string          // sha of the script that frees and tells
	remove  string          // sha of the script that only frees
	known   map[string]bool // names whose channel is subscribed
	freed   map[string]uint32
}

func openNotify(ctx context.Context, env Env) (Locker, error) {
	r, err := openRaw(ctx, env.Members, notifyScript, deleteScript)
	if err != nil {
		return nil, err
	}
	return &notify{raw: r, ms: strconv.FormatInt(env.Lease.Milliseconds(), 10), pfx: strconv.FormatUint(rand.Uint64()|1<<63, 36),
		release: sha1hex(notifyScript), remove: deleteSHA, known: map[string]bool{}}, nil
}

func (f *notify) Close() { f.raw.Close() }

// heard books a message: the owner that it names has been freed at that member.
func (f *notify) heard(e event) {
	if e.op == 0 && e.push != "" && e.push != "subscribed" {
		f.freed[e.push] |= 1 << e.node
	}
}

func (f *notify) Acquire(ctx context.Context, name string) (Held, error) {
	f.mu.Lock()
	f.freed = map[string]uint32{}
	if !f.known[name] {
		if err := f.raw.subscribe(ctx, "freed:"+name); err != nil {
			f.mu.Unlock()
			return nil, err
		}
		f.known[name] = true
	}
	for {
		f.seq++
		me := f.pfx + ":" + strconv.FormatUint(f.seq, 36)
		holder, err := f.try(ctx, name, me)
		if err == nil && holder == me {
			return notifyHeld{f, name, me}, nil
		}
		f.raw.ask(command("EVALSHA", f.remove, "1", name, me), f.raw.everybody())
		if err == nil {
			err = f.await(ctx, holder)
		}
		if err != nil {
			f.mu.Unlock()
			return nil, err
		}
	}
}

// try returns who has a majority: me, another, or "".
func (f *notify) try(ctx context.Context, name, me string) (string, error) {
	f.raw.ask(command("SET", name, me, "NX", "GET", "PX", f.ms), f.raw.everybody())
	op, n := f.raw.op, len(f.raw.cmd)
	votes := map[string]int{}
	for answers := 0; answers < n; {
		select {
		case e := <-f.raw.events:
			if e.op != op {
				f.heard(e)
				continue
			}
			answers++
			owner := e.reply.text
			if e.ok && e.reply.kind == 0 {
				owner = me
			}
			if votes[owner]++; owner != "" && votes[owner] > n/2 {
				return owner, nil
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "", nil
}

// await waits until a majority told that the holder is gone; after a split, a random moment.
func (f *notify) await(ctx context.Context, holder string) error {
	limit := 200 * time.Millisecond
	if holder == "" {
		limit = 200*time.Microsecond + rand.N(time.Millisecond)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for bits.OnesCount32(f.freed[holder]) <= len(f.raw.cmd)/2 {
		select {
		case e := <-f.raw.events:
			f.heard(e)
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

type notifyHeld struct {
	f        *notify
	name, me string
}

func (h notifyHeld) Release(ctx context.Context) error {
	defer h.f.mu.Unlock()
	h.f.raw.ask(command("EVALSHA", h.f.release, "1", h.name, h.me), h.f.raw.everybody())
	return h.f.raw.confirm(ctx, h.f.heard)
}
