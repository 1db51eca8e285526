//go:build !race

package redlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The schedules of semaphores are played on a model of the scripts. Here the same calls go to the model
// and to the scripts themselves: same replies, same keys, same pushes. Everything is compared exactly, as
// of one moment between the times before and after the call; TTLs within what the call took.
func TestSemaphoreModelDoesWhatTheScriptsDo(t *testing.T) {
	t.Run("real", func(t *testing.T) {
		w := newSlotsTwin(t, rt.Real(t, 1).Servers[0], 1000)
		w.random(slotsSequences(60), false)
	})
	t.Run("embedded", func(t *testing.T) {
		FakeTime(t, func(t *testing.T) {
			w := newSlotsTwin(t, rt.Embedded(t, 1).Servers[0], 1)
			w.random(slotsSequences(40), true)
		})
	})
}

func slotsSequences(n int) int {
	switch {
	case schedulesLarge():
		return 20 * n
	case RaceEnabled:
		return n / 4
	}
	return n
}

// slotsTwin is a member and its model.
type slotsTwin struct {
	compared
	model *slotsServer
	m     slotsMember
	seen  map[string]int // replies, by call and kind
}

func newSlotsTwin(t *testing.T, server redistest.Server, grain int64) *slotsTwin {
	s := newScripted(t, server)
	s.Lock = script.Semaphore(s.Name)
	return &slotsTwin{compared: compared{scripted: s, grain: grain}, model: newSlotsServer(slotsRules{}), seen: map[string]int{}}
}

func (w *slotsTwin) key(word string) string { return slot.Sibling("redquorum:"+word, w.Name) }

func (w *slotsTwin) reset(title string) {
	w.Helper()
	w.ask("DEL", w.key("s1"), w.key("sq"), w.key("sw"), member.TokensKey, member.MarkerKey)
	w.ask("HSET", member.MarkerKey, "id", twinTag)
	w.m, w.log = slotsMember{id: twinTag}, []string{title}
}

// command encodes c as the client does.
func (c scriptCall) slotsCommand(k script.Lock) member.Command {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	k = k.Asking(&script.Asked{Want: c.want, Limit: c.limit, Known: c.known, N: c.n, Held: c.had, Wish: ms(c.wish)})
	switch c.op {
	case opAcquire:
		return k.Acquire(nil, c.owner, ms(c.ttl))
	case opWait:
		return k.Wait(nil, c.owner, ms(c.ttl), ms(c.entry), 0)
	case opRelease:
		return k.Release(nil, c.owner, c.hint)
	case opClaim:
		return k.Claim(nil, c.owner, c.had, c.slots, ms(c.ttl), ms(c.entry))
	case opRaise:
		return k.Raise(nil, c.owner, 0)
	case opRejoin:
		return k.Rejoin(nil, c.owner, ms(c.ttl), 0)
	case opExtend:
		return k.Extend(nil, c.owner, ms(c.ttl))
	}
	panic("no such script: " + c.op)
}

// slotsKeys are a member's keys, as text that tells everything but TTLs.
type slotsKeys struct {
	now  int64 // µs
	text string
	ends [3]int64 // TTLs of permits, queue and waiters
	over int64    // what the member has noted of the first

	since map[string]int64 // when waiters registered, µs
	begun []int64          // what counters draw next
}

const slotsDump = `local t = redis.call('TIME')
return {t[1] * 1000000 + t[2], redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[4]), redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[3]), redis.call('PTTL', KEYS[4])}`

func (w *slotsTwin) keysIn(v any) slotsKeys {
	d := v.([]any)
	k := slotsKeys{now: d[0].(int64), since: map[string]int64{}}
	for i, word := range []string{"permits", "tokens", "line", "waiters"} {
		var lines []string
		list := d[1+i].([]any)
		for j := 0; j < len(list); j += 2 {
			field, value := list[j].(string), list[j+1].(string)
			if word == "line" {
				f, _ := strconv.ParseFloat(value, 64)
				value = strconv.FormatFloat(f, 'f', -1, 64)
				k.since[field] = int64(f)
			}
			if word == "tokens" {
				if _, number, ok := strings.Cut(field, "."); ok {
					field = number
					k.begun = append(k.begun, toInt(value)+1)
				} else if field != "base" {
					field = "limit"
				}
			}
			if word == "permits" && field == "-" {
				k.over = toInt(value)
				continue
			}
			lines = append(lines, field+" "+value)
		}
		sort.Strings(lines)
		k.text += word + "\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	for i := range k.ends {
		k.ends[i] = d[5+i].(int64)
	}
	return k
}

