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

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

func words(cmd []byte) (out []string) {
	f := strings.Split(string(cmd), "\r\n")
	for i := 2; i < len(f); i += 2 {
		out = append(out, f[i])
	}
	return out
}

// joinCommands makes one command of acquires and releases, the slow way: what node does, from the text of the
// protocol.
func joinCommands(tag string, sharded bool, cmds ...member.Command) []byte {
	var locks, buckets, queues, keys, owners []string
	kinds, listed, ttl := "", "", ""
	seen := map[string]bool{}
	for _, cmd := range cmds {
		w := words(cmd.Cmd)
		n, err := strconv.Atoi(w[2])
		if err != nil {
			panic(err)
		}
		lock, bucket, owner, last := w[3], w[3+n], w[4+n], w[5+n]
		kind := cmd.Item.Kind
		owners = append(owners, owner)
		if release := kind == '8'; release && last == "" {
			kind = '9'
		} else if !release && last == ttl {
			kind++
		} else {
			owners = append(owners, last)
			if !release {
				ttl = last
			}
		}
		if kind < '8' && (seen[bucket] || sharded) {
			kind += 4
		}
		seen[bucket] = true
		kinds += string(kind)
		if kind < '4' {
			locks, buckets = append(locks, lock), append(buckets, bucket)
			continue
		}
		listed += fmt.Sprintf("%-6s", bucket)
		if keys = append(keys, lock); sharded {
			keys = append(keys, member.TokensKey)
		}
		if kind >= '8' {
			queues = append(queues, w[6])
		}
		if kind == '8' {
			keys = append(keys, w[7])
		}
	}
	keys = slices.Concat(locks, queues, keys)
	all := []string{"EVALSHA", script.Batch.SHA}
	if sharded {
		all = append(append(all, "0", kinds, strconv.Itoa(3+len(keys))), keys...)
	} else {
		all = append(append(all, strconv.Itoa(2+len(keys)), member.TokensKey, member.MarkerKey), append(keys, kinds)...)
	}
	return resp.Command(append(slices.Concat(all, buckets, owners), listed, tag)...)
}

// tagged completes a command as the node does, and says how its reply is found. joined: between an acquire and a
// release of another lock, and behind one that fails.
func (s *scripted) tagged(cmd member.Command, tag string) (whole []byte, reply func(any) any) {
	if !s.joined || cmd.Item == nil {
		return resp.AppendBulk(cmd.Cmd, tag), func(v any) any { return v }
	}
	other, foreign := script.Exclusive("another"), script.Exclusive("no lock")
	s.ask("SET", foreign.Name, "text", "PX", "600000")
	fails := foreign.Acquire(nil, carol, minute)
	cmds := []member.Command{fails, other.Release(nil, carol, ""), cmd, other.Release(nil, carol, "")}
	if !s.recovers() {
		cmds[0] = cmds[1]
	}
	return joinCommands(tag, false, cmds...), func(v any) any {
		all, ok := v.([]any)
		require.True(s, ok, "%v", v)
		require.Len(s, all, 4)
		if s.recovers() {
			require.ErrorContains(s, all[0].(error), "WRONGTYPE")
		}
		if _, failed := all[2].(error); s.recovers() || !failed {
			require.Equal(s, []any{int64(0), int64(0)}, []any{all[1], all[3]})
		}
		s.ask("DEL", foreign.Name)
		return all[2]
	}
}

// recovers reports whether a script can go on behind an error that it has caught. The embedded server repeats the
// error then.
func (s *scripted) recovers() bool {
	_, real := s.server.(*redistest.Real)
	return real
}

