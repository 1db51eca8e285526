package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/quorum"
)

// Config holds the settings that all locks of a Client share. The zero value works: it is LAN. Each
// field states its default. Drift and RestartGuard should be the same for all clients of a deployment.
// MaxTTL and Entry may differ.
type Config struct {
	// TTL is the length of leases that the client renews by itself. The client renews them every
	// third of it. A holder that dies blocks the lock for at most this long. Default: 30 s or
	// MaxTTL, whichever is less.
	TTL time.Duration
	// MaxTTL is the longest lease that this client may ask for. A member that has restarted does
	// not vote for the greatest MaxTTL in the deployment, so raise it only if you need to. You may
	// roll a greater value out client by client, because each client tells the members before using
	// it. Default: 30 s.
	MaxTTL time.Duration
	// MaxHold ends a renewed lease that its holder has forgotten to unlock. Default: 24 h. If it is
	// negative, there is no limit.
	MaxHold time.Duration
	// KeepMost is how many locks the client keeps at most while nobody has a lease of them: see Keep. What is unlocked beyond
	// that is released, also if its name is used more often than those that are kept: they stay for as long as Keep says, at most.
	// Default: 1,000. If it is negative, there is no limit.
	KeepMost int
	// Drift is the share of a TTL that the client gives up, because clocks disagree on the length
	// of a second. It is sound if the rate of each clock is within half of it of real time.
	// Default: 0.01. At most 0.5.
	Drift float64
	// MemberTimeout is how long a round waits for members that do not answer, while their votes
	// still matter. It does not delay a healthy call, because a round ends as soon as it is
	// decided. A member that goes on answering other calls of the client is busy: it is waited for
	// up to four times as long. Default: 200 ms.
	MemberTimeout time.Duration
	// NoQuorumAfter is how long Lock tolerates having no reachable majority before it returns
	// ErrNoQuorum. Default: 2 s. If it is negative, Lock waits until its context ends.
	NoQuorumAfter time.Duration
	// Entry is the lifetime of a waiter's entry at a member, and the longest TTL of a vote that is
	// granted while waiting. Such votes never exceed MaxTTL. The waiter sends a heartbeat every
	// third of Entry, and every third of the TTL while it has votes. If a waiter dies, every vote
	// that it was given ends with its entry. In a line of more than 333 clients, entries live longer
	// by a thousandth for each client, up to four times Entry, and heartbeats come as much more
	// seldom. Default: 3 s. At least 100 ms and at most 1 h.
	Entry time.Duration
	// Label says what this client is, such as the name of a service. Then the members keep the label,
	// the name of the host and the process id for Inspect, in clear text: no secret belongs there. 128
	// bytes that can be printed, at most. With a label a try that is refused takes two round trips more,
	// to say who has the lock: see QuorumError.Who. A try of a Multi does not ask. Default: none, and
	// the members keep nothing of that.
	Label string
	// Prefix is put before the name of every lock, so that several environments can share members:
	// "prod:" and "test:" with the name "invoice:42" are two locks. Names in the API stay without it.
	// It has letters, digits and :/._- and ends with one of the latter. Default: none.
	Prefix string
	// RestartGuard says what happens to a member that may have forgotten its votes: one that
	// restarted, was emptied, or was restored from a snapshot. All clients of a deployment must use
	// the same value. Default: Quarantine.
	RestartGuard RestartGuard
	// FreshMembers declares that nobody has ever held a lock at these members. Without it, a first
	// start waits for MaxTTL, because the members may have lost everything at once. It skips that wait only if the first client that comes has it: once a client without it has
	// come, the members wait, and FreshMembers changes nothing.
	//
	// Use it for demos, for tests, and for a very first start, as the decision of a person. Never put
	// it into the configuration of a service, because it would be repeated after a disaster.
	FreshMembers bool
	// Interop shares locks with Redisson, by name: with RLock and RFencedLock on one Redis, and with
	// RedLock over several. All members must be plain masters, not clusters. It is off by default.
	//
	// It promises that neither library gets a lock that the other holds. Each is woken when the other
	// releases, and both are served while both wait. With one member, tokens rise over both, because
	// each grant draws from the counter that RFencedLock uses, redisson_lock_token:{name}. With several
	// members, only tokens of this library are ordered, because Redisson has no token of a majority.
	//
	// It does not make Redisson safer. Redisson knows nothing of the restart guard, of validity and of
	// drift. It takes a lock at a member that has forgotten, even if a client of this library holds
	// that lock. Its tokens start anew if their counter is lost. Tokens of this library go on rising
	// after a restart, as without the option.
	//
	// It costs one string per name, which stays for good, and one subscription per member and name that
	// is waited for. Each script does more work. If a release finds waiters of Redisson, it leaves the
	// lock to them for at most 50 ms, and TryLock is refused meanwhile. For a lock that Redisson holds,
	// Inspect shows the count of re-entries as the token.
	//
	// All clients of a deployment that share names must use the same setting. A client without it
	// neither raises the counter that Redisson draws from nor wakes Redisson's waiters.
	Interop bool
	// Logger receives one line per change of state. At DEBUG it also receives one for each further failed dial, and for
	// each lease that begins with a bare majority of several members. No line contains a secret. Default: no log.
	// While it blocks, a member that was found to have forgotten does not come back.
	Logger *slog.Logger
	// Tracer receives events about acquisitions, waits, renewals and losses. Default: none.
	Tracer Tracer

	callbacks *callbacks // of Logger and Tracer

	// What follows is of connections.

	// DialTimeout bounds a dial together with its handshake. Where a member accepts and does not answer
	// in time, the next handshake may take twice as long, up to four times DialTimeout. Default: 1 s.
	DialTimeout time.Duration
	// StallTimeout is how long the oldest call on a connection may wait for its answer before the
	// client ends the connection. If the client was late itself, or has not read what came, it waits
	// for up to as long again. Default: 2 s.
	StallTimeout time.Duration
	// PingInterval is how old the client's last look at a member's memory may be when a vote of that member
	// counts. An idle connection is looked at after ten times as long. Default: 1 s.
	PingInterval time.Duration
	// Credentials is asked for the user and the password at every dial, in the place of those of the
	// member's URL. member is its name, as in MemberInfo. Without a user the password is that of the
	// default user; there must be a password. It must return soon after ctx ends, which is after
	// DialTimeout at the latest: if it does not, the client goes on without it. The client asks for one
	// member once at a time, and pauses longer after each failure. A failure is a
	// *node.CredentialsError. Sentinels have credentials of their own. Default: none.
	Credentials func(ctx context.Context, member string) (user, password string, err error)
	// CredentialsEvery is how long a connection keeps what Credentials or a password_file said, less
	// up to a tenth at random. Then the client asks again, and authenticates the connection anew while
	// it is in use. Choose less than the time for which the server lets a connection live, and than
	// the life of a token. If that fails, the connection stays as it is, the client warns and tries
	// again. Open returns ErrInput if there is neither Credentials nor a password_file. Default: 0,
	// which is only at every dial.
	CredentialsEvery time.Duration
	// Dialer opens every connection to members and to Sentinels, for proxies and service meshes. It
	// gets a network and an address of net.Dial. It must return soon after ctx ends, which is after
	// DialTimeout at the latest: if it does not, the client goes on without it, and closes a
	// connection that comes later. Several calls may run at once. If it breaks that, or returns
	// neither a connection nor an error, the member's error is a *node.DialerError. TLS, a password
	// and the restart guard stand above it, so a server that restarts behind a proxy is noticed.
	// Default: a net.Dialer with TCP keepalive.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS configures connections to rediss:// members whose URL has no tls_ option. Default: the
	// system's certificate authorities, and TLS 1.2 or later.
	TLS *tls.Config
}

