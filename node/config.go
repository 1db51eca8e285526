package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
)

// Config says how to reach one Redis server and how patient to be with it. Only Addr is required;
// every other zero value means the default. New copies the Config; TLS is cloned.
type Config struct {
	// Network is "tcp" (default) or "unix".
	Network string
	// Addr is host:port, or the path of a socket. Never a URL: see ParseTarget.
	Addr string

	// Username and Password authenticate every connection (AUTH). Without a Username the password
	// is that of the default user; with neither, AUTH is not sent.
	Username string
	Password Secret
	// PasswordFile, if not empty, is read at every dial, and takes the place of Password.
	PasswordFile string
	// Credentials, if not nil, is asked at every dial, and takes the place of Username, Password and
	// PasswordFile. It must return soon after ctx ends, which is after DialTimeout at the latest: if it
	// does not, the node waits no longer, and its goroutine stays until it returns. It must return a
	// password. A failure is a CredentialsError. Several calls may run at once.
	Credentials func(ctx context.Context) (user, password string, err error)
	// CredentialsEvery is how long a connection keeps what Credentials or PasswordFile said, less up
	// to a tenth at random. Then the node asks again and authenticates the connection anew, in line
	// with its commands. If that fails, the connection stays as it is, and the node tries again after
	// the pauses of a dial. 0: only at every dial. Not negative, and 0 without Credentials and
	// PasswordFile.
	CredentialsEvery time.Duration
	// DB is selected on every connection unless it is 0. Not negative.
	DB int
	// TLS, if not nil, encrypts every connection. ServerName defaults to the host of Addr,
	// MinVersion to TLS 1.2.
	TLS *tls.Config
	// ClientName is shown by CLIENT LIST. No spaces or control characters. Default: none.
	ClientName string
	// Dialer opens connections, also those to Sentinels whose Config has none. It must return soon
	// after its context ends: if it does not, the node waits no longer, and its goroutine stays until
	// it returns. That, and neither a connection nor an error, are a DialerError. Several calls may
	// run at once. A *net.Dialer is one. Default: one with TCP keepalive. With TLS set, it opens the connection
	// below the encryption.
	Dialer interface {
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	}

	// DialTimeout bounds dialling, and all of an attempt to connect: TLS, authentication and the
	// handshake, too. Behind an attempt that the server accepted and did not answer in time, the next
	// may take twice as long, up to four times DialTimeout. Default 1 s.
	DialTimeout time.Duration
	// StallTimeout bounds the wait for an answer. If the oldest call in flight has been first in
	// line for this long and nothing came, the node ends the connection, and all calls in flight
	// are Unknown. If the client was late itself, or has not read what came, it waits for up to as
	// long again. Default 2 s.
	StallTimeout time.Duration
	// PingInterval is the longest silence on an idle connection before a PING. With a Guard it is how old the last look
	// at the member's memory may be when a vote counts, and an idle client looks after ten of them. Default 1 s.
	PingInterval time.Duration

	// MaxBytes bounds what is in flight, queued or unanswered. A call beyond it, or behind 16384 others, is NotSent with
	// ErrOverflow at once. Default 1 MiB.
	MaxBytes int

	// Scripts are Lua sources. If the server answers an EVALSHA of one of them with NOSCRIPT, the
	// node repairs the call, which loads that script.
	Scripts []string
	// Preload is how many of Scripts, from the first, the node loads on every new command
	// connection, so that their first call needs no repair. 0 means all of them.
	Preload int
	// Guard is the restart guard that this node shares with the other members of a client. If it is
	// nil, the node believes that a server which comes back remembers everything.
	Guard *Guard
	// Shard makes this one master of a Redis Cluster: for package cluster. It needs a Guard.
	Shard *Shard
	// Sentinels, if not nil, name the server, in the place of Addr.
	Sentinels *Sentinels
	// FailoverLag is how long a master that was replaced may go on granting: a master of a cluster,
	// or one that Sentinels watch. Its successor does not vote for that much longer. Default: 15 s
	// in a cluster (cluster-node-timeout), 10 s with Sentinels (min-replicas-max-lag). A negative
	// value means none. All clients of a deployment use the same.
	FailoverLag time.Duration
	// MinReplicasAck is how many replicas must acknowledge a vote within 100 ms (WAIT) before it
	// counts. It makes a failover less likely to lose a lock, and never impossible. Each call waits
	// for the replicas, and so do the calls behind it on the connection. At 0, the default, the
	// node never sends WAIT. The greatest value is 255.
	MinReplicasAck int
	// Logger gets changes of the connection and what the server does not permit. Default: none.
	Logger *slog.Logger

	// backoffMin and backoffMax bound the pause between attempts to connect: the k-th pause is drawn from 0 to
	// min(backoffMax, backoffMin*2^k). Refused credentials wait authBackoff instead. The count k begins again behind a
	// connection that served for ten times backoffMin; one that stalled served until its last answer.
	backoffMin, backoffMax time.Duration
	maxCalls               int

	kind   TargetKind                              // of the member, by its URL
	jitter func(limit time.Duration) time.Duration // fullJitter, fixed in tests
	unread func(c net.Conn) bool                   // unread, likewise
}

