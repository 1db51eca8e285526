package entry

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/slot"
)

func init() {
	register(Spec{
		Name: "floor-standing", Kind: Redis, Floor: true,
		Note:   "raw sockets: a bare form of redquorum's own hand-off (standing requests), without time-outs, validity or reconnects; W12: a lock per permit, of which each contender always wants the same",
		Shapes: []string{Separate, Permits},
		Inner:  ourInner,
		Open:   openStanding,
	})
}

// The scripts of the bare form: KEYS are lock, counters, queue, TTLs of waiters. A refused request stays
// registered; the release executes the request of the next one and pushes the grant to its inbox.
const standingLib = `local function inbox(o) return 'inbox:'..string.match(o,'^(.*):') end
local function grant(w,now,bucket)
 redis.call('ZREM',KEYS[3],w)
 local m=redis.call('HGET',KEYS[4],w) redis.call('HDEL',KEYS[4],w)
 local n=redis.call('HINCRBY',KEYS[2],bucket,1)
 redis.call('HSET',KEYS[1],w,n) redis.call('PEXPIRE',KEYS[1],tonumber(m) or 9000)
 local x=redis.call('ZRANGE',KEYS[3],0,0)[1]
 redis.call('PUBLISH',inbox(w),'g '..w..' '..n..' '..now..' '..(x or '-'))
end
local t=redis.call('TIME') local now=t[1]*1000000+t[2]
`
const standingWait = standingLib + `local h=redis.call('HGETALL',KEYS[1])
if not h[1] then
 local n=redis.call('HINCRBY',KEYS[2],ARGV[3],1)
 redis.call('HSET',KEYS[1],ARGV[1],n) redis.call('PEXPIRE',KEYS[1],ARGV[2])
 if redis.call('ZREM',KEYS[3],ARGV[1])==1 then redis.call('HDEL',KEYS[4],ARGV[1]) end
 return n
end
if h[1]==ARGV[1] then return tonumber(h[2]) end
if redis.call('ZADD',KEYS[3],'NX',now,ARGV[1])==1 then redis.call('PUBLISH',inbox(h[1]),'w '..h[1]..' '..ARGV[1]) end
redis.call('HSET',KEYS[4],ARGV[1],ARGV[2])
redis.call('PEXPIRE',KEYS[3],60000) redis.call('PEXPIRE',KEYS[4],60000)
return -1`
const standingRelease = standingLib + `if redis.call('HDEL',KEYS[1],ARGV[1])==0 then redis.call('ZREM',KEYS[3],ARGV[1]) redis.call('HDEL',KEYS[4],ARGV[1]) return 0 end
local w=ARGV[2]
if w=='' or not redis.call('ZSCORE',KEYS[3],w) then w=redis.call('ZRANGE',KEYS[3],0,0)[1] end
if w then grant(w,now,ARGV[3]) end
return 1`
const standingYield = standingLib + `if redis.call('HGET',KEYS[1],ARGV[1])~=ARGV[4] then return -1 end
local m=ARGV[1]
for _,x in ipairs(redis.call('ZRANGE',KEYS[3],0,-1)) do if x<m then m=x end end
if m==ARGV[1] then local n=redis.call('HINCRBY',KEYS[2],ARGV[3],1) redis.call('HSET',KEYS[1],m,n) return n end
redis.call('DEL',KEYS[1]) redis.call('ZADD',KEYS[3],'NX',now,ARGV[1]) redis.call('HSET',KEYS[4],ARGV[1],ARGV[2])
grant(m,now,ARGV[3])
return -1`

var standingWaitSHA, standingReleaseSHA, standingYieldSHA = sha1hex(standingWait), sha1hex(standingRelease), sha1hex(standingYield)

// standing is a client for one caller at a time.
type standing struct {
	mu  sync.Mutex // held from Acquire to Release
	raw *raw
	ms  string
	pfx string
	seq uint64
	who uint64 // which client of the process this is
}

var standings atomic.Uint64

func openStanding(ctx context.Context, env Env) (Locker, error) {
	r, err := openRaw(ctx, env.Members, standingWait, standingRelease, standingYield)
	if err != nil {
		return nil, err
	}
	s := &standing{raw: r, ms: strconv.FormatInt(env.Lease.Milliseconds(), 10), pfx: strconv.FormatUint(rand.Uint64()|1<<63, 16), who: standings.Add(1)}
	if err := r.subscribe(ctx, "inbox:"+s.pfx); err != nil {
		r.Close()
		return nil, err
	}
	return s, nil
}

func (s *standing) Close() { s.raw.Close() }

