package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestConfigDefaults(t *testing.T) {
	c := Config{Addr: "h:1"}.withDefaults()
	require.NoError(t, c.validate())
	require.True(t, c.Network == "tcp" && c.DialTimeout == time.Second && c.StallTimeout == 2*time.Second &&
		c.PingInterval == time.Second && c.backoffMin == 50*time.Millisecond && c.backoffMax == 500*time.Millisecond &&
		c.maxCalls == 16384 && c.MaxBytes == 1<<20 && c.Dialer != nil && c.Logger != nil, "%+v", c)
}

func TestSentinelsAreReachedByTheDialerOfTheNode(t *testing.T) {
	f, own := newFake(nil), newFake(nil)
	group := &Sentinels{Master: "m", Addrs: []string{"h:1"}}
	require.EqualValues(t, f, (Config{Sentinels: group, Dialer: f}).withDefaults().Sentinels.at("h:1").Dialer)
	group.Config.Dialer = own
	require.EqualValues(t, own, (Config{Sentinels: group, Dialer: f}).withDefaults().Sentinels.at("h:1").Dialer)
}

func TestConfigTellsEveryMistakeAtOnce(t *testing.T) {
	_, err := New(Config{
		Network: "udp", Addr: "redis://:canary@h", DB: -1, Username: "u", ClientName: "two words", DialTimeout: -1,
		StallTimeout: -1, PingInterval: -1, CredentialsEvery: 1, MaxBytes: -1, Scripts: []string{" "},
	})
	require.Error(t, err, "no error")
	for _, field := range []string{"Network", "Addr", "DB", "Username", "ClientName", "DialTimeout", "StallTimeout",
		"PingInterval", "CredentialsEvery", "MaxBytes", "Scripts[0]"} {
		require.Contains(t, err.Error(), "Config."+field+" ", "%s is not told: %v", field, err)
	}
	for _, addr := range []string{"", "nothing", "u:canary@h:1", "rediss://:canary@h:1"} {
		if _, err := New(Config{Addr: addr}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	c := Config{Addr: "h:1", Password: "canary"}
	var text []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%20s", "%T"} {
		text = append(text, fmt.Sprintf(verb, c.Password), fmt.Sprintf(verb, &c.Password), fmt.Sprintf(verb, c), fmt.Sprintf(verb, []any{c.Password}))
	}
	js, err := json.Marshal(struct{ P Secret }{c.Password})
	require.True(t, err == nil && string(js) == `{"P":"******"}`, "%s, %v", js, err)
	var log logBuffer
	log.logger().Info("x", "password", c.Password, "group", slog.GroupValue(slog.Any("p", c.Password)))
	text = append(text, string(js), log.String())
	for _, s := range text {
		low := strings.ToLower(s)
		require.True(t, !strings.Contains(low, "canary") && !strings.Contains(low, "63616e617279"), "printed: %s", s)
	}
	require.True(t, fmt.Sprint(Secret("")) == "" && fmt.Sprint(Secret("x")) == "******" && fmt.Sprintf("%#v", Secret("x")) == `"******"`, "mask")
}

func TestParseURL(t *testing.T) {
	const pw = "p@s:s/w?o#r%d"
	for in, want := range map[string]Config{
		"redis://h":                             {Network: "tcp", Addr: "h:6379"},
		"redis://h/":                            {Network: "tcp", Addr: "h:6379"},
		"redis://h:1/2":                         {Network: "tcp", Addr: "h:1", DB: 2},
		"redis://h?db=2":                        {Network: "tcp", Addr: "h:6379", DB: 2},
		"redis://h/2?db=2":                      {Network: "tcp", Addr: "h:6379", DB: 2},
		"redis://[::1]":                         {Network: "tcp", Addr: "[::1]:6379"},
		"redis://[fe80::1%25eth0]:7/1":          {Network: "tcp", Addr: "[fe80::1%eth0]:7", DB: 1},
		"redis://:pw@h":                         {Network: "tcp", Addr: "h:6379", Password: "pw"},
		"redis://u:p%40s%3As%2Fw%3Fo%23r%25d@h": {Network: "tcp", Addr: "h:6379", Username: "u", Password: pw},
		"rediss://u:pw@h:1":                     {Network: "tcp", Addr: "h:1", Username: "u", Password: "pw", TLS: &tls.Config{}},
		"redis+unix:///run/r.sock":              {Network: "unix", Addr: "/run/r.sock"},
		"redis+unix://u:pw@/run/r.sock?db=4":    {Network: "unix", Addr: "/run/r.sock", Username: "u", Password: "pw", DB: 4},
		"redis://h?dial_timeout=1s&stall_timeout=1m&client_name=me": {Network: "tcp", Addr: "h:6379",
			DialTimeout: time.Second, StallTimeout: time.Minute, ClientName: "me"},
	} {
		got, err := parseURL(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		require.True(t, (got.TLS != nil) == (want.TLS != nil) && (got.TLS == nil || got.TLS.MinVersion == tls.VersionTLS12),
			"%s: TLS %v", in, got.TLS)
		got.TLS, want.TLS = nil, nil
		require.True(t, fmt.Sprintf("%+v", got) == fmt.Sprintf("%+v", want) && got.Password == want.Password,
			"%s\n got %+v\nwant %+v", in, got, want)
		require.NoError(t, got.withDefaults().validate(), "%s", in)
	}
}

func TestParseURLSaysWhatIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		"redis://:s3cr%zzet@h":             "malformed",
		"redis://u:s3cret":                 "its port is no number", // and is the password
		"redis://127.0.0.1:abc":            "malformed: its port is no number",
		"redis://:s3cret@h:abc/1?db=1":     "its port is no number",
		"redis://:s3cret@a,b":              "a list of hosts needs redis-cluster:// or redis-sentinel://",
		"rediss://:s3cret@h:1,h:2/1":       "a list of hosts needs rediss-cluster:// or rediss-sentinel://",
		"redis://h:x,h:2":                  "a list of hosts",
		"redis://:s3,cret/@h":              "malformed", // or a list of hosts
		"redis://::1:23411":                "an IPv6 address needs brackets",
		"redis://:s3cret@::1":              "an IPv6 address needs brackets",
		"redis://[::1":                     "malformed (",
		"redis://h?failover_lag=3s":        `"failover_lag", which is of clusters and Sentinels only`,
		"redis+unix:///a?addr_map=a/b":     `"addr_map", which is of clusters and Sentinels only`,
		"http://:s3cret@h":                 "scheme",
		"h:6379":                           "scheme",
		"":                                 "is empty: is the variable set",
		"redis:h":                          "//",
		"redis://":                         "no host",
		"redis://:s3cret@":                 "no host",
		"redis://:s3cret@:6379":            "no host",
		"redis://:s3cret@h:0":              "port",
		"redis://:s3cret@h:65536":          "port",
		"redis://:s3cret@h/x":              "database",
		"redis://:s3cret@h/-1":             "database",
		"redis://u@h":                      "without a password",
		"redis://:s3cret@h#f":              "fragment",
		"redis://:s3/cret@h":               "malformed", // a port that is no number
		"redis://u:3/cret@h":               "@",
		"redis://u:3?cret@h":               "@",
		"redis://u:3#cret@h":               "@",
		"redis://:s3cret@h?x=1":            `unknown option "x"`,
		"redis://:s3cret@h?password=s3":    `unknown option "password"`,
		"redis://:s3cret@h?dial_timeout=1": `"dial_timeout"`,
		"redis://h?stall_timeout=-1s":      `"stall_timeout"`,
		"redis://h?dial_timeout=":          `"dial_timeout"`,
		"redis://h?client_name=a%20b":      `"client_name"`,
		"redis://h?db=x":                   `"db"`,
		"redis://h?db=1&db=2":              "more than once",
		"redis://h/1?db=2":                 "two databases",
		"redis://h?a=%zz":                  "malformed options",
		"redis+unix://h/run/r.sock":        "host",
		"redis+unix://":                    "no path",
		"redis+unix:run":                   "no path",
		"redis+unix:///a://b":              "URL",
	} {
		c, err := parseURL(in)
		saysWhatIsWrong(t, in, err, want, "s3", "cret")
		require.True(t, c.Addr == "" && c.Password == "", "%s: %+v beside an error", in, c)
	}
}

