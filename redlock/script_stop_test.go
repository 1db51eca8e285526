//go:build !race

package redlock

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// A script that ends in the middle leaves what it has done, and is asked for again. Whatever ended it, and behind
// whichever of its commands: nobody comes to a vote that another believes to have, no vote is without an end, no counter
// falls, and in the end nothing is left. Cost: five seconds. It plays each case once for every command.
// Either all behind it fail, or it alone, while others ask.
func TestScriptThatEndsInTheMiddleAndIsRepeatedGivesOneVote(t *testing.T) { stopScripts(t, 0, 3) }

// The same in every way, also at a master that gives the slot away.
func TestLongScriptThatEndsInTheMiddle(t *testing.T) {
	Long(t)
	stopScripts(t, 0, 1, 2, 3, 4, 5, 6, 7)
}

// stopScripts ends each script behind every command, in some of eight ways to end.
func stopScripts(t *testing.T, hows ...int) {
	server := rt.Embedded(t, 1).Servers[0]
	for _, dialect := range []string{"", ", with interop", ", fair"} {
		interop := dialect == ", with interop"
		for _, c := range stopCases(t) {
			t.Run(c.name+dialect, func(t *testing.T) {
				s := newScripted(t, server)
				if s.Lock = (&Config{Interop: interop}).lockOf(s.Name); dialect == ", fair" {
					s.Lock = script.Fair(s.Name)
				}
				if c.theirs {
					s.ask("SET", "unused", "") // the connection is there
					require.NoError(t, rt.Err(s.inbox.Do(t.Context(), "SUBSCRIBE", theirs("redisson_lock__channel", s.Name))))
				}
				commands := 0
				for _, how := range hows {
					once, meanwhile, moving := how&1 != 0, how&2 != 0, how&4 != 0
					if moving && interop { // Open refuses a cluster with Interop: no slot moves there
						continue
					}
					for after := 0; ; after++ {
						require.NoError(t, server.Flush())
						s.joined = c.joined && !interop
						p := &stopPlay{scripted: s, interop: interop, moving: moving, believed: map[string]int64{}, yielded: map[string]int64{}, gone: map[string]bool{}}
						p.what = fmt.Sprintf("stopped after %d commands, once %v, others meanwhile %v, slot moving %v", after, once, meanwhile, moving)
						if !p.play(c, after, once, meanwhile) {
							commands = max(commands, after)
							break
						}
					}
				}
				require.Positive(t, commands)
			})
		}
	}
}

// stopCase is a case of internal/script/testdata/stopped: the README there has the words.
type stopCase struct {
	name      string
	held      []string // the first of the owners has the lock, the others wait for it
	ask       []string // the call that is stopped
	then      []string // what comes between the call and its repetition
	joined    bool     // acquires and releases travel in a batch
	forgotten bool     // the member lost its memory: it gives nothing
	theirs    bool     // a client of the reference system waits
}

func stopCases(t *testing.T) (all []stopCase) {
	t.Helper()
	for _, c := range cases.Read(t, "internal/script/testdata/stopped/*.txt") {
		s := stopCase{name: c.Name}
		for _, l := range c.Lines {
			switch l.Words[0] {
			case "held":
				s.held = l.Words[1:]
			case "then":
				s.then = l.Words[1:]
			case "joined":
				s.joined = true
			case "forgotten":
				s.forgotten = true
			case "theirs":
				s.theirs = true
			default:
				s.ask = l.Words
			}
		}
		all = append(all, s)
	}
	return all
}

// stopPlay is one run of a case. An owner believes what a reply or a push says, as a ballot does.
type stopPlay struct {
	*scripted
	what     string
	interop  bool
	moving   bool  // keys are those of a cluster's master, and what ends the script says that a key is not there
	begun    int64 // server time, µs
	counted  int64
	believed map[string]int64
	yielded  map[string]int64
	gone     map[string]bool
	met      []string
}

