//go:build !race

package redlock

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The same of readers, of writers, and of a mutex and a fair caller of that name: each of their scripts may end behind any of
// its commands, and its owner repeats it. The order is drawn. Whoever is told a vote believes it until it gives it up.
func TestScriptsOfReadersThatEndInTheMiddleGiveOneVote(t *testing.T) { stopReaders(t, 250) }

func TestLongScriptsOfReadersThatEndInTheMiddle(t *testing.T) {
	Long(t)
	stopReaders(t, 20000)
}

// Whatever ends a writer's wait beside readers that are dead, a vote that it can renew is no reader's, and a sweep leaves it.
func TestWaitOfAWriterThatEndsInTheMiddleGivesAVoteThatNoReaderHas(t *testing.T) {
	server := rt.Embedded(t, 1).Servers[0]
	s := newScripted(t, server)
	reading, writing, dave := script.Reading(s.Name), script.Writing(s.Name), script.OwnerOf(strings.Repeat("D", 26), 4)
	for after, stopped := 0, true; stopped; after++ {
		for _, once := range []bool{false, true} {
			require.NoError(t, server.Flush())
			p, what := &stopPlay{scripted: s}, fmt.Sprint("stopped after ", after, " once ", once)
			s.number(reading.Acquire(nil, alice, minute))
			s.ask("HSET", s.Name, alice, strconv.FormatInt(s.now()/1000-1, 10))
			_, _ = p.raw(writing.Wait(nil, bob, minute, minute, 0), after, once)
			stopped = s.ask("EXISTS", "stopped").(int64) == 1
			has := s.list(writing.Extend(nil, bob, minute))[0].(int64) > 0
			require.True(t, has || stopped, what)
			reads := s.number(reading.Acquire(nil, carol, minute)) > 0
			require.False(t, has && reads, what)
			s.list(writing.Wait(nil, dave, minute, minute, 0))
			require.Equal(t, has, s.list(writing.Extend(nil, bob, minute))[0].(int64) > 0, what)
		}
	}
}

// Whatever ends a downgrade, the vote stays: its owner relies on it until it hears of its phase.
func TestDowngradeThatEndsInTheMiddleKeepsTheVote(t *testing.T) {
	server := rt.Embedded(t, 1).Servers[0]
	s := newScripted(t, server)
	reading, writing := script.Reading(s.Name), script.Writing(s.Name)
	for after, stopped := 0, true; stopped; after++ {
		for _, once := range []bool{false, true} {
			require.NoError(t, server.Flush())
			p, what := &stopPlay{scripted: s}, fmt.Sprint("stopped after ", after, " once ", once)
			s.number(writing.Acquire(nil, alice, minute))
			_, _ = p.raw(reading.Downgrade(nil, alice, 20*second), after, once)
			stopped = s.ask("EXISTS", "stopped").(int64) == 1
			require.Greater(t, s.left(s.Name), 40*second, what)
			require.Positive(t, s.list(reading.Extend(nil, alice, second))[0], what)
		}
	}
}

func stopReaders(t *testing.T, seeds uint64) {
	server := rt.Embedded(t, 1).Servers[0]
	s := newScripted(t, server)
	for seed := range seeds {
		for _, moving := range []bool{false, true} {
			require.NoError(t, server.Flush())
			p := &rwStopPlay{stopPlay: &stopPlay{scripted: s, moving: moving}, r: rand.New(rand.NewPCG(seed, 1))}
			p.tag = map[bool]string{true: "run 1"}[moving]
			p.play()
			require.Empty(t, p.wrong, "seed %d, slot moving %v:\n%s", seed, moving, strings.Join(p.trace, "\n"))
		}
	}
}

type rwStopOwner struct {
	name     string
	kind     string // mutex, fair, write, read
	lock     script.Lock
	believes bool
	reads    bool // believes as a reader
	token    int64
	yielded  int64
	held     bool                             // has believed at some time: its release says so
	gone     bool                             // its release has begun
	pending  func(after int, once bool) error // a call that was stopped and is to be repeated
	over     bool                             // nothing is left to be done
}