// DefaultTLS is for a Config that was made of a URL. If its scheme asks for TLS and no option says
// how, t says it, also for Sentinels. A nil t changes nothing.
func (c *Config) DefaultTLS(t *tls.Config) {
	bare := func(x *tls.Config) bool {
		return t != nil && x != nil && x.RootCAs == nil && len(x.Certificates) == 0 && x.ServerName == ""
	}
	if bare(c.TLS) {
		c.TLS = t
	}
	if c.Sentinels != nil && bare(c.Sentinels.Config.TLS) {
		s := *c.Sentinels
		s.Config.TLS, c.Sentinels = t, &s
	}
}

func (c Config) withDefaults() Config {
	orDuration := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	if c.Network == "" {
		c.Network = "tcp"
	}
	if c.Dialer == nil {
		c.Dialer = &net.Dialer{KeepAlive: 10 * time.Second}
	}
	orDuration(&c.DialTimeout, time.Second)
	orDuration(&c.StallTimeout, 2*time.Second)
	orDuration(&c.PingInterval, time.Second)
	orDuration(&c.backoffMin, 50*time.Millisecond)
	orDuration(&c.backoffMax, max(500*time.Millisecond, c.backoffMin))
	switch {
	case c.Sentinels != nil:
		s := *c.Sentinels
		orDuration(&s.Config.DialTimeout, c.DialTimeout)
		if s.Config.Dialer == nil {
			s.Config.Dialer = c.Dialer
		}
		if s.Config.ClientName == "" {
			s.Config.ClientName = c.ClientName
		}
		c.Sentinels = &s
		orDuration(&c.FailoverLag, defaultLag(BySentinel))
	case c.Shard != nil:
		orDuration(&c.FailoverLag, defaultLag(RedisCluster))
	}
	c.FailoverLag = max(0, c.FailoverLag)
	if c.maxCalls == 0 {
		c.maxCalls = 16384
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 20
	}
	if c.jitter == nil {
		c.jitter = fullJitter()
	}
	if c.unread == nil {
		c.unread = unread
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Scripts = append([]string(nil), c.Scripts...)
	return c
}

// rotates reports whether the next dial may have other credentials than the last one.
func (c *Config) rotates() bool { return c.Credentials != nil || c.PasswordFile != "" }

// grace is how long a function of the user has to return after its context ended. One that looks at
// its context returns by then, and its own error says more than ours.
func (c *Config) grace() time.Duration { return min(c.DialTimeout/10, 100*time.Millisecond) }

// defaultLag is the FailoverLag of a kind of member: the server's own default of cluster-node-timeout, or of
// min-replicas-max-lag.
func defaultLag(k TargetKind) time.Duration {
	return [...]time.Duration{0, 15 * time.Second, 10 * time.Second}[k]
}

// preloaded are the scripts that are loaded on every new command connection.
func (c Config) preloaded() []string {
	if c.Preload == 0 {
		return c.Scripts
	}
	return c.Scripts[:min(c.Preload, len(c.Scripts))]
}

// validate expects the defaults to be in place. It never prints Addr when that looks like a URL,
// because a URL may hold a password.
func (c Config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("node: Config."+format, args...))
	}
	if c.Preload < 0 {
		wrong("Preload is negative")
	}
	switch {
	case c.Sentinels != nil:
		if c.Addr != "" || c.Network != "tcp" || c.Shard != nil {
			wrong("Sentinels is set together with Addr, Network or Shard")
		}
		errs = append(errs, c.Sentinels.validate())
	case c.Addr == "":
		wrong("Addr is missing")
	case strings.Contains(c.Addr, "://") || strings.Contains(c.Addr, "@") && c.Network == "tcp":
		wrong("Addr is a URL: use ParseTarget")
	case c.Network == "tcp":
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			wrong("Addr is not host:port")
		}
	}
	if c.Network != "tcp" && c.Network != "unix" {
		wrong("Network is neither tcp nor unix")
	}
	if c.DB < 0 {
		wrong("DB is negative: %d", c.DB)
	}
	if c.Username != "" && c.Password == "" {
		wrong("Username is set without Password")
	}
	if strings.ContainsFunc(c.ClientName, func(r rune) bool { return r < '!' || r > '~' }) {
		wrong("ClientName has a character that Redis refuses")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"DialTimeout", c.DialTimeout}, {"StallTimeout", c.StallTimeout},
		{"PingInterval", c.PingInterval}, {"CredentialsEvery", c.CredentialsEvery},
	} {
		if d.value < 0 {
			wrong("%s is negative: %v", d.name, d.value)
		} else if err := duration.Check(d.value); err != nil {
			wrong("%s %w", d.name, err)
		}
	}
	if c.CredentialsEvery > 0 && !c.rotates() {
		wrong("CredentialsEvery is set without Credentials or PasswordFile")
	}
	if c.MinReplicasAck < 0 || c.MinReplicasAck > 255 {
		wrong("MinReplicasAck is %d, not 0 to 255", c.MinReplicasAck)
	}
	if c.MaxBytes < 0 {
		wrong("MaxBytes is negative: %d", c.MaxBytes)
	}
	if c.Shard != nil && (c.Guard == nil || c.Shard.Group == nil) {
		wrong("Shard is set without Guard or Group")
	}
	if c.Sentinels != nil && c.Guard == nil {
		wrong("Sentinels is set without Guard, which sees a replica that took over")
	}
	for i, source := range c.Scripts {
		if strings.TrimSpace(source) == "" {
			wrong("Scripts[%d] is empty", i)
		}
	}
	return errors.Join(errs...)
}

