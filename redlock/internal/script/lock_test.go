package script

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
	"github.com/stretchr/testify/require"
)

const (
	ttl   = 30*time.Second + time.Microsecond // 30001 ms: it is rounded up
	entry = 10 * time.Second
)

// words reads the words of a command as a server does, and where each of them begins. The last entry is the end.
func words(t *testing.T, cmd []byte) (all []string, at []int) {
	text := string(cmd)
	head := strings.Index(text, "\r\n") + 2
	for i := head; i < len(text); {
		at = append(at, i)
		size, rest, _ := strings.Cut(text[i:], "\r\n")
		n := rt.Must(strconv.Atoi(strings.TrimPrefix(size, "$")))(t)
		all = append(all, rest[:n])
		i += len(size) + 2 + n + 2
	}
	return all, append(at, len(text))
}

// calls are all calls about a lock, by the name of the script and what it is asked.
func calls(l Lock) map[string]member.Command {
	return map[string]member.Command{
		"acquire": l.Acquire(nil, "me:1", ttl), "wait": l.Wait(nil, "me:1", ttl, entry, 9), "wait freed": l.WaitFreed(nil, "me:1", ttl, entry, 9),
		"release": l.Release(nil, "me:1", "other:2"), "yield": l.Yield(nil, "me:1", 7, ttl, entry, 9), "raise": l.Raise(nil, "me:1", 7),
		"rejoin": l.Rejoin(nil, "me:1", ttl, 7, 9), "peek": l.Peek(nil), "force": l.Force(nil, "", ttl), "extend": l.Extend(nil, "me:1", ttl),
	}
}

// Names as users choose them, and such as look like a part of a command.
var names = []string{
	"k", "{tag}", "a{tag}b", "{}", "}{", " ", "\x00\xff\r\n$", "$16\r\nredquorum:tokens\r\n$14\r\nredquorum:boot\r\n",
	strings.Repeat("n", 9), strings.Repeat("n", 10), strings.Repeat("n", 99), strings.Repeat("n", 100), strings.Repeat("n", 1000),
}

// An answer counts without a look at the member's memory before it only if it gives no vote, or the script compares the
// marker in whatever bucket.
func TestWhichAnswersNeedNoLook(t *testing.T) {
	for what, l := range map[string]Lock{
		"exclusive": Exclusive("k"), "fair": Fair("k"), "Redisson's": ExclusiveWithRedisson("k"), "reader": Reading("k"), "writer": Writing("k"),
	} {
		for name, cmd := range calls(l) {
			gives := name != "release" && !(what == "exclusive" && strings.HasPrefix(name, "wait"))
			require.Equal(t, gives, !cmd.Unlooked, "%s of %s", name, what)
		}
	}
}