type rwStopPlay struct {
	*stopPlay
	r     *rand.Rand
	all   []*rwStopOwner
	trace []string
	wrong []string

	// A script passed over keys of the queue that have moved. An entry of whoever has gone may be there, and is served: for a
	// TTL then.
	passed bool
}

func firstOf(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case []any:
		if len(v) > 0 {
			return firstOf(v[0])
		}
	}
	return 0
}

func (p *rwStopPlay) note(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf(format, args...))
}

// told books what was pushed.
func (p *rwStopPlay) told() {
	for _, m := range p.ask("LRANGE", "told", "0", "-1").([]any) {
		f := strings.Fields(m.(string))
		if f[0] == "g" {
			for _, o := range p.all {
				if o.name == f[1] && !o.gone {
					token, _ := strconv.ParseInt(f[2], 10, 64)
					p.believe(o, token, "push")
				}
			}
		}
	}
	p.ask("DEL", "told")
}

func (p *rwStopPlay) believe(o *rwStopOwner, token int64, why string) {
	if o.gone || token <= o.yielded {
		return
	}
	if o.believes && token <= o.token {
		return
	}
	o.believes, o.token, o.held = true, token, true
	if o.kind == "read" {
		o.reads = true
	}
	p.note("  %s believes %d (%s)", o.name, token, why)
}

func (p *rwStopPlay) check(what string) {
	var who []string
	writers := 0
	for _, o := range p.all {
		if o.believes {
			who = append(who, o.name)
			if !o.reads {
				writers++
			}
		}
	}
	if writers > 0 && len(who) > 1 {
		p.wrong = append(p.wrong, fmt.Sprintf("%s: believe at once: %v", what, who))
	}
	if len(who) > 0 {
		if ttl := firstOf(p.ask("PTTL", p.Name)); ttl < 1 {
			p.wrong = append(p.wrong, fmt.Sprintf("%s: %v believe, PTTL %d", what, who, ttl))
		}
	}
}

func (o *rwStopOwner) hint() string {
	if o.held && !o.reads && o.kind != "read" && o.kind != "fair" {
		return script.ReadersFirst("")
	}
	return ""
}

// act does something for an owner; a stop ends the script after so many commands.
func (p *rwStopPlay) act(o *rwStopOwner, after int, once bool) {
	call := o.pending
	what := "again"
	if call == nil {
		call, what = p.next(o)
	}
	if call == nil {
		return
	}
	p.note("%s %s: %s, stopped after %d once %v", o.name, o.kind, what, after, once)
	err := call(after, once)
	stopped := firstOf(p.ask("EXISTS", "stopped")) == 1
	p.ask("DEL", "stopped")
	p.passed = p.passed || p.moving && stopped && err == nil
	o.pending = nil
	if err != nil || stopped && err != nil {
		o.pending = call
		p.note("  ended: %v", err)
	}
	p.told()
	p.check(fmt.Sprintf("after %s of %s", what, o.name))
}

// get is a call whose reply may tell of a vote, plain one that does not.
func (p *rwStopPlay) get(o *rwStopOwner, cmd member.Command) func(after int, once bool) error {
	return func(after int, once bool) error {
		v, err := p.raw(cmd, after, once)
		if err == nil && firstOf(v) > 0 {
			p.believe(o, firstOf(v), "reply")
		}
		return err
	}
}

func (p *rwStopPlay) plain(cmd member.Command) func(after int, once bool) error {
	return func(after int, once bool) error { return rt.Err(p.raw(cmd, after, once)) }
}

// next chooses what an owner does next.
func (p *rwStopPlay) next(o *rwStopOwner) (call func(after int, once bool) error, what string) {
	switch {
	case o.over:
		return nil, ""
	case o.gone:
		o.over = true
		return nil, ""
	case o.believes:
		if o.kind == "write" && !o.reads && p.r.IntN(4) == 0 { // downgrade
			o.reads = true // the write lease ends first
			reading := script.Reading(p.Name)
			o.lock = reading
			return p.plain(reading.Downgrade(nil, o.name, minute)), "downgrade"
		}
		if !o.reads && o.kind != "read" && p.r.IntN(4) == 0 { // yield
			token := o.token
			o.believes, o.yielded = false, max(o.yielded, o.token)
			return p.get(o, o.lock.Yield(nil, o.name, token, minute, minute, 0)), "yield"
		}
		if p.r.IntN(4) == 0 {
			return p.plain(o.lock.Extend(nil, o.name, minute)), "extend"
		}
		fallthrough
	case !o.believes && p.r.IntN(8) == 0 || o.believes:
		hint := o.hint()
		if o.kind == "mutex" && hint != "" && p.r.IntN(2) == 0 {
			hint = "" // it has not heard of readers
		}
		o.believes, o.gone = false, true
		return p.plain(o.lock.Release(nil, o.name, hint)), "release " + hint
	case p.r.IntN(3) == 0:
		return p.get(o, o.lock.Acquire(nil, o.name, minute)), "acquire"
	}
	return p.get(o, o.lock.Wait(nil, o.name, minute, minute, 0)), "wait"
}

