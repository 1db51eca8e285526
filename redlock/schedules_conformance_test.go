//go:build !race

package redlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
)

// The schedules are played on a model of the scripts. Here the same calls go to the model and to the
// scripts themselves: same replies, same keys, same pushes. Tokens, queues and deadlines are compared
// exactly, with the time that the server told; TTLs within what the call took.
func TestSchedulesModelDoesWhatTheScriptsDo(t *testing.T) {
	for _, joined := range []bool{false, true} {
		batches := map[bool]string{true: "batches, "}[joined]
		t.Run(batches+"real", func(t *testing.T) {
			w := newTwin(t, rt.Real(t, 1).Servers[0], 1000) // a server may be interrupted, and TTLs are days
			if w.joined = joined; !joined {
				w.pairs()
			}
			w.random(100, false)
		})
		t.Run(batches+"embedded", func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				w := newTwin(t, rt.Embedded(t, 1).Servers[0], 1)
				if w.joined = joined; !joined && schedulesLarge() { // half a minute under the race detector
					w.pairs()
				}
				w.random(30, true)
			})
		})
	}
	for name, owners := range map[string][]string{"fair": {alice, bob, carol}, "fair and not": {alice, carol}} {
		t.Run(name+", real", func(t *testing.T) {
			w := newTwin(t, rt.Real(t, 1).Servers[0], 1000)
			w.fair = owners
			w.random(100, false)
		})
		t.Run(name+", embedded", func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				w := newTwin(t, rt.Embedded(t, 1).Servers[0], 1)
				w.fair = owners
				w.random(30, true)
			})
		})
	}
}

// schedulesLarge reports whether there is time for more: make soak.
func schedulesLarge() bool { return os.Getenv("REDQUORUM_SEEDS") != "" }