// Each call, word by word, as docs/protocol.md has it. The tag comes behind the last one.
func TestCallsHaveTheWordsOfTheProtocol(t *testing.T) {
	const five, seven = "k redquorum:tokens redquorum:boot redquorum:q:{k} redquorum:w:{k} 7629 ", "k redquorum:tokens redquorum:boot " +
		"redquorum:q:{k} redquorum:w:{k} redisson_lock_token:{k} redquorum:turn:{k} 7629 "
	const last = " redisson_lock__channel:{k} redquorum:ours:{k}"
	l := Exclusive("k")
	reserve, _ := words(t, l.Reserve(nil, "me:1", 7, 9).Cmd)
	require.Equal(t, "3 k redquorum:tokens redquorum:w:{k} 7629 me:1 7 9", strings.Join(reserve[2:], " "))
	for what, want := range map[string][3]string{
		"acquire":    {"3 k redquorum:tokens redquorum:boot 7629 me:1 30001", "7 " + seven + "me:1 30001" + last, "5 " + five + "me:1 30001"},
		"wait":       {"5 " + five + "me:1 30001 10000", "7 " + seven + "me:1 30001 10000 0" + last, "5 " + five + "me:1 30001 10000 9"},
		"wait freed": {"5 " + five + "me:1 30001 10000", "7 " + seven + "me:1 30001 10000 1" + last, "5 " + five + "me:1 30001 10000 9"},
		"release":    {"5 " + five + "me:1 other:2", "7 " + seven + "me:1 other:2" + last, "5 " + five + "me:1 other:2"},
		"yield":      {"5 " + five + "me:1 7 30001 10000", "7 " + seven + "me:1 7 30001 10000" + last, "5 " + five + "me:1 7 30001 10000 9"},
		"raise":      {"2 k redquorum:tokens 7629 me:1 7", "7 " + seven + "me:1 7" + last, "2 k redquorum:tokens 7629 me:1 7"},
		"rejoin":     {"5 " + five + "me:1 30001 7 9", "7 " + seven + "me:1 30001 7" + last, "5 " + five + "me:1 30001 7 9"},
		"peek":       {"5 " + five + "all", "5 " + five + "all", "5 " + five + "all"},
		"force":      {"5 " + five + " 30001", "7 " + seven + " 30001" + last, "5 " + five + " 30001"},
		"extend":     {"1 k me:1 30001", "1 k me:1 30001", "1 k me:1 30001"},
	} {
		for i, l := range []Lock{Exclusive("k"), ExclusiveWithRedisson("k"), Fair("k")} {
			cmd := calls(l)[what]
			got, _ := words(t, cmd.Cmd)
			require.Equal(t, want[i], strings.Join(got[2:], " "), "%s, dialect %d", what, i)
			require.Equal(t, "EVALSHA", got[0])
			require.True(t, strings.HasPrefix(string(cmd.Cmd), fmt.Sprintf("*%d\r\n", len(got)+1)), "%s: the tag is counted", what)
			require.True(t, cmd.Tagged)
			require.EqualValues(t, 7629, cmd.Slot)
		}
	}
}

// The calls of a lock with readers have the words of the exclusive one, by other scripts.
func TestCallsOfReadersAndWritersHaveTheWordsOfTheProtocol(t *testing.T) {
	const three, five = "3 k redquorum:tokens redquorum:boot 7629 ", "5 k redquorum:tokens redquorum:boot redquorum:q:{k} redquorum:w:{k} 7629 "
	type said struct {
		by    Script
		words string
	}
	for what, want := range map[string][2]said{ // of writers, of readers
		"acquire":   {{Acquire, three + "me:1 30001"}, {RWRead, five + "me:1 30001"}},
		"wait":      {{RWWait, five + "me:1 30001 10000"}, {RWAwait, five + "me:1 30001 10000"}},
		"release":   {{RWRelease, five + "me:1 other:2"}, {RWRelease, five + "me:1 other:2"}},
		"yield":     {{Yield, five + "me:1 7 30001 10000"}, {Yield, five + "me:1 7 30001 10000"}},
		"raise":     {{Raise, "2 k redquorum:tokens 7629 me:1 7"}, {RWRaise, "2 k redquorum:tokens 7629 me:1 7"}},
		"rejoin":    {{Rejoin, five + "me:1 30001 7 9"}, {RWRejoin, five + "me:1 30001 7"}},
		"peek":      {{RWPeek, five + "all"}, {RWPeek, five + "all"}},
		"force":     {{RWForce, five + " 30001"}, {RWForce, five + " 30001"}},
		"extend":    {{Extend, "1 k me:1 30001"}, {RWExtend, "2 k redquorum:q:{k} me:1 30001"}},
		"downgrade": {{}, {RWDowngrade, five + "me:1 30001"}},
	} {
		for i, l := range []Lock{Writing("k"), Reading("k")} {
			cmd := calls(l)[what]
			if want[i].words == "" {
				continue
			}
			if what == "downgrade" {
				cmd = l.Downgrade(nil, "me:1", ttl)
			}
			got, _ := words(t, cmd.Cmd)
			require.Equal(t, want[i].by.SHA, got[1], "%s, dialect %d", what, i)
			require.Equal(t, want[i].words, strings.Join(got[2:], " "), "%s, dialect %d", what, i)
			require.EqualValues(t, 7629, cmd.Slot)
		}
	}
	require.Equal(t, "+other:2", ReadersFirst("other:2"))
	for _, l := range []Lock{Exclusive("k"), Fair("k"), Writing("k")} {
		cmd := l.Release(nil, "me:1", ReadersFirst("other:2"))
		got, _ := words(t, cmd.Cmd)
		require.Equal(t, RWRelease.SHA, got[1])
		require.Equal(t, five+"me:1 +other:2", strings.Join(got[2:], " "))
		require.Nil(t, cmd.Item, "no batch carries it")
	}
}

