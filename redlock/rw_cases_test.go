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
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The scripts of the lock with readers do what the cases in redlock/internal/script/testdata/rw
// say, on a real server and on the embedded one.
func TestReadWriteScriptsDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "rw/*", func(s *scripted, lines []cases.Line) {
		site := &rwSite{serverSite{s}}
		site.as("writer")
		(&scriptPlay{T: s.T, stage: site}).play(lines)
	})
}

type rwSite struct{ serverSite }

// as has the next calls made by a writer, a reader, or a client of the mutex of the same name.
func (s *rwSite) as(whose string) {
	s.Lock = map[string]func(string) script.Lock{
		"writer": script.Writing, "reader": script.Reading, "mutex": script.Exclusive,
	}[whose](s.Name)
}

func (k keysOf) readers(word string) (string, bool) {
	switch word {
	case "phase": // drawn, told, marking, and until when each reader has the vote
		field := fields(k.lock)
		phase, ok := field["r"]
		if !ok {
			return "none", true
		}
		out := strings.Fields(phase + " -")[:3]
		var readers []string
		for owner, end := range field {
			if owner != "r" {
				readers = append(readers, called(owner)+" "+text(toInt(end)-1-k.now/1000)) // the scripts add one
			}
		}
		slices.Sort(readers)
		return strings.Join(append(out, readers...), " "), true
	case "readers": // that wait
		var all []string
		for owner, entry := range k.waiters {
			if strings.HasSuffix(entry, " r") {
				all = append(all, called(owner))
			}
		}
		slices.Sort(all)
		return cmp.Or(strings.Join(all, " "), "none"), true
	case "joined":
		return text(int64(len(k.lock)/2 - 1)), true
	}
	return "", false
}

func (s *rwSite) edit(words []string) string {
	s.Helper()
	k := s.keys()
	if said, ok := k.readers(words[0]); ok {
		return said
	}
	switch words[0] {
	case "ends": // ends OWNER TIME: a reader's part
		if owner := ownerNames[words[1]]; owner != "" {
			d := rt.Must(time.ParseDuration(words[2]))(s)
			s.ask("HSET", s.Name, owner, text(k.now/1000+d.Milliseconds()))
			return ""
		}
	case "lasts": // lasts OWNER TIME: what is left of an entry
		owner := ownerNames[words[1]]
		_, rest, _ := strings.Cut(k.waiters[owner], " ")
		d := rt.Must(time.ParseDuration(words[2]))(s)
		s.ask("HSET", WaitersOf(s.Name), owner, text(k.now/1000+d.Milliseconds())+" "+rest)
		return ""
	case "peeked": // token, who has the vote, who waits: by their hashes
		v := rt.Must(s.run(s.Peek(nil)))(s)
		view, ok := script.ReadView(replyFrom(v))
		require.True(s, ok)
		v = rt.Must(s.run(s.PeekHolders(nil)))(s)
		holders, ok := script.ReadView(replyFrom(v))
		require.True(s, ok)
		require.Empty(s, holders.Queue)
		require.Equal(s, []any{len(view.Readers), view.Owner}, []any{len(holders.Readers), holders.Owner})
		out := []string{text(view.Token)}
		for _, r := range view.Readers {
			require.Greater(s, r.TTL, time.Duration(0))
			out = append(out, nameOf(r.Owner))
		}
		if view.Owner != "" {
			out = append(out, nameOf(view.Owner))
		}
		for _, w := range view.Queue {
			require.True(s, w.Live && w.Waiting >= 0 && w.Waiting < time.Minute)
			out = append(out, nameOf(w.Owner)+map[bool]string{true: "/r"}[w.Reads])
		}
		return strings.Join(out, " ")
	case "downgrade":
		ttl := rt.Must(time.ParseDuration(words[2]))(s)
		l := script.Reading(s.Name)
		r := replyOf(s.run(l.Downgrade(nil, ownerOf(words[1]), ttl)))
		if r.err != "" {
			return r.err
		}
		return fmt.Sprint(r.n, " ", called(r.next))
	}
	return s.serverSite.edit(words)
}