// The calls of a batch are executed in their order, each sees what those before it did, and those behind one that
// fails are executed.
func TestBatchIsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		other, foreign := script.Exclusive("other"), script.Exclusive("foreign")
		s.past(100)
		s.counts(other, "500")
		s.ask("SET", foreign.Name, "text", "PX", "600000")
		fails, failsToo := foreign.Acquire(nil, bob, minute), foreign.Release(nil, bob, "")
		if !s.recovers() {
			third := script.Exclusive("third")
			fails, failsToo = third.Release(nil, bob, ""), third.Release(nil, bob, "")
		}
		all := s.batch(
			s.Acquire(nil, alice, minute),
			s.Acquire(nil, bob, minute), // refused
			other.Acquire(nil, bob, minute),
			fails,
			s.Acquire(nil, alice, minute), // has it
			s.Release(nil, alice, ""),
			s.Release(nil, alice, ""), // not any more
			s.Acquire(nil, carol, minute),
			failsToo,
			other.Release(nil, bob, ""),
		)
		odd := script.Exclusive("odd") // a field that is no number: tampered with
		s.ask("HSET", odd.Name, alice, "what")
		s.ask("PEXPIRE", odd.Name, "60000")
		require.Equal(t, []any{nil, int64(0)}, s.batch(odd.Acquire(nil, alice, minute), other.Release(nil, bob, "")))
		s.ask("DEL", odd.Name)
		first := all[0].(int64)
		require.Positive(t, first)
		require.True(t, between(-minute.Milliseconds(), all[1].(int64), -1), "refused")
		require.Equal(t, []any{int64(501), first, int64(1), int64(0), first + 1, int64(1)},
			[]any{all[2], all[4], all[5], all[6], all[7], all[9]})
		if s.recovers() {
			require.ErrorContains(t, all[3].(error), "WRONGTYPE")
			require.ErrorContains(t, all[8].(error), "WRONGTYPE")
		}
		require.Equal(t, map[string]string{carol: fmt.Sprint(first + 1)}, s.hash(s.Name))
		require.Empty(t, s.hash(other.Name))

		s.number(other.Acquire(nil, bob, minute))
		require.Equal(t, []any{int64(1), int64(1)}, s.batch(s.Release(nil, carol, alice), other.Release(nil, bob, "")), "a hint is that of its release")
	})
}

// A call of a chain is made only if the one before it was given its vote: a member gives names in order, as far as they
// are free. Whoever waits for the first that is not has nothing behind it there.
func TestChainStopsAtTheFirstRefusal(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		s.past(100)
		locks := []script.Lock{script.Exclusive("a"), script.Exclusive("b"), script.Exclusive("c"), script.Exclusive("d")}
		ask := func(owner string) []any {
			var cmds []member.Command
			for i := range locks {
				cmds = append(cmds, locks[i].Acquire(nil, owner, minute))
			}
			return s.chain(cmds...)
		}
		all := ask(alice)
		for i, got := range all {
			require.Positive(t, got, i)
		}
		require.Equal(t, all, ask(alice), "she has them")
		for _, l := range locks {
			require.Len(t, s.hash(l.Name), 1)
			require.Equal(t, int64(1), s.number(l.Release(nil, alice, "")))
		}

		s.number(locks[2].Acquire(nil, bob, minute))
		all = ask(alice)
		require.Positive(t, all[0])
		require.Positive(t, all[1])
		require.Negative(t, all[2])
		require.Equal(t, int64(0), all[3], "not asked")
		require.Empty(t, s.hash("d"))
		require.Equal(t, []any{int64(1), int64(1), int64(0), int64(0)}, s.chain(
			locks[0].Release(nil, alice, ""), locks[1].Release(nil, alice, ""), locks[2].Release(nil, alice, ""), locks[3].Release(nil, alice, "")),
			"releases are not chained")
		require.Len(t, s.hash("c"), 1)

		// The second after a refusal is not made either: 0 is no token.
		s.number(locks[2].Release(nil, bob, ""))
		s.number(locks[0].Acquire(nil, bob, minute))
		all = ask(alice)
		require.Negative(t, all[0])
		require.Equal(t, []any{int64(0), int64(0), int64(0)}, all[1:])
		for _, name := range []string{"b", "c", "d"} {
			require.Empty(t, s.hash(name))
		}
		// Nor one behind a release, unless that freed its lock.
		s.number(locks[0].Release(nil, bob, ""))
		require.Equal(t, []any{int64(0), int64(0)}, s.chain(locks[0].Release(nil, bob, ""), locks[1].Acquire(nil, bob, minute)))
		require.Empty(t, s.hash("b"))
		s.number(locks[0].Acquire(nil, bob, minute))
		if s.recovers() { // an error ends the chain, too
			s.ask("SET", "b", "text", "PX", "600000")
			s.number(locks[0].Release(nil, bob, ""))
			all = ask(alice)
			require.Positive(t, all[0])
			require.ErrorContains(t, all[1].(error), "WRONGTYPE")
			require.Equal(t, []any{int64(0), int64(0)}, all[2:])
		}
	})
}

// A hand-over in a batch goes on in the batch: who is behind it finds the lock taken.
func TestBatchHandsOver(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		token := s.take(alice, minute)
		s.line(bob, minute, minute)
		all := s.batch(
			s.Release(nil, alice, ""),
			s.Acquire(nil, carol, minute), // bob has it
			s.Release(nil, bob, ""),
			s.Acquire(nil, carol, minute),
		)
		require.Equal(t, int64(1), all[0])
		require.Negative(t, all[1])
		require.Equal(t, int64(1), all[2])
		require.Equal(t, token+2, all[3])
	})
}

