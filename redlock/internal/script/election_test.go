package script

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/stretchr/testify/require"
)

func TestStandingIsReadFromItsReply(t *testing.T) {
	str := func(s string) member.Reply { return member.Reply{Kind: '$', Str: []byte(s)} }
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	reply := func(elems ...member.Reply) *member.Reply { return &member.Reply{Kind: '*', Elems: elems} }

	r := reply(num(9), num(1500), str("aa"), str("7"), str("2"), str("bb"), str("v"))
	s, ok := ReadStanding(r)
	require.True(t, ok)
	require.Equal(t, Standing{Server: 9, TTL: 1500 * time.Millisecond, Owner: "aa", Token: 7, Seq: 2, By: "bb", Value: []byte("v")}, s)
	copy(r.Elems[6].Str, "w") // the reply's memory is used again
	require.Equal(t, "v", string(s.Value))

	s, ok = ReadStanding(reply(num(9), num(-2), str(""), str("0"), str("0"), str("")))
	require.True(t, ok)
	require.Equal(t, Standing{Server: 9}, s)

	s, _ = ReadStanding(reply(num(9), num(1), str("aa"), str("7"), str("2"), str("aa"), str("")))
	require.NotNil(t, s.Value, "an empty value is one: its owner leads")
	for _, bad := range []*member.Reply{{}, reply(), {Kind: ':', Int: 1}, reply(num(9), num(1), str("aa"), str("7"), str("2"))} {
		_, ok = ReadStanding(bad)
		require.False(t, ok)
	}
}
