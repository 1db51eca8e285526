package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

type provider = func(ctx context.Context) (string, string, error)

// vault gives a client its password, and is behind the server that takes one. Nil is no provider that fails.
type vault struct {
	takes                atomic.Value // the password of the server
	gives                atomic.Value // that of the client
	fails                atomic.Pointer[provider]
	asked, authenticated atomic.Int64
}

func newVault(password string) *vault {
	v := &vault{}
	v.set(password)
	return v
}

func (v *vault) set(password string) { v.takes.Store(password); v.gives.Store(password) }

func (v *vault) credentials(ctx context.Context) (string, string, error) {
	v.asked.Add(1)
	if fails := v.fails.Load(); fails != nil {
		return (*fails)(ctx)
	}
	return "u", v.gives.Load().(string), nil
}

func (v *vault) handle(_ int64, args []string) string {
	switch {
	case args[0] == "AUTH" && args[len(args)-1] != v.takes.Load():
		return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	case args[0] == "AUTH":
		v.authenticated.Add(1)
	}
	return "default"
}

func TestPasswordFileIsReadAtEveryDial(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("one\n")
	v := newVault("one")
	c := rt.Must(parseURL("redis://h:1?password_file=" + file))(t)
	c.jitter = longest
	faked(t, v.handle, c, func(t *testing.T, f *fake, n *Node) {
		require.True(t, n.State().Up, "%+v", n.State())
		v.set("two")
		write("two\n")
		f.cut()
		time.Sleep(time.Second)
		require.True(t, n.State().Up, "%+v", n.State())
		require.NoError(t, os.Remove(file))
		f.cut()
		time.Sleep(time.Second)
		var missing *CredentialsError
		require.ErrorAs(t, n.State().Err, &missing)
		require.Equal(t, n.Name(), missing.Member)
		require.ErrorIs(t, n.State().Err, fs.ErrNotExist)
		require.NotContains(t, n.State().Err.Error(), file)
		write("two\n")
		time.Sleep(time.Minute)
		require.True(t, n.State().Up, "%+v", n.State())
	})
}

var errSealed = errors.New("the vault is sealed")

// failing are providers that fail or hang, or whose password is not the server's yet.
var failing = map[string]provider{
	"fails":           func(context.Context) (string, string, error) { return "", "", errSealed },
	"is late":         func(ctx context.Context) (string, string, error) { <-ctx.Done(); return "u", "pw", nil },
	"has no password": func(context.Context) (string, string, error) { return "u", "", nil },
	"has nothing":     func(context.Context) (string, string, error) { return "", "", nil },
	"is refused":      func(context.Context) (string, string, error) { return "u", "old", nil },
}

// They are asked again soon, and then ever less often.
func TestCredentialsThatFailAreNoStorm(t *testing.T) {
	for name, fails := range failing {
		v := newVault("pw")
		v.fails.Store(&fails)
		c := Config{jitter: longest, DialTimeout: 100 * time.Millisecond, Credentials: v.credentials}
		t.Run(name, playing(v.handle, c, func(t *testing.T, _ *fake, n *Node) {
			time.Sleep(2 * time.Second)
			require.GreaterOrEqual(t, v.asked.Load(), int64(3), "in 2 s")
			time.Sleep(118 * time.Second)
			require.LessOrEqual(t, v.asked.Load(), int64(14), "in two minutes")
			var missing *CredentialsError
			err := n.State().Err
			require.Equal(t, name != "is refused", errors.As(err, &missing), "%v", err)
			require.Equal(t, name == "fails", errors.Is(err, errSealed), "%v", err)
			require.NotContains(t, err.Error(), "old")
			v.fails.Store(nil)
			time.Sleep(authBackoff + time.Second)
			require.True(t, n.State().Up, "%+v", n.State())
		}))
	}
}

// A connection is authenticated anew before its credentials end, among its commands, and is never replaced for that.
func TestConnectionIsAuthenticatedAnew(t *testing.T) {
	v := newVault("pw-0")
	c := Config{jitter: longest, CredentialsEvery: 10 * time.Second, Credentials: v.credentials}
	faked(t, v.handle, c, func(t *testing.T, f *fake, n *Node) {
		up := n.State()
		for i := 1; i <= 5; i++ {
			v.set(fmt.Sprint("pw-", i)) // the server keeps the connection, as Redis does
			time.Sleep(8900 * time.Millisecond)
			require.EqualValues(t, i, v.asked.Load())
			time.Sleep(100 * time.Millisecond) // a tenth sooner, by the jitter
			synctest.Wait()
			require.EqualValues(t, i+1, v.asked.Load())
		}
		require.True(t, n.State().Epoch == up.Epoch && n.State().Gen == up.Gen && n.State().Up, "%+v, which was %+v", n.State(), up)
		require.Len(t, f.dialled(), 1)
	})
}

