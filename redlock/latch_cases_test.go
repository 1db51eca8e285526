//go:build !race

package redlock

import (
	"fmt"
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
	onServers(t, func(t *testing.T, server redistest.Server, acl bool) {
		for _, c := range cases.Read(t, "internal/script/testdata/latch/*.txt") {
			if at := c.Lines[0].Words; at[0] == "at" && at[1] == "real" && !acl {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				(&latchPlay{serverSite: serverSite{newScripted(t, server)}, latch: script.LatchOf("part:42"), life: time.Hour}).play(c.Lines)
			})
		}
	})
}

// latchPlay plays the lines of a case about one latch.
type latchPlay struct {
	serverSite
	latch  script.Latch
	life   time.Duration
	line   cases.Line
	failed bool
	before map[string]string
}

// latchKeys are the names of the keys of a latch.
func latchKeys(name string) (latch, watches string) {
	return slot.Sibling("redquorum:l1", name), slot.Sibling("redquorum:lo", name)
}

func (p *latchPlay) play(lines []cases.Line) {
	for i, l := range lines {
		p.line, p.failed = l, false
		if i+1 < len(lines) && lines[i+1].Words[0] == "unchanged" {
			p.before = p.state()
		}
		got := p.event(l.Words[0], l.Words[1:])
		if !l.Asked {
			continue
		}
		words := strings.Fields(got)
		if p.failed && len(words) > len(l.Want) {
			words = words[:len(l.Want)]
		}
		require.True(p, slices.EqualFunc(words, l.Want, (&scriptPlay{T: p.T}).is), "%v: got %q, want %q", l, got, strings.Join(l.Want, " "))
	}
}

func (p *latchPlay) terms(round, count string) script.LatchTerms {
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

func (p *latchPlay) event(word string, args []string) string {
	p.Helper()
	key, watches := latchKeys(p.latch.Name)
	barrier := slot.Sibling("redquorum:b1", p.latch.Name)
	switch word {
	case "at":
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
		d := rt.Must(time.ParseDuration(args[0]))(p)
		p.life = d
	case "latch":
		return p.stored(key)
	case "read":
		return p.read()
	case "come", "go", "look":
		return p.barrier(word, args)
	case "parties":
		var names []string
		for field := range p.hash(barrier) {
			if name, ok := strings.CutPrefix(field, "="); ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	case "ends":
		was := strings.Fields(p.hash(barrier)["="+args[0]])
		p.ask("HSET", barrier, "="+args[0], was[0]+" 1 "+was[2])
	case "fields":
		return fmt.Sprint(len(p.hash(key)))
	case "watches":
		var names []string
		now := p.now()
		for watch, deadline := range p.hash(watches) {
			left := toInt(deadline) - now/1000
			require.True(p, left > 40_000 && left <= 60_000, "%v: it ends in %d ms", p.line, left)
			names = append(names, called(watch))
		}
		slices.Sort(names)
		if len(names) == 0 {
			return "nobody"
		}
		return strings.Join(names, " ")
	case "lives":
		return text(p.left(map[string]string{"latch": key, "watches": watches}[args[0]]).Milliseconds())
	case "keys":
		var names []string
		for k := range p.state() {
			names = append(names, map[string]string{key: "latch", watches: "watches", barrier: "barrier"}[k])
		}
		slices.Sort(names)
		if len(names) == 0 {
			return "nothing"
		}
		return strings.Join(names, " ")
	case "pushed":
		var all []string
		for _, m := range p.pushed() {
			n, ok := script.ParseNews(m)
			require.True(p, ok, m)
			all = append(all, fmt.Sprintf("%c %s %d", n.Word, called(n.Watch), n.Values[0]))
		}
		slices.Sort(all)
		if len(all) == 0 {
			return "nothing"
		}
		return strings.Join(all, " , ")
	case "unchanged":
		require.Equal(p, p.before, p.state(), "%v", p.line)
	case "redis":
		for i, w := range args {
			args[i] = strings.NewReplacer("$latch", key, "$barrier", barrier).Replace(w)
		}
		p.ask(args...)
	default:
		p.Fatalf("%v: no such word", p.line)
	}
	return ""
}

func latchText(s script.LatchState) string {
	return fmt.Sprint(s.Round, " ", s.Sum, " ", s.Count, " ", map[bool]string{true: "open", false: "shut"}[s.Open])
}

// told is what a call replies.
func (p *latchPlay) told(cmd member.Command) string {
	p.Helper()
	began := p.now()
	v, err := p.run(cmd)
	if err != nil {
		p.failed = true
		return replyOf(nil, err).err
	}
	s, ok := script.ReadLatch(replyFrom(v))
	require.True(p, ok, "%v: %v", p.line, v)
	require.True(p, began <= s.Server && s.Server <= p.now(), "%v: the time is not its own", p.line)
	return latchText(s)
}

// stored is what the key has, with the arrivals of its round. Sum and digest are those of the arrivals, as a client counts them.
func (p *latchPlay) stored(key string) string {
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
	require.Equal(p, s.Sum, sum, "%v", p.line)
	require.Equal(p, s.Digest, digest, "%v", p.line)
	return strings.Join(append([]string{latchText(s)}, ids...), " ")
}

// read is what the pages say, which is what the key has.
func (p *latchPlay) read() string {
	p.Helper()
	var ids []string
	for cursor, n := "0", 0; ; n++ {
		read := p.latch.Read(nil, cursor, 1)
		if b := script.BarrierOf(p.latch.Name); p.ask("EXISTS", slot.Sibling("redquorum:b1", b.Name)).(int64) == 1 {
			read = b.Read(nil, cursor, 1)
		}
		v := rt.Must(p.run(read))(p)
		page, ok := script.ReadLatchPage(replyFrom(v))
		require.True(p, ok, "%v: %v", p.line, v)
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
func (p *latchPlay) barrier(word string, args []string) string {
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
		p.failed = true
		return replyOf(nil, err).err
	}
	reply := replyFrom(v)
	s, ok := script.ReadBarrier(reply)
	require.True(p, ok, "%v: %v", p.line, v)
	require.True(p, began <= s.Server && s.Server <= p.now(), "%v: the time is not its own", p.line)
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
		p := &latchPlay{serverSite: serverSite{newScripted(t, server)}, latch: script.LatchOf("part:42"), life: time.Hour}
		beat := func() {
			for i := range waiters {
				_, err := p.run(p.latch.Await(nil, p.terms("1", "2"), script.OwnerOf("AAAA", uint64(i)), time.Minute))
				require.NoError(t, err)
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