// Secret is a string that no way of printing shows. fmt with any verb, JSON and other text
// encoders, and slog print asterisks, or nothing if the Secret is empty. Convert it to string to
// use it.
type Secret string

const masked = "******"

func (s Secret) shown() string {
	if s == "" {
		return ""
	}
	return masked
}

// Format masks every verb.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.shown()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = `"` + text + `"`
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText masks JSON, slog attributes and other encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.shown()), nil }

// Sentinels makes a Node the master of a replicated group, whichever server that is. The node asks
// a majority of the Sentinels before it opens a connection, and verifies the server's role on it.
//
// A replica that takes over may lack what the former master granted. So it has forgotten, like a
// server that restarted without its data: its marker is that of another process, or of another
// replication id.
type Sentinels struct {
	// Addrs are the Sentinels, host:port. A majority of them should be named.
	Addrs []string
	// Master is the name they know the group by.
	Master string
	// Config is how to reach the Sentinels: credentials and TLS. Addr is not used.
	Config Config
	// Dial maps addresses that Sentinels announce to those that are dialled.
	Dial map[string]string
}

func (s *Sentinels) validate() error {
	if s.Master == "" || strings.ContainsFunc(s.Master, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("node: Config.Sentinels.Master is missing, or has a space")
	}
	if len(s.Addrs) == 0 {
		return errors.New("node: Config.Sentinels.Addrs is empty")
	}
	for _, a := range s.Addrs {
		if err := s.at(a).withDefaults().validate(); err != nil {
			return fmt.Errorf("sentinel: %w", err)
		}
	}
	return nil
}

// at is the Config of one Sentinel.
func (s *Sentinels) at(addr string) Config {
	c := s.Config
	c.Network, c.Addr, c.DB = "tcp", addr, 0
	c.Scripts, c.Guard, c.Shard, c.Sentinels, c.kind = nil, nil, nil, nil, BySentinel
	return c
}

// nameOrNone is that of the member, if there are Sentinels.
func (s *Sentinels) nameOrNone() string {
	if s == nil {
		return ""
	}
	return s.Master + "@" + strings.Join(s.Addrs, ",")
}

// TargetKind is a kind of member.
type TargetKind uint8

// The kinds of members: one server, a whole Redis Cluster, and the master of a group that Sentinels
// watch.
const (
	OneServer TargetKind = iota
	RedisCluster
	BySentinel
)