// A TTL counts from the beginning of the script (Redis 7.2), so what a batch grants is dated by one reading of the clock,
// before the first: read again for an item, it would promise more than its key gives.
func TestEverythingThatABatchGrantsIsDatedByOneTime(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		const items = 20
		var cmds []member.Command
		for i := range items {
			held, free := script.Exclusive(fmt.Sprint("held:", i)), script.Exclusive(fmt.Sprint("free:", i))
			s.number(held.Acquire(nil, alice, minute))
			s.list(held.Wait(nil, bob, minute, minute, 0))
			s.ask("HDEL", member.TokensKey, strconv.FormatInt(free.Bucket, 10)) // the token is the time then
			cmds = append(cmds, held.Release(nil, alice, ""), free.Acquire(nil, carol, minute))
		}
		for range items {
			require.NoError(t, rt.Err(s.inbox.ReceiveFor(time.Minute))) // the waiters announce themselves
		}
		times := map[int64]bool{}
		for i, reply := range s.batch(cmds...) {
			if i%2 == 1 {
				times[reply.(int64)] = true
				continue
			}
			v := rt.Must(s.inbox.ReceiveFor(time.Minute))(t)
			p, ok := script.ParsePush(v.([]any)[3].(string))
			require.True(t, ok)
			times[p.Server] = true
		}
		require.Len(t, times, 1, "%v", times)
	})
}

// bothForms runs a test with what plain members get and with what masters of a cluster get.
func bothForms(t *testing.T, test func(t *testing.T, s *scripted)) {
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		for _, sharded := range []bool{false, true} {
			t.Run(fmt.Sprint("sharded ", sharded), func(t *testing.T) {
				require.NoError(t, server.Flush())
				s := newScripted(t, server)
				s.sharded = sharded
				test(t, s)
			})
		}
	})
}

// What a member forgot between two calls of a batch concerns those of that bucket.
func TestBatchAtAMemberThatForgot(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		s.tag = "run 1"
		if s.sharded { // one key, of the slot
			s.ask("HSET", member.TokensKey, "id", "run 2")
		} else {
			s.ask("HSET", member.MarkerKey, "id", "run 2")
		}
		other := script.Exclusive("other")
		s.counts(other, "500")
		fails := s.Acquire(nil, alice, minute)
		if !s.recovers() {
			fails = other.Release(nil, carol, "")
		}
		all := s.batch(fails, other.Acquire(nil, bob, minute), other.Release(nil, bob, ""))
		if s.recovers() {
			require.ErrorContains(t, all[0].(error), "FORGOT marker")
		}
		require.Equal(t, []any{int64(501), int64(1)}, all[1:])
		require.Empty(t, s.hash(s.Name))
	})
}

// Config.Interop has scripts of its own, which no batch carries.
func TestBatchesAreNotForInterop(t *testing.T) {
	t.Parallel()
	own, shared := script.Exclusive("invoice:42"), script.ExclusiveWithRedisson("invoice:42")
	require.NotNil(t, own.Acquire(nil, alice, minute).Item)
	require.NotNil(t, own.Release(nil, alice, "").Item)
	require.Nil(t, shared.Acquire(nil, alice, minute).Item)
	require.Nil(t, shared.Release(nil, alice, "").Item)
}