// saysWhatIsWrong makes sure of an error of a URL, which quotes no secret.
func saysWhatIsWrong(t *testing.T, url string, err error, want string, secrets ...string) {
	t.Helper()
	require.ErrorAs(t, err, new(*urlError), url)
	require.ErrorContains(t, err, want, url)
	for _, secret := range secrets {
		require.NotContains(t, err.Error(), secret, url)
	}
}

func TestParseTarget(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pw")
	require.NoError(t, os.WriteFile(file, []byte("from file\n"), 0o600))
	t.Setenv("REDQUORUM_TEST_PASSWORD", "from env")
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for in, want := range map[string]Target{
		"redis-cluster://a,b:7000,[::1]:7001": {Kind: RedisCluster, Seeds: []string{"a:6379", "b:7000", "[::1]:7001"},
			Config: Config{Network: "tcp", FailoverLag: 15 * time.Second}},
		"rediss-cluster://u:p%40,%2F@a?dial_timeout=1s&failover_lag=3s&addr_map=10.0.0.1:7000/h:1,c/d": {Kind: RedisCluster, Seeds: []string{"a:6379"},
			Dial:   map[string]string{"10.0.0.1:7000": "h:1", "c:6379": "d:6379"},
			Config: Config{Network: "tcp", Username: "u", Password: "p@,/", TLS: secure, DialTimeout: time.Second, FailoverLag: 3 * time.Second}},
		"redis-sentinel://:pw@a,b:1/my%2Dmaster?db=3&min_replicas_ack=1&failover_lag=0s&addr_map=x/y&sentinel_user=s&sentinel_password=q%26q": {Kind: BySentinel,
			Config: Config{Network: "tcp", Password: "pw", DB: 3, MinReplicasAck: 1, FailoverLag: -1, Sentinels: &Sentinels{
				Addrs: []string{"a:26379", "b:1"}, Master: "my-master", Dial: map[string]string{"x:6379": "y:6379"},
				Config: Config{Username: "s", Password: "q&q"}}}},
		"rediss-sentinel://u@a/m?password_env=REDQUORUM_TEST_PASSWORD&sentinel_password_file=" + file: {Kind: BySentinel,
			Config: Config{Network: "tcp", Username: "u", Password: "from env", TLS: secure, FailoverLag: 10 * time.Second, Sentinels: &Sentinels{
				Addrs: []string{"a:26379"}, Master: "m", Config: Config{Password: "from file", PasswordFile: file, TLS: secure}}}},
		"redis://u@h?password_file=" + file: {Config: Config{Network: "tcp", Addr: "h:6379", Username: "u", Password: "from file", PasswordFile: file}},
		"rediss://h?tls_server_name=x":      {Config: Config{Network: "tcp", Addr: "h:6379", TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "x"}}},
	} {
		got, err := ParseTarget(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if want.Config.kind = want.Kind; want.Kind == BySentinel {
			want.Config.Sentinels.Config.kind = BySentinel
		}
		if g, w := describe(got), describe(want); g != w {
			t.Errorf("%s\n got %s\nwant %s", in, g, w)
		}
	}
}

