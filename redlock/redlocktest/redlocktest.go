// Package redlocktest is for tests of programs that take locks. It has members in memory, so that no
// Redis is needed, a client of them, and verbs that break them:
//
//	d := redlocktest.New(t, 3)
//	go job(t.Context(), d.Client) // the code under test: it works while it holds "nightly"
//	d.Await("nightly")
//	d.Take("nightly") // somebody else has it now, and the job must stop
//
// The members execute the same scripts as a server does. The client is made by redlock.Open, with
// the restart guard. So a test sees what a program would see on real servers.
//
// It works in real time, and in fake time inside a testing/synctest bubble, where an hour of
// renewals takes milliseconds. New then belongs inside the bubble, with the bubble's t. In real time
// give the client short leases, because a holder may learn of a loss with its next renewal, after a
// third of its TTL:
//
//	d := redlocktest.New(t, 3, redlock.WithConfig(redlock.Config{TTL: time.Second}))
//
// Members are numbered from 0, and a verb without numbers is for all of them. If a verb fails, it
// ends the test with t.Fatal. So call verbs on the goroutine of the test.
package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// Deployment is a set of members in memory, and the network to them. It ends with the test. A
// Deployment itself is not safe for concurrent use, but its clients are.
type Deployment struct {
	// Client is the client under test, which New has opened.
	Client *redlock.Client

	t       testing.TB
	members *redistest.Cluster
	clients []*redlock.Client   // of New and Open, without those that crashed
	paths   [][]*redistest.Link // of each of them, to each member
	opts    []redlock.Option    // of New
	terms   redlock.Config      // what they say
	other   *redlock.Client     // somebody else, who has paths that no Cut concerns
	aged    bool                // a member may have forgotten: clients that come later must not take it for a new one
}

// New starts n members that nobody has used before, and opens Deployment.Client with opts. When it
// returns, all members vote. Deployment has the network in its hands, so Config.Dialer and
// Config.TLS are not used.
func New(t testing.TB, n int, opts ...redlock.Option) *Deployment {
	t.Helper()
	d := &Deployment{t: t, members: redistest.NewEmbeddedCluster(n), opts: opts}
	for _, o := range opts {
		if o != nil {
			o(&d.terms)
		}
	}
	t.Cleanup(func() {
		if err := d.members.Close(); err != nil {
			t.Error(err)
		}
	})
	d.Client = d.Open(opts...)
	d.AwaitState(redlock.MemberVoting)
	return d
}

// Open opens another client, as another process would, with a network of its own to the members. It
// closes with the test. All clients of a deployment need the same Drift, RestartGuard and Interop.
func (d *Deployment) Open(opts ...redlock.Option) *redlock.Client {
	d.t.Helper()
	paths := d.network()
	client := d.open(paths, opts)
	d.clients, d.paths = append(d.clients, client), append(d.paths, paths)
	return client
}

// network makes a path to each member.
func (d *Deployment) network() []*redistest.Link {
	paths := make([]*redistest.Link, d.members.Len())
	for i, s := range d.members.Servers {
		paths[i] = s.Path()
	}
	return paths
}

func (d *Deployment) open(paths []*redistest.Link, opts []redlock.Option) *redlock.Client {
	d.t.Helper()
	byAddress := make(map[string]*redistest.Link)
	var urls []string
	for i, path := range paths {
		address := fmt.Sprintf("member-%d.invalid:6379", i)
		byAddress[address] = path
		urls = append(urls, "redis://"+address)
	}
	ours := func(c *redlock.Config) {
		c.FreshMembers = !d.aged
		c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return byAddress[address].DialContext(ctx, network, address)
		}
	}
	c, err := redlock.Open(d.t.Context(), urls, append(append([]redlock.Option(nil), opts...), ours)...)
	if err != nil {
		d.t.Fatalf("redlocktest: %v", err)
	}
	d.t.Cleanup(func() { // members that cannot be reached would make it wait
		d.members.Resume()
		for _, path := range paths {
			path.Heal()
			path.CutMute()
		}
		_ = c.Close()
	})
	return c
}

// somebody is a client of nobody under test: no Cut concerns it, and it tells no Tracer and no Logger.
func (d *Deployment) somebody() *redlock.Client {
	d.t.Helper()
	if d.other == nil {
		silent := func(c *redlock.Config) { c.Tracer, c.Logger = nil, nil }
		d.other = d.open(d.network(), append(append([]redlock.Option(nil), d.opts...), silent))
	}
	return d.other
}

// patience is how long a verb tries: in fake time it costs nothing.
const patience = 30 * time.Second

// await polls until ready, for a while, and says what was not.
func (d *Deployment) await(limit time.Duration, ready func(ctx context.Context) bool, failed func() string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), limit)
	defer cancel()
	pause := time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !ready(ctx) {
		select {
		case <-timer.C:
			pause = min(2*pause, 100*time.Millisecond)
			timer.Reset(pause)
		case <-ctx.Done():
			d.t.Fatalf("redlocktest: after %v %s", limit, failed())
		}
	}
}

// Await waits until a majority of the members has a holder of the lock. It is for every kind of lock
// but semaphores, latches and barriers.
func (d *Deployment) Await(name string) {
	d.t.Helper()
	other, last := d.somebody(), error(nil)
	d.await(patience, func(ctx context.Context) bool {
		seen, err := other.Inspect(ctx, name)
		last = err
		return err == nil && len(seen.Holders) > 0
	}, func() string { return fmt.Sprintf("nobody holds %q: %v", name, last) })
}

