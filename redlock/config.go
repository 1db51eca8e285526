package redlock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// Config is what all locks of a Client share. The zero value works: each field states its default.
// All clients of one deployment should use the same Drift and RestartGuard; MaxTTL and Entry may differ.
type Config struct {
	// TTL of leases that are renewed by the client (the watchdog). A holder that dies blocks the lock
	// for at most this long. Renewed every third of it. Default 30 s, at most MaxTTL.
	TTL time.Duration
	// MaxTTL is the longest lease that any client of this deployment may ask for. A member that has
	// restarted has to stay silent for as long, so do not raise it without need. A greater one may be rolled
	// out client by client: members are told of it before it is used. Default 30 s.
	MaxTTL time.Duration
	// MaxHold ends an auto-renewed lease that was never unlocked, for holders that forget. Default
	// 24 h; negative: no limit.
	MaxHold time.Duration
	// Drift is the share of a TTL given up to clocks that disagree on the length of a second. Sound
	// while each clock's rate is within half of it of real time. Default 0.01; at most 0.5.
	Drift float64
	// MemberTimeout is how long a round waits for members that do not answer, when their votes still
	// matter. It bounds no healthy call: a round ends as soon as it is decided. Default 200 ms.
	MemberTimeout time.Duration
	// NoQuorumAfter: Lock gives up with ErrNoQuorum when for so long fewer than a majority of the
	// members could be asked. Default 2 s; negative: never, only its context ends it.
	NoQuorumAfter time.Duration
	// Entry is the lifetime of a waiter's entry at a member, and the longest TTL of what is granted while waiting.
	// Heartbeats come every third of it, and every third of the TTL while there are votes in hand. All that is
	// granted to a waiter which died has ended when its entry has. Default 3 s; 100 ms to 1 h, of which grants
	// use MaxTTL at most.
	Entry time.Duration
	// MaxName is the longest name of a lock, in bytes. Default 1024.
	MaxName int
	// RestartGuard says what happens to a member that may have forgotten what it granted: that restarted,
	// was emptied, or restored from a snapshot. All clients of a deployment use the same. Default:
	// Quarantine.
	RestartGuard RestartGuard
	// FreshMembers: see WithFreshMembers.
	FreshMembers bool
	// Interop: see WithInterop.
	Interop bool
	// Logger gets one line per change of state, and no secret. Default: discard.
	Logger *slog.Logger
	// Tracer hears of acquisitions, waits, renewals and losses. nil costs nothing.
	Tracer Tracer

	// What follows is used by Open only.

	// ClientName is shown by CLIENT LIST on the members. Default "redquorum".
	ClientName string
	// DialTimeout bounds a dial with its handshake. Default 1 s.
	DialTimeout time.Duration
	// StallTimeout: a connection whose oldest call has waited so long is ended. Default 2 s.
	StallTimeout time.Duration
	// PingInterval between health checks of an idle connection. Default 1 s.
	PingInterval time.Duration
	// TLS is how members with a rediss URL are spoken to that has no tls_ option of its own: authorities, a
	// certificate of ours. Default: the system's authorities, TLS 1.2 or later.
	TLS *tls.Config
}

// RestartGuard is a way to treat members that may have forgotten.
type RestartGuard uint8

const (
	// Quarantine keeps such a member from voting until every lease that may have counted its old votes
	// has ended (MaxTTL), and then restores its token counters from members that know. Where the
	// client that restores it reaches too few that know for a PingInterval, order goes on from the
	// servers' clocks, and the log says so.
	Quarantine RestartGuard = iota
	// Strict is Quarantine, and where too few know the counters the member stays out.
	Strict
	// GuardOff believes a member that comes back with an old marker: for members with appendfsync
	// always. One that comes back without any has forgotten all the same.
	GuardOff
)

// Option changes a Config.
type Option func(*Config)

// WithConfig replaces the whole Config; options after it change what it says.
func WithConfig(cfg Config) Option { return func(c *Config) { *c = cfg } }

// WithFreshMembers says that nothing was ever held at these members, so that a first start need not wait
// until servers younger than MaxTTL are older: they might be a deployment that lost everything at once.
// For demos, tests and the very first start, by the word of a person; never in a service's
// configuration, where it would be said again after a disaster.
func WithFreshMembers() Option { return func(c *Config) { c.FreshMembers = true } }

// WithInterop shares locks with Redisson's RLock and RFencedLock of the same name on one Redis, and with
// its RedLock over several (all of them plain masters, not a cluster). Off by default.
//
// What it promises: neither side gets what the other holds; each is woken by the other's release, and
// both are served while both wait. With one member, tokens rise over both: each grant draws from the
// counter that RFencedLock uses, redisson_lock_token:{name}. With several, only those of this library
// are ordered, because Redisson has no token of a majority.
//
// What it does not: Redisson knows nothing of the restart guard, of validity and of drift. It takes a
// lock at a member that has forgotten, also one that is held here, and its tokens begin anew at a counter
// that was lost. Tokens of this library go on rising after a restart as without the option.
//
// What it costs: a string per name that stays for good, a subscription per member and waited name, and
// more work in each script. A release that finds waiters of Redisson leaves the lock to them, for 50 ms
// at most if none comes; TryLock is refused meanwhile. Inspect shows Redisson's count of re-entries as the token of its holds.
//
// All clients of a deployment that share names must use the same setting: a client without it does not
// lift the counter that Redisson draws from, and does not wake its waiters.
func WithInterop() Option { return func(c *Config) { c.Interop = true } }

