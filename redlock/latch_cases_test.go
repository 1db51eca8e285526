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
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The scripts of a latch do what the cases in redlock/internal/script/testdata/latch say, on a real
// server and on the embedded one.
func TestLatchScriptsDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "latch/*", func(s *scripted, lines []cases.Line) {
		p := &scriptPlay{T: s.T}
		p.stage = newLatchSite(s, p)
		p.play(lines)
	})
}

type latchSite struct {
	serverSite
	play  *scriptPlay
	latch script.Latch
	life  time.Duration
}

func newLatchSite(s *scripted, p *scriptPlay) *latchSite {
	return &latchSite{serverSite{s}, p, script.LatchOf("part:42"), time.Hour}
}

func (p *latchSite) named() map[string]string {
	name := p.latch.Name
	return map[string]string{
		"latch": slot.Sibling("redquorum:l1", name), "watches": slot.Sibling("redquorum:lo", name), "barrier": slot.Sibling("redquorum:b1", name),
	}
}

func (p *latchSite) all() map[string]string { return renamed(p.state(), p.named()) }

func (p *latchSite) pushed() []string { return slices.Sorted(slices.Values(p.serverSite.pushed())) }

func (p *latchSite) terms(round, count string) script.LatchTerms {
	return script.LatchTerms{Round: toInt(round), Count: toInt(count), Life: p.life}
}

// arrivalsOf reads words like a and a=2.
func arrivalsOf(words []string) (out []script.Arrival) {
	for _, w := range words {
		id, n, several := strings.Cut(w, "=")
		a := script.Arrival{ID: id, N: 1}
		if several {
			a.N = toInt(n)
		}
		out = append(out, a)
	}
	return out
}

func (p *latchSite) edit(words []string) string {
	p.Helper()
	names, args := p.named(), words[1:]
	switch words[0] {
	case "arrive":
		return p.told(p.latch.Arrive(nil, p.terms(args[0], args[1]), false, arrivalsOf(args[2:])))
	case "opened":
		return p.told(p.latch.Arrive(nil, p.terms(args[0], "0"), true, nil))
	case "told":
		return p.told(p.latch.Tell(nil, p.terms(args[0], "0")))
	case "await":
		return p.told(p.latch.Await(nil, p.terms(args[0], args[1]), ownerOf(args[2]), time.Minute))
	case "withdraw":
		return p.told(p.latch.Await(nil, p.terms(args[0], "0"), ownerOf(args[1]), 0))
	case "delete":
		return text(p.number(p.latch.Delete(nil)))
	case "life":
		p.life = rt.Must(time.ParseDuration(args[0]))(p)
		return ""
	case "latch":
		return p.stored(names["latch"])
	case "read":
		return p.read()
	case "come", "go", "look":
		return p.barrier(words[0], args)
	case "parties":
		var parties []string
		for field := range p.hash(names["barrier"]) {
			if name, ok := strings.CutPrefix(field, "="); ok {
				parties = append(parties, name)
			}
		}
		slices.Sort(parties)
		return strings.Join(parties, " ")
	case "ends":
		was := strings.Fields(p.hash(names["barrier"])["="+args[0]])
		p.ask("HSET", names["barrier"], "="+args[0], was[0]+" 1 "+was[2])
		return ""
	case "fields":
		return fmt.Sprint(len(p.hash(names["latch"])))
	case "watches":
		var awaits []string
		now := p.now()
		for watch, deadline := range p.hash(names["watches"]) {
			left := toInt(deadline) - now/1000
			require.True(p, left > 40_000 && left <= 60_000, "%v: it ends in %d ms", p.play.line, left)
			awaits = append(awaits, called(watch))
		}
		slices.Sort(awaits)
		return cmp.Or(strings.Join(awaits, " "), "nobody")
	}
	for i, w := range words {
		words[i] = cmp.Or(names[strings.TrimPrefix(w, "$")], w)
	}
	return p.serverSite.edit(words)
}

func latchText(s script.LatchState) string {
	return fmt.Sprint(s.Round, " ", s.Sum, " ", s.Count, " ", map[bool]string{true: "open", false: "shut"}[s.Open])
}