// Locks that are free get their tokens together: those that each would get alone.
func TestBatchDrawsTheTokensOfFreeLocks(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		lock := func(i int) script.Lock { return script.Exclusive(fmt.Sprint("{here}", i)) }
		there, also, fresh := script.Exclusive("there"), script.Exclusive("{there}"), script.Exclusive("fresh")
		begin := func() (asks []member.Command) {
			require.NoError(t, s.server.Flush())
			for _, source := range Scripts() {
				s.ask("SCRIPT", "LOAD", source)
			}
			s.ask("HSET", member.TokensKey, strconv.FormatInt(there.Bucket, 10), "1699999999999999", strconv.FormatInt(lock(0).Bucket, 10), "500")
			for i := range 3 {
				l := lock(i)
				asks = append(asks, l.Acquire(nil, alice, minute))
			}
			return append(asks, there.Acquire(nil, alice, minute), fresh.Acquire(nil, alice, minute))
		}

		before := s.now()
		all := s.batch(begin()...)
		require.Equal(t, []any{int64(501), int64(502), int64(503), int64(1_700_000_000_000_000)}, all[:4])
		require.True(t, between(before, all[4].(int64), s.now()))
		for i, l := range []script.Lock{lock(0), lock(1), lock(2), there, fresh} {
			require.Equal(t, map[string]string{alice: fmt.Sprint(all[i])}, s.hash(l.Name))
			s.lives(l.Name, minute)
		}
		require.Equal(t, []string{"503", "1700000000000000", fmt.Sprint(all[4])}, s.countersOf(lock(0), there, fresh))

		// All are fresh, and one begins its bucket.
		asks := begin()
		all = s.batch(asks[0], fresh.Acquire(nil, alice, minute), there.Acquire(nil, alice, minute))
		require.Equal(t, []any{int64(501), int64(1_700_000_000_000_000)}, []any{all[0], all[2]})
		require.True(t, between(before, all[1].(int64), s.now()))

		// Asked for twice, or somebody's: each is asked as if it were alone.
		asks = begin()
		twice, held := lock(1), lock(2)
		s.number(held.Acquire(nil, carol, minute))
		all = s.batch(append(asks, twice.Acquire(nil, bob, minute))...)
		require.Equal(t, []any{int64(502), int64(503)}, all[:2])
		require.Negative(t, all[2])
		require.Negative(t, all[5])
		require.Equal(t, "503", s.counterOf(held))
		asks = begin()
		all = s.batch(append(asks, twice.Acquire(nil, bob, minute))...)
		require.Equal(t, []any{int64(501), int64(502), int64(503)}, all[:3])
		require.Negative(t, all[5])
		require.Equal(t, map[string]string{alice: "502"}, s.hash(twice.Name))

		if s.recovers() {
			asks = begin()
			s.counts(there, "9007199254740990")
			all = s.batch(append(asks[:4:4], also.Acquire(nil, alice, minute))...)
			require.Equal(t, int64(9007199254740991), all[3])
			require.ErrorContains(t, all[4].(error), "EXHAUSTED tokens")
			require.Equal(t, "9007199254740991", s.counterOf(there))

			asks = begin()
			s.counts(there, "0")
			require.True(t, between(before, s.batch(asks...)[3].(int64), s.now()), "the bucket begins")

			asks = begin()
			s.tag = "run 1"
			all = s.batch(asks...)
			require.ErrorContains(t, all[4].(error), "FORGOT marker")
			require.Equal(t, []any{int64(501), int64(502), int64(503), int64(1_700_000_000_000_000)}, all[:4])
			require.Empty(t, s.counterOf(fresh))
			s.tag = ""

			asks = begin()
			s.counts(there, "what")
			all = s.batch(asks...)
			require.Error(t, all[3].(error))
			require.Equal(t, []any{int64(501), int64(502), int64(503)}, all[:3])
		}
	})
}

// Where a lock is held, or a counter is at its end, no token is drawn.
func TestBatchDrawsNothingForLocksThatAreHeld(t *testing.T) {
	t.Parallel()
	bothForms(t, func(t *testing.T, s *scripted) {
		var locks []script.Lock
		for i := range 5 {
			locks = append(locks, script.Exclusive(fmt.Sprint("apart", i)))
		}
		ask := func() []any {
			var cmds []member.Command
			for i := range locks {
				cmds = append(cmds, locks[i].Acquire(nil, alice, minute))
			}
			return s.batch(cmds...)
		}
		for i := range locks {
			s.counts(locks[i], fmt.Sprint(100*(i+1)))
		}
		s.number(locks[2].Acquire(nil, bob, minute))
		all := ask()
		require.Negative(t, all[2])
		require.Equal(t, []any{int64(101), int64(201), int64(401), int64(501)}, append(all[:2:2], all[3:]...))
		require.Equal(t, map[string]string{bob: "301"}, s.hash(locks[2].Name))
		require.Equal(t, "301", s.counterOf(locks[2]))
		require.Equal(t, []any{int64(101), int64(201), all[2], int64(401), int64(501)}, append(append(ask()[:2:2], all[2]), all[3:]...), "she has them")
		require.Equal(t, []string{"101", "201", "401", "501"}, s.countersOf(locks[0], locks[1], locks[3], locks[4]))

		if s.recovers() {
			s.number(locks[2].Release(nil, bob, ""))
			for i := range locks {
				s.number(locks[i].Release(nil, alice, ""))
			}
			s.counts(locks[3], "9007199254740991")
			all = ask()
			require.Equal(t, []any{int64(102), int64(202), int64(302), int64(502)}, append(all[:3:3], all[4]))
			require.ErrorContains(t, all[3].(error), "EXHAUSTED tokens")
			require.Empty(t, s.hash(locks[3].Name))
			require.Equal(t, "9007199254740991", s.counterOf(locks[3]))
		}
	})
}

