package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

func text(s string) member.Reply          { return member.Reply{Kind: '$', Str: []byte(s)} }
func integer(n int64) member.Reply        { return member.Reply{Kind: ':', Int: n} }
func list(e ...member.Reply) member.Reply { return member.Reply{Kind: '*', Elems: e} }

func TestAnswersAreReadInTheirThreeShapes(t *testing.T) {
	for _, tc := range []struct {
		reply member.Reply
		want  Answer
		ok    bool
	}{
		{integer(-5), Answer{N: -5}, true},
		{list(integer(7), integer(1000)), Answer{N: 7, Server: 1000}, true},
		{list(integer(7), integer(1000), text("-")), Answer{N: 7, Server: 1000}, true},
		{list(integer(7), integer(1000), text("other:2")), Answer{N: 7, Server: 1000, Next: "other:2"}, true},
		{list(integer(-7), integer(1000), integer(6000)), Answer{N: -7, Server: 1000, Lives: 6 * time.Second}, true},
		{list(integer(7)), Answer{}, false},
		{text("OK"), Answer{}, false},
		{member.Reply{Kind: '_'}, Answer{}, false},
	} {
		got, ok := ReadAnswer(&tc.reply)
		require.Equal(t, tc.ok, ok, "%+v", tc.reply)
		require.Equal(t, tc.want, got, "%+v", tc.reply)
	}
}

func TestViewIsReadInFullOrNotAtAll(t *testing.T) {
	const now = 1_700_000_000_000_000
	r := list(integer(now), integer(2500), text("9"), text("w"), text("me:1"), text("7"),
		text("live:1"), text("1699999999000000"), text("1700000000000"), text("1000"),
		text("dead:1"), text("1699999998000000.0"), text("1699999999999"), text("1000"))
	got, ok := ReadView(&r)
	require.True(t, ok)
	require.Equal(t, View{TTL: 2500 * time.Millisecond, Counter: 9, Owner: Hash([]byte("me:1")), Client: ClientHash([]byte("me:1")), Token: 7, Queue: []Waiter{
		{Owner: Hash([]byte("live:1")), Client: ClientHash([]byte("live:1")), Waiting: time.Second, Live: true}, {Owner: Hash([]byte("dead:1")), Client: ClientHash([]byte("dead:1")), Waiting: 2 * time.Second},
	}}, got)
	r.Elems = r.Elems[:13]
	_, ok = ReadView(&r)
	require.False(t, ok, "a part of a waiter")
	r = list(integer(now), integer(-1), text("9"), text("w"), text("field"), text("value"))
	got, ok = ReadView(&r)
	require.True(t, ok)
	require.Equal(t, View{Foreign: true}, got)
	r = list(integer(now), integer(2500), text("9"), text(""), text("5 7 marker"), list(text("me:1"), text("1700000001000")))
	got, ok = ReadView(&r)
	require.True(t, ok)
	require.Equal(t, View{
		TTL: 2500 * time.Millisecond, Counter: 9, Token: 7, Drawn: 5,
		Readers: []Reader{{Owner: Hash([]byte("me:1")), Client: ClientHash([]byte("me:1")), TTL: time.Second}},
	}, got)
	r = list(integer(now), integer(-2), text("0"), text(""), text(""), text("0"))
	got, ok = ReadView(&r)
	require.True(t, ok)
	require.Equal(t, View{}, got, "nobody has it")
}

// A client asks first for the slot that it gave back last. If it waits, the slot depends on the owner: each slot has
// about as many waiters, also in the place of votes that are given up.
func TestWaitersAreSpreadOverTheSlots(t *testing.T) {
	const limit, owners = 8, 800
	once := Semaphore("k").Asking(&Asked{Want: 3, Once: true, Limit: limit, N: 1})
	always := Semaphore("k").Asking(&Asked{Want: 3, Limit: limit, N: 1})
	of := map[int]int{}
	for i := range owners {
		owner := OwnerOf("client", uint64(i))
		acquire, _ := words(t, once.Acquire(nil, owner, time.Second).Cmd)
		require.Equal(t, "3", acquire[len(acquire)-4], "an acquire: the slot that was given back last")
		wait, _ := words(t, once.Wait(nil, owner, time.Second, time.Second, 0).Cmd)
		var slot int
		_, err := fmt.Sscan(wait[len(wait)-4], &slot)
		require.NoError(t, err)
		of[slot]++
		back, _ := words(t, once.Claim(nil, owner, nil, nil, time.Second, time.Second, true).Cmd)
		require.Equal(t, fmt.Sprint("-", slot), back[len(back)-6], "whoever gives up a vote goes back to its lane")
		wait, _ = words(t, always.Wait(nil, owner, time.Second, time.Second, 0).Cmd)
		require.Equal(t, "3", wait[len(wait)-4])
	}
	require.Len(t, of, limit)
	for slot, n := range of {
		require.InDelta(t, owners/limit, n, owners/limit/2, "waiters for slot %d", slot)
	}
}

func TestElectionAnswerIsReadFromItsReply(t *testing.T) {
	str := func(s string) member.Reply { return member.Reply{Kind: '$', Str: []byte(s)} }
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	reply := func(elems ...member.Reply) *member.Reply { return &member.Reply{Kind: '*', Elems: elems} }

	r := reply(num(9), num(1500), str("aa"), str("7"), str("2"), str("bb"), str("v"))
	s, ok := ReadElection(r)
	require.True(t, ok)
	require.Equal(t, ElectionAnswer{Server: 9, TTL: 1500 * time.Millisecond, Owner: "aa", Token: 7, Seq: 2, By: "bb", Value: []byte("v")}, s)
	copy(r.Elems[6].Str, "w") // the reply's memory is used again
	require.Equal(t, "v", string(s.Value))

	s, ok = ReadElection(reply(num(9), num(-2), str(""), str("0"), str("0"), str("")))
	require.True(t, ok)
	require.Equal(t, ElectionAnswer{Server: 9}, s)

	s, _ = ReadElection(reply(num(9), num(1), str("aa"), str("7"), str("2"), str("aa"), str("")))
	require.NotNil(t, s.Value, "an empty value is one: its owner leads")
	for _, bad := range []*member.Reply{{}, reply(), {Kind: ':', Int: 1}, reply(num(9), num(1), str("aa"), str("7"), str("2"))} {
		_, ok = ReadElection(bad)
		require.False(t, ok)
	}
}

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
