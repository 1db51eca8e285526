package entry

import (
	"bytes"
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
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
	mu    sync.Mutex // held from Acquire to Release
	raw   *raw
	ms    string
	pfx   []byte // of all owners of this client, with the colon
	seq   uint64
	who   uint64 // which client of the process this is
	buf   []byte
	split *time.Timer // votes are split
	again *time.Timer // the next heartbeat
	held  standingHeld
}

var standings atomic.Uint64

func openStanding(ctx context.Context, env Env) (Locker, error) {
	s := &standing{ms: strconv.FormatInt(env.Lease.Milliseconds(), 10), pfx: append(strconv.AppendUint(nil, rand.Uint64()|1<<63, 16), ':'),
		who: standings.Add(1), split: time.NewTimer(time.Hour), again: time.NewTimer(time.Hour)}
	s.held = standingHeld{s: s, tokens: make([]int64, len(env.Members)), floors: make([]int64, len(env.Members))}
	var err error
	if s.raw, err = openRaw(ctx, env.Members, s.held.told, standingWait, standingRelease, standingYield); err != nil {
		return nil, err
	}
	if err := s.raw.subscribe(ctx, "inbox:"+string(s.pfx[:len(s.pfx)-1])); err != nil {
		s.raw.Close()
		return nil, err
	}
	return s, nil
}

func (s *standing) Close() { s.raw.Close() }

// standingHeld is one attempt, and the lock once it has it. The readers book votes and waiters, under
// raw's mutex.
type standingHeld struct {
	s       *standing
	name    string
	me      []byte
	first   uint64 // the first operation of this attempt
	votes   uint32
	waiting uint32 // members that have not answered
	tokens  []int64
	floors  []int64 // tokens yielded per member: votes at or below are none
	heard   owners  // who waits, in the order in which they were heard of
}

// call begins the call of a script with so many arguments behind the owner.
func (h *standingHeld) call(sha string, args int) []byte {
	b := appendBulk(appendBulk(appendCall(h.s.buf[:0], sha, 4, 1+args), h.name), "standing:tokens")
	for _, prefix := range []string{"queue:", "ttls:"} {
		b = append(appendCount(b, '$', len(prefix)+len(h.name)), prefix...)
		b = append(append(b, h.name...), '\r', '\n')
	}
	return appendBulk(b, h.me)
}

// request adds the TTL or the successor, and the bucket.
func (h *standingHeld) request(sha string, args int, first string) []byte {
	h.s.buf = appendIntBulk(appendBulk(h.call(sha, args), first), int64(slot.Of(h.name)))
	return h.s.buf
}

func (h *standingHeld) vote(member int, token int64) {
	if token > h.floors[member] {
		h.votes |= 1 << member
		h.tokens[member] = token
	}
}

func (h *standingHeld) hear(waiter []byte, member int) {
	if string(waiter) != "-" && !bytes.HasPrefix(waiter, h.s.pfx) {
		h.heard.add(waiter, member)
	}
}

// wake wakes the caller if it has something to do: the votes are enough, or all are in and are not.
func (h *standingHeld) wake() {
	if h.s.raw.majority(h.votes) || h.waiting == 0 && h.votes != 0 {
		h.s.raw.wake()
	}
}

func (h *standingHeld) answer(member int, op uint64, r reply, ok bool) {
	h.s.raw.Lock()
	defer h.s.raw.Unlock()
	if op < h.first {
		return
	}
	h.waiting &^= 1 << member
	if ok && r.n > 0 {
		h.vote(member, r.n)
	}
	h.wake()
}

// told books "g owner token time next", a grant, and "w owner waiter".
func (h *standingHeld) told(member int, push []byte) {
	var word [5][]byte
	n := 0
	for rest, more := push, true; more && n < len(word); n++ {
		word[n], rest, more = bytes.Cut(rest, []byte{' '})
	}
	switch {
	case n < 3 || !bytes.Equal(word[1], h.me):
	case n == 5 && word[0][0] == 'g':
		h.vote(member, parseInt(word[2]))
		h.hear(word[4], member)
		h.wake()
	case n == 3 && word[0][0] == 'w':
		h.hear(word[2], member)
	}
}

func (s *standing) Acquire(ctx context.Context, name string) (Held, error) {
	s.mu.Lock()
	s.seq++
	h := &s.held
	s.raw.Lock()
	h.name, h.me = name, strconv.AppendUint(append(h.me[:0], s.pfx...), s.seq, 10)
	h.first, h.waiting, h.votes = s.raw.op+1, s.raw.everybody(), 0
	clear(h.tokens)
	clear(h.floors)
	h.heard.reset()
	s.raw.Unlock()
	s.raw.ask(h.request(standingWaitSHA, 2, s.ms), h, s.raw.everybody())
	const heartbeat = 200 * time.Millisecond
	s.again.Reset(heartbeat)
	isSplit := false
	for {
		s.raw.Lock()
		votes, all := h.votes, h.waiting == 0
		s.raw.Unlock()
		if s.raw.majority(votes) {
			return h, nil
		}
		if !isSplit && votes != 0 && all {
			isSplit = true
			s.split.Reset(time.Millisecond)
		}
		select {
		case <-s.raw.woken:
		case <-s.split.C:
			if isSplit {
				isSplit = false
				h.yield()
			}
		case <-s.again.C:
			s.raw.ask(h.request(standingWaitSHA, 2, s.ms), h, s.raw.everybody()&^votes)
			s.again.Reset(heartbeat)
		case <-ctx.Done():
			s.raw.ask(h.request(standingReleaseSHA, 2, ""), nil, s.raw.everybody())
			s.mu.Unlock()
			return nil, ctx.Err()
		}
	}
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
	for i := range h.tokens {
		h.s.raw.Lock()
		enough := h.s.raw.majority(h.votes)
		mine := h.votes>>i&1 == 1
		if mine && !enough {
			h.votes &^= 1 << i
			h.waiting |= 1 << i
			h.floors[i] = h.tokens[i]
		}
		token := h.tokens[i]
		h.s.raw.Unlock()
		if enough {
			return
		}
		if mine {
			h.s.buf = appendIntBulk(h.request(standingYieldSHA, 3, h.s.ms), token)
			h.s.raw.ask(h.s.buf, h, 1<<i)
		}
	}
}

// Release frees the lock, which is the client's only one.
func (h *standingHeld) Release(context.Context) error {
	s := h.s
	defer s.mu.Unlock()
	s.raw.Lock()
	b, best := h.call(standingReleaseSHA, 2), 0
	hint := []byte(nil)
	for _, o := range h.heard {
		if c := bits.OnesCount32(o.members); c > best {
			hint, best = o.owner, c
		}
	}
	s.buf = appendIntBulk(appendBulk(b, hint), int64(slot.Of(h.name)))
	h.first = math.MaxUint64 // nothing that arrives from now on is for this attempt
	s.raw.Unlock()
	return s.raw.confirm(s.buf)
}
