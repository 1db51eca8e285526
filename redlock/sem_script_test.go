//go:build !race

package redlock

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

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