func (p *stopPlay) play(c stopCase, after int, once, meanwhile bool) bool {
	p.begun, p.tag = p.now(), map[bool]string{true: "run 1"}[c.forgotten]
	for _, o := range c.held {
		p.must(p.wants(ownerOf(o)))
	}
	ask := p.call(c.ask)
	p.meet(ask.owner)
	p.do(ask, after, once)
	stopped := p.ask("EXISTS", "stopped").(int64) == 1
	p.probe()
	if c.then != nil {
		p.must(p.call(c.then))
	}
	if meanwhile && !c.forgotten {
		p.round()
		p.probe()
	}
	// An owner that is gone asks for nothing any more. Its release alone is owed until it is answered, and a force is an
	// operator's, who repeats it for any owner.
	if stopped && (!p.gone[ask.owner] || ask.op == opRelease || ask.op == opForce) {
		switch err := p.do(ask, -1, false); {
		case c.forgotten: // the member may not count, however often it is asked
			require.ErrorContains(p, err, "FORGOT marker", p.what)
		case ask.op == opForce && err != nil: // the next holder has not given its vote an end yet
			require.ErrorContains(p, err, "FOREIGN no ttl", p.what)
		default:
			require.NoError(p, err, "%s: repeated", p.what)
		}
	}
	require.LessOrEqual(p, len(p.hash(p.Name)), 1, "%s: owners of the lock: %v", p.what, p.hash(p.Name))
	if c.forgotten {
		require.Empty(p, p.believed, p.what)
		require.Empty(p, p.hash(p.Name), p.what)
		return stopped
	}
	for i := 0; i < 20 && slices.ContainsFunc(p.met, func(o string) bool { return !p.gone[o] }); i++ {
		p.round()
	}
	for _, o := range p.met {
		require.True(p, p.gone[o], "%s: %s is never served", p.what, o)
	}
	for key, is := range p.state() {
		switch {
		case key == "told", key == "stopped", key == "unused": // the test's own
		case key == member.TokensKey: // counters stay, so that no token comes twice
		case key == WaitersOf(p.Name) && p.left(key) > 0: // of a lock taken by force; or of no waiter, with an end
		case p.interop && key == slot.Compatible("redisson_lock_token", p.Name): // the reference system's, which keeps it as well
		case p.interop && key == p.turn(): // it says whose turn is next, and ends by itself
			require.NotContains(p, is, "for ever", p.what)
		default:
			require.Fail(p, "left", "%s: %s is %s", p.what, key, is)
		}
	}
	return stopped
}

// call reads a call. Its tokens are numbers, or what an owner believes to have: $alice, $alice+5; $begun is the time at the
// beginning.
func (p *stopPlay) call(words []string) scriptCall {
	p.Helper()
	c, ok := callOf(words[0], words[1:], func(word string) int64 {
		if d, err := time.ParseDuration(word); err == nil {
			return d.Milliseconds()
		}
		name, more, _ := strings.Cut(strings.TrimPrefix(word, "$"), "+")
		if name == "begun" {
			return p.begun
		}
		return p.believed[ownerOf(name)] + toInt(more)
	})
	require.True(p, ok, "no such call: %v", words)
	return c
}

func (p *stopPlay) wants(owner string) scriptCall {
	return scriptCall{op: opWait, owner: owner, ttl: minute.Milliseconds(), entry: minute.Milliseconds()}
}

func (p *stopPlay) meet(owner string) {
	if owner != "" && !slices.Contains(p.met, owner) {
		p.met = append(p.met, owner)
	}
}

// round has everybody do what comes next: who believes to have the lock gives it up, the others ask.
func (p *stopPlay) round() {
	if p.interop {
		p.ask("DEL", p.turn()) // others' turn is over
	}
	for _, o := range p.met {
		switch token := p.believed[o]; {
		case p.gone[o]:
		case token > 0:
			p.must(scriptCall{op: opRelease, owner: o})
		default:
			if err := p.do(p.wants(o), -1, false); err != nil { // until its owner has given it one
				require.ErrorContains(p, err, "FOREIGN no ttl", p.what)
			}
			if vote, there := p.hash(p.Name)[o]; there && p.believed[o] == 0 && vote == text(p.yielded[o]) { // offered again
				p.must(scriptCall{op: opYield, owner: o, token: p.yielded[o], ttl: minute.Milliseconds(), entry: minute.Milliseconds()})
			}
		}
	}
}

