package cluster_test

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// Members that are reached over TLS, by users that may do little.

const password = "hunter2canary" // that nothing may print

// rules writes one of the shipped ACL files with a password in it, in the wording that the server knows.
func rules(t *testing.T, name string) string {
	t.Helper()
	b := rt.Must(os.ReadFile(filepath.Join("..", "acl", name)))(t)
	require.Contains(t, string(b), ">CHANGE-ME")
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(b), "CHANGE-ME", password)), 0o600))
	return file
}

// passwordFile is where a URL says that the password is.
func passwordFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	return file
}

func authority(t *testing.T, name string) *redistest.Authority {
	t.Helper()
	return rt.Must(redistest.NewAuthority(t.TempDir(), name))(t)
}

func issue(t *testing.T, a *redistest.Authority, name, host string, until time.Duration) redistest.Certificate {
	t.Helper()
	return rt.Must(a.Issue(name, host, time.Now().Add(until)))(t)
}

func port(t *testing.T) string {
	t.Helper()
	p, held, err := redistest.TakePorts(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	return strconv.Itoa(p)
}

func undenied(t *testing.T, servers []*redistest.Real) {
	t.Helper()
	for _, s := range servers {
		entries := asked(t, s, "ACL", "LOG")
		for _, e := range entries.([]any) {
			e := e.([]any)
			t.Errorf("denied: %v %v %v", e[3], e[5], e[7])
		}
	}
}

// tenSeconds has leases that a busy machine uses before they end, and a quarantine that a test can wait for.
func tenSeconds(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }

func everything(t *testing.T, clients []*redlock.Client, name string) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, len(clients)*10)
	for _, c := range clients {
		wg.Go(func() {
			for range 4 {
				l, err := c.Mutex(name).Lock(ending(t))
				if err == nil {
					time.Sleep(time.Millisecond) // others queue
					err = l.Unlock(t.Context())
				}
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	l := rt.Must(clients[0].Mutex(name).Lock(ending(t)))(t)
	require.NoError(t, l.Extend(t.Context(), 10*time.Second))
	require.NoError(t, rt.Err(clients[1].Inspect(t.Context(), name)))
	require.True(t, rt.Must(clients[1].ForceUnlock(t.Context(), name))(t))
	_ = l.Unlock(t.Context())
}

// The user of acl/members.acl takes, waits for, renews and gives back locks of a cluster, over mutual TLS,
// while a slot moves and a master forgets. No server refuses it anything. Cost: 3 s, of real servers with TLS.
func TestUserOfTheShippedRulesDoesEverythingInAClusterOverMutualTLS(t *testing.T) {
	t.Parallel()
	overMutualTLS(t, redistest.ShardedConfig{Masters: 2})
}

// And a replica takes over.
func TestLongUserOfTheShippedRulesDoesEverythingInAClusterOverMutualTLS(t *testing.T) {
	long(t)
	overMutualTLS(t, redistest.ShardedConfig{Masters: 3, Replicas: 1})
}

func overMutualTLS(t *testing.T, c redistest.ShardedConfig) {
	rt.Needs(t, redistest.TLS)
	ca := authority(t, "ca")
	server, client := issue(t, ca, "server", "", time.Hour), issue(t, ca, "client", "client", time.Hour)
	c.Server = redistest.RealConfig{Args: []string{"--aclfile", rules(t, rt.Installed(t).Rules())}}
	c.TLS, c.Authority = &server, ca.File
	s := start(t, c)
	url := "rediss-cluster://locker@" + strings.Join(s.TLSAddrs(), ",") + "?failover_lag=0s&password_file=" + passwordFile(t) +
		"&tls_ca=" + ca.File + "&tls_cert=" + client.Cert + "&tls_key=" + client.Key
	const name = "app:secured"
	n := int(slot.Of(name))
	clients := []*redlock.Client{openAll(t, []string{url}, tenSeconds), openAll(t, []string{url}, tenSeconds)}
	everything(t, clients, name)
	from := s.Index(s.Owner(t.Context(), n))
	to := (from + 1) % s.Masters
	require.NoError(t, s.Move(t.Context(), n, from, to))
	everything(t, clients, name)
	require.NoError(t, s.Servers[to].Flush())
	everything(t, clients, name)
	if c.Replicas > 0 {
		promote(t, s, s.Masters+to, "TAKEOVER")
		everything(t, clients, name)
	}
	undenied(t, s.Servers)
}

func TestUserOfOneEnvironmentDoesEverythingThereInACluster(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	shipped := rt.Must(os.ReadFile(rules(t, rt.Installed(t).Rules())))(t)
	page := rt.Must(os.ReadFile(filepath.Join("..", "docs", "servers.md")))(t)
	_, section, _ := strings.Cut(string(page), "\n### One environment of several\n")
	keys := strings.Join(strings.Fields(strings.TrimPrefix(strings.Split(section, "```")[1], "text")), " ")
	require.Contains(t, string(shipped), "~app:* ~redquorum:*")
	file := filepath.Join(t.TempDir(), "one.acl")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(shipped), "~app:* ~redquorum:*", keys, 1)), 0o600))
	s := start(t, redistest.ShardedConfig{Masters: 1, Server: redistest.RealConfig{Args: []string{"--aclfile", file}}})
	url := "redis-cluster://locker@" + strings.Join(s.Addrs(), ",") + "?password_file=" + passwordFile(t)
	prod := func(c *redlock.Config) { c.Prefix = "prod:" }
	clients := []*redlock.Client{openAll(t, []string{url}, tenSeconds, prod), openAll(t, []string{url}, tenSeconds, prod)}
	for _, name := range []string{"invoice", "{order}invoice", "a}b{"} {
		everything(t, clients, name)
		permit := rt.Must(clients[0].Semaphore(name, 1).Acquire(ending(t)))(t)
		require.ErrorIs(t, rt.Err(clients[1].Semaphore(name, 1).TryAcquire(t.Context())), redlock.ErrHeld)
		require.NoError(t, permit.Unlock(t.Context()))
		require.NoError(t, clients[0].Latch(name, 1).CountDown(ending(t)))
		require.NoError(t, clients[1].Latch(name, 1).Await(ending(t)))
		leader := rt.Must(clients[0].Election(name).Campaign(ending(t), []byte("here")))(t)
		require.Equal(t, "here", string(rt.Must(clients[1].Election(name).Leader(ending(t)))(t).Value))
		require.NoError(t, leader.Unlock(t.Context()))
	}
	undenied(t, s.Servers)
	_, err := openAll(t, []string{url}, tenSeconds, func(c *redlock.Config) { c.Prefix = "test:" }).Mutex("invoice").TryLock(t.Context())
	require.ErrorContains(t, err, "NOPERM")
}