func TestDefaultTLSIsForURLsThatSayNothingOfIt(t *testing.T) {
	ours := &tls.Config{ServerName: "ours"}
	for url, want := range map[string]string{
		"redis://h": "", "redis-sentinel://h/m": "", "rediss://h": "ours", "rediss-cluster://h": "ours", "rediss-sentinel://h/m": "ours, and Sentinels ours",
		"rediss://h?tls_server_name=x": "x", "rediss-sentinel://h/m?tls_server_name=x": "x, and Sentinels x",
	} {
		target := rt.Must(ParseTarget(url))(t)
		c := target.Config
		c.DefaultTLS(nil)
		require.NotEqual(t, ours, c.TLS, "%s: nil is no default", url)
		c.DefaultTLS(ours)
		got := ""
		if c.TLS != nil {
			got = c.TLS.ServerName
		}
		if c.Sentinels != nil && c.Sentinels.Config.TLS != nil {
			got += ", and Sentinels " + c.Sentinels.Config.TLS.ServerName
		}
		require.Equal(t, want, got, "%s: %s, want %s", url, got, want)
	}
}

// describe shows everything of a target, passwords included.
func describe(t Target) string {
	config := func(c Config) string {
		secure := "no TLS"
		if c.TLS != nil {
			secure = fmt.Sprintf("TLS %x %q", c.TLS.MinVersion, c.TLS.ServerName)
		}
		pw := string(c.Password)
		c.TLS, c.Sentinels = nil, nil
		return fmt.Sprintf("%+v %q %s", c, pw, secure)
	}
	out := fmt.Sprint(t.Kind, t.Seeds, t.Dial, config(t.Config))
	if s := t.Config.Sentinels; s != nil {
		out += fmt.Sprint(s.Addrs, s.Master, s.Dial, config(s.Config))
	}
	return out
}

func TestParseTargetSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for in, want := range map[string]string{
		"redis-cluster://":                                                      "empty host",
		"redis-cluster://:s3cret@a,,b":                                          "empty host",
		"redis-cluster://:s3cret@a,a:6379":                                      "twice",
		"redis-cluster://:s3cret@a:0":                                           "port",
		"redis-cluster://:s3cret@a/1":                                           "path",
		"redis-cluster://:s3cret@a?db=1":                                        "database",
		"redis-cluster://:s3cret@a?sentinel_user=x":                             `unknown option "sentinel_user"`,
		"redis-cluster://127.0.0.1:7000,u:s3cret@127.0.0.1:7001":                "behind its first host",
		"redis-sentinel://a,u:s3cret@b/m":                                       "behind its first host",
		"redis-cluster://:s3/cret@a":                                            "@",
		"redis-cluster://:s3?cret@a":                                            "@",
		"redis-cluster://:s3@cret@a":                                            "@",
		"redis-cluster://u@a":                                                   "without a password",
		"redis-cluster://:s3cret@a?addr_map=x":                                  `"addr_map"`,
		"redis-cluster://:s3cret@a?addr_map=x/y,x:6379/z":                       `"addr_map", which maps an address twice`,
		"redis-cluster://:s3cret@a?addr_map=x/y,z":                              `wrong value for the option "addr_map"`,
		"redis-cluster://:s3cret@a,::1:7000":                                    "an IPv6 address needs brackets",
		"redis-cluster://:s3cret@a,b:s3cret":                                    "a port that is no number",
		"redis-cluster://:s3cret@a?addr_map=x/y&addr_map=y/z":                   "more than once",
		"redis-cluster://:s3cret@a?failover_lag=-1s":                            `"failover_lag"`,
		"redis-cluster://:s3cret@a?min_replicas_ack=-1":                         `"min_replicas_ack"`,
		"redis-cluster://:s3cret@a?min_replicas_ack=256":                        `"min_replicas_ack"`,
		"redis-cluster://:s3cret@a?tls_ca=x":                                    "not rediss",
		"rediss-cluster://:s3cret@a?tls_s3=x":                                   `unknown option`,
		"rediss://:s3cret@a?tls_ca=" + dir + "/s3cret":                          "cannot be read: no such file",
		"rediss://:s3cret@a?tls_ca=" + empty:                                    "no certificate",
		"rediss://a?tls_cert=" + empty:                                          "without the other",
		"rediss://a?tls_key=" + empty:                                           "without the other",
		"rediss://a?tls_cert=" + empty + "&tls_key=" + empty:                    "no certificate with its key",
		"redis://:s3cret@a?password_env=X":                                      "twice",
		"redis://a?password_env=REDQUORUM_s3_NOT_SET":                           "not set",
		"redis://a?password_file=" + empty:                                      "empty",
		"redis://a?password_file=" + dir + "/s3cret":                            "no such file",
		"redis-sentinel://:s3cret@a":                                            "name of the master",
		"redis-sentinel://:s3cret@a/":                                           "name of the master",
		"redis-sentinel://:s3cret@a/x/y":                                        "has a / in the name of the master",
		"redis-sentinel://:s3cret@a/x/":                                         "has a / in the name of the master",
		"redis-sentinel://:s3cret@a/x%20y":                                      "a special character in the name of the master",
		"redis-sentinel://a/m?sentinel_user=s3cret":                             "without a password",
		"redis-sentinel://a/m?sentinel_password=s3cret&sentinel_password_env=X": "twice",
		"redis-sentinel://a/m?sentinel_x=s3cret":                                "unknown option",
		"redis-sentinel://a/m?sentinel_password=x&s3cret":                       "write an & in a password as %26",
		"redis-sentinel://a/m?sentinel_password=x&s3cret=y":                     "unknown option",
		"redis-sentinel://a/m?s3cret=y&sentinel_password=x":                     "unknown option",
		"redis-sentinel://a/m?sentinel_user=%zz":                                "malformed",
	} {
		got, err := ParseTarget(in)
		saysWhatIsWrong(t, in, err, want, "s3cret", "cret@")
		require.True(t, got.Config.Password == "" && got.Config.Sentinels == nil && got.Seeds == nil, "%s: %+v beside an error", in, got)
	}
}