func (p *latchSite) told(cmd member.Command) string {
	p.Helper()
	began := p.now()
	v, err := p.run(cmd)
	if err != nil {
		p.play.failed = true
		return replyOf(nil, err).err
	}
	s, ok := script.ReadLatch(replyFrom(v))
	require.True(p, ok, "%v: %v", p.play.line, v)
	require.True(p, began <= s.Server && s.Server <= p.now(), "%v: the time is not its own", p.play.line)
	return latchText(s)
}

// stored is what the key has, with the arrivals of its round. Sum and digest are those of the arrivals, as a client counts them.
func (p *latchSite) stored(key string) string {
	p.Helper()
	h := p.hash(key)
	s := script.LatchState{Round: toInt(h["r"]), Sum: toInt(h["s"]), Count: toInt(h["k"]), Open: h["o"] == "1", Digest: toInt(h["d"])}
	var ids []string
	var sum, digest int64
	for field, value := range h {
		id, ok := strings.CutPrefix(field, "=")
		round, n, _ := strings.Cut(value, ":")
		if ok && round == h["r"] {
			ids = append(ids, id+"="+n)
			sum, digest = sum+toInt(n), script.AddDigest(digest, id, toInt(n))
		}
	}
	slices.Sort(ids)
	require.Equal(p, s.Sum, sum, "%v", p.play.line)
	require.Equal(p, s.Digest, digest, "%v", p.play.line)
	return strings.Join(append([]string{latchText(s)}, ids...), " ")
}

// read is what the pages say, which is what the key has.
func (p *latchSite) read() string {
	p.Helper()
	var ids []string
	for cursor, n := "0", 0; ; n++ {
		read := p.latch.Read(nil, cursor, 1)
		if p.ask("EXISTS", p.named()["barrier"]).(int64) == 1 {
			read = script.BarrierOf(p.latch.Name).Read(nil, cursor, 1)
		}
		v := rt.Must(p.run(read))(p)
		page, ok := script.ReadLatchPage(replyFrom(v))
		require.True(p, ok, "%v: %v", p.play.line, v)
		for _, a := range page.Arrivals {
			ids = append(ids, fmt.Sprint(a.ID, "=", a.N))
		}
		if cursor = page.Next; cursor == "0" {
			slices.Sort(ids)
			return strings.Join(append([]string{latchText(page.LatchState)}, slices.Compact(ids)...), " ")
		}
		require.Less(p, n, 100)
	}
}

// barrier is a call about the barrier of that name: come ROUND PARTIES WHO, go ROUND WHO, or look WHO; and then, in
// this order, as WATCH, and after ROUND WHO ..., who are the parties of the round before.
func (p *latchSite) barrier(word string, args []string) string {
	p.Helper()
	t := script.BarrierTerms{Life: p.life}
	entry := time.Duration(0)
	if word != "look" {
		t.Round, args = toInt(args[0]), args[1:]
	}
	if word == "come" {
		t.Parties, args, entry = toInt(args[0]), args[1:], time.Minute
	}
	t.Party, args = args[0], args[1:]
	t.Watch = ownerOf(t.Party)
	if len(args) > 0 && args[0] == "as" {
		t.Watch, args = ownerOf(args[1]), args[2:]
	}
	if len(args) > 0 {
		t.Before = toInt(args[1])
		for _, party := range args[2:] {
			weight := rt.Must(strconv.ParseInt(script.Hash([]byte("=" + party))[:12], 16, 64))(p)
			t.Digest = (t.Digest + weight) % (1 << 48)
		}
	}
	began := p.now()
	v, err := p.run(script.BarrierOf(p.latch.Name).Wait(nil, &t, entry))
	if err != nil {
		p.play.failed = true
		return replyOf(nil, err).err
	}
	reply := replyFrom(v)
	s, ok := script.ReadBarrier(reply)
	require.True(p, ok, "%v: %v", p.play.line, v)
	require.True(p, began <= s.Server && s.Server <= p.now(), "%v: the time is not its own", p.play.line)
	l, _ := script.ReadLatch(reply)
	return fmt.Sprint(s.Round, " ", l.Sum, " ", s.Parties, " ", map[bool]string{true: "open", false: "shut"}[s.Open], " ", s.Before, " ", [...]string{"stranger", "unknown", "counted", "other"}[s.Mine])
}