func (p *rwStopPlay) play() {
	if p.moving {
		p.ask("HSET", member.TokensKey, "id", "run 1")
	}
	kinds := []string{"read", "read", "write", "write", "mutex", "fair"}
	if p.r.IntN(2) == 0 {
		kinds = []string{"read", "read", "read", "write", "write"}
	}
	n := 2 + p.r.IntN(4)
	for i := range n {
		o := &rwStopOwner{name: script.OwnerOf(strings.Repeat("ABCDE"[i:i+1], 26), uint64(i+1)), kind: kinds[p.r.IntN(len(kinds))]}
		switch o.kind {
		case "read":
			o.lock = script.Reading(p.Name)
		case "write":
			o.lock = script.Writing(p.Name)
		case "mutex":
			o.lock = script.Exclusive(p.Name)
		case "fair":
			o.lock = script.Fair(p.Name)
		}
		p.all = append(p.all, o)
	}
	stops := 1 + p.r.IntN(3)
	for range 30 + p.r.IntN(30) {
		o := p.all[p.r.IntN(n)]
		after, once := -1, false
		if stops > 0 && p.r.IntN(4) == 0 {
			after, once = p.r.IntN(16), p.r.IntN(2) == 0
			stops--
		}
		p.act(o, after, once)
		if len(p.wrong) > 0 {
			return
		}
	}
	p.finish()
	for range p.all {
		if p.passed && len(p.wrong) == 0 {
			p.ask("DEL", p.Name) // the vote of who has gone ends with its TTL
			p.finish()
		}
	}
	if len(p.wrong) > 0 {
		return
	}
	for _, o := range p.all {
		if !o.gone || o.pending != nil {
			p.wrong = append(p.wrong, fmt.Sprintf("%s (%s) is never served; k: %v", o.name, o.kind, p.ask("HGETALL", p.Name)))
		}
	}
	keys := p.ask("KEYS", "*").([]any)
	for _, k := range keys {
		if k != member.TokensKey && k != WaitersOf(p.Name) {
			p.wrong = append(p.wrong, fmt.Sprintf("left: %v: %v pttl %v", k, p.ask("TYPE", k.(string)), p.ask("PTTL", k.(string))))
		}
	}
}

// finish has everybody go on without stops: repeat, be served, and give up.
func (p *rwStopPlay) finish() {
	for range 40 {
		left := 0
		for _, o := range p.all {
			switch {
			case o.pending != nil:
				p.act(o, -1, false)
			case o.gone:
				continue
			case o.believes:
				o.believes, o.gone = false, true
				o.pending = p.plain(o.lock.Release(nil, o.name, o.hint()))
				p.act(o, -1, false)
			default:
				o.pending = p.get(o, o.lock.Wait(nil, o.name, minute, minute, 0))
				p.act(o, -1, false)
				// a vote that a yield gave up in vain is offered again
				if v, ok := p.ask("HGET", p.Name, o.name).(string); ok && !o.believes && o.kind != "read" && !o.reads {
					if token, _ := strconv.ParseInt(v, 10, 64); token == o.yielded {
						o.pending = p.get(o, o.lock.Yield(nil, o.name, token, minute, minute, 0))
						p.act(o, -1, false)
					}
				}
			}
			if len(p.wrong) > 0 {
				return
			}
			if !o.gone || o.pending != nil {
				left++
			}
		}
		if left == 0 {
			break
		}
	}
}