// The user of both files does it with Sentinels, and with acknowledgements.
func TestUserOfTheShippedRulesDoesEverythingWithSentinels(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	g := startGroup(t, redistest.GroupConfig{
		Server:   redistest.RealConfig{Args: []string{"--aclfile", rules(t, rt.Installed(t).Rules())}},
		Sentinel: []string{"aclfile " + rules(t, "sentinels.acl")},
	})
	file := passwordFile(t)
	url := "redis-sentinel://locker@" + strings.Join(g.Addrs(), ",") + "/" + g.Name + "?failover_lag=0s&password_file=" + file +
		"&sentinel_user=locker&sentinel_password_file=" + file
	clients := []*redlock.Client{openAll(t, []string{url}, tenSeconds), openAll(t, []string{url}, tenSeconds)}
	everything(t, clients, "app:k")
	l := rt.Must(openAll(t, []string{url + "&min_replicas_ack=1"}, tenSeconds).Mutex("app:k").Lock(ending(t)))(t)
	_ = l.Unlock(t.Context())
	undenied(t, g.Servers)
	undenied(t, g.Sentinels)

	wrong := filepath.Join(t.TempDir(), "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong-canary"), 0o600))
	for kind, url := range map[string]string{
		"WRONGPASS":  strings.Replace(url, "lag=0s&password_file="+file, "lag=0s&password_file="+wrong, 1),
		"WRONGPASS ": strings.Replace(url, "sentinel_password_file="+file, "sentinel_password_file="+wrong, 1),
	} {
		t.Run(kind, func(t *testing.T) {
			_, err := redlock.Open(t.Context(), []string{url}, configOf())
			require.ErrorContains(t, err, kind)
			require.NotContains(t, err.Error(), password)
			require.NotContains(t, err.Error(), "wrong-canary")
		})
	}
}