// Who waits costs a member the same however many wait: its heartbeats read all watches once in as many as there are.
func TestHeartbeatsOfAwaitReadAllWatchesSeldom(t *testing.T) {
	onServers(t, func(t *testing.T, server redistest.Server, acl bool) {
		if !acl {
			return // it does not count its commands
		}
		require.NoError(t, server.Flush())
		const waiters = 400
		p := newLatchSite(newScripted(t, server), nil)
		beat := func() {
			for i := range waiters {
				require.NoError(t, rt.Err(p.run(p.latch.Await(nil, p.terms("1", "2"), script.OwnerOf("AAAA", uint64(i)), time.Minute))))
			}
		}
		beat()
		p.ask("CONFIG", "RESETSTAT")
		beat()
		stats, _ := p.ask("INFO", "commandstats").(string)
		_, read, _ := strings.Cut(stats, "cmdstat_hgetall:calls=")
		read, _, _ = strings.Cut(read, ",")
		if read != "" {
			require.LessOrEqual(t, toInt(read), int64(10), "about one is expected")
		}
	})
}

// A script of a latch that ends in the middle, and is asked for again, leaves what it leaves if it
// does not end. Behind whichever of its commands it ends, nothing counts that has not arrived.
func TestLatchScriptThatEndsInTheMiddleAndIsRepeatedCountsOnce(t *testing.T) {
	server := rt.Embedded(t, 1).Servers[0]
	l := script.LatchOf("part:42")
	arrive := func(round, count int64, ids ...string) member.Command {
		return l.Arrive(nil, script.LatchTerms{Round: round, Count: count, Life: time.Hour}, false, arrivalsOf(ids))
	}
	await := func(round, count int64, who string) member.Command {
		return l.Await(nil, script.LatchTerms{Round: round, Count: count, Life: time.Hour}, ownerOf(who), time.Minute)
	}
	tell := l.Arrive(nil, script.LatchTerms{Round: 1, Life: time.Hour}, true, nil)
	for name, c := range map[string]struct {
		before []member.Command
		ask    member.Command
	}{
		"the first arrival":                  {nil, arrive(1, 3, "a", "b")},
		"an arrival":                         {[]member.Command{arrive(1, 3, "a")}, arrive(1, 3, "a=2", "b")},
		"the last arrival":                   {[]member.Command{arrive(1, 2, "a"), await(1, 2, "alice"), await(1, 2, "bob")}, arrive(1, 2, "b")},
		"the first to wait":                  {nil, await(1, 3, "alice")},
		"a heartbeat":                        {[]member.Command{await(1, 3, "alice")}, await(1, 3, "alice")},
		"who tells the count":                {[]member.Command{arrive(1, 0, "a"), await(1, 0, "bob")}, await(1, 1, "alice")},
		"who tells that it is open":          {[]member.Command{arrive(1, 3, "a"), await(1, 3, "alice")}, tell},
		"who tells where there is one":       {[]member.Command{arrive(1, 3, "a")}, l.Tell(nil, script.LatchTerms{Round: 1, Life: time.Hour})},
		"an arrival of the next round":       {[]member.Command{arrive(1, 3, "a", "b=2"), await(1, 3, "alice")}, arrive(2, 3, "a")},
		"the first to wait for the next":     {[]member.Command{arrive(1, 3, "a", "b"), await(1, 3, "alice")}, await(2, 3, "bob")},
		"an arrival of a round that is over": {[]member.Command{arrive(2, 3, "a")}, arrive(1, 3, "b")},
		"a withdrawal":                       {[]member.Command{await(1, 3, "alice")}, l.Await(nil, script.LatchTerms{Round: 1, Life: time.Hour}, ownerOf("alice"), 0)},
		"a deletion":                         {[]member.Command{arrive(1, 3, "a"), await(1, 3, "alice")}, l.Delete(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			p := &latchStopPlay{stopPlay: &stopPlay{scripted: newScripted(t, server)}, latch: l}
			begin := func() {
				require.NoError(t, server.Flush())
				for _, b := range c.before {
					require.NoError(t, rt.Err(p.raw(b, -1, false)))
				}
			}
			p.stopped(begin, c.ask, true, p.counted, func(reply any) any {
				if name == "a deletion" { // whose reply tells whether there was one
					return nil
				}
				return latchReply(reply)
			})
		})
	}
}

// latchStopPlay is a member at which scripts of a latch are stopped.
type latchStopPlay struct {
	*stopPlay
	latch script.Latch
}