// AUTH that is refused, or credentials that do not come, leave the connection as it is. They are tried again, and no storm.
func TestConnectionStaysIfItCannotBeAuthenticatedAnew(t *testing.T) {
	for name, fails := range failing {
		v := newVault("pw")
		var log logBuffer
		c := Config{jitter: longest, Logger: log.logger(), DialTimeout: 100 * time.Millisecond, CredentialsEvery: time.Minute,
			Credentials: v.credentials}
		t.Run(name, playing(v.handle, c, func(t *testing.T, _ *fake, n *Node) {
			v.fails.Store(&fails)
			time.Sleep(54*time.Second + 2*time.Second)
			require.GreaterOrEqual(t, v.asked.Load(), int64(3))
			for range 118 {
				time.Sleep(time.Second)
				do(t, n, "ECHO", "x")
			}
			require.LessOrEqual(t, v.asked.Load(), int64(15), "in two minutes")
			require.Contains(t, log.String(), "not authenticated anew")
			require.Contains(t, log.String(), "no credentials for "+n.Name())
			require.NotContains(t, log.String(), "old")
			v.fails.Store(nil)
			before := v.authenticated.Load()
			time.Sleep(authBackoff + time.Second)
			require.True(t, n.State().Up && n.State().Epoch == 1, "%+v", n.State())
			require.Equal(t, before+1, v.authenticated.Load())
		}))
	}
}

func TestProviderThatHangsHoldsUpNothing(t *testing.T) {
	v := newVault("pw")
	var log logBuffer
	c := Config{jitter: longest, Logger: log.logger(), CredentialsEvery: time.Second, Credentials: v.credentials}
	faked(t, nil, c, func(t *testing.T, _ *fake, n *Node) {
		end := make(chan struct{})
		defer close(end)
		hangs := func(context.Context) (string, string, error) { <-end; return "u", "pw", nil }
		v.fails.Store(&hangs)
		time.Sleep(5 * time.Second)
		do(t, n, "ECHO", "x")
		require.Contains(t, log.String(), "not authenticated anew")
		require.Contains(t, log.String(), "Config.Credentials: it did not return")
		began := time.Now()
		require.NoError(t, n.Close(t.Context()))
		require.Zero(t, time.Since(began))
	})
}

// Redis 7.2 and 7.4 do not answer an AUTH that they refuse while other answers wait. No call gets the answer to another one.
func TestAuthThatIsNotAnsweredEndsTheConnection(t *testing.T) {
	for _, noPing := range []bool{false, true} {
		var begun atomic.Bool
		handle := func(_ int64, args []string) string {
			switch {
			case begun.Load() && args[0] == "AUTH":
				return ""
			case begun.Load() && noPing && args[0] == "PING":
				return "-NOPERM this user has no permissions to run the 'ping' command\r\n"
			}
			return "default"
		}
		c := Config{jitter: longest, PingInterval: time.Hour, CredentialsEvery: 10 * time.Second, Credentials: newVault("pw").credentials}
		faked(t, handle, c, func(t *testing.T, _ *fake, n *Node) {
			was := n.State()
			begun.Store(true)
			time.Sleep(9*time.Second - time.Nanosecond)
			synctest.Wait()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			calls, want := []*result{submit(n, "PING")}, []string{"PONG"}
			for i := range 20 {
				calls, want = append(calls, submit(n, "ECHO", fmt.Sprint(i))), append(want, fmt.Sprint(i))
			}
			synctest.Wait()
			begun.Store(false)
			time.Sleep(time.Second)
			for i, c := range calls {
				c.wait(t)
				require.True(t, c.Outcome != member.Answered || string(c.Reply.Str) == want[i], "call %d was answered %q", i, c.Reply.Str)
			}
			require.True(t, n.State().Up && n.State().Epoch != was.Epoch, "%+v", n.State())
		})
	}
}

// testCertificate writes a certificate for 127.0.0.1 and returns a pool that trusts it.
func testCertificate(t testing.TB) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	ca := rt.Must(redistest.NewAuthority(t.TempDir(), "test"))(t)
	c := rt.Must(ca.Issue("test", "", time.Now().Add(time.Hour)))(t)
	trusted := rt.Must(os.ReadFile(ca.File))(t)
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(trusted))
	return c.Cert, c.Key, pool
}

// pair is a certificate, and the pool that trusts it.
func pair(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	certFile, keyFile, pool := testCertificate(t)
	return rt.Must(tls.LoadX509KeyPair(certFile, keyFile))(t), pool
}

