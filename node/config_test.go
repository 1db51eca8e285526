package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		"redis://fe80::1":                  "an IPv6 address needs brackets",
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
