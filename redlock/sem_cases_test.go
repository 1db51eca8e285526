//go:build !race

package redlock

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The scripts of the semaphore do what the cases say, on a real server and on the embedded one. The README of the cases has the
// words. After each line the member has what permits.check requires.
func TestScriptsOfTheSemaphoreDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "sem/*", func(s *scripted, lines []cases.Line) {
		p := permitsOf(s)
		play := &scriptPlay{T: s.T, stage: &serverSite{s}, values: map[string]int64{}}
		for _, line := range lines {
			play.line = line
			got := p.event(play, line.Words[0], line.Words[1:])
			if line.Asked {
				require.True(s, play.matches(strings.Fields(got), line.Want), "%v: got %q, want %q", line, got, strings.Join(line.Want, " "))
			}
			p.check(line)
		}
	})
}

type semCall struct {
	op, owner  string
	ttl, entry time.Duration
	hint       string
	had        permit.List
	claims     []int
	asked      script.Asked
	stored     int64
}

func (c *semCall) command(l script.Lock) member.Command {
	l = l.Asking(&c.asked)
	switch c.op {
	case opAcquire:
		return l.Acquire(nil, c.owner, c.ttl)
	case opWait:
		return l.Wait(nil, c.owner, c.ttl, c.entry, 0)
	case opRelease:
		return l.Release(nil, c.owner, c.hint)
	case "claim":
		return l.Claim(nil, c.owner, c.had, c.claims, c.ttl, c.entry, c.asked.N > 0)
	case opRaise:
		return l.Raise(nil, c.owner, 0)
	case opRejoin:
		return l.Rejoin(nil, c.owner, c.ttl, 0, 0)
	case opExtend:
		return l.Extend(nil, c.owner, c.ttl)
	case opForce:
		return l.Force(nil, script.Hash([]byte(c.owner)), c.ttl)
	}
	return l.Limit(nil, c.stored)
}

// semCallOf reads a call; ok is false if the word names none. The last words say more, each behind its name.
func semCallOf(word string, args []string, number func(word string) int64) (c semCall, ok bool) {
	if !slices.Contains([]string{opAcquire, opWait, opRelease, "claim", opRaise, opRejoin, opExtend, opForce, "limit"}, word) {
		return c, false
	}
	c = semCall{op: word, ttl: minute, entry: minute, asked: script.Asked{Limit: 4, N: 1}}
	if len(args)%2 == 1 {
		c.owner, args = ownerOf(args[0]), args[1:]
	}
	list := func(text string) (l permit.List) {
		for one := range strings.SplitSeq(text, ",") {
			slot, token, named := strings.Cut(one, ":")
			if slot == "" {
				continue
			}
			p := permit.Permit{Slot: int(number(slot)), Token: 1}
			if named {
				p.Token = number(token)
			}
			l = append(l, p)
		}
		return l
	}
	for ; len(args) > 1; args = args[2:] {
		switch value := args[1]; args[0] {
		case "for":
			c.ttl = time.Duration(number(value)) * time.Millisecond
		case "entry":
			c.entry = time.Duration(number(value)) * time.Millisecond
		case "want":
			c.asked.Want = int(number(value))
		case "of":
			c.asked.Limit = int(number(value))
		case "n":
			c.asked.N = int(number(value))
		case "hint":
			c.hint = ownerOf(value)
		case "has":
			c.asked.Held = list(value)
		case "gives":
			c.had = list(value)
		case "takes":
			c.claims = list(value).Slots()
		case "wish":
			c.asked.Wish = time.Duration(number(value)) * time.Millisecond
		case "known":
			c.asked.Known = storedOf(value)
		case "stored":
			c.stored = storedOf(value)
		default:
			return c, false
		}
	}
	return c, true
}

// storedOf reads a stored limit: version/limit, or version/none.
func storedOf(text string) int64 {
	version, limit, _ := strings.Cut(text, "/")
	if limit == "none" {
		return script.StoredLimit(toInt(version), script.NoLimit)
	}
	return script.StoredLimit(toInt(version), int(toInt(limit)))
}

func storedText(stored int64) string {
	version, limit, set := script.LimitOf(stored)
	if !set {
		return fmt.Sprint(version, "/none")
	}
	return fmt.Sprint(version, "/", limit)
}