// keys are those of the model.
func (m *slotsMember) keys(now int64) slotsKeys {
	ms := now / 1000
	k := slotsKeys{now: now, ends: [3]int64{-2, -2, -2}}
	var has, tokens, line, waiters []string
	if m.earliest > 0 {
		has = append(has, fmt.Sprint(". ", m.earliest))
		k.over = m.over
		k.ends[0] = m.end - ms
	}
	for _, r := range m.records {
		has = append(has, fmt.Sprintf("%s %d %s", r.owner, r.deadline, slotsText(r.has)))
		for i, p := range r.has {
			has = append(has, fmt.Sprintf("%d %s", p.Slot, r.owner))
			if i > 0 {
				has = append(has, fmt.Sprintf("+%d ", p.Slot))
			}
		}
	}
	for slot, n := range m.counters {
		if n > 0 {
			tokens = append(tokens, fmt.Sprint(slot, " ", n))
		}
	}
	if m.base > 0 {
		tokens = append(tokens, fmt.Sprint("base ", m.base))
	}
	if m.stored > 0 {
		tokens = append(tokens, fmt.Sprint("limit ", m.stored))
	}
	for _, q := range m.queue {
		line = append(line, fmt.Sprint(q.owner, " ", q.since))
		waiters = append(waiters, fmt.Sprint(q.owner, " ", q.deadline, " ", q.ttl, " ", q.n, " ", q.want, " ", q.limit))
	}
	for _, v := range m.wishes {
		text := fmt.Sprint("<", v.owner, " ", v.deadline, " ", v.ttl, " ", v.limit)
		for _, slot := range v.slots {
			text += " " + strconv.Itoa(slot)
			waiters = append(waiters, fmt.Sprint(">", slot, " ", v.owner))
		}
		waiters = append(waiters, text)
	}
	if len(m.queue) > 0 {
		k.ends[1] = m.waitEnd - ms
	}
	if len(waiters) > 0 {
		k.ends[2] = m.waitEnd - ms
	}
	for i, lines := range [][]string{has, tokens, line, waiters} {
		sort.Strings(lines)
		k.text += []string{"permits", "tokens", "line", "waiters"}[i] + "\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	return k
}

// slotsReplyOf reads what a script says.
func slotsReplyOf(op string, v any) (r scriptReply) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	switch v := list[0].(type) {
	case error:
		r.err = strings.TrimPrefix(v.Error(), "ERR ")
		if at := plainReply.FindStringIndex(r.err); at != nil {
			r.err = r.err[at[0]:]
		}
	case int64:
		r.n = v
	case string:
		r.permits = v
	}
	if len(list) > 2 {
		r.server, r.next = list[1].(int64), list[2].(string)
	}
	if len(list) > 4 {
		r.limit, _ = list[4].(int64)
	}
	return r
}

// slotsPush is the text of a push.
func slotsPush(p script.Push) string {
	return fmt.Sprintf("s %s %d %s %d %s", p.Owner, p.Server, p.Other, p.TTL.Milliseconds(), slotsText(p.Permits))
}