// probe asks whose vote it is: nobody may be told so beside one that believes it already.
func (p *stopPlay) probe() {
	for holder := range maps.Clone(p.believed) {
		for _, o := range p.met {
			if o == holder {
				continue
			}
			is := rt.Must(p.raw(p.Extend(nil, o, minute), -1, false))(p)
			require.Equal(p, []any{int64(0)}, is, "%s: the lease of %s is renewed beside %s", p.what, o, holder)
			if len(p.hash(p.Name)) > 0 {
				place, entry := p.ask("ZSCORE", QueueOf(p.Name), o), p.ask("HGET", WaitersOf(p.Name), o)
				is = rt.Must(p.raw(p.Rejoin(nil, o, minute, p.believed[holder], p.believed[holder]), -1, false))(p)
				require.Zero(p, is, "%s: the lease of %s is joined beside %s", p.what, o, holder)
				p.ask("ZREM", QueueOf(p.Name), o) // nobody has a lease that would wish for the vote
				p.ask("HDEL", WaitersOf(p.Name), o)
				if at, had := place.(string); had {
					p.ask("ZADD", QueueOf(p.Name), at, o)
				}
				if is, had := entry.(string); had {
					p.ask("HSET", WaitersOf(p.Name), o, is)
				}
			}
		}
	}
}

func (p *stopPlay) must(ask scriptCall) {
	p.Helper()
	p.meet(ask.owner)
	require.NoError(p, p.do(ask, -1, false), "%s: %s of %s", p.what, ask.op, ask.owner)
}

// do calls a script that is stopped after so many commands, or not at all, and books what its owner is told.
func (p *stopPlay) do(ask scriptCall, after int, once bool) error {
	p.Helper()
	switch ask.op {
	case opRelease:
		p.gone[ask.owner] = true
		delete(p.believed, ask.owner)
	case opYield:
		p.yielded[ask.owner] = max(p.yielded[ask.owner], p.believed[ask.owner])
		delete(p.believed, ask.owner)
	case opForce:
		for o := range p.believed {
			if ask.owner == "" || o == ask.owner {
				delete(p.believed, o)
				p.gone[o] = true
			}
		}
	}
	reply, err := p.raw(ask.command(p.Lock), after, once)
	said, _ := reply.(int64)
	if list, ok := reply.([]any); ok && len(list) > 0 {
		said, _ = list[0].(int64)
	}
	switch {
	case err != nil:
	case ask.op == opRejoin && said == 1:
		p.believe(ask.owner, max(p.begun, p.believed[ask.owner]))
	case ask.op == opAcquire || ask.op == opWait || ask.op == opYield:
		p.believe(ask.owner, said)
	}
	for _, told := range p.ask("LRANGE", "told", "0", "-1").([]any) {
		if f := strings.Fields(told.(string)); f[0] == "g" {
			token, _ := strconv.ParseInt(f[2], 10, 64)
			p.believe(f[1], token)
		}
	}
	p.ask("DEL", "told")
	require.LessOrEqual(p, len(p.believed), 1, "%s: %s of %s: each believes to have the lock: %v", p.what, ask.op, ask.owner, p.believed)
	if counted, err := strconv.ParseInt(p.counter(), 10, 64); err == nil {
		require.GreaterOrEqual(p, counted, p.counted, "%s: a counter fell", p.what)
		p.counted = counted
	}
	if after < 0 && len(p.believed) > 0 {
		require.Positive(p, p.ask("PTTL", p.Name), "%s: a vote without an end", p.what)
	}
	return err
}

func (p *stopPlay) believe(owner string, token int64) {
	if token <= p.yielded[owner] || p.gone[owner] {
		return
	}
	require.GreaterOrEqual(p, token, p.begun, "%s: a token below the server's time", p.what)
	p.believed[owner] = token
}

// scriptsBySum are the scripts of all clients, by the SHA1 of each.
var scriptsBySum = sync.OnceValue(func() map[string]string {
	sources := map[string]string{}
	for _, source := range append(Config{}.scripts(), Config{Interop: true}.scripts()...) {
		sum := sha1.Sum([]byte(source))
		sources[hex.EncodeToString(sum[:])] = source
	}
	return sources
})

