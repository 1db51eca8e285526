package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// Whatever members granted to whom: the holder's token passes, every earlier one fails, and silence of
// members turns either into "cannot tell" at worst.
func TestTokenVerifiesTheHolderAlone(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	told := map[verdict3]int{}
	for range 5000 {
		n := []int{1, 2, 3, 5}[random.IntN(4)]
		need := member.Majority(n)
		counters := make([]uint64, n)
		for i := range counters {
			counters[i] = uint64(random.IntN(10))
		}
		var tokens []uint64
		in := &redlock.Inspection{Members: make([]redlock.MemberView, n)}
		for holder := range 1 + random.IntN(4) {
			in.Members = make([]redlock.MemberView, n)
			order := random.Perm(n)
			granted := need + random.IntN(n-need+1)
			token := uint64(0)
			for k, i := range order[:granted] {
				counters[i]++
				in.Members[i].Votes = []redlock.VoteView{{Owner: fmt.Sprint(holder), Token: counters[i]}}
				if k < need { // later votes are not waited for
					token = max(token, counters[i])
				}
			}
			for _, i := range order[:need] { // the raise
				counters[i] = max(counters[i], token)
			}
			tokens = append(tokens, token)
		}
		last := len(tokens) - 1
		if got := verified(in, tokens[last]); got != yes {
			t.Fatalf("seed %d: the holder's token %d: %d, in %+v", seed, tokens[last], got, in)
		}
		silent := random.IntN(n + 1)
		for _, i := range random.Perm(n)[:silent] {
			in.Members[i] = redlock.MemberView{Err: errors.New("silent")}
		}
		for i, token := range tokens {
			got := verified(in, token)
			told[got]++
			if wrong := map[bool]verdict3{true: no, false: yes}[i == last]; got == wrong {
				t.Fatalf("seed %d: token %d of %v: %d, in %+v", seed, token, tokens, got, in)
			}
		}
		if got := verified(in, 1000); got == yes {
			t.Fatalf("seed %d: a token that was never given passes: %+v", seed, in)
		}
		require.Equal(t, no, verified(&redlock.Inspection{Members: make([]redlock.MemberView, n)}, tokens[last]), "%v", seed)
	}
	assert.False(t, told[yes] == 0 || told[no] == 0 || told[unknown] == 0, "not every verdict was seen: %v", told)
}

// The second of two readers lifted the token at a member: that of the first is still a holder's.
func TestTokenOfAReaderVerifiesAfterAnotherHasComeIn(t *testing.T) {
	t.Parallel()
	in := &redlock.Inspection{Members: []redlock.MemberView{
		{Votes: []redlock.VoteView{{Owner: "a", Token: 9, Drawn: 5, Reads: true}, {Owner: "b", Token: 9, Drawn: 5, Reads: true}}},
		{Votes: []redlock.VoteView{{Owner: "a", Token: 5, Drawn: 5, Reads: true}}},
		{Votes: []redlock.VoteView{{Owner: "b", Token: 9, Drawn: 9, Reads: true}}},
	}}
	for n, want := range map[uint64]verdict3{4: no, 5: yes, 9: yes, 10: no} {
		assert.Equal(t, want, verified(in, n), "%v", n)
	}
}

func TestTallyCountsVotesOfOneOwner(t *testing.T) {
	t.Parallel()
	votes := [][]vote{
		{{key: "a", owner: "x:1", token: 5, ttl: 100}, {key: "b", owner: "x:2", token: 1, ttl: 50}},
		{{key: "a", owner: "x:1", token: 7, ttl: 90}, {key: "b", owner: "y:1", token: 2, ttl: 50}},
		{{key: "a", owner: "y:9", token: 8, ttl: 80}},
	}
	held := []heldLock{{Key: "a", Votes: 2, Token: 7, TTLMS: 100, Kind: redlock.KindMutex, clients: []string{clientOf("x:5")}}}
	assert.Equal(t, held, tally(votes, 2, false))
	if got := tally(votes, 2, true); len(got) != 4 || got[0].Votes != 2 {
		t.Errorf("all: %v", got)
	}
}