// counted is what the member counts in the round that it has.
func (p *latchStopPlay) counted() string {
	p.Helper()
	reply := rt.Must(p.run(p.latch.Read(nil, "0", 1000)))(p)
	all := reply.([]any)
	ids := map[string]any{}
	for i := 9; i < len(all); i += 2 {
		ids[fmt.Sprint(all[i])] = all[i+1]
	}
	return fmt.Sprint(latchReply(reply), ids)
}

func latchReply(reply any) string {
	if all, ok := reply.([]any); ok {
		return fmt.Sprint(all[:5])
	}
	return fmt.Sprint(reply)
}

// The script of a barrier that ends in the middle, and is asked for again, leaves what it leaves if it does not end.
func TestBarrierScriptThatEndsInTheMiddleAndIsRepeatedCountsOnce(t *testing.T) {
	server := rt.Embedded(t, 1).Servers[0]
	b := script.BarrierOf("part:42")
	come := func(round, parties int64, who string, before int64, digest int64) member.Command {
		terms := script.BarrierTerms{Round: round, Parties: parties, Before: before, Digest: digest, Life: time.Hour, Party: who, Watch: ownerOf(who)}
		return b.Wait(nil, &terms, time.Minute)
	}
	gone := func(round int64, who string) member.Command {
		return b.Wait(nil, &script.BarrierTerms{Round: round, Party: who, Watch: ownerOf(who), Life: time.Hour}, 0)
	}
	var both int64
	for name, c := range map[string]struct {
		before []member.Command
		ask    member.Command
		ends   []string // parties whose arrival has ended
	}{
		"the first arrival":               {nil, come(7, 2, "alice", 0, 0), nil},
		"the last arrival":                {[]member.Command{come(7, 2, "alice", 0, 0)}, come(7, 2, "bob", 0, 0), nil},
		"one that is the last no more":    {[]member.Command{come(7, 2, "alice", 0, 0)}, come(7, 2, "bob", 0, 0), []string{"alice"}},
		"a heartbeat":                     {[]member.Command{come(7, 2, "alice", 0, 0)}, come(7, 2, "alice", 0, 0), nil},
		"a withdrawal":                    {[]member.Command{come(7, 2, "alice", 0, 0)}, gone(7, "alice"), nil},
		"the next round":                  {[]member.Command{come(7, 2, "alice", 0, 0), come(7, 2, "bob", 0, 0)}, come(8, 2, "alice", 7, -1), nil},
		"a round that others are left in": {[]member.Command{come(7, 2, "alice", 0, 0)}, come(80, 2, "bob", 0, 0), nil},
		"one of other parties":            {[]member.Command{come(7, 2, "alice", 0, 0), come(7, 2, "bob", 0, 0)}, come(8, 2, "carol", 7, 1), nil},
		"one party of one behind others":  {[]member.Command{come(7, 2, "alice", 0, 0), come(7, 2, "bob", 0, 0)}, come(8, 1, "bob", 0, 0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := &latchStopPlay{stopPlay: &stopPlay{scripted: newScripted(t, server)}}
			key := slot.Sibling("redquorum:b1", b.Name)
			begin := func() {
				require.NoError(t, server.Flush())
				for _, one := range c.before {
					reply := rt.Must(p.raw(one, -1, false))(t)
					s, ok := script.ReadBarrier(replyFrom(reply))
					require.True(t, ok)
					both = s.Digest
				}
				for _, who := range c.ends {
					p.ask("HSET", key, "="+who, "7:1 1 "+ownerOf(who))
				}
			}
			counted := func() string {
				read := rt.Must(p.run(b.Read(nil, "0", 1000)))(t)
				page, ok := script.ReadLatchPage(replyFrom(read))
				require.True(t, ok)
				slices.SortFunc(page.Arrivals, func(x, y script.Arrival) int { return cmp.Compare(x.ID, y.ID) })
				return fmt.Sprint(page.Round, page.Sum, page.Count, page.Open, page.Digest, page.Arrivals, p.ask("HGET", key, "p"), p.ask("HGET", key, "f"))
			}
			begin()
			if name == "the next round" {
				c.ask = come(8, 2, "alice", 7, both)
			}
			p.stopped(begin, c.ask, false, counted, func(reply any) any {
				got, _ := script.ReadBarrier(replyFrom(reply))
				got.Server = 0
				return got
			})
		})
	}
}

