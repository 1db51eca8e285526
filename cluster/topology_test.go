package cluster

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

func str(s string) member.Reply          { return member.Reply{Kind: '$', Str: []byte(s)} }
func num(n int64) member.Reply           { return member.Reply{Kind: ':', Int: n} }
func arr(e ...member.Reply) member.Reply { return member.Reply{Kind: '*', Elems: e} }
func null() member.Reply                 { return member.Reply{Kind: '_'} }
func described(kv ...string) (r member.Reply) {
	r.Kind = '*'
	for i, s := range kv {
		if i%2 == 1 && (kv[i-1] == "port" || kv[i-1] == "tls-port") {
			n, _ := strconv.ParseInt(s, 10, 64)
			r.Elems = append(r.Elems, num(n))
		} else {
			r.Elems = append(r.Elems, str(s))
		}
	}
	return r
}

func shard(slots []int64, nodes ...member.Reply) member.Reply {
	list := arr()
	for _, s := range slots {
		list.Elems = append(list.Elems, num(s))
	}
	return arr(str("slots"), list, str("nodes"), arr(nodes...))
}

func TestTopologyIsReadAndCheckedAsAWhole(t *testing.T) {
	a := described("id", "A", "port", "1", "tls-port", "11", "ip", "10.0.0.1", "endpoint", "a.example", "role", "master", "health", "online")
	b := described("id", "B", "port", "2", "tls-port", "12", "ip", "10.0.0.2", "endpoint", "", "role", "master", "health", "online")
	replica := described("id", "C", "port", "3", "ip", "10.0.0.3", "endpoint", "10.0.0.3", "role", "replica", "health", "online")
	failed := described("id", "D", "port", "4", "ip", "10.0.0.4", "endpoint", "10.0.0.4", "role", "master", "health", "fail")
	unknown := described("id", "E", "port", "5", "ip", "", "endpoint", "?", "role", "master", "health", "online")

	read := func(tls bool, shards ...member.Reply) ([]masterInfo, error) {
		r := arr(shards...)
		return parseShards(&r, "10.0.0.9:7000", tls)
	}
	got := rt.Must(read(false, shard([]int64{5, 6, 0, 1}, replica, a), shard([]int64{2, 4}, b), shard(nil, unknown)))(t)
	require.Equal(t, []masterInfo{{"A", "a.example:1", []uint16{0, 1, 5, 6}}, {"B", "10.0.0.2:2", []uint16{2, 3, 4}}}, got)

	got = rt.Must(read(true, shard([]int64{0, 0}, a)))(t)
	require.Equal(t, "a.example:11", got[0].addr)

	got = rt.Must(read(false, shard([]int64{0, 0}, failed, a)))(t)
	require.Equal(t, "A", got[0].id, "the healthy one of two")
	got = rt.Must(read(false, shard([]int64{0, 0}, failed)))(t)
	require.Equal(t, "D", got[0].id, "its slots are nobody else's yet")
	got = rt.Must(read(false, shard([]int64{0, 16383}, unknown)))(t)
	require.Equal(t, "10.0.0.9:5", got[0].addr, "the host that was asked")
	require.Len(t, got[0].slots, 16384)

	for name, shards := range map[string][]member.Reply{
		"nothing":        nil,
		"no slots":       {shard(nil, a)},
		"replaced":       {shard([]int64{0, 5}, a), shard(nil, failed, b)}, // as Redis 7.2 tells of a failover
		"two masters":    {shard([]int64{0, 5}, a), shard([]int64{5, 6}, b)},
		"one address":    {shard([]int64{0, 5}, a), shard([]int64{6, 6}, a)},
		"out of bounds":  {shard([]int64{0, 16384}, a)},
		"backwards":      {shard([]int64{5, 4}, a)},
		"half a range":   {shard([]int64{5}, a)},
		"negative":       {shard([]int64{-1, 4}, a)},
		"only a replica": {shard([]int64{0, 5}, replica)},
		"without TLS":    {shard([]int64{0, 5}, described("id", "A", "port", "0", "ip", "a", "endpoint", "a", "role", "master"))},
		"too many":       {shard([]int64{0, 16383, 0, 16383, 0, 16383}, a)},
		"other shape":    {str("x")},
	} {
		_, err := read(false, shards...)
		var bad errTopology
		require.ErrorAs(t, err, &bad, name)
	}

	old := arr(
		arr(num(0), num(1), arr(str("10.0.0.1"), num(1), str("A")), arr(str("10.0.0.3"), num(3), str("C"))),
		arr(num(5), num(5), arr(str("10.0.0.1"), num(1), str("A"))),
		arr(num(2), num(4), arr(null(), num(2), str("B"), arr())),
	)
	got = rt.Must(parseSlots(&old, "10.0.0.9:7000"))(t)
	require.Equal(t, []masterInfo{{"A", "10.0.0.1:1", []uint16{0, 1, 5}}, {"B", "10.0.0.9:2", []uint16{2, 3, 4}}}, got)
	for _, r := range []member.Reply{null(), arr(), arr(arr()), arr(arr(num(0), num(1), arr())), arr(arr(num(0), num(1), arr(str("a"), num(0))))} {
		require.Error(t, rt.Err(parseSlots(&r, "a:1")))
	}
}

// Replies of any shape: no panic, and no topology that sends a slot to two masters.
func FuzzTopology(f *testing.F) {
	f.Add([]byte("*2$slots*2:0:5"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := reply(&b, 0)
		for _, parse := range []func() ([]masterInfo, error){
			func() ([]masterInfo, error) { return parseShards(&r, "h:1", false) },
			func() ([]masterInfo, error) { return parseSlots(&r, "h:1") },
		} {
			masters, err := parse()
			if err != nil {
				continue
			}
			seen := make(map[uint16]bool)
			for _, m := range masters {
				for _, s := range m.slots {
					require.False(t, seen[s] || s >= 16384, s)
					seen[s] = true
				}
			}
			require.NotEmpty(t, seen, "no slots")
		}
	})
}

// reply builds a reply from bytes, mostly of what a topology is made of.
func reply(b *[]byte, depth int) member.Reply {
	next := func() byte {
		if len(*b) == 0 {
			return 0
		}
		x := (*b)[0]
		*b = (*b)[1:]
		return x
	}
	words := []string{"slots", "nodes", "role", "master", "id", "port", "ip", "endpoint", "h", "?", "", "health", "online", "fail"}
	switch k := next() % 5; {
	case k < 2 && depth < 6:
		r := arr()
		for range next() % 8 {
			r.Elems = append(r.Elems, reply(b, depth+1))
		}
		return r
	case k == 2:
		return num(int64(next())<<8 | int64(next()))
	case k == 3:
		return null()
	default:
		return str(words[int(next())%len(words)])
	}
}
