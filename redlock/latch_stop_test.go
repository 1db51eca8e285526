//go:build !race

package redlock

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

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
