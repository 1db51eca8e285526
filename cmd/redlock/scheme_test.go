package main

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
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

// ofCluster is the address of a server that answers CLUSTER SHARDS with one master of all slots; "": with itself.
func ofCluster(t *testing.T, master string) string {
	t.Helper()
	return rt.Listening(t, func(c net.Conn) { answer(c, cmp.Or(master, c.LocalAddr().String())) })
}

func answer(c net.Conn, master string) {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	host, port, _ := net.SplitHostPort(master)
	shards := "*1\r\n*4\r\n" + bulk("slots") + "*2\r\n:0\r\n:16383\r\n" + bulk("nodes") + "*1\r\n*12\r\n" + bulk("id") + bulk("id of "+port) +
		bulk("port") + ":" + port + "\r\n" + bulk("ip") + bulk(host) + bulk("endpoint") + bulk(host) + bulk("role") + bulk("master") + bulk("health") + bulk("online")
	for words := bufio.NewScanner(c); words.Scan(); {
		reply := ""
		switch strings.TrimSpace(words.Text()) {
		case "SHARDS":
			reply = shards
		case "SLOTS":
			reply = "-ERR no\r\n"
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// Of two servers that contradict each other, the one is believed whose masters say the same.
func TestServersOfAClusterThatContradictEachOther(t *testing.T) {
	t.Parallel()
	dead := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = dead.Close()
	closed, right := dead.Addr().String(), ofCluster(t, "")
	lying, other := ofCluster(t, closed), ofCluster(t, right) // the other one is a replica
	for _, tc := range []struct{ seeds, want string }{
		{lying + "," + right, right},
		{right + "," + lying, right},
		{lying + "," + other, right},
		{lying + "," + ofCluster(t, lying), closed}, // nobody confirms either
		{lying + ",127.0.0.1:1", closed},
		{right + "," + lying + "," + ofCluster(t, closed), closed}, // two say it
	} {
		target := rt.Must(node.ParseTarget("redis-cluster://" + tc.seeds))(t)
		target.Config.DialTimeout = 10 * time.Second
		m := &rawMember{target: target}
		m.find(t.Context())
		assert.False(t, m.err != nil || len(m.servers) != 1 || m.servers[0].name != tc.want,
			"%s: %v, %+v, want %s", tc.seeds, m.err, m.servers, tc.want)
	}
}

func TestServerThatDoesNotAnswerIsNamedOnce(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis-cluster://127.0.0.1:1":             "127.0.0.1:1: dial ",
		"redis-cluster://127.0.0.1:1,127.0.0.1:2": "127.0.0.1:1,127.0.0.1:2: 127.0.0.1:1: dial ",
		"redis-sentinel://127.0.0.1:1/m":          "m@127.0.0.1:1: sentinel 127.0.0.1:1: dial ",
	} {
		target := rt.Must(node.ParseTarget(url))(t)
		m := &rawMember{target: target}
		m.find(t.Context())
		assert.False(t, m.err == nil || !strings.HasPrefix(m.err.Error(), want), "%s: %v, want %s", url, m.err, want)
	}
}

// authority signs certificates for 127.0.0.1 and writes them into a directory.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.write(t, "ca", a.cert, a.key)
	return a
}

func (a *authority) write(t *testing.T, name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	der := rt.Must(x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key))(t)
	secret := rt.Must(x509.MarshalECPrivateKey(key))(t)
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600))
	}
}

func (a *authority) issue(t *testing.T, name string, lasts time.Duration) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.write(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// Members with TLS take our certificate, and we theirs; what is wrong with either is told with the exit
// code for configuration, not as a network failure.
func TestMembersWithTLS(t *testing.T) {
	t.Parallel()
	rt.Needs(t, redistest.TLS)
	ours, strange := newAuthority(t, "ours"), newAuthority(t, "strange")
	ours.issue(t, "member", 100*time.Hour)
	ours.issue(t, "client", 1000*time.Hour)
	strange.issue(t, "client", 1000*time.Hour)
	port, held, err := redistest.TakePorts(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	server, err := redistest.StartReal(t.Context(), redistest.RealConfig{Args: []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", ours.path("member.crt"), "--tls-key-file", ours.path("member.key"),
		"--tls-ca-cert-file", ours.path("ca.crt"),
	}})
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	markFresh(t, []string{"redis://" + server.Addr()}, 0)
	for name, tc := range map[string]struct {
		args string
		ca   *authority
		pair *authority
		code int
		says string
	}{
		"good":              {"acquire x", ours, ours, 0, ""},
		"expires soon":      {"doctor --sample 20ms --member-timeout " + patience.String(), ours, ours, 1, "the member's certificate expires on"},
		"its own authority": {"acquire y --tls-ca " + ours.path("member.crt"), strange, ours, 0, ""},
		"unknown authority": {"acquire x", strange, ours, exitConfig, "certificate"},
		// The other side's word may be lost when it closes (TLS 1.3): then it looks like a network failure.
		"unknown to the other": {"acquire x", ours, strange, -1, ""},
		"doctor sees it":       {"doctor --sample 20ms", strange, ours, 2, "critical  tls"},
	} {
		words := strings.Fields(tc.args)
		args := slices.Concat(words[:1], []string{"--members", "rediss://127.0.0.1:" + strconv.Itoa(port), "--dial-timeout", patience.String(),
			"--tls-ca", tc.ca.path("ca.crt"), "--tls-cert", tc.pair.path("client.crt"), "--tls-key", tc.pair.path("client.key")}, words[1:])
		code, stdout, stderr := command(t, args...)
		if code != tc.code && !(tc.code < 0 && (code == exitConfig || code == exitUnavailable)) || !strings.Contains(stdout+stderr, tc.says) {
			t.Errorf("%s: exit code %d, want %d\n%s%s", name, code, tc.code, stdout, stderr)
		}
	}
}