// AwaitState waits until Deployment.Client sees the members in a state, as redlock.MemberVoting.
func (d *Deployment) AwaitState(state string, members ...int) {
	d.t.Helper()
	members = d.these(members)
	longest := max(d.terms.MaxTTL, 30*time.Second) // a quarantine
	d.await(2*longest+patience, func(context.Context) bool {
		infos := d.Client.Members()
		for _, i := range members {
			if infos[i].State != state {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("members are not %s: %+v", state, d.Client.Members()) })
}

// Take gives the lock to somebody else, and takes it from its holders first. A holder learns of it
// with its next renewal, and until then the lease seems to be valid: so a program must be ready for
// that. Take works while Deployment.Client is cut off, and needs a majority of members that run.
// Unlock the lease to free the lock again.
func (d *Deployment) Take(name string) *redlock.Lease {
	d.t.Helper()
	other := d.somebody()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	for range 1000 { // a lock that is forced open goes to whoever waits for it
		lease, err := other.Mutex(name).TryLock(ctx)
		if err == nil {
			return lease
		}
		if !errors.Is(err, redlock.ErrHeld) {
			d.t.Fatalf("redlocktest: take %q: %v", name, err)
		}
		if _, err := other.ForceUnlock(ctx, name); err != nil {
			d.t.Fatalf("redlocktest: take %q: %v", name, err)
		}
	}
	d.t.Fatalf("redlocktest: take %q: too many wait for it", name)
	return nil
}

// Lose takes the votes of a lease from its members, and has its client notice. When Lose returns, the
// lease has ended with a LostError. Its lock is free, or belongs to who waited for it. The lease may
// be of any kind. Lease.Extend is what notices, so the client must reach a majority.
func (d *Deployment) Lose(lease *redlock.Lease) {
	d.t.Helper()
	other := d.somebody()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	if err := force(ctx, other, lease); err != nil {
		d.t.Fatalf("redlocktest: lose %q: %v", lease.Key(), err)
	}
	ttl := 30 * time.Second
	if d.terms.MaxTTL > 0 {
		ttl = min(ttl, d.terms.MaxTTL)
	}
	var said error
	d.await(patience, func(ctx context.Context) bool { // again, because a lease that has just been extended asks nobody
		said = lease.Extend(ctx, ttl)
		return lease.Err() != nil
	}, func() string { return fmt.Sprintf("the lease of %q has not ended: %v", lease.Key(), said) })
}

// force takes what a lease has at the members.
func force(ctx context.Context, other *redlock.Client, lease *redlock.Lease) error {
	if len(lease.Slots()) == 0 {
		_, err := other.ForceUnlock(ctx, lease.Key())
		return err
	}
	seen, err := other.InspectSemaphore(ctx, lease.Key())
	if err != nil {
		return err
	}
	for _, h := range seen.Holders {
		if h.Owner == lease.Hash() {
			_, err := other.ForcePermits(ctx, lease.Key(), h)
			return err
		}
	}
	return nil
}

// Cut breaks the connections of the clients under test to members, and refuses new ones until Heal.
// Somebody else, who has what Take took, reaches the members all the same.
func (d *Deployment) Cut(members ...int) {
	d.t.Helper()
	d.eachPath(members, func(l *redistest.Link) { l.Refuse(true); l.Cut() })
}

// Heal ends Cut, Network and Delay for all clients. They connect again within half a second.
func (d *Deployment) Heal(members ...int) {
	d.t.Helper()
	d.eachPath(members, func(l *redistest.Link) { l.Heal(); l.CutMute() })
}

func (d *Deployment) eachPath(members []int, f func(l *redistest.Link)) {
	d.t.Helper()
	for _, i := range d.these(members) {
		for _, paths := range d.paths {
			f(paths[i])
		}
	}
}

// Pause stops members as SIGSTOP does: they take what is sent and answer nothing, to nobody.
func (d *Deployment) Pause(members ...int) { d.t.Helper(); d.members.Pause(d.these(members)...) }

// Resume ends Pause. Members execute what has come meanwhile.
func (d *Deployment) Resume(members ...int) { d.t.Helper(); d.members.Resume(d.these(members)...) }

// Restart ends the processes of members and starts them again with all their data. The clients
// cannot know that it is all, so the members do not vote for Config.MaxTTL (redlock.Quarantine).
func (d *Deployment) Restart(members ...int) { d.t.Helper(); d.restart(true, members) }

// Forget is Restart without the data, as of a server without persistence.
func (d *Deployment) Forget(members ...int) { d.t.Helper(); d.restart(false, members) }

func (d *Deployment) restart(keep bool, members []int) {
	d.t.Helper()
	d.aged = true
	if err := d.members.Restart(keep, d.these(members)...); err != nil {
		d.t.Fatalf("redlocktest: %v", err)
	}
}

// Flush deletes all keys of members that go on running, as FLUSHALL does. The clients notice at the
// next grant or ping.
func (d *Deployment) Flush(members ...int) {
	d.t.Helper()
	d.aged = true
	if err := d.members.Flush(d.these(members)...); err != nil {
		d.t.Fatalf("redlocktest: %v", err)
	}
}

// Step sets the clocks of members forward, or back if by is negative. Keys end that much sooner, or
// later. No lock stands that: see what exclusion rests on in docs/protocol.md.
func (d *Deployment) Step(by time.Duration, members ...int) {
	d.t.Helper()
	for _, i := range d.these(members) {
		d.members.Embedded(i).Step(by)
	}
}

// these are the members that a verb names.
func (d *Deployment) these(members []int) []int {
	d.t.Helper()
	if len(members) == 0 {
		for i := range d.members.Len() {
			members = append(members, i)
		}
	}
	for _, i := range members {
		if i < 0 || i >= d.members.Len() {
			d.t.Fatalf("redlocktest: there is no member %d: they are numbered from 0 to %d", i, d.members.Len()-1)
		}
	}
	return members
}
