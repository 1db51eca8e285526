package redlock

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What tests of package redlock_test know of the inside, beside the harness (harness_test.go).
const (
	CloseWithin = closeWithin
	CutWithin   = cutWithin
	HushWithin  = hushWithin
	PerCall     = perCall
	Gatherings  = gatherings
)

// Option is a part of a Config that a test gives: tests put several together.
type Option = func(*Config)

func ConfigOf(opts ...Option) (c Config) {
	apply(&c, opts)
	return c
}

func WithConfig(cfg Config) Option     { return func(c *Config) { *c = cfg } }
func WithFreshMembers() Option         { return func(c *Config) { c.FreshMembers = true } }
func WithInterop() Option              { return func(c *Config) { c.Interop = true } }
func WithLabel(label string) Option    { return func(c *Config) { c.Label = label } }
func WithPrefix(prefix string) Option  { return func(c *Config) { c.Prefix = prefix } }
func WithLogger(l *slog.Logger) Option { return func(c *Config) { c.Logger = l } }
func Scripts(opts ...Option) []string  { return ConfigOf(opts...).scripts() }

// WithTracer has a value hear what it has methods for. Renewed is told of each lease that a RenewalEnd ranges over.
func WithTracer(to any) Option {
	var t Tracer
	for v, i := reflect.ValueOf(&t).Elem(), 0; i < v.NumField(); i++ {
		if m := reflect.ValueOf(to).MethodByName(v.Type().Field(i).Name); m.IsValid() {
			v.Field(i).Set(m)
		}
	}
	if x, ok := to.(interface{ Renewed(LockName, bool) }); ok {
		t.RenewalEnd = func(_ context.Context, e RenewalEnd) {
			e.Each(func(lock LockName, ok bool) bool { x.Renewed(lock, ok); return true })
		}
	}
	return func(c *Config) { c.Tracer = t }
}

// SettleRefused has a renewal settle that a majority refused for a lease, when nobody has carried that out yet.
func SettleRefused(l *Lease) {
	item := l.toRenew(l.hold.terms.ttl)
	for i := range l.c.members {
		item.Book(i, &core.Answer{Outcome: member.Answered, Now: member.Brief{Votes: true}})
	}
	n := renewal{k: &l.c.keeper, items: []renewItem{item}}
	n.settle()
}

func OpenWith(ctx context.Context, urls []string, opts ...Option) (*Client, error) {
	return Open(ctx, urls, ConfigOf(opts...))
}

// New makes a client of members that are no servers, or that were made by hand.
func New(members []member.Member, opts ...Option) (*Client, error) {
	return newClient(members, ConfigOf(opts...))
}

func OwnerOf(l *Lease) string { return l.hold.owner }

// UUID begins the names of all owners of a client.
func UUID(c *Client) string { return c.uuid }

// NumberOwners gives the owners of a client another beginning, and all of them the same number.
func NumberOwners(c *Client, uuid string, n uint64) {
	c.uuid, c.number = uuid, func() uint64 { return n }
}

func MemberAt(c *Client, i int) member.Member { return c.members[i] }

// SetOf makes a set of leases, as Multi does when it has them all.
func SetOf(leases ...*Lease) *Leases { return newLeases(context.Background(), leases) }

// LateVote tells the hold of a lease that ended of a call that was submitted behind its end, and gives it the vote of member i.
func LateVote(l *Lease, i int) { l.hold.overtaken(i) }

func DefaultConfig() Config { return Config{}.withDefaults() }

// KeeperLooks is when the keeper of a client looks again; zero: when it is woken.
func KeeperLooks(c *Client) time.Time {
	return rt.Under(&c.keeper.mu, func() time.Time { return c.keeper.armed })
}

func KeeperDone(c *Client) <-chan struct{} { return c.keeper.done }

// HearLimits has a client hear of limits of a semaphore, one right after the other. The version of the first is 1.
func HearLimits(c *Client, name string, limits ...int) {
	for i, limit := range limits {
		limitsOf.of(c).put(name, script.StoredLimit(int64(i+1), limit))
	}
}

// ComesBack counts how often a call that began then is made once more, most at most, if all members vote and answer FORGOT.
func ComesBack(c *Client, key string, began time.Time, most int) (n int) {
	e := &QuorumError{Failure: quorum.Failure{Votes: make([]quorum.MemberVote, len(c.members))}, kind: ErrNoQuorum}
	for i := range e.Votes {
		e.Votes[i] = quorum.MemberVote{Vote: quorum.No, Err: &member.ReplyError{Kind: member.KindForgot}}
	}
	once, wire := retry{began: began}, c.cfg.lockOf(key)
	for n < most && c.comesBack(context.Background(), wire.Slot(), e, &once) {
		n++
	}
	return n
}