func TestCertificateThatIsRefusedIsSaidSo(t *testing.T) {
	t.Parallel()
	rt.Needs(t, redistest.TLS)
	ca, stranger := authority(t, "ca"), authority(t, "stranger")
	good := issue(t, ca, "server", "", time.Hour)
	client := issue(t, ca, "client", "client", time.Hour)
	at := port(t)
	served := redistest.Certificate{Cert: filepath.Join(t.TempDir(), "served.crt"), Key: filepath.Join(t.TempDir(), "served.key")}
	serve := func(c redistest.Certificate) {
		for to, from := range map[string]string{served.Cert: c.Cert, served.Key: c.Key} {
			require.NoError(t, os.WriteFile(to, rt.Must(os.ReadFile(from))(t), 0o600))
		}
	}
	serve(good)
	r, err := redistest.StartReal(t.Context(), redistest.RealConfig{Args: []string{"--tls-port", at, "--aclfile", rules(t, rt.Installed(t).Rules()),
		"--tls-cert-file", served.Cert, "--tls-key-file", served.Key, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "yes"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })

	url := func(user, host, ca string, c redistest.Certificate) string {
		u := "rediss://" + user + net.JoinHostPort(host, at) + "?tls_ca=" + ca
		if c.Cert != "" {
			u += "&tls_cert=" + c.Cert + "&tls_key=" + c.Key
		}
		return u
	}
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var alert *net.OpError // "remote error"
	silence := new(interface{ Timeout() bool })
	for _, c := range []struct {
		name   string
		server redistest.Certificate
		url    string
		text   string // "": it works
		as     any
		only   string // version of TLS
	}{
		{"all is well", good, url("", "127.0.0.1", ca.File, client), "", nil, ""},
		{"the server's has expired", issue(t, ca, "old", "", -time.Hour), url("", "127.0.0.1", ca.File, client), "expired", &invalid, ""},
		{"the server's is for another name", issue(t, ca, "other", "other.example", time.Hour), url("", "127.0.0.1", ca.File, client), "127.0.0.1", &host, ""},
		{"another name that is expected", issue(t, ca, "named", "other.example", time.Hour), url("", "127.0.0.1", ca.File, client) + "&tls_server_name=other.example", "", nil, ""},
		{"the server's is from a stranger", good, url("", "127.0.0.1", stranger.File, client), "unknown authority", &unknown, ""},
		{"ours is missing, with a password", good, url("locker:"+password+"@", "127.0.0.1", ca.File, redistest.Certificate{}), "certificate required", &alert, ""},
		{"ours is missing, without a password", good, url("", "127.0.0.1", ca.File, redistest.Certificate{}), "certificate required", &alert, ""},
		{"ours is from a stranger", good, url("", "127.0.0.1", ca.File, issue(t, stranger, "strange", "client", time.Hour)), "unknown certificate authority", &alert, ""},
		{"ours has expired", good, url("", "127.0.0.1", ca.File, issue(t, ca, "stale", "client", -time.Hour)), "expired certificate", &alert, ""},
		{"the server does not speak TLS", good, "rediss://" + r.Addr() + "?dial_timeout=1s", "no answer to the TLS handshake", silence, ""},
		{"all is well under TLS 1.2", good, url("", "127.0.0.1", ca.File, client), "", nil, "TLSv1.2"},
		{"ours is missing under TLS 1.2, with a password", good, url("locker:"+password+"@", "127.0.0.1", ca.File, redistest.Certificate{}), "the server asks for a client certificate and the URL has none", &alert, "TLSv1.2"},
		{"ours is missing under TLS 1.2, without a password", good, url("", "127.0.0.1", ca.File, redistest.Certificate{}), "the server asks for a client certificate and the URL has none", &alert, "TLSv1.2"},
		{"ours is from a stranger under TLS 1.2", good, url("", "127.0.0.1", ca.File, issue(t, stranger, "strange12", "client", time.Hour)), "unknown certificate authority", &alert, "TLSv1.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			serve(c.server)
			// One option at a time, as before Redis 7.0. Each has the server read both files.
			for option, value := range map[string]string{"tls-protocols": c.only, "tls-cert-file": served.Cert} {
				asked(t, r, "CONFIG", "SET", option, value)
			}
			if c.text == "" {
				l := rt.Must(openAll(t, []string{c.url}).Mutex("k").TryLock(t.Context()))(t)
				require.NoError(t, l.Unlock(t.Context()))
				return
			}
			_, err := redlock.Open(ending(t), []string{c.url}, configOf())
			rt.Says(t, err, redlock.ErrNoQuorum, c.text)
			require.ErrorAs(t, err, c.as)
			require.NotContains(t, err.Error(), password)
		})
	}
}