// The calls of an election name the record and the observers of the lock in place of its queue.
func TestCallsOfAnElectionHaveTheWordsOfTheProtocol(t *testing.T) {
	const five = "5 k redquorum:tokens redquorum:boot redquorum:e1:{k} redquorum:eo:{k} 7629 "
	for want, cmd := range election(Exclusive("k")) {
		got, _ := words(t, cmd.Cmd)
		require.Equal(t, five+want, strings.Join(got[2:], " "))
		require.True(t, strings.HasPrefix(string(cmd.Cmd), fmt.Sprintf("*%d\r\n", len(got)+1)), "the tag is counted")
		require.EqualValues(t, 7629, cmd.Slot)
		require.True(t, cmd.Tagged)
		require.Nil(t, cmd.Item)
	}
}

// election has the calls of an election, by their arguments.
func election(l Lock) map[string]member.Command {
	return map[string]member.Command{
		"me:1 7 3 60000 =x":              l.Proclaim(nil, "me:1", 7, 3, time.Minute, []byte("x")),
		"me:1 7 1 60000 =":               l.Proclaim(nil, "me:1", 7, 1, time.Minute, nil),
		"me:1 7 9007199254740991 10000 ": l.Resign(nil, "me:1", 7, entry),
		"watch:5 10000":                  l.Observe(nil, "watch:5", entry),
	}
}

// A member cuts a call at its marks and reads nothing of it, so they must be where a server reads the parts.
func TestMarksAreWhereAServerReadsTheParts(t *testing.T) {
	var buf []byte
	for _, name := range names {
		for _, l := range []Lock{Exclusive(name), ExclusiveWithRedisson(name), Fair(name), Writing(name), Reading(name)} {
			renewal := l.Renew(&buf, 64)
			for range 64 {
				renewal.Lock(name)
			}
			for range 64 {
				renewal.Lease("me:1", ttl, nil)
			}
			all := calls(l)
			all["renewal"] = renewal.Command(l.Slot())
			maps.Copy(all, election(l))
			for what, cmd := range all {
				said := fmt.Sprintf("%s of %q", what, name)
				got, at := words(t, cmd.Cmd)
				keys := rt.Must(strconv.Atoi(got[2]))(t)
				m := cmd.Marks
				require.EqualValues(t, at[2], m.Count, said)
				require.EqualValues(t, at[3], m.Own, said)
				require.EqualValues(t, at[3+keys], m.Args, said)
				own, behind := at[4], at[4+m.Sharing]
				if m.Sharing == 0 {
					own, behind = at[3+keys], at[3+keys]
				}
				require.EqualValues(t, own, m.Shared, said)
				require.EqualValues(t, behind, m.More, said)
				require.Equal(t, []string{member.TokensKey, member.MarkerKey}[:m.Sharing], got[4 : 4+m.Sharing][:m.Sharing], said)
				for i, key := range got[3 : 3+keys] {
					shared := i > 0 && i <= int(m.Sharing)
					require.Equal(t, shared, key == member.TokensKey || key == member.MarkerKey, said)
					if _, _, beside := l.Channels(); !shared && !beside { // Redisson shares locks at plain masters only
						require.Equal(t, l.Slot(), slot.Of(key), "%s: all keys that are not shared are in one slot", said)
					}
				}
			}
		}
	}
}