// A lock is that of a leader if a member has a value of its owner. The latest counts.
func TestTallyHasTheLatestValueOfALeader(t *testing.T) {
	t.Parallel()
	value := func(owner, by, seq, value string) vote {
		v := vote{key: "k", owner: owner, token: 7, ttl: 100}
		hash := sha1.Sum([]byte(by))
		record := []string{"t", "7", "s", seq, "o", hex.EncodeToString(hash[:])}
		if value != "" {
			record = append(record, "v", value)
		}
		var elems []member.Reply
		for _, s := range record {
			elems = append(elems, member.Reply{Str: []byte(s)})
		}
		v.proclaimed(elems)
		return v
	}
	for _, tc := range []struct {
		votes []vote
		want  string
		kind  redlock.Kind
	}{
		{[]vote{value("x:1", "x:1", "2", "two"), value("x:1", "x:1", "1", "one"), value("x:1", "x:1", "1", "one")}, "two", redlock.KindElection},
		{[]vote{value("x:1", "x:1", "9", "one"), value("x:1", "x:1", "10", "two")}, "two", redlock.KindElection},
		{[]vote{value("x:1", "y:1", "1", "former"), value("x:1", "", "0", "")}, "", redlock.KindMutex},
		{[]vote{value("x:1", "x:1", "3", ""), {key: "k", owner: "x:1"}}, "", redlock.KindMutex}, // it has resigned
	} {
		var votes [][]vote
		for _, v := range tc.votes {
			votes = append(votes, []vote{v})
		}
		got := tally(votes, 2, false)
		assert.False(t, len(got) != 1 || got[0].Kind != tc.kind || got[0].Leads == nil != (tc.want == "") || tc.want != "" && *got[0].Leads != tc.want, "%v: %v", tc, got)
	}
}

// Readers that a majority names are one lock; those of a minority are no part of it.
func TestTallyCountsReadersOfOneLock(t *testing.T) {
	t.Parallel()
	votes := [][]vote{
		{{key: "k", owner: "x:1", token: 5, ttl: 100, reads: true}, {key: "k", owner: "x:2", token: 5, ttl: 70, reads: true}},
		{{key: "k", owner: "x:1", token: 6, ttl: 90, reads: true}, {key: "k", owner: "x:2", token: 6, ttl: 60, reads: true}, {key: "k", owner: "x:3", token: 6, ttl: 300, reads: true}},
		{{key: "k", owner: "x:2", token: 4, ttl: 50, reads: true}},
		{{key: "k", owner: "y:1", token: 9, ttl: 40}},
		{{key: "k", owner: "x:1", token: 3, ttl: 40}}, // the downgrade has not come here
	}
	held := []heldLock{{Key: "k", Votes: 3, Token: 6, TTLMS: 100, Kind: redlock.KindRead, Readers: 2, clients: []string{clientOf("x:5")}}}
	assert.Equal(t, held, tally(votes, 3, false))
	all := tally(votes, 3, true)
	has := func(l heldLock) bool {
		return slices.ContainsFunc(all, func(x heldLock) bool { return reflect.DeepEqual(x, l) })
	}
	if len(all) != 3 || !has(heldLock{Key: "k", Votes: 1, Token: 6, TTLMS: 300, Kind: redlock.KindRead, Readers: 1, clients: []string{clientOf("x:5")}}) || !has(heldLock{Key: "k", Votes: 1, Token: 9, TTLMS: 40, Kind: redlock.KindMutex, clients: []string{clientOf("y:1")}}) {
		t.Errorf("all: %v", all)
	}
}