// play makes one call on both and compares everything.
func (w *slotsTwin) play(c scriptCall) scriptReply {
	w.Helper()
	dump := []string{"EVAL", slotsDump, "4", w.key("s1"), member.TokensKey, w.key("sq"), w.key("sw")}
	x := w.exchange(c, c.slotsCommand(w.Lock), dump)
	before, has, reply := x.before, w.keysIn(x.keys), slotsReplyOf(c.op, x.reply)
	moments := []int64{before}
	for ms := before/1000 + 1; ms*1000 <= has.now; ms++ {
		moments = append(moments, ms*1000)
	}
	if reply.server > 0 {
		moments = []int64{reply.server}
	}
	var pushes []string
	for _, msg := range x.pushes {
		p, ok := script.ParsePush(msg)
		w.check(ok, "push %q", msg)
		moments = []int64{p.Server}
		// A client reads permits in the order of their slots.
		fields := strings.Fields(msg)
		list, _ := permit.Parse(strings.Join(fields[5:], " "))
		pushes = append(pushes, strings.Join(fields[:5], " ")+" "+slotsText(list))
	}
	if l, ok := permit.Parse(reply.permits); ok { // a new counter tells the time
		for _, p := range l {
			if before <= p.Token && p.Token <= has.now {
				moments = []int64{p.Token}
			}
		}
	}
	if since, ok := has.since[c.owner]; ok && reply.err != "" { // it has stood in line, and tells nothing
		moments = append(moments, since)
	}
	if c.op == opRejoin { // it begins counters, and draws nothing
		for _, n := range has.begun {
			if before <= n && n <= has.now && len(pushes) == 0 {
				moments = []int64{n}
			}
		}
	}
	why := ""
	for _, now := range moments {
		if len(moments) == 1 {
			w.check(between(before, now, has.now), "the server's time %d is not in %d..%d", now, before, has.now)
		} else if now < before {
			continue
		}
		m := w.m
		want, published := w.model.call(&m, now, c)
		var wantPushes []string
		for _, p := range published {
			wantPushes = append(wantPushes, slotsPush(p))
		}
		keys := m.keys(has.now)
		if near := func(a, b int64) bool {
			return a == b || a > 0 && b > 0 && max(a, b)-min(a, b) <= (has.now-before)/1000+w.grain
		}; why == "" || len(moments) > 1 {
			why = ""
			switch {
			case want != reply:
				why = fmt.Sprintf("model replies %+v, script %+v", want, reply)
			case !slices.Equal(wantPushes, pushes):
				why = fmt.Sprintf("model pushes %q, script %q", wantPushes, pushes)
			case keys.text != has.text:
				why = fmt.Sprintf("model has\n%smember has\n%s", keys.text, has.text)
			case !near(keys.ends[0], has.ends[0]) || !near(keys.ends[2], has.ends[2]) || !near(keys.over, has.over):
				why = fmt.Sprintf("TTLs: model %v, %d, member %v, %d", keys.ends, keys.over, has.ends, has.over)
			case (keys.ends[1] < 0) != (has.ends[1] < 0) || has.ends[1] >= 0 && has.ends[1] < has.ends[2]-1:
				why = fmt.Sprintf("TTL of the line: model %v, member %v", keys.ends, has.ends)
			}
		}
		if why == "" {
			if w.m = m; m.earliest > 0 { // a server's own reading may be a millisecond later
				w.m.over, w.m.end = has.over, has.now/1000+has.ends[0]
			}
			w.seen[c.op+" "+slotsKind(want)]++
			for range published {
				w.seen["push"]++
			}
			return reply
		}
	}
	w.check(false, "%s\nbefore\n%s", why, w.m.keys(before).text)
	return reply
}

func slotsKind(r scriptReply) string {
	switch {
	case r.err != "":
		return r.err
	case r.permits != "" && strings.Contains(r.permits, " "):
		return "several"
	case r.permits != "":
		return "one"
	case r.n < 0:
		return "refused"
	}
	return text(r.n)
}

// random plays sequences of calls. timed: the clock is ours, and what has a deadline ends by itself.
func (w *slotsTwin) random(sequences int, timed bool) {
	w.Helper()
	seed, rng := w.dice()
	owners := []string{alice, bob, carol, "DDDD:4", "EEEE:5"}
	ttls := []int64{twinShort, twinTTL + 10_000_000, twinLong + 70_000_000} // none is twice another
	if timed {
		ttls = twinTimed
	}
	ops := []string{opAcquire, opAcquire, opWait, opWait, opWait, opRelease, opRelease, opClaim, opClaim, opExtend, opRaise, opRejoin}
	// A few sequences need not come to everything: then more are played.
	for s := 0; s < sequences || s < 50*sequences && slices.ContainsFunc(slotsOutcomes, w.missing); s++ {
		w.reset(fmt.Sprintf("seed %d, sequence %d", seed, s))
		if s%3 == 0 {
			w.m.base = 1_000_000
			w.ask("HSET", member.TokensKey, "base", text(w.m.base))
		}
		most, weight := 1+rng.IntN(slotsMost), 1
		if rng.IntN(3) > 0 {
			weight = 1 + rng.IntN(min(3, most))
		}
		for range 40 {
			if timed && rng.IntN(3) == 0 {
				d := time.Duration(rng.IntN(900)) * time.Millisecond
				w.log = append(w.log, d.String())
				time.Sleep(d)
				continue
			}
			w.play(w.any(rng, ops[rng.IntN(len(ops))], owners, ttls, most, weight))
		}
	}
	w.Logf("%d calls at random: %v", w.calls, w.seen)
	for _, what := range slotsOutcomes {
		require.False(w, w.missing(what), "no call ever came to: %s", what)
	}
}

// slotsOutcomes are what the calls of a run must come to.
var slotsOutcomes = []string{
	"push", "acquire one", "wait one", "wait refused", "claim one", "claim refused", "release 1", "release 0",
	"extend 1", "extend 0", "raise 1", "raise 0", "rejoin 1", "rejoin 0", "acquire several", "claim several",
}

func (w *slotsTwin) missing(outcome string) bool { return w.seen[outcome] == 0 }