// standingHeld is one attempt, and the lock once it has it.
type standingHeld struct {
	s        *standing
	name, me string
	bucket   string
	first    uint64 // the first operation of this attempt
	votes    uint32
	waiting  uint32 // members that have not answered
	tokens   []int64
	floors   []int64 // tokens yielded per member: votes at or below are none
	heard    map[string]uint32
	order    []string
}

func (h *standingHeld) request(sha string, args ...string) []byte {
	all := append([]string{"EVALSHA", sha, "4", h.name, "standing:tokens", "queue:" + h.name, "ttls:" + h.name, h.me}, args...)
	return command(all...)
}

func (h *standingHeld) vote(node int, token int64) {
	if token > h.floors[node] {
		h.votes |= 1 << node
		h.tokens[node] = token
	}
}

func (h *standingHeld) hear(waiter string, node int) {
	if waiter == "-" || strings.HasPrefix(waiter, h.s.pfx+":") {
		return
	}
	if h.heard[waiter] == 0 {
		h.order = append(h.order, waiter)
	}
	h.heard[waiter] |= 1 << node
}

func (h *standingHeld) handle(e event) {
	if e.op != 0 {
		if e.op < h.first {
			return
		}
		h.waiting &^= 1 << e.node
		if e.ok && e.reply.n > 0 {
			h.vote(e.node, e.reply.n)
		}
		return
	}
	switch p := strings.Fields(e.push); {
	case len(p) == 5 && p[0] == "g" && p[1] == h.me:
		if token, err := strconv.ParseInt(p[2], 10, 64); err == nil {
			h.vote(e.node, token)
		}
		h.hear(p[4], e.node)
	case len(p) == 3 && p[0] == "w" && p[1] == h.me:
		h.hear(p[2], e.node)
	}
}

func (s *standing) Acquire(ctx context.Context, name string) (Held, error) {
	s.mu.Lock()
	s.seq++
	n := len(s.raw.cmd)
	h := &standingHeld{s: s, name: name, me: s.pfx + ":" + strconv.FormatUint(s.seq, 10), bucket: strconv.Itoa(int(slot.Of(name))),
		tokens: make([]int64, n), floors: make([]int64, n), heard: map[string]uint32{}}
	h.first, h.waiting = s.raw.op+1, s.raw.everybody()
	wait := h.request(standingWaitSHA, s.ms, h.bucket)
	s.raw.ask(wait, s.raw.everybody())
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	var split <-chan time.Time
	for !s.raw.majority(h.votes) {
		if split == nil && h.votes != 0 && h.waiting == 0 {
			split = time.After(time.Millisecond)
		}
		select {
		case e := <-s.raw.events:
			h.handle(e)
		case <-split:
			split = nil
			h.yield()
		case <-again.C:
			s.raw.ask(wait, s.raw.everybody()&^h.votes)
		case <-ctx.Done():
			s.raw.ask(h.request(standingReleaseSHA, "", h.bucket), s.raw.everybody())
			s.mu.Unlock()
			return nil, ctx.Err()
		}
	}
	return h, nil
}

// AcquirePermit takes a lock that stands for one permit. The contenders are dealt out to the permits.
func (s *standing) AcquirePermit(ctx context.Context, name string, limit int) (Held, error) {
	slot := int(s.who % uint64(limit))
	h, err := s.Acquire(ctx, name+":"+strconv.Itoa(slot))
	if err != nil {
		return nil, err
	}
	return standingPermit{h.(*standingHeld), slot}, nil
}

// standingPermit is a lock that stands for one permit.
type standingPermit struct {
	*standingHeld
	slot int
}

func (h standingPermit) Slot() int { return h.slot }

// yield offers every vote in hand to the waiter that all members choose.
func (h *standingHeld) yield() {
	if h.s.raw.majority(h.votes) {
		return
	}
	for i := range h.tokens {
		if h.votes>>i&1 == 1 {
			h.votes &^= 1 << i
			h.waiting |= 1 << i
			h.floors[i] = h.tokens[i]
			h.s.raw.ask(h.request(standingYieldSHA, h.s.ms, h.bucket, strconv.FormatInt(h.tokens[i], 10)), 1<<i)
		}
	}
}

func (h *standingHeld) Release(ctx context.Context) error {
	s := h.s
	defer s.mu.Unlock()
	for more := true; more; {
		select {
		case e := <-s.raw.events:
			h.handle(e)
		default:
			more = false
		}
	}
	hint, best := "", 0
	for _, w := range h.order {
		if c := bits.OnesCount32(h.heard[w]); c > best {
			hint, best = w, c
		}
	}
	s.raw.ask(h.request(standingReleaseSHA, hint, h.bucket), s.raw.everybody())
	return s.raw.confirm(ctx, func(event) {})
}