// A batch takes its items apart by their kinds, and so do the members that make one.
func TestItemsAreWhatABatchReads(t *testing.T) {
	kinds := map[byte]string{}
	for what, cmd := range calls(Exclusive("k")) {
		if cmd.Item == nil {
			continue
		}
		require.Equal(t, Batch.SHA, cmd.Item.Batch)
		require.Empty(t, kinds[cmd.Item.Kind], what)
		kinds[cmd.Item.Kind] = what
		got, at := words(t, cmd.Cmd)
		keys := rt.Must(strconv.Atoi(got[2]))(t)
		own := map[byte]int{resp.AcquireItem: 1, resp.ReleaseItem: 3}[cmd.Item.Kind]
		require.EqualValues(t, own, keys-int(cmd.Marks.Sharing), what)
		require.EqualValues(t, 2, cmd.Marks.Sharing, what)
		require.Len(t, got, 3+keys+3, what)
		require.Equal(t, strconv.Itoa(int(cmd.Slot)), got[3+keys], what)
		require.EqualValues(t, []int{at[4+keys], at[5+keys]}, []int{int(cmd.Marks.Owner), int(cmd.Marks.Last)}, what)
		if own == 3 {
			require.EqualValues(t, at[2+keys], cmd.Marks.Lean, what)
			require.Equal(t, strings.Replace(got[1+keys], "redquorum:q", "redquorum:w", 1), got[2+keys], "the script makes the one from the other")
		}
	}
	require.Equal(t, map[byte]string{resp.AcquireItem: "acquire", resp.ReleaseItem: "release"}, kinds)
	require.Zero(t, resp.AcquireItem%8, "what is added to it is read from its bits")
	require.Contains(t, Batch.Source, "if kind == 56 then")
	require.Contains(t, Batch.Source, "if kind < 52 then")
	for _, l := range []Lock{ExclusiveWithRedisson("k"), Fair("k")} {
		for what, cmd := range calls(l) {
			require.Nil(t, cmd.Item, "%s: no batch carries the scripts of another dialect", what)
		}
	}
	for _, s := range append(Own(), Redisson()...) {
		require.NotRegexp(t, "ACQUIRE_|RELEASE_|CHAIN_|ITEM_", s.Source)
		require.NotContains(t, s.Source, "--include")
	}
}

func TestCallIsEncodedIntoItsBuffer(t *testing.T) {
	l := Exclusive("k")
	buf := []byte("what was there")
	cmd := l.Acquire(&buf, "me:1", ttl)
	require.Equal(t, l.Acquire(nil, "me:1", ttl), cmd)
	require.Equal(t, cmd.Cmd, buf)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Release(&buf, "me:1", "other:2") }))
}

// A part that a block includes is known in that block alone: another block includes it again. What the text itself
// includes is known from there on, and comes once.
func TestPartOfABlockIsInEachBlockThatIncludesIt(t *testing.T) {
	const part = "local function drop("
	require.Equal(t, 3, strings.Count(Wait.Source, part), "three blocks of wait.lua include line.lua, one of them by tidy.lua")
	require.Equal(t, 1, strings.Count(Rejoin.Source, part), "rejoin.lua includes lib.lua, and by it line.lua")
}

// The handshake loads these before it knows whether the server has let it in. Redis closes a connection that has not
// authenticated and sends more than 16 KiB in one string, and the reason is lost with it.
func TestScriptsOfTheHandshakeReachAServerThatWantsAPassword(t *testing.T) {
	for _, s := range First() {
		require.Less(t, len(s.Source), 16<<10)
	}
}