// stopped has a call end behind each of its commands, and be asked for again. It is done then. whole: it was done or not before.
func (p *latchStopPlay) stopped(begin func(), ask member.Command, whole bool, counted func() string, told func(reply any) any) {
	p.Helper()
	begin()
	said := rt.Must(p.raw(ask, -1, false))(p)
	want, reply, commands := counted(), told(said), 0
	for _, once := range []bool{false, true} {
		for after := 0; ; after++ {
			begin()
			before := counted()
			_, err := p.raw(ask, after, once)
			if p.ask("EXISTS", "stopped").(int64) == 0 {
				require.NoError(p, err)
				require.Equal(p, want, counted())
				break
			}
			commands++
			what := fmt.Sprintf("stopped after %d commands, once %v", after, once)
			if whole {
				require.Contains(p, []string{before, want}, counted(), what)
			}
			said, err := p.raw(ask, -1, false)
			require.NoError(p, err, what)
			require.Equal(p, want, counted(), what)
			require.Equal(p, reply, told(said), what)
			p.ask("DEL", "told", "stopped")
			for key := range p.state() {
				require.Positive(p, p.ask("PTTL", key), "%s: %s stays for ever", what, key)
			}
		}
	}
	require.Positive(p, commands)
}

// The scripts of an election do what the cases in redlock/internal/script/testdata/election say, on
// a real server and on the embedded one.
func TestElectionScriptsDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "election/*", func(s *scripted, lines []cases.Line) {
		p := &scriptPlay{T: s.T}
		p.stage = &electionSite{serverSite{s}, p}
		p.play(lines)
	})
}

type electionSite struct {
	serverSite
	play *scriptPlay
}

// as has the next calls made by a reader, or again by a candidate.
func (s *electionSite) as(whose string) {
	s.Lock = script.Exclusive(s.Name)
	if whose == "reader" {
		s.Lock = script.Reading(s.Name)
	}
}

func (s *electionSite) named() map[string]string {
	return map[string]string{"record": slot.Sibling("redquorum:e1", s.Name), "observers": slot.Sibling("redquorum:eo", s.Name)}
}

func (s *electionSite) all() map[string]string { return renamed(s.serverSite.all(), s.named()) }

func (s *electionSite) edit(words []string) string {
	s.Helper()
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	span := func(i int) time.Duration { d, _ := time.ParseDuration(words[i]); return d }
	who := func(hash string) string { return cmp.Or(nameOf(hash), "-") }
	said := func(v any, err error) string {
		if err != nil {
			s.play.failed = true
			return replyOf(nil, err).err
		}
		return fmt.Sprint(v)
	}
	switch words[0] {
	case "proclaim":
		cmd := s.Proclaim(nil, ownerOf(words[1]), toInt(words[2]), toInt(words[3]), span(4), []byte(arg(5)))
		return said(s.run(cmd))
	case "resign":
		return said(s.run(s.Resign(nil, ownerOf(words[1]), toInt(words[2]), span(3))))
	case "observe":
		v, err := s.run(s.Observe(nil, strings.TrimPrefix(words[1], "-"), span(2)))
		if err != nil {
			return said(nil, err)
		}
		got, ok := script.ReadElection(replyFrom(v))
		require.True(s, ok)
		require.LessOrEqual(s, got.Server, s.now())
		left := text(got.TTL.Milliseconds())
		if v.([]any)[1] == int64(-2) {
			left = "-2"
		}
		if got.By == "" {
			return fmt.Sprint(who(got.Owner), " ", left, " none")
		}
		value := "resigned"
		if got.Value != nil {
			value = cmp.Or(string(got.Value), "empty")
		}
		return fmt.Sprint(who(got.Owner), " ", left, " ", who(got.By), " ", got.Token, " ", got.Seq, " ", value)
	case "withdraw":
		return said(s.run(s.Observe(nil, words[1], 0)))
	case "watches":
		return strings.Join(slices.Sorted(maps.Keys(s.hash(s.named()["observers"]))), " ")
	case "lives":
		if key, ok := s.named()[words[1]]; ok {
			words[1] = key
		}
	case "redis":
		for i, w := range words {
			if key, ok := s.named()[strings.TrimPrefix(w, "$")]; ok {
				words[i] = key
			}
		}
	}
	return s.serverSite.edit(words)
}