// startTLS starts a server with a plain and a TLS port, and the user "u" with password "pw".
func startTLS(t testing.TB) (s *redisServer, tlsAddr string, pool *x509.CertPool) {
	rt.Needs(t, redistest.TLS)
	certFile, keyFile, pool := testCertificate(t)
	port, held, err := redistest.TakePorts(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	s = startRedis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-auth-clients", "no")
	s.cli("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), pool
}

func TestTLSWithACLUser(t *testing.T) {
	_, addr, pool := startTLS(t)
	n := up(t, Config{Addr: addr, Username: "u", Password: "pw", TLS: &tls.Config{RootCAs: pool}, Scripts: []string{delScript}})
	var l pushLog
	n.Listen("ch", &l)
	require.Equal(t, "u", do(t, n, "ACL", "WHOAMI"), "user")
	rt.Until(t, "subscribed", func() bool { return n.State().Inbox })
	do(t, n, "PUBLISH", "ch", "x")
	rt.Until(t, "delivered", func() bool { return len(l.messages()) == 1 })
	for i := range 2000 {
		want := strconv.Itoa(i)
		require.Equal(t, want, do(t, n, "ECHO", want), "for %s", want)
	}
}

func TestNoErrorOrLogHoldsTheSecret(t *testing.T) {
	const canary, token = "c4n4ry", "t0k3n"
	s, tlsAddr, pool := startTLS(t)
	repeat := rt.Listening(t, func(c net.Conn) { _, _ = io.CopyN(c, c, 200) })
	unknown := func(format string) string {
		return rt.Listening(t, func(c net.Conn) {
			br := bufio.NewReader(c)
			var r member.Reply
			for readReply(br, &r, 0) == nil {
				fmt.Fprintf(c, format, r.Elems[0].Str, r.Elems[len(r.Elems)-1].Str) // of AUTH, or of a PING that looks who is there
			}
		})
	}
	var refused *member.ReplyError
	var dial *net.OpError
	for name, tc := range map[string]struct {
		config Config
		is     error
		as     any
	}{
		"wrong password":       {Config{Addr: s.Addr(), Username: "u", Password: canary}, nil, &refused},
		"unexpected password":  {Config{Addr: s.Addr(), Password: canary}, nil, &refused},
		"no such user":         {Config{Addr: s.Addr(), Username: "who", Password: canary}, nil, &refused},
		"no such database":     {Config{Addr: s.Addr(), Username: "u", Password: "pw", DB: 99}, nil, &refused},
		"TLS to a plain port":  {Config{Addr: s.Addr(), Password: canary, TLS: &tls.Config{RootCAs: pool}}, nil, nil},
		"plain to a TLS port":  {Config{Addr: tlsAddr, Password: canary}, nil, nil},
		"unknown authority":    {Config{Addr: tlsAddr, Password: canary, TLS: &tls.Config{}}, nil, new(*tls.CertificateVerificationError)},
		"connection refused":   {Config{Addr: "127.0.0.1:1", Password: canary}, syscall.ECONNREFUSED, &dial},
		"TLS to a plain peer":  {Config{Addr: unknown("HTTP/1.1 400 %s %s\r\n\r\n"), Password: canary, TLS: &tls.Config{}}, nil, nil},
		"repeats what is sent": {Config{Addr: repeat, Password: canary, Username: "u"}, nil, nil},
		"AUTH unknown":         {Config{Addr: unknown("-ERR unknown command '%s', with args beginning with: '%s'\r\n"), Password: canary}, nil, &refused},
		"AUTH as garbage":      {Config{Addr: unknown("?%s %s\r\n"), Password: canary}, nil, nil},
		"AUTH as an error":     {Config{Addr: unknown("-%s %s\r\n"), Password: canary}, nil, &refused},
		"AUTH as a bulk error": {Config{Addr: unknown("!11\r\n%s %s\r\n"), Password: canary}, nil, &refused},
	} {
		t.Run(name, func(t *testing.T) {
			var log logBuffer
			tc.config.Logger = log.logger()
			tc.config.DialTimeout = 10 * time.Second
			if name == "TLS to a plain port" { // Redis waits for a line's end
				tc.config.DialTimeout = 300 * time.Millisecond
			}
			n := start(t, tc.config)
			n.Listen("ch", &pushLog{})
			rt.Until(t, "tried", func() bool { return !errors.Is(n.State().Err, errConnecting) })
			c := submit(n, "SET", "k", token)
			t.Log(c.Err)
			for _, err := range []error{n.State().Err, c.Err} {
				require.Error(t, err, "no error")
				require.True(t, strings.HasPrefix(err.Error(), tc.config.Addr+": "), "does not begin with the name: %v", err)
				require.True(t, (tc.is == nil || errors.Is(err, tc.is)) && (tc.as == nil || errors.As(err, tc.as)), "cause is not wrapped: %v", err)
				for e := err; e != nil; e = unwrapLast(e) {
					for _, text := range []string{e.Error(), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e)} {
						require.True(t, !strings.Contains(text, canary) && !strings.Contains(text, token), "holds a secret: %s", text)
					}
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = n.Close(ctx)
			text := log.String()
			require.True(t, !strings.Contains(text, canary) && !strings.Contains(text, token), "log holds a secret:\n%s", text)
		})
	}
}

func unwrapLast(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return all[len(all)-1]
	case interface{ Unwrap() error }:
		return e.Unwrap()
	}
	return nil
}
