package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A URL whose scheme is that of another kind of server is a mistake in the configuration: what is there, and which
// scheme it has, is said by every command, and by the doctor.
func TestSchemeOfAnotherKindOfServer(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	port, held, err := redistest.TakePorts(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	tlsPort, withTLS := strconv.Itoa(port), []string(nil)
	if rt.Installed(t).Has(redistest.TLS) {
		ours := newAuthority(t, "ours")
		ours.issue(t, "member", 100*time.Hour)
		withTLS = []string{"--tls-port", tlsPort, "--tls-cert-file", ours.path("member.crt"), "--tls-key-file", ours.path("member.key"), "--tls-ca-cert-file", ours.path("ca.crt")}
	}
	ctx := t.Context()
	single := rt.Must(redistest.StartReal(ctx, redistest.RealConfig{Persist: redistest.Volatile, Args: withTLS}))(t)
	t.Cleanup(func() { _ = single.Close() })
	cluster := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 1}))(t)
	t.Cleanup(func() { _ = cluster.Close() })
	group := rt.Must(redistest.StartGroup(ctx, redistest.GroupConfig{Sentinels: 1}))(t)
	t.Cleanup(func() { _ = group.Close() })
	replace := strings.NewReplacer("SINGLE", single.Addr(), "TLS", "127.0.0.1:"+tlsPort, "CLUSTER", cluster.Servers[0].Addr(), "SENTINEL", group.Addrs()[0])
	for _, tc := range []struct{ url, found, scheme string }{
		{"redis://CLUSTER", "a server of a Redis Cluster", "redis-cluster://"},
		{"redis://CLUSTER/1", "a server of a Redis Cluster", "redis-cluster://"},
		{"redis-sentinel://CLUSTER/mymaster", "a server of a Redis Cluster", "redis-cluster://"},
		{"redis://SENTINEL", "a Sentinel", "redis-sentinel://"},
		{"redis://SENTINEL/1", "a Sentinel", "redis-sentinel://"},
		{"redis-cluster://SENTINEL", "a Sentinel", "redis-sentinel://"},
		{"redis-cluster://SINGLE", "a single server", "redis://"},
		{"redis-sentinel://SINGLE/mymaster", "a single server", "redis://"},
		{"redis://TLS", "a server that speaks TLS", "rediss://"},
		{"redis-cluster://TLS", "a server that speaks TLS", "rediss-cluster://"},
		{"redis-sentinel://TLS/mymaster", "a server that speaks TLS", "rediss-sentinel://"},
		{"rediss://SINGLE", "a server that speaks without TLS", "redis://"},
		{"rediss-cluster://CLUSTER", "a server that speaks without TLS", "redis-cluster://"},
		{"rediss-sentinel://SENTINEL/mymaster", "a server that speaks without TLS", "redis-sentinel://"},
	} {
		t.Run(tc.url, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(tc.url, "//TLS") {
				rt.Needs(t, redistest.TLS)
			}
			url := replace.Replace(tc.url)
			says := "this is " + tc.found + ", for which it is " + tc.scheme
			if strings.HasPrefix(url, "rediss") { // those servers are silent, and it takes its time to be sure
				url += "?dial_timeout=20s"
			} else {
				fail(t, exitConfig, says, "ls", "--members", url)
			}
			fail(t, exitConfig, says, "acquire", "x", "--wait", "0", "--members", url)
			code, r := diagnose(t, "--members", url)
			assert.True(t, code == 2, "doctor: %d", code)
			want(t, r, doctor.Critical, "^scheme: .*"+says)
			for _, f := range r.Findings {
				assert.False(t, f.Check == "scheme" && !strings.Contains(f.Cure, tc.scheme), "the cure does not name the scheme: %+v", f)
			}
		})
	}
}