// WithLogger sets Config.Logger.
func WithLogger(l *slog.Logger) Option { return func(c *Config) { c.Logger = l } }

// WithTracer sets Config.Tracer.
func WithTracer(t Tracer) Option { return func(c *Config) { c.Tracer = t } }

func (c Config) withDefaults() Config {
	set(&c.MaxTTL, 30*time.Second)
	if c.TTL == 0 {
		c.TTL = min(30*time.Second, c.MaxTTL)
	}
	set(&c.MaxHold, 24*time.Hour)
	set(&c.Drift, clock.DefaultDrift)
	set(&c.MemberTimeout, 200*time.Millisecond)
	set(&c.NoQuorumAfter, 2*time.Second)
	set(&c.Entry, 3*time.Second)
	set(&c.MaxName, 1024)
	set(&c.ClientName, "redquorum")
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

// validate reports all mistakes at once.
func (c Config) validate() error {
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, badInput("config", format, args...))
	}
	if err := checkTTL(c.TTL, c); err != nil {
		bad("TTL: %v", err)
	}
	if c.MaxTTL < time.Millisecond {
		bad("MaxTTL is %v, must be at least 1ms", c.MaxTTL)
	}
	if c.Drift < 0 || c.Drift > 0.5 {
		bad("Drift is %v, must be between 0 and 0.5", c.Drift)
	}
	if c.RestartGuard > GuardOff {
		bad("RestartGuard is %d, must be Quarantine, Strict or GuardOff", c.RestartGuard)
	}
	if c.MemberTimeout < time.Millisecond {
		bad("MemberTimeout is %v, must be at least 1ms", c.MemberTimeout)
	}
	if c.Entry < 100*time.Millisecond || c.Entry > time.Hour {
		bad("Entry is %v, must be between 100ms and 1h", c.Entry)
	}
	if c.MaxName < 1 || c.MaxName > 1<<20 {
		bad("MaxName is %d, must be between 1 and %d", c.MaxName, 1<<20)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"DialTimeout", c.DialTimeout}, {"StallTimeout", c.StallTimeout}, {"PingInterval", c.PingInterval}} {
		if d.value < 0 {
			bad("%s is %v, must not be negative", d.name, d.value)
		}
	}
	return errors.Join(all...)
}

// checkTTL explains why a TTL cannot work.
func checkTTL(ttl time.Duration, c Config) error {
	switch {
	case ttl <= 0:
		return fmt.Errorf("%v is not positive", ttl)
	case ttl > c.MaxTTL:
		return fmt.Errorf("%v is more than MaxTTL (%v): raise Config.MaxTTL for all clients, or renew a shorter lease", ttl, c.MaxTTL)
	case clock.Validity(ttl, c.Drift) <= 0:
		return fmt.Errorf("%v leaves no validity after the drift allowance of %v: use at least 10ms, better seconds", ttl, clock.Drift(ttl, c.Drift))
	}
	return nil
}

func checkMembers(n int) error {
	switch {
	case n == 0:
		return badInput("open", "no members: list the addresses of 1, 3 or 5 independent Redis masters")
	case n > quorum.MaxMembers:
		return badInput("open", "%d members, at most %d", n, quorum.MaxMembers)
	}
	return nil
}

// LockOption changes the terms of one lock. Client.Mutex takes it, and so does each kind of lock.
type LockOption func(*terms)

// terms are what a lock asks for.
type terms struct {
	kind    Kind
	ttl     time.Duration
	renew   bool
	maxHold time.Duration
	as      string
}

// TTL asks for a lease of fixed length that is not renewed: it ends after d at the latest, whatever
// the holder does. Bounds: 10 ms or so (what the drift allowance leaves) to Config.MaxTTL.
func TTL(d time.Duration) LockOption {
	return func(t *terms) { t.ttl, t.renew = d, false }
}

// AutoRenew asks for a lease of d that the client renews every third of d until it is unlocked, lost,
// or held for MaxHold. Without options a Mutex is AutoRenew(Config.TTL).
func AutoRenew(d time.Duration) LockOption {
	return func(t *terms) { t.ttl, t.renew = d, true }
}

// MaxHold caps an auto-renewed lease; it replaces Config.MaxHold. Negative: no limit. 0: that of the Config.
func MaxHold(d time.Duration) LockOption {
	return func(t *terms) {
		if d != 0 {
			t.maxHold = d
		}
	}
}

// As names the owner for re-entry: while this client holds the lock as the same owner, Lock and TryLock
// return the same lease again at once, and it takes as many Unlocks to free it. The count lives in the
// client; the members see one hold. Without As a second Lock waits for the first, in the same goroutine
// too.
func As(owner string) LockOption {
	return func(t *terms) { t.as = owner }
}
