package cluster

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

func TestRedirectIsDecidedByItsText(t *testing.T) {
	const patience = time.Second
	for _, tc := range []struct {
		text string
		hops uint8
		wait time.Duration
		want step
	}{
		{text: "MOVED 3999 127.0.0.1:6381", want: step{follow, "127.0.0.1:6381"}},
		{text: "MOVED 3999 127.0.0.1:6381", hops: maxHops - 1, want: step{follow, "127.0.0.1:6381"}},
		{text: "MOVED 3999 127.0.0.1:6381", hops: maxHops, want: step{giveUp, "127.0.0.1:6381"}},
		{text: "MOVED 3999 127.0.0.1:6381", wait: patience, want: step{}},
		{text: "MOVED 3999 redis-1.example:6381", want: step{follow, "redis-1.example:6381"}},
		{text: "MOVED 3999 ::1:6381", want: step{follow, "[::1]:6381"}},
		{text: "MOVED 3999 [fe80::1]:6381", want: step{follow, "[fe80::1]:6381"}},
		{text: "MOVED 3999 :6381", want: step{follow, "10.0.0.9:6381"}},
		{text: "MOVED 3999 ?:6381", want: step{follow, "10.0.0.9:6381"}},
		{text: "ASK 3999 127.0.0.1:6381", want: step{ask, "127.0.0.1:6381"}},
		{text: "ASK 3999 127.0.0.1:6381", hops: maxHops, want: step{giveUp, "127.0.0.1:6381"}},
		{text: "TRYAGAIN Multiple keys request during rehashing of slot", hops: 200, want: step{do: backoff}},
		{text: "TRYAGAIN Multiple keys request during rehashing of slot", wait: patience, want: step{}},
		{text: "CLUSTERDOWN The cluster is down", want: step{do: backoff}},
		{text: "CLUSTERDOWN Hash slot not served", want: step{do: backoff}},
		{text: "LOADING Redis is loading the dataset in memory", want: step{do: backoff}},
		{text: "FORGOT marker", want: step{do: stamp}},
		{text: "ERR Script attempted to access a non local key in a cluster node", want: step{do: backoff}},
		{text: "ERR Attempted to access a non local key in a cluster node", want: step{do: backoff}}, // Valkey 9.1
		{text: "ERR Script attempted to access a slot not served", want: step{do: backoff}},          // Redis 7.4
		{text: "ERR Script attempted to execute a command while the cluster is down", want: step{do: backoff}},
		{text: "Lua script attempted to execute a write command while the cluster is down and readonly", want: step{do: backoff}}, // Redis 6.2
		{text: "ERR Can not execute a command 'set' while the cluster is down", want: step{do: backoff}},                          // Valkey 9.1
		{text: "CROSSSLOT Keys in request don't hash to the same slot", want: step{}},
		// What is no redirect is not followed.
		{text: "MOVED 4000 127.0.0.1:6381", want: step{}},
		{text: "MOVED 69535 127.0.0.1:6381", want: step{}},
		{text: "MOVED x 127.0.0.1:6381", want: step{}},
		{text: "MOVED", want: step{}}, {text: "MOVED 3999", want: step{}}, {text: "MOVED 3999 127.0.0.1", want: step{}},
		{text: "MOVED 3999 127.0.0.1:0", want: step{}}, {text: "MOVED 3999 127.0.0.1:65536", want: step{}},
		{text: "MOVED 3999 127.0.0.1:+1", want: step{}}, {text: "MOVED 3999 127.0.0.1:", want: step{}},
		{text: "MOVED 3999 a@b:6381", want: step{}}, {text: "MOVED 3999 a/b:6381", want: step{}},
	} {
		kind := member.KindCluster
		switch word, _, _ := strings.Cut(tc.text, " "); word {
		case "LOADING":
			kind = member.KindLoading
		case "FORGOT":
			kind = member.KindForgot
		}
		got := decide(refusal{kind: kind, text: tc.text, from: "10.0.0.9:7000", slot: 3999, hops: tc.hops, waited: tc.wait}, patience)
		require.Equal(t, tc.want, got, "%s after %d hops: %v", tc.text, tc.hops, got.do)
	}
	for kind := member.KindOther; kind <= member.KindCluster; kind++ {
		if kind != member.KindCluster && kind != member.KindLoading && kind != member.KindForgot {
			require.Equal(t, step{}, decide(refusal{kind: kind, text: "MOVED 1 a:1", from: "a:2", slot: 1}, patience), kind)
		}
	}
}

func FuzzDecide(f *testing.F) {
	for _, text := range []string{"MOVED 3999 127.0.0.1:6381", "ASK 1 :1", "ASK 1 ?:1", "TRYAGAIN x", "CLUSTERDOWN", "MOVED 0 [::1]:65535", "MOVED 16384 a:1", "FORGOT marker"} {
		f.Add(text, "10.0.0.9:7000", uint16(3999), uint8(0))
	}
	f.Fuzz(func(t *testing.T, text, from string, slot uint16, hops uint8) {
		st := decide(refusal{kind: member.KindCluster, text: text, from: from, slot: slot, hops: hops}, time.Second)
		switch st.do {
		case follow, ask, giveUp:
			host, port, err := net.SplitHostPort(st.addr)
			require.False(t, err != nil || host == "", "%q: %q", text, st.addr)
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				t.Fatalf("%q: port of %q", text, st.addr)
			}
			require.Equal(t, hops >= maxHops, st.do == giveUp, "%v after %d hops", st.do, hops)
			if !strings.HasPrefix(text, "MOVED "+strconv.Itoa(int(slot))+" ") && !strings.HasPrefix(text, "ASK "+strconv.Itoa(int(slot))+" ") {
				if n, err := strconv.Atoi(strings.Fields(text)[1]); err != nil || n != int(slot) {
					t.Fatalf("%q is not about slot %d", text, slot)
				}
			}
		default:
			require.Empty(t, st.addr, "%v with an address", st.do)
		}
	})
}

// A reshard costs its callers tens of milliseconds more than the move, whatever it takes; a slot that is not served
// for long is not asked for more than twenty times a second.
func TestPausesOfASlotThatNobodyServes(t *testing.T) {
	var pauses []int64
	for tries := range 9 {
		pauses = append(pauses, pauseAfter(tries).Milliseconds())
	}
	require.Equal(t, []int64{1, 2, 4, 8, 16, 32, 50, 50, 50}, pauses)
	require.Equal(t, 50*time.Millisecond, pauseAfter(1<<40))
}

func TestRoutesAreRecycledClean(t *testing.T) {
	cl := &cluster{group: &node.Group{}}
	for range 100 {
		c := &member.Call{Result: member.Result{Interrupted: true}}
		cl.begin(c)
		require.Equal(t, &route{cl: cl, gen: cl.group.Era()}, routeOf(c))
		require.False(t, c.Interrupted)
		*routeOf(c) = route{cl: cl, asking: true, hops: 3, gen: 9, since: time.Now()}
		cl.forget(c)
		require.Nil(t, c.Hop)
	}
}