// Whatever is accepted has valid members, and no error quotes the password.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{
		"redis-cluster://u:c4n4ry@a,b:1?addr_map=a/b,c/d&failover_lag=1s", "redis-sentinel://:c4n4ry@a,b/m?sentinel_user=u&sentinel_password=c4n4ry",
		"rediss-cluster://[::1]:1,x?min_replicas_ack=1", "rediss-sentinel://a/%41?db=1", "redis-cluster://:c4n4ry%@,", "redis-sentinel://c4n4ry:@/", "redis-cluster://?addr_map=c4n4ry",
	} {
		f.Add(s)
	}
	for _, s := range []string{"", "%zz", "?x=", "#", "/", "@", "[", " ", "\x00", "a/b?c#d@e", "://", "é"} {
		f.Add("redis://user:c4n4ry" + s + "@host:1/0")
		f.Add("rediss://:" + s + "c4n4ry@[::1]")
		f.Add("redis+unix://u:c4n4ry" + s + "@/run/x")
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "_file") || strings.Contains(s, "tls_") || strings.Contains(s, "%") && strings.ContainsAny(s, "?") {
			t.Skip("names files, or may")
		}
		got, err := ParseTarget(s)
		if err != nil {
			var u *urlError
			require.ErrorAs(t, err, &u, "%q: %T", s, err)
			_, rest, _ := strings.Cut(s, "://")
			user, _, at := strings.Cut(rest, "@")
			secret := strings.TrimPrefix(user, ":")
			require.True(t, ((!at || len(secret) <= 6) || strings.ContainsAny(user, "?&=/#")) || !strings.Contains(err.Error(), secret),
				"%q: %v", s, err)
			return
		}
		c := got.Config
		c.Guard = NewGuard(GuardConfig{Members: 1, MaxTTL: time.Second})
		switch got.Kind {
		case RedisCluster:
			require.True(t, len(got.Seeds) != 0 && c.DB == 0 && c.Addr == "", "%q: %+v", s, got)
			for _, c.Addr = range got.Seeds {
				require.NoError(t, c.withDefaults().validate(), "%q: accepted, but", s)
			}
		case BySentinel:
			require.NoError(t, c.withDefaults().validate(), "%q: accepted, but", s)
		default:
			err := c.withDefaults().validate()
			require.True(t, err == nil || strings.Contains(err.Error(), "Addr"), "%q: accepted, but %v", s, err)
		}
	})
}

func TestFailoverLagDependsOnTheKindOfMember(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"redis://a": 0, "redis-cluster://a": 15 * time.Second, "redis-sentinel://a/m": 10 * time.Second,
		"redis-cluster://a?failover_lag=3s": 3 * time.Second, "redis-cluster://a?failover_lag=0s": 0,
		"redis-sentinel://a/m?failover_lag=0s": 0,
	} {
		target, err := ParseTarget(url)
		lag := target.Config.withDefaults().FailoverLag
		require.True(t, err == nil && lag == want, "%s: %v, %v, want %v", url, lag, err, want)
	}
}

func TestSentinelThatDoesNotAnswerIsNamedOnce(t *testing.T) {
	t.Parallel()
	unknown := rt.Listening(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 100)); err == nil {
			_, _ = c.Write([]byte("-ERR No such master with that name\r\n"))
			_, _ = c.Read(make([]byte, 1)) // until the other side has read it
		}
	})
	s := &Sentinels{Master: "m", Addrs: []string{"127.0.0.1:1", unknown}, Config: Config{DialTimeout: 20 * time.Second}}
	_, err := s.find(t.Context())
	require.True(t, err != nil && strings.Contains(err.Error(), "sentinel 127.0.0.1:1: dial ") &&
		strings.Contains(err.Error(), "sentinel "+unknown+": it watches no master"),
		err)
}