// between reports whether a server that told first and then later, in µs, may have told now meanwhile. If it told less
// later, the machine's clock was set back: by a few microseconds, now and then.
func between(first, now, then int64) bool {
	if then < first {
		const setBack = 100
		return then-setBack <= now && now <= first+setBack
	}
	return first <= now && now <= then
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
func (w *compared) exchange(c modelCall, cmd member.Command, dump []string) (x exchanged) {
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

// twin is a member and its model.
type twin struct {
	compared
	model *modelServer
	m     modelMember
	slack int64    // by which TTLs may differ with what the calls took
	fair  []string // owners whose calls are those of a fair lock
}

func newTwin(t *testing.T, server redistest.Server, grain int64) *twin {
	return &twin{compared: compared{scripted: newScripted(t, server), grain: grain}, model: newModelServer(modelRules{})}
}

const twinTag = "run 1" // the marker's id

// reset empties both.
func (w *twin) reset(title string) {
	w.Helper()
	w.ask("DEL", w.Name, member.TokensKey, QueueOf(w.Name), WaitersOf(w.Name), member.MarkerKey)
	w.ask("HSET", member.MarkerKey, "id", twinTag)
	w.m, w.slack, w.log = modelMember{id: twinTag}, 0, []string{title}
}

// command encodes c as the client does.
func (c modelCall) command(k script.Lock) member.Command {
	if c.fair {
		k = script.Fair(k.Name)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch c.op {
	case opAcquire:
		return k.Acquire(nil, c.owner, ms(c.ttl))
	case opWait:
		return k.Wait(nil, c.owner, ms(c.ttl), ms(c.entry), c.ticket)
	case opRelease:
		return k.Release(nil, c.owner, c.hint)
	case opYield:
		return k.Yield(nil, c.owner, c.token, ms(c.ttl), ms(c.entry), c.ticket)
	case opRaise:
		return k.Raise(nil, c.owner, c.token)
	case opRejoin:
		return k.Rejoin(nil, c.owner, ms(c.ttl), c.token)
	case opForce:
		return k.Force(nil, script.Hash([]byte(c.owner)), ms(c.ttl)) // of nobody: ""
	case opExtend:
		return k.Extend(nil, c.owner, ms(c.ttl))
	}
	panic("no such script: " + c.op)
}

// parsed says how the bytes of a call are read: what they ask for, and the names of its arguments behind the keys and the
// bucket, of which the first has that number.
var parsed = map[string]struct {
	modelCall
	first int
	args  string
}{
	script.Acquire.SHA:     {modelCall{op: opAcquire}, 5, "owner ttl"},
	script.Wait.SHA:        {modelCall{op: opWait}, 7, "owner ttl entry"},
	script.Release.SHA:     {modelCall{op: opRelease}, 7, "owner hint"},
	script.Yield.SHA:       {modelCall{op: opYield}, 7, "owner token ttl entry"},
	script.Raise.SHA:       {modelCall{op: opRaise}, 4, "owner token"},
	script.Rejoin.SHA:      {modelCall{op: opRejoin}, 7, "owner ttl token"},
	script.Extend.SHA:      {modelCall{op: opExtend}, 2, "owner ttl"},
	script.Force.SHA:       {modelCall{op: opForce}, 0, ""},
	script.RWRead.SHA:      {modelCall{op: opAcquire, by: byReader}, 7, "owner ttl"},
	script.RWAwait.SHA:     {modelCall{op: opWait, by: byReader}, 7, "owner ttl entry"},
	script.RWWait.SHA:      {modelCall{op: opWait, by: byWriter}, 7, "owner ttl entry"},
	script.RWRelease.SHA:   {modelCall{op: opRelease, by: byWriter}, 7, "owner hint"},
	script.RWRaise.SHA:     {modelCall{op: opRaise, by: byReader}, 4, "owner token"},
	script.RWExtend.SHA:    {modelCall{op: opExtend, by: byReader}, 3, "owner ttl"},
	script.RWRejoin.SHA:    {modelCall{op: opRejoin, by: byReader}, 7, "owner ttl token"},
	script.RWDowngrade.SHA: {modelCall{op: opDowngrade, by: byWriter}, 7, "owner ttl"},
	script.FairAcquire.SHA: {modelCall{op: opAcquire, fair: true}, 7, "owner ttl"},
	script.FairWait.SHA:    {modelCall{op: opWait, fair: true}, 7, "owner ttl entry ticket"},
	script.FairRelease.SHA: {modelCall{op: opRelease, fair: true}, 7, "owner hint"},
	script.FairYield.SHA:   {modelCall{op: opYield, fair: true}, 7, "owner token ttl entry ticket"},
	script.SemAcquire.SHA:  {modelCall{op: opAcquire}, 7, "owner ttl want limit known n"},
	script.SemWait.SHA:     {modelCall{op: opWait}, 7, "owner ttl entry want limit known n"},
	script.SemRelease.SHA:  {modelCall{op: opRelease}, 7, "owner hint lease"},
	script.SemClaim.SHA:    {modelCall{op: opClaim}, 7, "owner had slots ttl entry limit known n"},
	script.SemRaise.SHA:    {modelCall{op: opRaise}, 4, "owner had"},
	script.SemRejoin.SHA:   {modelCall{op: opRejoin}, 7, "owner ttl had wish"},
	script.SemExtend.SHA:   {modelCall{op: opExtend}, 2, "owner ttl lease"},
}

// lease are slots as a lease names them, without their tokens.
func lease(slots ...int) (out permit.List) {
	for _, n := range slots {
		out = append(out, permit.Permit{Slot: n, Token: 1})
	}
	return out
}

// parseCall is the other direction: what a client's bytes ask for, without the marker id that the member
// adds.
func parseCall(cmd []byte) modelCall {
	f := strings.Split(string(cmd), "\r\n") // *n $7 EVALSHA $40 sha $… …
	how, known := parsed[f[4]]
	if !known {
		panic("unknown script " + f[4])
	}
	c := how.modelCall
	for i, name := range strings.Fields(how.args) {
		arg := f[6+2*(how.first+i)]
		slots := func(text string) (out []int) {
			for _, n := range strings.Fields(text) {
				out = append(out, int(toInt(n)))
			}
			return out
		}
		switch name {
		case "owner":
			c.owner = arg
		case "hint":
			c.hint = arg
		case "had":
			c.had, _ = permit.Parse(arg)
		case "lease":
			c.had = lease(slots(arg)...)
		case "slots":
			if back, none := strings.CutPrefix(arg, "-"); none {
				c.want = int(toInt(back))
			} else {
				c.slots = slots(arg)
			}
		case "want", "limit", "n":
			*map[string]*int{"want": &c.want, "limit": &c.limit, "n": &c.n}[name] = int(toInt(arg))
		default:
			n, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				panic(err)
			}
			*map[string]*int64{"ttl": &c.ttl, "entry": &c.entry, "token": &c.token, "ticket": &c.ticket, "known": &c.known, "wish": &c.wish}[name] = n
		}
	}
	return c
}

// play makes one call on both and compares everything.
func (w *twin) play(c modelCall) modelReply {
	w.Helper()
	cmd := c.command(w.Lock)
	if c.op != opForce {
		back := parseCall(cmd.Cmd)
		back.tag = c.tag
		require.Equal(w, c, back, "as the schedules read it")
	}
	x := w.exchange(c, cmd, w.dump())
	before, pushes, has := x.before, x.pushes, keysIn(x.keys)
	after := has.now
	failed, _ := x.reply.(error)
	reply := replyOf(x.reply, failed)
	now := before
	for _, msg := range pushes {
		if p, ok := script.ParsePush(msg); ok && p.Grant {
			now = p.Server
		}
	}
	// A script tells its time in its reply, in a push, or as the first token of a bucket.
	if reply.server > 0 {
		now = reply.server
	} else if free := w.m; reply.n > 0 && w.m.counter == 0 && w.m.base == 0 && c.op == opAcquire {
		if free.expire(before); free.owner == "" {
			now = reply.n
		}
	}
	if n := toInt(has.counter) + 1; c.op == opRejoin && w.m.counter == 0 && before <= n && n <= after {
		now = n // it begins the bucket, and draws nothing
	}
	if i := slices.Index(has.queue, c.owner); reply.err != "" && c.op == opYield && i >= 0 {
		// A yield that could not hand over has registered its owner, and tells nothing.
		if now = max(now, toInt(has.queue[i+1])); c.fair {
			deadline, _, _ := strings.Cut(has.waiters[c.owner], " ")
			now = max(before, (toInt(deadline)-c.entry)*1000)
		}
	}
	w.check(between(before, now, after), "the server's time %d is not in %d..%d", now, before, after)
	w.slack = max(w.slack, (after-before)/1000+w.grain)

	want, published := w.model.call(&w.m, now, c)
	if reply.n < 0 && want.n < 0 {
		w.near(reply.n, want.n, "time left")
		want.n = reply.n
	}
	w.check(want == reply, "model replies %+v, script %+v", want, reply)
	var wantPushes []string
	for _, p := range published {
		wantPushes = append(wantPushes, messageOf(p))
	}
	w.check(fmt.Sprint(wantPushes) == fmt.Sprint(pushes), "model pushes %q, script %q", wantPushes, pushes)
	w.same(has)
	return reply
}

func (w *twin) near(a, b int64, what string) {
	w.Helper()
	w.check(max(a, b)-min(a, b) <= w.slack, "%s: model %d ms, member %d ms", what, b, a)
}

// same compares the keys with the model's.
func (w *twin) same(has keysOf) {
	w.Helper()
	want := w.m.keys(has.now)
	w.near(has.end, want.end, "TTL of the lock")
	w.near(has.queueEnd, want.queueEnd, "TTL of the queue")
	w.near(has.waiEnd, want.waiEnd, "TTL of the waiters")
	for field, until := range want.waiters {
		if field[0] == '!' { // of a lock taken by force: it counts from the same moment as the TTLs
			w.near(toInt(has.waiters[field]), toInt(until), "no re-join until")
			has.waiters[field] = until
		}
	}
	has.end, has.queueEnd, has.waiEnd = want.end, want.queueEnd, want.waiEnd
	w.check(fmt.Sprint(want) == fmt.Sprint(has), "model has  %v\nmember has %v", want, has)
}

// A mishap is something that befalls a member: what lapses, without the wait for it, and what is lost.
type mishap struct {
	name string
	do   func(w *twin)
}

var mishaps = []mishap{
	{"the lock lapses", func(w *twin) {
		w.ask("DEL", w.Name)
		w.m.owner, w.m.token, w.m.end = "", 0, 0
	}},
	{"the entries lapse", func(w *twin) {
		if w.ask("EXISTS", QueueOf(w.Name)) == int64(0) { // at this very millisecond: HSET would make them anew
			w.m.expire(w.now())
			w.m.queue = nil
		}
		for i := range w.m.queue {
			w.ask("HSET", WaitersOf(w.Name), w.m.queue[i].owner, "1 "+text(w.m.queue[i].ttl))
			w.m.queue = append([]modelWaiter(nil), w.m.queue...)
			w.m.queue[i].deadline = 1
		}
	}},
	{"the queue lapses", func(w *twin) {
		w.ask("DEL", QueueOf(w.Name), WaitersOf(w.Name))
		w.m.queue, w.m.buried, w.m.last, w.m.waitEnd = nil, nil, 0, 0
	}},
	{"the counters are lost", func(w *twin) {
		w.ask("DEL", member.TokensKey)
		w.m.counter, w.m.base = 0, 0
	}},
	{"the counters get a base", func(w *twin) {
		w.m.base += 1_000_000
		w.ask("HSET", member.TokensKey, "base", text(w.m.base))
	}},
	{"the marker is lost", func(w *twin) {
		w.ask("DEL", member.MarkerKey)
		w.m.id = ""
	}},
	{"another name draws tokens", func(w *twin) {
		w.m.counter = max(w.m.counter, 1) + 3
		w.ask("HSET", member.TokensKey, BucketOf(w.Name), text(w.m.counter))
	}},
}

func (w *twin) happen(e mishap) {
	w.Helper()
	w.log = append(w.log, e.name)
	e.do(w)
}

const (
	twinTTL   = int64(300_000_000) // ms: no key of these lapses by itself
	twinLong  = 2 * twinTTL
	twinShort = twinTTL / 2

	twinBuried = 5 * twinTTL // longer than everything else in waiters

	// An entry of exactly half the TTL misses its heartbeat a millisecond later, and a yield that fails tells no time.
	twinOdd = int64(60_000)
)

var twinTimed = []int64{500, 1500, 4000} // ms: these do, with the clock

// moves are the calls that are worth making now, by two owners.
func (w *twin) moves() []modelCall {
	var out []modelCall
	for i, o := range []string{alice, bob} {
		other := []string{bob, alice}[i]
		add := func(c modelCall) {
			c.owner, c.tag = o, twinTag
			out = append(out, c)
		}
		add(modelCall{op: opAcquire, ttl: twinTTL})
		add(modelCall{op: opWait, ttl: twinShort, entry: twinTTL})
		add(modelCall{op: opWait, ttl: twinTTL, entry: twinLong})
		add(modelCall{op: opRelease})
		add(modelCall{op: opRelease, hint: other})
		add(modelCall{op: opRelease, hint: carol})
		add(modelCall{op: opYield, token: max(w.m.token, 1), ttl: twinTTL, entry: twinTTL})
		add(modelCall{op: opYield, token: max(w.m.token, 2) - 1, ttl: twinTTL, entry: twinTTL})
		add(modelCall{op: opExtend, ttl: twinLong})
		add(modelCall{op: opExtend, ttl: twinShort})
		add(modelCall{op: opRaise, token: w.m.counter + 5})
		add(modelCall{op: opRaise, token: 1})
		add(modelCall{op: opRejoin, ttl: twinLong, token: w.m.counter + 2})
		add(modelCall{op: opRejoin, ttl: twinShort, token: 1})
	}
	return append(out, modelCall{op: opForce, ttl: twinBuried, tag: twinTag}, modelCall{op: opForce, ttl: twinBuried, tag: "!"},
		modelCall{op: opForce, owner: alice, ttl: twinBuried, tag: twinTag},
		modelCall{op: opRelease, owner: alice, tag: "!"}, modelCall{op: opAcquire, owner: alice, ttl: twinTTL})
}

var twinBegins = []struct {
	name  string
	calls []modelCall
}{
	{"nothing is there", nil},
	{"alice holds, bob and carol wait", []modelCall{
		{op: opAcquire, owner: alice, ttl: twinTTL, tag: twinTag},
		{op: opWait, owner: bob, ttl: twinTTL, entry: twinTTL, tag: twinTag},
		{op: opWait, owner: carol, ttl: twinTTL, entry: twinTTL, tag: twinTag},
	}},
	{"bob holds, carol and alice wait", []modelCall{
		{op: opAcquire, owner: bob, ttl: twinTTL, tag: twinTag},
		{op: opWait, owner: carol, ttl: twinShort, entry: twinTTL, tag: twinTag},
		{op: opWait, owner: alice, ttl: twinShort, entry: twinTTL, tag: twinTag},
	}},
}

// pairs plays every call after every call and event, from each beginning.
func (w *twin) pairs() {
	w.Helper()
	begins := twinBegins
	switch {
	case schedulesLarge():
	case RaceEnabled: // twice as slow
		begins = begins[1:2]
	default:
		begins = begins[:2]
	}
	for _, begin := range begins {
		start := func() {
			w.reset(begin.name)
			for _, c := range begin.calls {
				w.play(c)
			}
		}
		start()
		firsts := len(w.moves()) + len(mishaps)
		for first := range firsts {
			for second := 0; ; second++ {
				start()
				if moves := w.moves(); first < len(moves) {
					w.play(moves[first])
				} else {
					w.happen(mishaps[first-len(moves)])
				}
				moves := w.moves()
				if second == len(moves) {
					break
				}
				w.play(moves[second])
			}
		}
	}
	w.Logf("%d calls, all pairs", w.calls)
}

// apart is d or a little more, so that it does not lead to the very millisecond in which a key ends: what
// holds in there differs between servers.
func (w *twin) apart(d time.Duration) time.Duration {
	w.Helper()
	now := w.now() / 1000
	ends := []int64{w.m.end, w.m.waitEnd}
	for _, entry := range twinTimed {
		ends = append(ends, w.m.waitEnd-entry*3/2) // where the next registration lengthens it
	}
	for _, q := range w.m.queue {
		ends = append(ends, q.deadline)
	}
	for i := 0; i < len(ends); i++ {
		if off := now + d.Milliseconds() - ends[i]; -3 < off && off < 3 {
			d, i = d+5*time.Millisecond, -1
		}
	}
	return d
}

// random plays sequences of calls and events. timed: the clock is ours, and keys lapse by themselves.
func (w *twin) random(sequences int, timed bool) {
	w.Helper()
	seed, rng := w.dice()
	owners := []string{alice, bob, carol}
	ttls, entries := []int64{twinShort, twinTTL, twinLong}, []int64{twinShort + twinOdd, twinTTL + twinOdd, twinLong + twinOdd}
	if timed {
		ttls, entries = twinTimed, twinTimed
	}
	w.calls = 0
	ops := []string{opAcquire, opWait, opWait, opRelease, opYield, opYield, opExtend, opRaise, opRejoin, opForce}
	for s := range sequences {
		w.reset(fmt.Sprintf("seed %d, sequence %d", seed, s))
		for range 25 {
			switch {
			case timed && rng.IntN(3) == 0:
				d := w.apart(time.Duration(rng.IntN(900)) * time.Millisecond)
				w.log = append(w.log, d.String())
				time.Sleep(d)
				continue
			case rng.IntN(8) == 0:
				w.happen(mishaps[rng.IntN(len(mishaps))])
				continue
			}
			pick := func() string { return owners[rng.IntN(len(owners))] }
			c := modelCall{op: ops[rng.IntN(len(ops))], owner: pick(), tag: twinTag}
			if rng.IntN(12) == 0 {
				c.tag = []string{"", "!", "another 2"}[rng.IntN(3)]
			}
			if c.op != opAcquire && c.op != opWait && rng.IntN(3) > 0 && w.m.owner != "" {
				c.owner = w.m.owner
			}
			switch c.op {
			case opForce:
				if c.ttl = twinBuried; rng.IntN(2) == 0 {
					c.owner = ""
				}
			case opRelease:
				if rng.IntN(2) == 0 {
					c.hint = pick()
				}
			case opYield:
				c.token = w.m.token - rng.Int64N(2)*rng.Int64N(2)
				c.ttl, c.entry = ttls[rng.IntN(3)], entries[rng.IntN(3)]
			case opRaise:
				c.token = max(1, w.m.counter+rng.Int64N(7)-3)
			case opRejoin:
				c.token, c.ttl = max(1, w.m.counter+rng.Int64N(7)-3), ttls[rng.IntN(3)]
			case opWait:
				c.ttl, c.entry = ttls[rng.IntN(3)], entries[rng.IntN(3)]
			default:
				c.ttl = ttls[rng.IntN(3)]
			}
			if slices.Contains(w.fair, c.owner) && slices.Contains([]string{opAcquire, opWait, opRelease, opYield}, c.op) {
				c.fair = true
				if (c.op == opWait || c.op == opYield) && w.m.last > 3 && rng.IntN(2) == 0 {
					c.ticket = w.m.last + rng.Int64N(5) - 3
				}
			}
			w.play(c)
		}
	}
	w.Logf("%d calls at random", w.calls)
}