// listText writes permits as a case does: slot and token of each.
func listText(l permit.List) string {
	var out []string
	for _, one := range l {
		out = append(out, fmt.Sprint(one.Slot, " ", one.Token))
	}
	return strings.Join(out, " ")
}

// close lets the last in line have come right behind the one before it, however slow the machine is:
// who has waited for long is served before others.
func (p *permits) close() {
	line, _ := p.ask("ZRANGE", p.key("sq"), "-2", "-1", "WITHSCORES").([]any)
	if len(line) == 4 {
		p.ask("ZADD", p.key("sq"), "LT", text(toInt(line[1].(string))+1), line[2].(string))
	}
}

func (p *permits) event(play *scriptPlay, word string, args []string) string {
	p.Helper()
	if c, ok := semCallOf(word, args, play.number); ok {
		play.began = p.now()
		v, err := p.run(c.command(p.Lock))
		if play.failed = err != nil; err != nil {
			return replyOf(v, err).err
		}
		if c.op == opWait && !p.timed {
			p.close()
		}
		if list, ok := v.([]any); ok && c.op == opExtend {
			return fmt.Sprint(list[0])
		}
		a := answerOf(p, v)
		said := cmp.Or(listText(a.Permits), text(a.N))
		if c.op == "limit" {
			said = storedText(a.N)
		} else if a.Server != 0 && c.op != opAcquire {
			require.True(p, play.began <= a.Server && a.Server <= p.now(), "%v: the time told", play.line)
			said += " " + play.called(a.Next)
		}
		if a.Limit != 0 {
			said += " " + storedText(a.Limit)
		}
		return said
	}
	s := p.check(play.line)
	owner := ""
	if len(args) > 0 {
		owner = ownerOf(args[0])
	}
	switch word {
	case "tag":
		p.tag = strings.TrimPrefix(args[0], "none")
	case "sleep":
		p.timed = true
		p.past(p.now() + play.number(args[0])*1000)
	case "slots":
		var out []string
		for _, slot := range sortedSlots(s.slots) {
			out = append(out, fmt.Sprint(slot, " ", play.called(s.slots[strconv.Itoa(slot)])))
		}
		return cmp.Or(strings.Join(out, " , "), "free")
	case "record":
		deadline, text, _ := strings.Cut(s.records[owner], " ")
		list, _ := permit.Parse(text)
		return fmt.Sprint(toInt(deadline)-s.now, " ", listText(list))
	case "queue":
		var out []string
		for _, o := range s.queue {
			out = append(out, play.called(o))
		}
		return cmp.Or(strings.Join(out, " "), "empty")
	case "entry":
		deadline, rest, _ := strings.Cut(s.waiters[owner], " ")
		return fmt.Sprint(toInt(deadline)-s.now, " ", rest)
	case "wishes":
		var out []string
		for _, slot := range sortedSlots(s.wishes) {
			out = append(out, fmt.Sprint(slot, " ", play.called(s.wishes[strconv.Itoa(slot)])))
		}
		return cmp.Or(strings.Join(out, " , "), "none")
	case "lives":
		return text(s.ends[slices.Index([]string{"permits", "queue", "waiters"}, args[0])])
	case "keys":
		var out []string
		for key := range p.scripted.state() {
			out = append(out, map[string]string{
				p.key("s1"): "permits", p.key("sq"): "queue", p.key("sw"): "waiters", member.TokensKey: "tokens", member.MarkerKey: "marker",
			}[key])
		}
		slices.Sort(out)
		return cmp.Or(strings.Join(out, " "), "nothing")
	case "counter":
		field := fmt.Sprint(p.Bucket, ".", args[0])
		if len(args) > 1 {
			p.ask("HSET", member.TokensKey, field, text(play.number(args[1])))
			return ""
		}
		n, _ := p.ask("HGET", member.TokensKey, field).(string)
		return cmp.Or(n, "none")
	case "marker":
		p.ask("HSET", member.MarkerKey, "id", args[0])
	case "forget":
		p.ask("DEL", member.TokensKey)
	case "lapse": // the permits of an owner have ended, and nobody has looked since
		_, list, _ := strings.Cut(s.records[owner], " ")
		p.ask("HSET", p.key("s1"), owner, "1 "+list, ".", "1")
	case "forsake": // the entry of a waiter has run out
		_, entry, _ := strings.Cut(s.waiters[owner], " ")
		p.ask("HSET", p.key("sw"), owner, "1 "+entry)
	case "miss": // the waiter has missed a heartbeat: less than half of its TTL is left
		f := strings.Fields(s.waiters[owner])
		p.ask("HSET", p.key("sw"), owner, strings.Join(append([]string{text(s.now + toInt(f[1])/3)}, f[1:]...), " "))
	case "interrupted": // the waiter was given what it has by a script that ended before it took it out of the line
		p.ask("ZADD", p.key("sq"), text(1000*s.now), owner)
		p.ask("HSET", p.key("sw"), owner, fmt.Sprint(s.now+60_000, " 60000 1 0 4"))
		p.stopped = true
	case "older": // the waiter has waited so much longer
		p.timed = true
		p.ask("ZINCRBY", p.key("sq"), text(-1000*play.number(args[1])), owner)
	case "stored":
		n, _ := p.ask("HGET", member.TokensKey, "limit:"+p.key("s1")).(string)
		return storedText(toInt(n))
	case "pushed":
		var out []string
		for _, message := range (&serverSite{scripted: p.scripted}).pushed() {
			push, ok := script.ParsePush(message)
			require.True(p, ok, message)
			require.Equal(p, fmt.Sprintf("s %s %d %s %d %s", push.Owner, push.Server, push.Other, push.TTL.Milliseconds(), strings.Join(strings.Fields(message)[5:], " ")), message)
			require.True(p, play.began <= push.Server && push.Server <= p.now(), "%v: dated outside of its call", play.line)
			out = append(out, fmt.Sprint(play.called(push.Owner), " ", play.called(strings.Trim(push.Other, "-")), " ", push.TTL.Milliseconds(), " ", listText(push.Permits)))
		}
		return cmp.Or(strings.Join(out, " , "), "nothing")
	case "peek":
		view, ok := script.ReadPermits(replyFrom(p.list(p.Peek(nil))))
		require.True(p, ok)
		holders, ok := script.ReadPermits(replyFrom(p.list(p.PeekHolders(nil))))
		require.True(p, ok)
		require.Empty(p, holders.Queue)
		require.Len(p, holders.Holders, len(view.Holders))
		var out []string
		for _, h := range view.Holders {
			out = append(out, fmt.Sprint(nameOf(h.Owner), " ", h.TTL.Milliseconds(), " ", listText(h.Permits)))
		}
		for _, w := range view.Queue {
			out = append(out, fmt.Sprint(nameOf(w.Owner), " waits for ", w.Permits, " ", w.Live))
		}
		return strings.Join(append(out, storedText(view.Limit)), " , ")
	default:
		p.Fatalf("%v: no such word", play.line)
	}
	return ""
}

