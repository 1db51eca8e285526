//go:build !race

package redlock

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// A script of the semaphore that ends in the middle leaves slots and records that agree, and is asked for again. Behind whichever
// of its commands it ends: no slot comes to an owner that another believes to have, no counter falls, everybody is served, and
// nothing is left in the end. A case is calls, of which the last is the one that ends.
func TestSemaphoreScriptThatEndsInTheMiddleAndIsRepeatedGivesEachSlotOnce(t *testing.T) {
	stopSemaphore(t, 3, 0)
}

// The same for one command alone that fails, with others that ask meanwhile, and at a master that gives the slot away, each.
func TestLongSemaphoreScriptThatEndsInTheMiddle(t *testing.T) {
	Long(t)
	stopSemaphore(t, 1, 0, 1, 2, 3, 4, 5, 6, 7)
}

// stopSemaphore ends each script behind every command, or every so many of them.
func stopSemaphore(t *testing.T, step int, hows ...int) {
	server := rt.Real(t, 1).Servers[0]
	for i, c := range cases.Read(t, "internal/script/testdata/sem/stopped/*.txt") {
		first, step := i%step, step
		if strings.HasSuffix(c.Name, "of several") { // some slots are taken from a record, and others stay
			first, step = 0, 1
		}
		t.Run(c.Name, func(t *testing.T) {
			s := newPermits(t, server)
			commands := 0
			for _, how := range hows {
				once, meanwhile, moving := how&1 != 0, how&2 != 0, how&4 != 0
				for after := first; ; after += step {
					require.NoError(t, server.Flush())
					p := &semStopPlay{
						stopPlay: &stopPlay{scripted: s.scripted, moving: moving}, permits: s,
						has: map[string]map[int]int64{}, given: map[string]map[int]int64{}, asked: map[string]semCall{}, done: map[string]bool{},
						what: fmt.Sprintf("stopped after %d commands, once %v, others meanwhile %v, slot moving %v", after, once, meanwhile, moving),
					}
					if !p.play(c.Lines, after, once, meanwhile) {
						commands = max(commands, after)
						break
					}
				}
			}
			require.Positive(t, commands)
		})
	}
}

// semStopPlay is one run of a case. An owner believes what a reply or a push says, as a ballot does.
type semStopPlay struct {
	*stopPlay
	permits *permits
	what    string
	has     map[string]map[int]int64 // owner -> slot -> token, as it believes
	given   map[string]map[int]int64 // the greatest token that it gave up
	asked   map[string]semCall       // what each has asked for first
	done    map[string]bool          // its release has begun
	counted map[string]int64
}

func (p *semStopPlay) play(lines []cases.Line, after int, once, meanwhile bool) bool {
	p.Helper()
	p.permits.stopped = false
	for _, line := range lines[:len(lines)-1] {
		c := p.call(line.Words)
		require.NoError(p, p.do(&c, -1, false), "%s: %v", p.what, line)
		p.permits.check(p.what)
	}
	c := p.call(lines[len(lines)-1].Words)
	_ = p.do(&c, after, once)
	stopped := p.ask("EXISTS", "stopped").(int64) == 1
	p.permits.stopped = stopped
	p.permits.check(p.what)
	p.probe()
	if meanwhile {
		p.round()
		p.probe()
	}
	if stopped && (!p.done[c.owner] || c.op == opRelease || c.op == opForce) {
		require.NoError(p, p.do(&c, -1, false), "%s: repeated", p.what)
	}
	p.permits.check(p.what + ": repeated")
	for i := 0; i < 20 && len(p.done) < len(p.asked); i++ {
		p.round()
	}
	for owner := range p.asked {
		require.True(p, p.done[owner], "%s: %s is never served", p.what, owner)
	}
	for key, is := range p.scripted.state() {
		switch {
		case key == "told", key == "stopped", key == member.TokensKey:
		case key == p.permits.key("sw") && p.left(key) > 0: // a re-join is refused; or of no waiter
		case key == p.permits.key("s1") && p.left(key) > 0 && len(p.hash(key)) == 2: // bounds of nothing, with an end
		default:
			require.Fail(p, "left", "%s: %s is %s", p.what, key, is)
		}
	}
	return stopped
}

// call reads a call, in which $alice.3 is the token that alice has of slot 3.
func (p *semStopPlay) call(words []string) semCall {
	p.Helper()
	play := &scriptPlay{T: p.T}
	c, ok := semCallOf(words[0], words[1:], func(word string) int64 {
		name, slot, found := strings.Cut(strings.TrimPrefix(word, "$"), ".")
		if !found || word[0] != '$' {
			return play.number(word)
		}
		slot, more, _ := strings.Cut(slot, "+")
		token := p.has[ownerOf(name)][int(toInt(slot))]
		require.Positive(p, token, "%v: %s", words, word)
		return token + toInt(more)
	})
	require.True(p, ok, "no such call: %v", words)
	return c
}