// RestartGuard is a way to treat members that may have forgotten.
type RestartGuard uint8

const (
	// Quarantine keeps such a member from voting until every lease that may rest on its old votes
	// has ended (MaxTTL). Then one client restores the member's counters from members that know
	// them. If no other member knows them, or too few can be reached for a PingInterval, tokens
	// continue from the servers' clocks, and the log says so.
	Quarantine RestartGuard = iota
	// Strict is Quarantine, except that a member stays out if too few members know its counters.
	Strict
	// GuardOff trusts a member that comes back with an old marker. It is for members with
	// appendfsync always. A member that comes back without a marker has forgotten nevertheless,
	// unless FreshMembers says that nothing is ever held at an empty one: with both, a test suite
	// may empty its members between tests (FLUSHALL), and no client waits.
	GuardOff
)

// longestName fits several times into what may be under way to a member, in the calls of every kind.
const longestName = 1 << 17

// LAN is the Config for members that answer within some milliseconds, as in one data center or in
// one region. It has the default of each field that depends on the network, so a Config without
// values means the same.
func LAN() Config {
	return Config{
		MemberTimeout: 200 * time.Millisecond, NoQuorumAfter: 2 * time.Second, Entry: 3 * time.Second,
		DialTimeout: time.Second, StallTimeout: 2 * time.Second, PingInterval: time.Second,
	}
}

