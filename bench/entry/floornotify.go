package entry

import (
	"bytes"
	"context"
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
	mu     sync.Mutex // held from Acquire to Release
	raw    *raw
	ms     string
	pfx    string
	seq    uint64
	me     []byte
	name   string
	known  map[string]bool // names whose channel is subscribed
	buf    []byte
	timer  *time.Timer
	holder []byte // who had a majority when it was asked; empty: nobody

	// The readers book these, under raw's mutex.
	asked    uint64 // the request whose answers count
	answers  int
	have     owners // who has which votes, by the answers
	freed    owners // who has been freed where, since the request
	awaiting bool   // until the holder is freed at a majority
}

var notifySHA = sha1hex(notifyScript)

func openNotify(ctx context.Context, env Env) (Locker, error) {
	f := &notify{ms: strconv.FormatInt(env.Lease.Milliseconds(), 10), pfx: strconv.FormatUint(rand.Uint64()|1<<63, 36),
		known: map[string]bool{}, timer: time.NewTimer(time.Hour)}
	var err error
	if f.raw, err = openRaw(ctx, env.Members, f.told, notifyScript, deleteScript); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *notify) Close() { f.raw.Close() }

// told books a message: the owner that it names has been freed at that member.
func (f *notify) told(member int, owner []byte) {
	at := f.freed.add(owner, member)
	if f.awaiting && f.raw.majority(at) && bytes.Equal(owner, f.holder) {
		f.raw.wake()
	}
}

// answer books who has that member's vote.
func (f *notify) answer(member int, op uint64, r reply, ok bool) {
	f.raw.Lock()
	defer f.raw.Unlock()
	if op != f.asked {
		return
	}
	f.answers++
	owner := r.text
	if ok && r.kind == 0 {
		owner = f.me
	}
	if ok && f.raw.majority(f.have.add(owner, member)) || f.answers == len(f.raw.cmd) {
		f.raw.wake()
	}
}

func (f *notify) Acquire(ctx context.Context, name string) (Held, error) {
	f.mu.Lock()
	f.name = name
	if !f.known[name] {
		if err := f.raw.subscribe(ctx, "freed:"+name); err != nil {
			f.mu.Unlock()
			return nil, err
		}
		f.known[name] = true
	}
	for {
		f.seq++
		f.me = strconv.AppendUint(append(append(f.me[:0], f.pfx...), ':'), f.seq, 36)
		if f.try() {
			return f, nil
		}
		f.raw.ask(f.call(deleteSHA), nil, f.raw.everybody())
		if err := f.await(ctx); err != nil {
			f.mu.Unlock()
			return nil, err
		}
	}
}

// call is a call of one of the scripts.
func (f *notify) call(sha string) []byte {
	f.buf = appendBulk(appendBulk(appendCall(f.buf[:0], sha, 1, 1), f.name), f.me)
	return f.buf
}

// try asks for the lock, and finds out who has a majority if it does not get one.
func (f *notify) try() bool {
	f.raw.Lock()
	f.asked, f.answers, f.awaiting = f.raw.op+1, 0, false
	f.have.reset()
	f.freed.reset()
	f.raw.Unlock()
	b := appendBulk(appendBulk(appendBulk(appendHead(f.buf[:0], 7), "SET"), f.name), f.me)
	f.buf = appendBulk(appendBulk(appendBulk(appendBulk(b, "NX"), "GET"), "PX"), f.ms)
	f.raw.ask(f.buf, f, f.raw.everybody())
	for {
		<-f.raw.woken
		f.raw.Lock()
		done := f.answers == len(f.raw.cmd)
		f.holder = f.holder[:0]
		for _, o := range f.have {
			if f.raw.majority(o.members) {
				f.holder = append(f.holder, o.owner...)
				done = true
			}
		}
		if done {
			f.asked = 0
			f.awaiting = true
		}
		f.raw.Unlock()
		if done {
			return bytes.Equal(f.holder, f.me)
		}
	}
}

// await waits until a majority told that the holder is gone; after a split, a random moment.
func (f *notify) await(ctx context.Context) error {
	limit := 200 * time.Millisecond
	if len(f.holder) == 0 {
		limit = 200*time.Microsecond + rand.N(time.Millisecond)
	}
	f.timer.Reset(limit)
	for {
		f.raw.Lock()
		gone := f.raw.majority(f.freed.of(f.holder))
		f.raw.Unlock()
		if gone {
			return nil
		}
		select {
		case <-f.raw.woken:
		case <-f.timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Release frees the lock, which is the client's only one.
func (f *notify) Release(context.Context) error {
	defer f.mu.Unlock()
	return f.raw.confirm(f.call(notifySHA))
}