// any is a call that is worth making now.
func (w *slotsTwin) any(rng *rand.Rand, op string, owners []string, ttls []int64, most, weight int) scriptCall {
	pick := func() string { return owners[rng.IntN(len(owners))] }
	c := scriptCall{op: op, owner: pick(), tag: twinTag, ttl: ttls[rng.IntN(3)], n: 1 + rng.IntN(weight), limit: most}
	if rng.IntN(12) == 0 {
		c.tag = []string{"", "!", "another 2"}[rng.IntN(3)]
	}
	if rng.IntN(6) == 0 {
		c.limit = max(c.n, 1+rng.IntN(most))
	}
	if rng.IntN(6) == 0 {
		c.limit = min(c.limit+rng.IntN(2), slotsMost)
	}
	c.want = rng.IntN(c.limit)
	if op != opAcquire && op != opWait && rng.IntN(3) > 0 && len(w.m.records) > 0 {
		c.owner = w.m.records[rng.IntN(len(w.m.records))].owner
	}
	var has permit.List
	if r := w.m.record(c.owner); r != nil {
		has = slotsSorted(r.has)
	}
	lease := slices.Clone(has)
	if rng.IntN(3) == 0 || len(lease) == 0 {
		lease = nil
		for s := range most {
			if rng.IntN(2) == 0 {
				lease = append(lease, permit.Permit{Slot: s, Token: max(1, w.m.counters[s]+rng.Int64N(7)-3)})
			}
		}
	}
	switch op {
	case opAcquire:
		c.entry = 0
	case opWait:
		c.entry = ttls[rng.IntN(3)]
	case opRelease:
		c.ttl, c.had = 0, lease
		if rng.IntN(2) == 0 {
			c.hint = pick()
		}
	case opClaim:
		c.entry, c.had = ttls[rng.IntN(3)], has
		if rng.IntN(5) == 0 {
			c.had = lease
		}
		for s := range c.limit {
			if len(c.slots) < c.n && rng.IntN(2) == 0 {
				c.slots = append(c.slots, s)
			}
		}
	case opExtend:
		c.had, c.tag = lease, twinTag
	case opRaise:
		c.ttl, c.had = 0, lease
		for i := range c.had {
			c.had[i].Token += rng.Int64N(3)
		}
	case opRejoin:
		if c.had = lease; rng.IntN(2) == 0 {
			c.wish = ttls[rng.IntN(3)]
		}
	}
	if len(c.had) == 0 && (op == opRaise || op == opRejoin || op == opExtend) {
		c.had = permit.List{{Slot: rng.IntN(most), Token: 1 + rng.Int64N(3)}}
	}
	return c
}

// compared is a member beside which a model is called.
type compared struct {
	*scripted
	grain int64 // ms by which TTLs may differ anyway
	log   []string
	calls int
}

// exchanged is what a member said to a call.
type exchanged struct {
	before int64 // its time, µs
	reply  any
	pushes []string
	keys   any // as dump lists them
}

// exchange makes a call in one write: the time before, the call, a push that ends what the call pushed, and all keys.
func (w *compared) exchange(c scriptCall, cmd member.Command, dump []string) (x exchanged) {
	w.Helper()
	w.calls++
	w.log = append(w.log, c.String())
	b := resp.Command("TIME")
	whole, unwrap := w.tagged(cmd, c.tag)
	b = append(b, whole...)
	b = append(b, resp.Command("PUBLISH", script.Inbox("end"), "end")...)
	b = append(b, resp.Command(dump...)...)
	_, err := w.c.Conn().Write(b)
	require.NoError(w, err)
	var got [4]any
	for i := range got {
		got[i], err = w.c.ReceiveFor(10 * time.Second)
		require.NoError(w, err)
	}
	clock := got[0].([]any)
	x.before = toInt(clock[0].(string))*1_000_000 + toInt(clock[1].(string))
	x.reply, x.keys = unwrap(got[1]), got[3]
	for {
		v, err := w.inbox.ReceiveFor(10 * time.Second)
		require.NoError(w, err)
		msg := v.([]any)[3].(string)
		if msg == "end" {
			return x
		}
		x.pushes = append(x.pushes, msg)
	}
}

func (w *compared) check(ok bool, format string, args ...any) {
	w.Helper()
	if !ok {
		w.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n  "))
	}
}

// dice are those of REDQUORUM_SEED, or of a seed that is logged.
func (w *compared) dice() (seed uint64, rng *rand.Rand) {
	w.Helper()
	seed = rand.Uint64()
	if s := os.Getenv("REDQUORUM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(w, err)
	}
	w.Logf("seed %d", seed)
	return seed, rand.New(rand.NewPCG(seed, 0))
}

const twinTag = "run 1" // the marker's id

const (
	twinTTL   = int64(300_000_000) // ms: no key of these lapses by itself
	twinLong  = 2 * twinTTL
	twinShort = twinTTL / 2
)

var twinTimed = []int64{500, 1500, 4000} // ms: these do, with the clock
