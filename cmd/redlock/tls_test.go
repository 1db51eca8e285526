package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

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