func sortedSlots(of map[string]string) (out []int) {
	for slot := range of {
		out = append(out, int(toInt(slot)))
	}
	slices.Sort(out)
	return out
}

type permits struct {
	*scripted
	stopped bool // a script has ended in the middle: what it had no more time for is left to heartbeats and to sweeps
	timed   bool // the case says how long waiters wait
}

func newPermits(t *testing.T, server redistest.Server) *permits {
	return permitsOf(newScripted(t, server))
}

func permitsOf(s *scripted) *permits {
	s.Lock = script.Semaphore(s.Name)
	return &permits{scripted: s}
}

func (p *permits) key(word string) string { return slot.Sibling("redquorum:"+word, p.Name) }

type permitState struct {
	now     int64             // server time, ms
	slots   map[string]string // slot -> owner
	records map[string]string // owner -> its deadline and permits
	queue   []string
	waiters map[string]string // entries
	wishes  map[string]string // slot -> owner
	ends    [3]int64          // TTLs of permits, queue and waiters
}

// state reads what the member has, and requires what holds after every script: each slot has one owner, whose record says so;
// all bounds are bounds; whoever waits has a place and an entry, and no permits; nothing is without an end.
func (p *permits) check(what any) (s permitState) {
	p.Helper()
	keys := []string{p.key("s1"), p.key("sq"), p.key("sw")}
	all := p.ask("EVAL", `local all = {0, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1),
redis.call('HGETALL', KEYS[3]), redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3])}
local t = redis.call('TIME') all[1] = t[1] * 1000 + math.floor(t[2] / 1000) return all`,
		"3", keys[0], keys[1], keys[2]).([]any)
	hash := func(v any) map[string]string {
		m, list := map[string]string{}, v.([]any)
		for i := 0; i < len(list); i += 2 {
			m[list[i].(string)] = list[i+1].(string)
		}
		return m
	}
	s = permitState{now: all[0].(int64), slots: map[string]string{}, records: map[string]string{}, waiters: map[string]string{}, wishes: map[string]string{}}
	of, padding := hash(all[1]), []string{}
	for field, value := range of {
		switch {
		case strings.Contains(field, ":"):
			s.records[field] = value
		case field[0] == '+':
			padding = append(padding, field)
		case field != "." && field != "-":
			s.slots[field] = value
		}
	}
	for i := range s.ends {
		s.ends[i] = all[4+i].(int64)
		require.True(p, p.stopped || s.ends[i] != -1, "%v: %s has no end", what, keys[i])
	}
	named, low, pads := map[string]string{}, int64(1<<60), 0
	for owner, record := range s.records {
		deadline, text, _ := strings.Cut(record, " ")
		list, ok := permit.Parse(text)
		require.True(p, ok, "%v: record %q", what, record)
		low, pads = min(low, toInt(deadline)), pads+len(list)-1
		require.True(p, s.ends[0] == -1 || s.now+s.ends[0]+1 >= toInt(deadline), "%v: the permits end before %s", what, owner)
		for _, one := range list {
			n := strconv.Itoa(one.Slot)
			require.Empty(p, named[n], "%v: slot %s of two owners: %v", what, n, of)
			named[n] = owner
		}
	}
	if p.stopped { // a slot that no record names is left to a sweep: nobody has it, and nobody gets it before
		for n, owner := range named {
			require.Equal(p, owner, s.slots[n], "%v: slots, and records: %v", what, of)
		}
	} else {
		require.Equal(p, named, s.slots, "%v: slots, and records: %v", what, of)
		require.Len(p, padding, pads, "%v: %v", what, of)
		for _, field := range padding {
			require.NotEmpty(p, s.slots[field[1:]], "%v: %v", what, of)
		}
	}
	if len(of) > 0 {
		require.True(p, p.stopped || len(s.slots) > 0, "%v: nothing is left without a slot", what)
		require.LessOrEqual(p, toInt(of["."]), low, "%v: the earliest deadline: %v", what, of)
		require.True(p, s.ends[0] == -1 || toInt(of["-"]) <= s.now+s.ends[0]+1, "%v: the end of the key: %v", what, of)
	}
	for _, owner := range all[2].([]any) {
		s.queue = append(s.queue, owner.(string))
	}
	wishing := map[string]string{}
	for field, value := range hash(all[3]) {
		switch field[0] {
		case '>':
			s.wishes[field[1:]] = value
		case '<':
			for _, slot := range strings.Fields(value)[3:] {
				require.Empty(p, wishing[slot], "%v: two wishes", what)
				wishing[slot] = field[1:]
			}
		case '!':
		default:
			s.waiters[field] = value
		}
	}
	require.Equal(p, wishing, s.wishes, "%v: wishes", what)
	if p.stopped {
		return s
	}
	require.ElementsMatch(p, s.queue, slices.Collect(maps.Keys(s.waiters)), "%v: each has a place and an entry", what)
	for _, owner := range s.queue {
		require.NotContains(p, s.records, owner, "%v: it waits, and has permits", what)
	}
	if len(s.queue) > 0 {
		require.LessOrEqual(p, s.ends[2], s.ends[1]+1, "%v: waiters outlives the queue", what)
	}
	return s
}

func answerOf(t require.TestingT, v any) (a script.Answer) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	switch v := list[0].(type) {
	case int64:
		a.N = v
	case string:
		var ok bool
		a.Permits, ok = permit.Parse(v)
		require.True(t, ok, "%q", v)
		a.N = a.Permits[0].Token
	}
	if len(list) > 2 {
		a.Server, a.Next = list[1].(int64), strings.TrimPrefix(list[2].(string), "-")
	}
	if len(list) > 4 {
		a.Limit = list[4].(int64)
	}
	return a
}

// Calls in a row that ask once begin at slots that lie apart, however many slots there are.
func TestTriesOfAClientSpreadOverTheSlots(t *testing.T) {
	for _, limit := range []int{10, 1000, 4096} {
		var s slots
		var all []int
		for range limit / 5 {
			all = append(all, s.another(limit))
		}
		slices.Sort(all)
		require.Len(t, slices.Compact(all), limit/5)
		require.True(t, 0 <= all[0] && all[len(all)-1] < limit)
	}
}