// stopped is what comes before a script that is stopped: a redis of ours in front of the server's. How many commands it
// lets through, whether it stops one alone, and what it says are three keys behind the script's own. So the text of each
// script is one, and a server parses it once.
//
// A first count is taken back by the next command, and nothing stops a script between the two (begun). Both write the
// same key, which is there by then: so a slot that moves away refuses neither alone, and no server checks its memory
// before it deletes. A user who may not delete could release no lock.
const stopped = `local redis = (function(real) local says = table.remove(KEYS) local once = table.remove(KEYS) == 'true' ` +
	`local left, begun = tonumber(table.remove(KEYS)), false ` +
	`local function stops(name) local taken = begun and name == 'HDEL' begun = false if taken then return false end ` +
	`if left > 0 then left = left - 1 return false end ` +
	`if left == 0 then left = -1 real.call('SET', 'stopped', '1') return true end return not once end ` +
	`local function run(how, ...) local a = {...} ` +
	`if a[1] == 'HINCRBY' then local n = how(...) begun = n == 1 return n end ` +
	`if a[1] == 'PUBLISH' or a[1] == 'SPUBLISH' then real.call('RPUSH', 'told', a[3]) end return how(...) end ` +
	`return {call = function(...) if stops(...) then error(says, 0) end return run(real.call, ...) end, ` +
	`pcall = function(...) if stops(...) then return {err = says} end return run(real.pcall, ...) end, ` +
	`error_reply = real.error_reply, sha1hex = real.sha1hex} end)(redis) `

// raw runs a script that is stopped after so many commands; after < 0: not at all.
func (p *stopPlay) raw(cmd member.Command, after int, once bool) (any, error) {
	batch := p.joined && cmd.Item != nil
	whole := resp.AppendBulk(cmd.Cmd, p.tag)
	if batch {
		whole = joinCommands(p.tag, false, cmd)
	}
	w := words(whole)
	source := scriptsBySum()[w[1]]
	require.NotEmpty(p, source)
	says := "ERR stopped"
	if p.moving {
		says = "ERR Script attempted to access a non local key in a cluster node"
		if !batch && len(w) > 5 && w[4] == member.TokensKey && w[5] == member.MarkerKey { // the slot's counters are the marker's key
			w[5] = member.TokensKey
		}
	}
	if after < 0 {
		after = 1 << 30
	}
	keys := rt.Must(strconv.Atoi(w[2]))(p)
	args := append([]string{"EVAL", stopped + source, strconv.Itoa(keys + 3)}, w[3:3+keys]...)
	args = append(args, strconv.Itoa(after), strconv.FormatBool(once), says)
	v, err := p.c.Do(p.Context(), append(args, w[3+keys:]...)...)
	if err != nil {
		return nil, err
	}
	if batch {
		v = v.([]any)[0]
	}
	if failed, ok := v.(error); ok {
		return nil, failed
	}
	return v, nil
}

// adoption is bob's of what alice held, which has ended in the middle.
type adoption struct {
	*scripted
	kind, what string
	got        any // what alice's acquire was answered
	yes        func(cmd member.Command) bool
}

// stoppedAdoptions has bob's adoption end at each of its commands, of each kind of lock.
func stoppedAdoptions(t *testing.T, then func(a adoption)) {
	t.Helper()
	server := rt.Embedded(t, 1).Servers[0]
	s := newScripted(t, server)
	sem := script.Semaphore(s.Name).Asking(&script.Asked{Limit: 4, N: 2})
	for name, l := range map[string]script.Lock{
		"mutex": script.Exclusive(s.Name), "fair": script.Fair(s.Name), "writer": script.Writing(s.Name), "reader": script.Reading(s.Name),
		"semaphore": sem,
	} {
		for after, stopped := 0, true; stopped; after++ {
			for _, once := range []bool{false, true} {
				require.NoError(t, server.Flush())
				p := &stopPlay{scripted: s}
				s.Lock = l
				what := fmt.Sprint(name, " stopped after ", after, " once ", once)
				got, err := s.run(s.Acquire(nil, alice, minute))
				require.NoError(t, err, what)
				if held, ok := got.(string); ok {
					list, _ := permit.Parse(held)
					s.Lock = s.Holding(list)
				}
				yes := func(cmd member.Command) bool {
					v, err := s.run(cmd)
					require.NoError(t, err, what)
					return v.([]any)[0].(int64) > 0
				}
				_, _ = p.raw(s.Adopt(nil, bob, alice, minute), after, once)
				stopped = s.ask("EXISTS", "stopped").(int64) == 1
				s.ask("DEL", "stopped", "told")
				then(adoption{s, name, what, got, yes})
			}
		}
	}
}