// A reader whose time is over has no vote, and no more has the token of a writer that has given
// it up.
func TestReadersOfALockAreThoseWhoseTimeIsNotOver(t *testing.T) {
	t.Parallel()
	words := func(all ...string) (out []member.Reply) {
		for _, s := range all {
			out = append(out, member.Reply{Str: []byte(s)})
		}
		return out
	}
	now := words("100", "500000")
	x := strings.Repeat("X", 26)
	hash := words(x+":1", "100600", "r", "5 7 marker", x+":2", "100500", x+":3", "1795395418503394", "foreign", "100900", x+":4", "100501")
	assert.Equal(t, "[{k x:1 7 100 true <nil> 0} {k x:4 7 1 true <nil> 0}]", strings.ReplaceAll(fmt.Sprint(readersOf("k", hash, now)), x, "x"))
	if got := readersOf("k", words(x+":1", "100600"), now); got != nil {
		t.Errorf("no phase: %v", got)
	}
}

func TestGlobIsQuoted(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `a\*b\?\[c\]\\\^`, globQuoted(`a*b?[c]\^`))
}

// A redirect says that a key went elsewhere; nothing else that a cluster refuses says that there is none.
func TestRefusalsThatSayThatThereIsNoLock(t *testing.T) {
	t.Parallel()
	for text, none := range map[string]bool{"MOVED 1 a:1": true, "ASK 1 a:1": true, "CLUSTERDOWN The cluster is down": false, "TRYAGAIN x": false} {
		if got := ignoreForeign(&member.ReplyError{Kind: member.KindCluster, Text: text}); (got == nil) != none {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestReadersAreShownAsSuch(t *testing.T) {
	in := &redlock.Inspection{
		Key: "k", Kind: redlock.KindRead,
		Holders: []redlock.Holder{{VoteView: redlock.VoteView{Owner: "aaaaaa", Token: 7}, Votes: 2}, {VoteView: redlock.VoteView{Owner: "bbbbbb", Token: 7}, Votes: 2}},
		Members: []redlock.MemberView{
			{Member: "m:1", State: "voting", Counter: 7, Votes: []redlock.VoteView{{Owner: "aaaaaa", TTL: time.Second, Token: 7, Reads: true}, {Owner: "bbbbbb", TTL: 2 * time.Second, Token: 7, Reads: true}},
				Queue: []redlock.Waiter{{Owner: "cccccc", Live: true}, {Owner: "dddddd", Live: true, Reads: true}}},
			{Member: "m:2", State: "voting", Counter: 5, Votes: []redlock.VoteView{{Owner: "cccccc", TTL: time.Second, Token: 5}},
				Queue: []redlock.Waiter{{Owner: "cccccc", Live: true}}},
		},
	}
	var text strings.Builder
	printInspection(&text, in, nil)
	want := `"k": held by reader aaaaaa, token 7, at 2 of 2 members; by reader bbbbbb, token 7, at 2 of 2 members
  MEMBER  STATE   OWNER          TTL  TOKEN  COUNTER  WAITING
  m:1     voting  reader aaaaaa  1s   7               
  m:1     voting  reader bbbbbb  2s   7      7        2 (1 reader)
  m:2     voting  cccccc         1s   5      5        1
`
	assert.Equal(t, want, text.String())
	if got := watchLine(in, nil); !strings.HasSuffix(got, ", 2 waiting (1 reader)") {
		t.Error(got)
	}
	line, err := json.Marshal(toJSON(in, nil))
	if want := `"holders":[{"owner":"aaaaaa","token":7,"votes":2},{"owner":"bbbbbb","token":7,"votes":2}],"members":[{"member":"m:1",` +
		`"state":"voting","votes":[{"owner":"aaaaaa","ttl_ms":1000,"token":7`; err != nil || !strings.Contains(string(line), want) {
		t.Errorf("got %s, %v", line, err)
	}
	in.Holders = append(in.Holders, redlock.Holder{VoteView: redlock.VoteView{Owner: "eeeeee", Token: 9}, Votes: 2}, redlock.Holder{VoteView: redlock.VoteView{Owner: "ffffff", Token: 7}, Votes: 2})
	assert.Equal(t, `"k": held by 4 readers, token 9, 2 waiting (1 reader)`, watchLine(in, nil))
	in.Holders, in.Members[0].State = nil, redlock.MemberQuarantined
	assert.Equal(t, `"k": not held, but 1 of 2 members may have forgotten a holder`, headline(in))
}

func TestLockThatIsSeenAtTwoMastersOfAMemberHasOneVote(t *testing.T) {
	t.Parallel()
	cluster, urls := embedded(t, 2)
	set := &settings.Settings{Members: urls, DialTimeout: 5 * time.Second}
	both, err := rawMembers(t.Context(), set)
	require.NoError(t, err)
	defer closeAll(both)
	for i := range 2 {
		for _, cmd := range [][]string{{"HSET", "k", strings.Repeat("C", 26) + ":1", "17"}, {"PEXPIRE", "k", "60000"}} {
			if _, err := cluster.Servers[i].Do(t.Context(), cmd...); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := &rawMember{name: "both", servers: []rawServer{both[0].servers[0], both[1].servers[0]}}
	found, err := list(t.Context(), []*rawMember{one}, "", set.DialTimeout, true)
	assert.False(t, err != nil || len(found) != 1 || found[0].Votes != 1, "%+v, %v", found, err)
}

// What the members know lasts as long as a quarantine. Too few that know it are not believed, and the greatest is.
func TestCommandsThatOnlyLookLengthenNoQuarantine(t *testing.T) {
	t.Parallel()
	cluster, urls := served(t, 3)
	markFresh(t, urls, 6*time.Second)
	knows := func(i int) any { return rt.Must(cluster.Servers[i].Do(t.Context(), "HGET", "redquorum:boot", "q"))(t) }
	flags := " --dial-timeout 1m --member-timeout 1m --members " + strings.Join(urls, ",") + " "
	for _, line := range []string{
		"inspect k", "leader k", "token k", "semaphore k", "latch remaining k", "release k --force --yes", "doctor --sample 10ms",
	} {
		_, stdout, stderr := command(t, strings.Fields(strings.Replace(line, " ", flags, 1))...)
		for i := range urls {
			assert.EqualValues(t, "6000", knows(i), "%s\n%s%s", line, stdout, stderr)
		}
	}
	learns := func(c common, flags ...string) time.Duration {
		given := map[string]string{"members": strings.Join(urls, ","), "dial-timeout": "1m", "member-timeout": "1m"}
		for _, f := range flags {
			name, value, _ := strings.Cut(f, "=")
			given[name] = value
		}
		s := rt.Must(settings.Load(given, func(string) (string, bool) { return "", false }, ""))(t)
		c.learnMaxTTL(t.Context(), s)
		return s.MaxTTL
	}
	assert.Equal(t, []time.Duration{30 * time.Second, 6 * time.Second, 9 * time.Second, 7 * time.Second, 30 * time.Second}, []time.Duration{
		learns(common{takes: true, exact: true}), learns(common{takes: true}, "ttl=2s"), learns(common{takes: true}, "ttl=9s"),
		learns(common{}, "max-ttl=7s"), learns(common{takes: true, atLeast: 1}, "ttl=2s"),
	})
	for i := range urls {
		_ = rt.Must(cluster.Servers[i].Do(t.Context(), "HSET", "redquorum:boot", "q", "4000"))(t)
	}
	cmd, said := process(t, urls, "run", "k", "--", "sleep", "0.2") // which is not stopped at once, by a plan for 30 s
	assert.NoError(t, cmd.Run(), said)
	assert.EqualValues(t, "4000", knows(0))
	_ = rt.Must(cluster.Servers[2].Do(t.Context(), "HSET", "redquorum:boot", "q", "45000"))(t)
	assert.Equal(t, 45*time.Second, learns(common{}))
	cluster.Kill(0, 1)
	assert.Equal(t, 45*time.Second, learns(common{}))
	_ = rt.Must(cluster.Servers[2].Do(t.Context(), "HSET", "redquorum:boot", "q", "6000"))(t)
	assert.Equal(t, 30*time.Second, learns(common{}), "less than a majority is believed")
}

// permitsAt is what three members say when all name the same holders, with a slot each.
func permitsAt(tokens ...uint64) *redlock.Inspection {
	in := &redlock.Inspection{Key: "k", Limit: -1}
	for range 3 {
		in.Members = append(in.Members, redlock.MemberView{Limit: -1})
	}
	for i, token := range tokens {
		slots := []redlock.Slot{{Number: i, Token: token}}
		owner := strings.Repeat(string(rune('a'+i)), 6)
		in.Holders = append(in.Holders, redlock.Holder{VoteView: redlock.VoteView{Owner: owner, Slots: slots}, Votes: 3})
		for m := range in.Members {
			in.Members[m].Votes = append(in.Members[m].Votes, redlock.VoteView{Owner: owner, Slots: slots})
		}
	}
	return in
}

func nobody() *redlock.Inspection {
	return &redlock.Inspection{Key: "k", Kind: redlock.KindMutex, Members: make([]redlock.MemberView, 3)}
}

func TestWatchTellsEveryChangeOfSlots(t *testing.T) {
	t.Parallel()
	var last sightLines
	look := func(in *redlock.Inspection) []string {
		return last.changed(&sight{lock: nobody(), semaphore: in})
	}
	for _, step := range []struct {
		in   *redlock.Inspection
		want string
	}{
		{permitsAt(7), `"k": semaphore, 1 slot held by 1 holder (aaaaaa: slot 0 token 7), 0 waiting`},
		{permitsAt(7), ""},
		{permitsAt(7, 6, 5, 4), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(7, 6, 5, 4), ""},
		{permitsAt(7, 6, 5, 6), `"k": semaphore, 4 slots held by 4 holders, 0 waiting`},
		{permitsAt(), `"k": semaphore, no slot held, 0 waiting`},
	} {
		assert.Equal(t, step.want, strings.Join(look(step.in), "; "))
	}
}

func TestTimelineOfAWatchIsWhatItsLooksSaw(t *testing.T) {
	t.Parallel()
	s := newSeen("k", time.Second, time.Unix(1_795_000_000, 0))
	for i, ttl := range []time.Duration{0, 9, 8, 9, 0} { // of the holder: it waits first, and is renewed in between
		in, who := nobody(), []string{"", "", "host", "", ""}[i] // members learn who it is after its first votes
		vote := redlock.VoteView{Owner: "aaaaaa", Who: who, Token: 7, TTL: ttl * time.Second}
		if in.Members[0].Member = "m"; ttl > 0 {
			in.Holders, in.Members[0].Votes = []redlock.Holder{{VoteView: vote, Votes: 2}}, []redlock.VoteView{vote}
		} else if i == 0 {
			in.Members[0].Queue = []redlock.Waiter{{Owner: "aaaaaa", Who: who, Live: true, Waiting: 300 * time.Millisecond}}
		}
		s.look(s.log.Start.Add(time.Duration(i+1)*time.Second), &sight{lock: in})
	}
	hold := timeline.Hold{
		Lock: `"k"`, Who: "host", Token: 7, Asked: 700 * time.Millisecond, From: 2 * time.Second, To: 4 * time.Second,
		Renewed: []time.Duration{4 * time.Second}, Text: "Owner aaaaaa",
	}
	assert.Equal(t, []timeline.Hold{hold}, s.timeline().Holds)
	assert.Equal(t, []timeline.Spell{{Kind: timeline.Votes, Who: "m", From: hold.From, To: hold.To, Text: "aaaaaa"}}, s.timeline().Spells)
}

// Nothing is free while a slot is held, or while too few members say. Members that refuse to tell of
// a semaphore do not keep watch from its end.
func TestFreeIsSaidOfSlotsToo(t *testing.T) {
	t.Parallel()
	failing := func(err error) *redlock.Inspection {
		in := permitsAt()
		in.Members[0].Err, in.Members[1].Err = err, err
		return in
	}
	held := nobody()
	held.Holders = []redlock.Holder{{VoteView: redlock.VoteView{Owner: "aaaaaa", Token: 7}, Votes: 3}}
	silent := nobody()
	silent.Members[0].Err, silent.Members[1].Err = context.DeadlineExceeded, context.DeadlineExceeded
	for name, c := range map[string]struct {
		s    sight
		want bool
	}{
		"nothing":            {sight{lock: nobody()}, true},
		"a lock":             {sight{lock: held, semaphore: permitsAt()}, false},
		"silent members":     {sight{lock: silent}, false},
		"no slot":            {sight{lock: nobody(), semaphore: permitsAt()}, true},
		"a slot":             {sight{lock: nobody(), semaphore: permitsAt(7)}, false},
		"silent about slots": {sight{lock: nobody(), semaphore: failing(context.DeadlineExceeded)}, false},
		"refused":            {sight{lock: nobody(), semaphore: failing(&member.ReplyError{Kind: member.KindAuth})}, true},
	} {
		assert.Equal(t, c.want, c.s.free(), "%v", name)
	}
}

// A key is that of one name at most, whatever braces the name has.
func TestNamesAreReadFromKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a", "a:b", "{a}", "{a}b", "a{b}c", "}{", "{}a", "{a", "a}", "{a}:b", "{{a}}", "x{a}:{b}", "{a}:{a}", ":", "{a}:",
	} {
		for _, of := range []string{semaphoreKeys, latchKeys} {
			key := slot.Sibling(of, name)
			if got, ok := nameOf(of, key); !ok || got != name {
				t.Errorf("%q is read as %q, %v", key, got, ok)
			}
		}
	}
	for _, key := range []string{"redquorum:s1", "redquorum:s1:", "redquorum:s1:a", "redquorum:sq:{a}", "a"} {
		if name, ok := nameOf(semaphoreKeys, key); ok {
			t.Errorf("%q is read as %q", key, name)
		}
	}
}

// What less than a majority has is listed with --all alone, and what nobody knows never.
func TestLsListsWhatAMajorityHas(t *testing.T) {
	t.Parallel()
	known := func(n int) *redlock.Inspection {
		in := &redlock.Inspection{Key: "k", Members: make([]redlock.MemberView, 3)}
		for i := range n {
			in.Latch = &redlock.LatchState{}
			in.Members[i].Latch = in.Latch
		}
		return in
	}
	minority := permitsAt(7)
	minority.Holders = nil
	for name, c := range map[string]struct {
		found    func(all bool) bool
		some, of bool // listed, and listed with --all
	}{
		"latch at 2":      {func(all bool) bool { return latchFound(known(2), all) != nil }, true, true},
		"latch at 1":      {func(all bool) bool { return latchFound(known(1), all) != nil }, false, true},
		"latch at none":   {func(all bool) bool { return latchFound(known(0), all) != nil }, false, false},
		"slots":           {func(all bool) bool { return slotsFound(permitsAt(7), all) != nil }, true, true},
		"no majority":     {func(all bool) bool { return slotsFound(minority, all) != nil }, false, true},
		"nothing of them": {func(all bool) bool { return slotsFound(permitsAt(), all) != nil }, false, false},
	} {
		if some, all := c.found(false), c.found(true); some != c.some || all != c.of {
			t.Errorf("%s: listed %v, with --all %v", name, some, all)
		}
	}
}
