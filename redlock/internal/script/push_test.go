package script

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a script pushes is understood as it is, and nothing else is.
func TestPushIsParsedInFullOrNotAtAll(t *testing.T) {
	p, ok := ParsePush("g me:1 7 1000 other:2 2500")
	require.True(t, ok)
	require.Equal(t, Push{Grant: true, Owner: "me:1", N: 1, Token: 7, Server: 1000, Other: "other:2", TTL: 2500 * time.Millisecond}, p)
	p, ok = ParsePush("w me:1 other:2")
	require.True(t, ok)
	require.Equal(t, Push{Owner: "me:1", N: 1, Other: "other:2"}, p)
	p, ok = ParsePush("w me:1 other:2 ") // older clients read it as the one above
	require.True(t, ok)
	require.Equal(t, Push{Wish: true, Owner: "me:1", N: 1, Other: "other:2"}, p)
	p, ok = ParsePush("x me:1 other:2")
	require.True(t, ok)
	require.Equal(t, Push{Gone: true, Owner: "me:1", N: 1, Other: "other:2"}, p)
	p, ok = ParsePush("r me:1")
	require.True(t, ok)
	require.Equal(t, Push{Readers: true, Owner: "me:1", N: 1}, p)
	for _, bad := range []string{
		"r", "r me", "r me:1 other:2", "r me:x",
		"", "x me:1", "g me:1 7 1000 -", "g me:1 7 1000 - 1 1", "g me:1 7 1000 - -1", "g me:1 7 1000 - x", "g me:1 0 1000 - 1", "g me 7 1000 - 1",
		"g me:1 7 1000 - 99999999999999999", "w me:1", "w me:1 a b", "y me:1 a",
	} {
		_, ok := ParsePush(bad)
		require.False(t, ok, bad)
	}
}

func TestChannelsOfRedissonAndOursAreFoundFromEachOther(t *testing.T) {
	for _, name := range []string{"k", "{k}", "a{k}b"} {
		l := ExclusiveWithRedisson(name)
		theirs, ours, ok := l.Channels()
		require.True(t, ok)
		found, ok := Beside(ours)
		require.True(t, ok)
		require.Equal(t, theirs, found)
		_, ok = Beside(theirs)
		require.False(t, ok)
	}
	l := Exclusive("k")
	_, _, ok := l.Channels()
	require.False(t, ok)
}

func TestNewsIsParsedInFullOrNotAtAll(t *testing.T) {
	n, ok := ParseNews("o me:1 7")
	require.True(t, ok)
	require.Equal(t, News{Word: 'o', Watch: "me:1", N: 1, Values: [2]int64{7, 0}}, n)
	n, ok = ParseNews("e me:2 9 3")
	require.True(t, ok)
	require.Equal(t, News{Word: 'e', Watch: "me:2", N: 2, Values: [2]int64{9, 3}}, n)
	for _, bad := range []string{"", "o", "o me:1", "o me:1 x", "o me:1 -1", "o me:1 7 7", "e me:1 7", "o me 7", "o me:x 7", "g me:1 7", "w me:1 other:2"} {
		_, ok := ParseNews(bad)
		require.False(t, ok, bad)
	}
}

// Every hand-over brings a push of each member.
func TestGrantIsReadWithoutAnAllocation(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() { ParsePush("g me:1 7 1000 other:2 2500") }))
}