func called(owner string) string {
	for _, name := range []string{"alice", "bob", "carol", "dave"} {
		if ownerNames[name] == owner {
			return name
		}
	}
	return owner
}

// nameOf is the name of an owner of whom only the hash is told; of nobody's, the hash itself.
func nameOf(hash string) string {
	for _, name := range []string{"alice", "bob", "carol", "dave", "java", "other"} {
		if script.Hash([]byte(ownerNames[name])) == hash {
			return name
		}
	}
	return hash
}

func fields(flat []string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(flat, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// replyFrom is what a client of the tests has read, as a member replies it.
func replyFrom(v any) *member.Reply {
	switch v := v.(type) {
	case int64:
		return &member.Reply{Kind: ':', Int: v}
	case string:
		return &member.Reply{Kind: '$', Str: []byte(v)}
	case []any:
		r := member.Reply{Kind: '*'}
		for _, e := range v {
			r.Elems = append(r.Elems, *replyFrom(e))
		}
		return &r
	}
	return &member.Reply{}
}

// As TestScriptThatEndsInTheMiddleAndIsRepeatedGivesOneVote, of readers, of writers, and of a mutex and a fair caller of that
// name. A case is calls, of which the last is the one that ends: all behind it fail, or it alone, also at a master that gives
// the slot away. Whoever is told a vote believes it until it gives it up.
func TestScriptsOfReadersThatEndInTheMiddleGiveOneVote(t *testing.T) {
	server := rt.Embedded(t, 1).Servers[0]
	for _, c := range cases.Read(t, "internal/script/testdata/rw/stopped/*.txt") {
		t.Run(c.Name, func(t *testing.T) {
			s, commands := newScripted(t, server), 0
			for how := range 4 {
				once, moving := how&1 != 0, how&2 != 0
				for after := 0; ; after++ {
					require.NoError(t, server.Flush())
					p := &rwStopPlay{stopPlay: &stopPlay{scripted: s, moving: moving}, owners: map[string]*rwStopOwner{}}
					p.what = fmt.Sprintf("stopped after %d commands, once %v, slot moving %v", after, once, moving)
					if !p.play(c.Lines, after, once) {
						commands = max(commands, after)
						break
					}
				}
			}
			require.Positive(t, commands)
		})
	}
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

type rwStopOwner struct {
	name, kind string // read, write, mutex, fair
	lock       script.Lock
	token      int64 // that it believes to have; 0: none
	yielded    int64
	gone       bool // its release has begun
}

type rwStopPlay struct {
	*stopPlay
	owners map[string]*rwStopOwner
}

// play reports whether the last call was stopped.
func (p *rwStopPlay) play(lines []cases.Line, after int, once bool) (stopped bool) {
	if p.tag = ""; p.moving {
		p.tag = "run 1"
		p.ask("HSET", member.TokensKey, "id", p.tag)
	}
	last := len(lines) - 1
	for _, line := range lines[:last] {
		require.NoError(p, p.do(p.owner(line.Words), -1, false, line.Words[2:]...))
	}
	o, words := p.owner(lines[last].Words), lines[last].Words[2:]
	err := p.do(o, after, once, words...)
	if stopped = p.ask("EXISTS", "stopped").(int64) == 1; err != nil {
		require.True(p, stopped, "%s: %v", p.what, err)
		require.NoError(p, p.do(o, -1, false, words...), "%s: repeated", p.what)
	}
	served := func() bool { return !slices.ContainsFunc(p.all(), func(o *rwStopOwner) bool { return !o.gone }) }
	for i := 0; i < 40 && !served(); i++ {
		if p.moving && stopped && err == nil && i > 20 {
			// The script passed over keys of the queue that have moved. An entry of whoever has gone may be there, and is
			// served: until the end of its TTL.
			p.ask("DEL", p.Name)
		}
		p.round()
	}
	require.True(p, served(), "%s: somebody is never served: %v", p.what, p.ask("HGETALL", p.Name))
	for key, is := range p.state() {
		passed := key == p.Name && p.moving && stopped && err == nil
		require.True(p, passed || slices.Contains([]string{"stopped", member.TokensKey, WaitersOf(p.Name)}, key), "%s: left: %s is %s", p.what, key, is)
	}
	return stopped
}

func (p *rwStopPlay) all() []*rwStopOwner {
	return slices.SortedFunc(maps.Values(p.owners), func(x, y *rwStopOwner) int { return cmp.Compare(x.name, y.name) })
}

func (p *rwStopPlay) owner(words []string) *rwStopOwner {
	name := ownerOf(words[1])
	if p.owners[name] == nil {
		lock := map[string]func(string) script.Lock{
			"read": script.Reading, "write": script.Writing, "mutex": script.Exclusive, "fair": script.Fair,
		}[words[0]](p.Name)
		p.owners[name] = &rwStopOwner{name: name, kind: words[0], lock: lock}
	}
	return p.owners[name]
}

// round has everybody do what comes next: who believes to have the lock gives it up, the others ask.
func (p *rwStopPlay) round() {
	for _, o := range p.all() {
		switch {
		case o.gone:
			continue
		case o.token > 0:
			require.NoError(p, p.do(o, -1, false, "release"), p.what)
			continue
		}
		require.NoError(p, p.do(o, -1, false, "wait"), p.what)
		if vote := p.hash(p.Name)[o.name]; o.token == 0 && o.yielded > 0 && vote == text(o.yielded) { // offered again
			require.NoError(p, p.do(o, -1, false, "yield"), p.what)
		}
	}
}

// do makes a call that is stopped after so many commands, or not at all, and books what everybody is told.
func (p *rwStopPlay) do(o *rwStopOwner, after int, once bool, words ...string) error {
	p.Helper()
	var cmd member.Command
	tells := false // of a vote
	switch words[0] {
	case "acquire":
		cmd, tells = o.lock.Acquire(nil, o.name, minute), true
	case "wait":
		cmd, tells = o.lock.Wait(nil, o.name, minute, minute, 0), true
	case "yield":
		o.yielded, o.token = max(o.yielded, o.token), 0
		cmd, tells = o.lock.Yield(nil, o.name, o.yielded, minute, minute, 0), true
	case "extend":
		cmd = o.lock.Extend(nil, o.name, minute)
	case "downgrade": // the write lease ends first
		o.kind, o.lock = "read", script.Reading(p.Name)
		cmd = o.lock.Downgrade(nil, o.name, minute)
	case "release":
		hint := ""
		if (o.kind == "write" || o.kind == "mutex") && len(words) == 1 && (o.token > 0 || o.gone) {
			hint = script.ReadersFirst("")
		}
		o.token, o.gone = 0, true
		cmd = o.lock.Release(nil, o.name, hint)
	}
	v, err := p.raw(cmd, after, once)
	if list, ok := v.([]any); ok {
		v = list[0]
	}
	if n, _ := v.(int64); tells {
		o.believe(n)
	}
	for _, told := range p.ask("LRANGE", "told", "0", "-1").([]any) {
		if f := strings.Fields(told.(string)); f[0] == "g" && p.owners[f[1]] != nil {
			p.owners[f[1]].believe(toInt(f[2]))
		}
	}
	p.ask("DEL", "told")
	var who []string
	alone := false
	for _, o := range p.all() {
		if o.token > 0 {
			who, alone = append(who, called(o.name)), alone || o.kind != "read"
		}
	}
	require.False(p, alone && len(who) > 1, "%s: %v of %s: believe at once: %v", p.what, words, called(o.name), who)
	if len(who) > 0 {
		require.Positive(p, p.ask("PTTL", p.Name), "%s: %v of %s: a vote without an end", p.what, words, called(o.name))
	}
	return err
}

func (o *rwStopOwner) believe(token int64) {
	if !o.gone && token > o.yielded {
		o.token = token
	}
}