// Whatever ends a batch: no vote is above its counter, or a later one would have the same token.
func TestBatchThatEndsInTheMiddleLeavesNoVoteAboveItsCounter(t *testing.T) {
	t.Parallel()
	server := rt.Embedded(t, 1).Servers[0]
	s := newScripted(t, server)
	locks := []script.Lock{script.Exclusive("{here}1"), script.Exclusive("{here}2"), script.Exclusive("there"), script.Exclusive("fresh")}
	votes := 0
	for after := 0; votes < len(locks); after++ {
		require.Less(t, after, 100)
		require.NoError(t, server.Flush())
		var asks []member.Command
		for _, l := range locks[:3] {
			s.counts(l, "500")
		}
		for _, l := range locks {
			asks = append(asks, l.Acquire(nil, alice, minute))
		}
		w := words(joinCommands("", false, asks...))
		n := rt.Must(strconv.Atoi(w[2]))(t)
		args := append([]string{"EVAL", stopped + script.Batch.Source, strconv.Itoa(n + 3)}, w[3:3+n]...)
		_, _ = s.c.Do(t.Context(), append(append(args, strconv.Itoa(after), "false", "ERR stopped"), w[3+n:]...)...)
		votes = 0
		for _, l := range locks {
			counter := s.counterOf(l)
			if vote := s.hash(l.Name)[alice]; vote != "" {
				votes++
				counted, err := strconv.ParseInt(counter, 10, 64)
				require.NoError(t, err, "after %d commands", after)
				token := rt.Must(strconv.ParseInt(vote, 10, 64))(t)
				require.LessOrEqual(t, token, counted, "after %d commands", after)
			}
		}
	}
}

// What the server refuses for one item leaves no vote, and the items behind it are executed, also where all locks are free
// and nobody waits.
func TestItemThatIsRefusedLeavesNothingAndEndsNothing(t *testing.T) {
	t.Parallel()
	s := newScripted(t, rt.Real(t, 1).Servers[0])
	free, kept, last := script.Exclusive("free"), script.Exclusive("kept"), script.Exclusive("last")
	for _, without := range []string{"+@all", "-pexpire", "-hdel", "-exists"} {
		require.NoError(t, s.server.Flush())
		for _, source := range Scripts() {
			s.ask("SCRIPT", "LOAD", source)
		}
		s.number(kept.Acquire(nil, alice, minute))
		s.counts(free, "500")
		s.counts(last, "500")
		s.ask("ACL", "SETUSER", "few", "on", "nopass", "~*", "&*", "+@all", without)
		s.ask("AUTH", "few", "")
		all := s.batch(free.Acquire(nil, bob, minute), kept.Release(nil, alice, bob), last.Acquire(nil, carol, minute), last.Release(nil, bob, ""))
		s.ask("AUTH", "default", "")
		if without == "+@all" {
			require.Equal(t, []any{int64(501), int64(1), int64(501), int64(0)}, all, "a hint is that of its release")
			continue
		}
		for i, refused := range []bool{false, true, false, true} { // the releases
			if refused != (without == "-pexpire") {
				require.Regexp(t, denied, all[i].(error).Error(), "%s, %d", without, i)
			} else {
				require.IsType(t, int64(0), all[i], "%s, %d", without, i)
			}
		}
		if without == "-pexpire" {
			require.Equal(t, []any{int64(1), int64(0)}, []any{all[1], all[3]})
			for _, l := range []script.Lock{free, kept, last} {
				require.Empty(t, s.hash(l.Name), l.Name)
			}
			continue
		}
		require.Equal(t, map[string]string{bob: fmt.Sprint(all[0])}, s.hash(free.Name))
		require.Equal(t, map[string]string{carol: fmt.Sprint(all[2])}, s.hash(last.Name))
		require.Len(t, s.hash(kept.Name), 1)
	}
}

// chain executes commands in one call, each behind the first only if the one before was given its vote.
func (s *scripted) chain(cmds ...member.Command) []any {
	s.Helper()
	for i := range cmds {
		if item := *cmds[i].Item; i > 0 && item.Kind == resp.AcquireItem {
			item.Kind += resp.Chained
			cmds[i].Item = &item
		}
	}
	return s.batch(cmds...)
}

func (s *scripted) batch(cmds ...member.Command) []any {
	s.Helper()
	require.NoError(s, rt.Err(s.c.Conn().Write(joinCommands(s.tag, s.sharded, cmds...))))
	v := rt.Must(s.c.ReceiveFor(time.Minute))(s)
	require.IsType(s, []any(nil), v)
	require.Len(s, v, len(cmds))
	return v.([]any)
}