// Whatever ends an adoption, the vote is the former owner's or the adopter's, with its token, and the repetition makes it the
// adopter's: a second one finds nothing.
func TestAdoptThatEndsInTheMiddleAndIsRepeatedMovesTheVote(t *testing.T) {
	stoppedAdoptions(t, func(s adoption) {
		if s.kind == "semaphore" {
			var naming []string
			for field, value := range s.hash((&permits{scripted: s.scripted}).key("s1")) {
				if strings.Contains(field, ":") && strings.Contains(value, ":") {
					naming = append(naming, field)
				}
			}
			require.Len(t, naming, 1, "%s: records that name slots: the end of each frees them", s.what)
		}
		require.True(t, s.yes(s.Extend(nil, alice, second)) || s.yes(s.Extend(nil, bob, second)), s.what)
		require.True(t, s.yes(s.Adopt(nil, bob, alice, minute)), s.what)
		require.False(t, s.yes(s.Adopt(nil, carol, alice, minute)), s.what)
		require.False(t, s.yes(s.Extend(nil, alice, second)), s.what)
		require.True(t, s.yes(s.Extend(nil, bob, second)), s.what)
		again, err := s.run(s.Acquire(nil, bob, minute))
		require.NoError(t, err, s.what)
		require.Equal(t, s.got, again, s.what)
		require.Equal(t, int64(1), replyOf(s.run(s.Release(nil, bob, ""))).n, s.what)
		for key := range s.state() {
			require.Equal(t, member.TokensKey, key, s.what)
		}
	})
}

// An adoption moves what the lease has, and what its former owner waits for is nobody's then.
func TestAdoptMovesWhatTheLeaseHasAndNothingElse(t *testing.T) {
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		s := newScripted(t, server)
		adopt := func(l script.Lock, former string) int64 { return s.list(l.Adopt(nil, bob, former, minute))[0].(int64) }
		reader, writer := script.Reading(s.Name), script.Writing(s.Name)
		s.number(reader.Acquire(nil, alice, 20*second))
		s.number(reader.Acquire(nil, carol, 20*second))
		require.Equal(t, int64(1), adopt(reader, alice))
		require.Greater(t, toInt(s.hash(s.Name)[bob]), s.now()/1000+40_000)
		require.Less(t, toInt(s.hash(s.Name)[carol]), s.now()/1000+40_000)
		require.NotContains(t, s.hash(s.Name), alice)
		s.list(writer.Wait(nil, alice, minute, minute, 0))
		require.Equal(t, int64(2), adopt(reader, carol), "it has both: a writer waits")
		require.Equal(t, int64(1), adopt(reader, alice), "it has the vote")
		require.Zero(t, s.ask("ZCARD", QueueOf(s.Name)), "who waits under the former name is nobody")
		require.Equal(t, int64(1), s.number(reader.Release(nil, bob, "")))

		other := script.Exclusive("other")
		s.ask("SET", other.Name, "data")
		require.Equal(t, int64(-1), adopt(other, alice))

		sem := script.Semaphore(s.Name).Asking(&script.Asked{Limit: 4, N: 1, Want: 2, Held: permit.List{{Slot: 2, Token: 1}}})
		require.NoError(t, rt.Err(s.run(sem.Acquire(nil, alice, minute))))
		require.Equal(t, int64(0), adopt(sem.Holding(permit.List{{Slot: 3, Token: 1}}), alice), "another slot than the lease has")
		require.Equal(t, int64(0), adopt(sem, carol))
		require.Equal(t, int64(1), adopt(sem, alice))
		require.NoError(t, server.Flush())
	})
}

// bob's adoption ends in the middle, and carol's comes before bob's repetition.
func TestOfTwoAdoptersOneIsToldYesWhereverTheOtherEnds(t *testing.T) {
	stoppedAdoptions(t, func(s adoption) {
		second := s.yes(s.Adopt(nil, carol, alice, minute))
		first := s.yes(s.Adopt(nil, bob, alice, minute))
		carolStill := s.yes(s.Extend(nil, carol, minute))
		if first && second {
			t.Errorf("%s: both adopters were told yes (carol's extend then: %v) state %v", s.what, carolStill, s.ask("HGETALL", s.Name))
		}
	})
}