// WAN is the Config for members that take up to half a second to answer, as on several continents,
// or whose answers are late at times. A round waits longer for its members, and a connection for its
// answers. The client notices five times as late that a member is away, and a waiter that died holds
// up the next for up to 10 s.
func WAN() Config {
	return Config{
		MemberTimeout: time.Second, NoQuorumAfter: 10 * time.Second, Entry: 10 * time.Second,
		DialTimeout: 5 * time.Second, StallTimeout: 10 * time.Second, PingInterval: 5 * time.Second,
	}
}

// theOnly is the Config that a caller of Open gave, or LAN.
func theOnly(cfg []Config) (Config, error) {
	switch len(cfg) {
	case 0:
		return LAN(), nil
	case 1:
		return cfg[0], nil
	}
	return Config{}, badInput("open", "%d Configs, but there can be one", len(cfg))
}

func (c Config) withDefaults() Config {
	lan := LAN()
	set(&c.MaxTTL, 30*time.Second)
	if c.TTL == 0 {
		c.TTL = min(30*time.Second, c.MaxTTL)
	}
	set(&c.MaxHold, 24*time.Hour)
	set(&c.KeepMost, 1000)
	set(&c.Drift, clock.DefaultDrift)
	set(&c.MemberTimeout, lan.MemberTimeout)
	set(&c.NoQuorumAfter, lan.NoQuorumAfter)
	set(&c.Entry, lan.Entry)
	set(&c.DialTimeout, lan.DialTimeout)
	set(&c.StallTimeout, lan.StallTimeout)
	set(&c.PingInterval, lan.PingInterval)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports all values that cannot work, at once, as Open does. The error matches ErrInput.
func (c Config) Validate() error { return c.withDefaults().validate() }

// validate is Validate of a Config that has its defaults.
func (c Config) validate() error {
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, badInput("config", format, args...))
	}
	if err := checkTTL(c.TTL, &c); err != nil {
		bad("TTL: %v", err)
	}
	if c.MaxTTL < 0 {
		bad("MaxTTL is %v, must not be negative", c.MaxTTL)
	}
	if c.Drift < 0 || c.Drift > 0.5 {
		bad("Drift is %v, must be between 0 and 0.5", c.Drift)
	}
	if c.RestartGuard > GuardOff {
		bad("RestartGuard is %d, must be Quarantine, Strict or GuardOff", c.RestartGuard)
	}
	if c.MemberTimeout < 0 {
		bad("MemberTimeout is %v, must not be negative", c.MemberTimeout)
	}
	if c.Entry < 100*time.Millisecond || c.Entry > time.Hour {
		bad("Entry is %v, must be between 100ms and 1h", c.Entry)
	}
	if err := checkLabel(c.Label); err != nil {
		bad("%v", err)
	}
	if err := checkPrefix(c.Prefix, c); err != nil {
		bad("%v", err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"DialTimeout", c.DialTimeout}, {"StallTimeout", c.StallTimeout}, {"PingInterval", c.PingInterval}, {"CredentialsEvery", c.CredentialsEvery}} {
		if d.value < 0 {
			bad("%s is %v, must not be negative", d.name, d.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"MaxTTL", c.MaxTTL}, {"MaxHold", c.MaxHold}, {"MemberTimeout", c.MemberTimeout}, {"NoQuorumAfter", c.NoQuorumAfter}, {"DialTimeout", c.DialTimeout},
		{"StallTimeout", c.StallTimeout}, {"PingInterval", c.PingInterval}, {"CredentialsEvery", c.CredentialsEvery},
	} {
		if err := duration.Check(d.value); err != nil {
			bad("%s %v", d.name, err)
		}
	}
	return errors.Join(all...)
}

