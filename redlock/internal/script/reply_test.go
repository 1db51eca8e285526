package script

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/stretchr/testify/require"
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