// round has everybody do what comes next: who believes to have what it asked for gives it up, the others ask.
func (p *semStopPlay) round() {
	p.Helper()
	for _, owner := range slices.Sorted(maps.Keys(p.asked)) {
		c := p.asked[owner]
		switch {
		case p.done[owner]:
			continue
		case len(p.has[owner]) > 0:
			c.op, c.hint = opRelease, ""
		default:
			c.op = opWait
		}
		require.NoError(p, p.do(&c, -1, false), "%s: %s by %s", p.what, c.op, owner)
		if _, list, _ := strings.Cut(p.hash(p.permits.key("s1"))[owner], " "); c.op == opWait && list != "" && len(p.has[owner]) == 0 {
			c.op, c.claims = "claim", nil // what it was told is what it has given up
			c.had, _ = permit.Parse(list)
			require.NoError(p, p.do(&c, -1, false), "%s: %s by %s", p.what, c.op, owner)
		}
	}
}

// probe asks whose each slot is: nobody is told so beside one that believes it.
func (p *semStopPlay) probe() {
	p.Helper()
	for holder, slots := range p.has {
		for slot, token := range slots {
			for owner := range p.asked {
				if owner == holder {
					continue
				}
				c := semCall{op: opExtend, owner: owner, ttl: minute, asked: script.Asked{Limit: 4, N: 1, Held: permit.List{{Slot: slot, Token: token}}}}
				said := rt.Must(p.run(c.command(p.permits.Lock)))(p)
				require.Equal(p, []any{int64(0)}, said, "%s: slot %d of %s is renewed beside %s", p.what, slot, owner, holder)
				c.op = opRaise
				said = rt.Must(p.run(c.command(p.permits.Lock)))(p)
				require.Zero(p, said, "%s: slot %d of %s is confirmed beside %s", p.what, slot, owner, holder)
			}
		}
	}
}

// gives books that an owner gives up what it has but the slots that are kept.
func (p *semStopPlay) gives(owner string, kept func(slot int) bool) {
	for slot, token := range p.has[owner] {
		if !kept(slot) {
			if p.given[owner] == nil {
				p.given[owner] = map[int]int64{}
			}
			p.given[owner][slot] = max(p.given[owner][slot], token)
			delete(p.has[owner], slot)
		}
	}
}

func (p *semStopPlay) believes(owner string, list permit.List) {
	if p.done[owner] {
		return
	}
	for _, one := range list {
		if one.Token <= p.given[owner][one.Slot] {
			continue
		}
		if p.has[owner] == nil {
			p.has[owner] = map[int]int64{}
		}
		p.has[owner][one.Slot] = one.Token
	}
}

// do calls a script that is stopped after so many commands, or not at all, and books what its owner is told.
func (p *semStopPlay) do(c *semCall, after int, once bool) error {
	p.Helper()
	if _, met := p.asked[c.owner]; !met && c.owner != "" {
		p.asked[c.owner] = *c
	}
	switch c.op {
	case opRelease:
		p.gives(c.owner, func(int) bool { return false })
		p.done[c.owner] = true
	case "claim": // a vote under a claim counts for nothing; what stays is told again
		for _, one := range c.had {
			if slices.Contains(c.claims, one.Slot) {
				delete(p.has[c.owner], one.Slot)
			}
		}
		p.gives(c.owner, func(slot int) bool { return c.had.Token(slot) == 0 })
	case opRejoin:
		p.gives(c.owner, func(slot int) bool { return c.asked.Held.Token(slot) > 0 })
	case opForce:
		for owner := range p.asked {
			if c.owner == "" && len(p.has[owner]) > 0 || owner == c.owner {
				p.done[owner] = true
				delete(p.has, owner)
			}
		}
	}
	reply, err := p.raw(c.command(p.permits.Lock), after, once)
	switch {
	case err != nil:
	case c.op == opRejoin && reply == int64(1):
		p.believes(c.owner, c.asked.Held)
	case c.op == opAcquire || c.op == opWait || c.op == "claim":
		p.believes(c.owner, answerOf(p, reply).Permits)
	}
	for _, told := range p.ask("LRANGE", "told", "0", "-1").([]any) {
		push, ok := script.ParsePush(told.(string))
		require.True(p, ok, told)
		p.believes(push.Owner, push.Permits)
	}
	p.ask("DEL", "told")
	of := map[int]string{}
	for owner, slots := range p.has {
		for slot := range slots {
			require.Empty(p, of[slot], "%s: %s of %s: %s believes to have slot %d too", p.what, c.op, c.owner, owner, slot)
			of[slot] = owner
		}
	}
	counters := map[string]int64{}
	for field, n := range p.hash(member.TokensKey) {
		counters[field] = toInt(n)
	}
	for field, n := range p.counted {
		require.GreaterOrEqual(p, counters[field], n, "%s: a counter fell", p.what)
	}
	p.counted = counters
	return err
}