// checkTTL explains why a TTL cannot work.
func checkTTL(ttl time.Duration, c *Config) error {
	switch {
	case ttl <= 0:
		return fmt.Errorf("%v is not positive", ttl)
	case ttl > c.MaxTTL:
		return fmt.Errorf("%v is more than MaxTTL (%v): raise Config.MaxTTL, or renew a shorter lease", ttl, c.MaxTTL)
	case clock.Validity(ttl, c.Drift) <= 0:
		return fmt.Errorf("%v leaves no validity after the drift allowance of %v: use at least 10ms, preferably seconds", ttl, clock.Drift(ttl, c.Drift))
	}
	return nil
}

func checkMembers(n int) error {
	switch {
	case n == 0:
		return badInput("open", "no members: list the addresses of 1, 3 or 5 independent Redis masters")
	case n > quorum.MaxMembers:
		return badInput("open", "%d members, but at most %d are allowed", n, quorum.MaxMembers)
	}
	return nil
}

// checkName explains why no lock can have this name.
func checkName(name string, c *Config) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of a lock must not be empty")
	case strings.HasPrefix(name, ownNames):
		return fmt.Errorf("names that begin with %s are the library's own keys", ownNames)
	case c.Interop && strings.HasPrefix(c.keyOf(name), theirCounters):
		return fmt.Errorf("names that begin with %s are counters of Redisson's locks (Config.Interop)", theirCounters)
	case len(name) > longestName:
		return fmt.Errorf("the name has %d bytes, but at most %d are allowed", len(name), longestName)
	}
	return nil
}

// Terms of Config.Prefix.
const (
	longestPrefix = 128
	separators    = ":/._-"
)

// checkPrefix explains why no environment can have this prefix. A brace could begin or end a hash tag, and would decide
// the slots of all names. A prefix that ends with a separator begins no other that was meant to be another word: the
// locks of "dev" would lie among those of "dev2".
func checkPrefix(prefix string, c Config) error {
	if prefix == "" {
		return nil
	}
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(separators, r))
	}
	quoted := printable.Quote(prefix)
	switch last := prefix[len(prefix)-1:]; {
	case len(prefix) > longestPrefix:
		return fmt.Errorf("the prefix has %d bytes, but at most %d are allowed", len(prefix), longestPrefix)
	case strings.ContainsFunc(prefix, odd):
		return fmt.Errorf("the prefix is %s, must have letters and digits of ASCII and %s only", quoted, separators)
	case !strings.Contains(separators, last):
		return fmt.Errorf("the prefix is %s, must end with one of %s: use %s", quoted, separators, printable.Quote(prefix+":"))
	case strings.HasPrefix(prefix, ownNames):
		return fmt.Errorf("the prefix is %s, but names that begin with %s are the library's own keys", quoted, ownNames)
	case c.Interop && strings.HasPrefix(prefix, theirCounters):
		return fmt.Errorf("the prefix is %s, but names that begin with %s are counters of Redisson's locks (Config.Interop)", quoted, theirCounters)
	}
	return nil
}

// keyOf is the key that a lock of this name has at the members. All other keys of the lock are siblings of that one.
func (c *Config) keyOf(name string) string { return c.Prefix + name }

// nameOf is the name of the lock with this key, which keyOf made.
func (c *Config) nameOf(key string) string { return key[len(c.Prefix):] }

// own is nameOf for a key that another client may have made.
func (c *Config) own(key string) (name string, err error) {
	name, ok := strings.CutPrefix(key, c.Prefix)
	if !ok {
		return "", fmt.Errorf("the lock %s is not under Config.Prefix, %s", printable.Quote(key), printable.Quote(c.Prefix))
	}
	return name, nil
}
