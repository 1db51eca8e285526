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
//	d := redlocktest.New(t, 3, redlock.Config{TTL: time.Second})
//
// Members are numbered from 0, and a verb without numbers is for all of them. If a verb fails, it
// ends the test with t.Fatal. So call verbs on the goroutine of the test.
package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
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
	config  redlock.Config      // of New
	other   *redlock.Client     // somebody else, who has paths that no Cut concerns
	aged    bool                // a member may have forgotten: clients that come later must not take it for a new one
}

// New starts n members that nobody has used before, and opens Deployment.Client with cfg, of which
// there is one at most, as in redlock.Open. When it
// returns, all members vote. Deployment has the network in its hands, and the members ask for no
// password. So Config.Dialer, Config.TLS, Config.Credentials and Config.CredentialsEvery are not used.
func New(t testing.TB, n int, cfg ...redlock.Config) *Deployment {
	t.Helper()
	d := &Deployment{t: t, members: redistest.NewEmbeddedCluster(n), config: one(t, cfg)}
	t.Cleanup(func() {
		if err := d.members.Close(); err != nil {
			t.Error(err)
		}
	})
	d.Client = d.Open(d.config)
	d.AwaitState(redlock.MemberVoting)
	return d
}

// Open opens another client, as another process would, with a network of its own to the members. It
// closes with the test. All clients of a deployment need the same Drift, RestartGuard and Interop.
func (d *Deployment) Open(cfg ...redlock.Config) *redlock.Client {
	d.t.Helper()
	paths := d.network()
	client, err := d.open(paths, one(d.t, cfg))
	if err != nil {
		d.t.Fatalf("redlocktest: %v", err)
	}
	d.clients, d.paths = append(d.clients, client), append(d.paths, paths)
	return client
}

// Scripts are the Lua sources of the calls that clients send, for programs that look at members.
func Scripts() []string {
	var all []string
	for _, s := range script.Own() {
		all = append(all, s.Source)
	}
	return all
}

// one is the Config that a test gave, or the one without values.
func one(t testing.TB, cfg []redlock.Config) redlock.Config {
	t.Helper()
	switch len(cfg) {
	case 0:
		return redlock.Config{}
	case 1:
		return cfg[0]
	}
	t.Fatalf("redlocktest: %d Configs, but there can be one", len(cfg))
	return redlock.Config{}
}

// network makes a path to each member.
func (d *Deployment) network() []*redistest.Link {
	paths := make([]*redistest.Link, d.members.Len())
	for i, s := range d.members.Servers {
		paths[i] = s.Path()
	}
	return paths
}

func (d *Deployment) open(paths []*redistest.Link, cfg redlock.Config) (*redlock.Client, error) {
	d.t.Helper()
	byAddress := make(map[string]*redistest.Link)
	var urls []string
	for i, path := range paths {
		address := fmt.Sprintf("member-%d.invalid:6379", i)
		byAddress[address] = path
		urls = append(urls, "redis://"+address)
	}
	cfg.FreshMembers = !d.aged
	cfg.Credentials, cfg.CredentialsEvery = nil, 0
	cfg.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return byAddress[address].DialContext(ctx, network, address)
	}
	// Members that run will answer: on a machine that is busy enough, not within one DialTimeout.
	c, err := redlock.Open(d.t.Context(), urls, cfg)
	for end := time.Now().Add(patience); errors.Is(err, redlock.ErrNoQuorum) && len(d.running()) > d.members.Len()/2 && time.Now().Before(end); {
		c, err = redlock.Open(d.t.Context(), urls, cfg)
	}
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { // members that cannot be reached would make it wait
		d.members.Resume()
		for _, path := range paths {
			path.Heal()
			path.CutMute()
		}
		_ = c.Close()
	})
	return c, nil
}

// somebody is a client of nobody under test: no Cut concerns it, and it tells no Tracer and no Logger.
// verb and name are for what it says if it cannot reach a majority.
func (d *Deployment) somebody(verb, name string) *redlock.Client {
	d.t.Helper()
	if d.other == nil {
		silent := d.config
		if silent.Tracer, silent.Logger = (redlock.Tracer{}), nil; silent.Label != "" { // who looks for a label finds it, and another one
			silent.Label = "somebody else"
		}
		other, err := d.open(d.network(), silent)
		if err != nil {
			d.failed(verb, name, err)
		}
		d.other = other
	}
	d.sees(d.other, d.running(), false) // again: members may have been restarted, or resumed, a moment ago
	return d.other
}

// running are the members that answer.
func (d *Deployment) running() []int {
	stopped := d.stopped()
	return slices.DeleteFunc(d.these(nil), func(i int) bool { return slices.Contains(stopped, i) })
}

// failed ends a test whose verb needs a majority of the members, and says which of them are not there.
func (d *Deployment) failed(verb, name string, err error) {
	d.t.Helper()
	why := ""
	if stopped := d.stopped(); len(stopped) > 0 {
		why = fmt.Sprintf(" (of the members, %v do not run: Resume them first)", stopped)
	} else if errors.Is(err, redlock.ErrQuarantined) || errors.Is(err, redlock.ErrNoQuorum) { // or were just restarted
		why = " (call AwaitState(redlock.MemberVoting) first)"
	}
	d.t.Fatalf("redlocktest: %s %q: %v%s", verb, name, err, why)
}

// stopped are the members that answer nobody.
func (d *Deployment) stopped() []int {
	var not []int
	for i := range d.members.Len() {
		if !d.members.Embedded(i).Answers() {
			not = append(not, i)
		}
	}
	return not
}

// patience is how long a verb tries: in fake time it costs nothing.
const patience = 30 * time.Second

// await polls until ready, for a while, and says what was not. It begins with short pauses.
func (d *Deployment) await(limit, longest time.Duration, ready func(ctx context.Context) bool, failed func() string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), limit)
	defer cancel()
	pause := time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !ready(ctx) {
		select {
		case <-timer.C:
			pause = min(2*pause, longest)
			timer.Reset(pause)
		case <-ctx.Done():
			d.t.Fatalf("redlocktest: after %v %s", limit, failed())
		}
	}
}

// seldom is the longest pause between two looks that ask members.
const seldom = 100 * time.Millisecond

// Await waits until somebody holds the lock, or a permit of the semaphore of that name: a majority of
// the members says so. It is for every kind of lock. A latch and a barrier have no holder: call their
// own Await and Wait.
func (d *Deployment) Await(name string) {
	d.t.Helper()
	d.awaitSeen(name, "nobody holds %q", func(lock *redlock.Inspection, permits *redlock.Inspection) bool {
		return len(lock.Holders)+len(permits.Holders) > 0
	})
}

// AwaitPermits waits until exactly n slots of a semaphore are held, of all clients together.
func (d *Deployment) AwaitPermits(name string, n int) {
	d.t.Helper()
	held := 0
	d.awaitSeen(name, "%[2]d slots of the semaphore %[1]q are held, and not %[3]d", func(_ *redlock.Inspection, permits *redlock.Inspection) bool {
		held = 0
		for _, h := range permits.Holders {
			held += len(h.Slots)
		}
		return held == n
	}, &held, &n)
}

// AwaitWaiting waits until exactly n wait for a lock, or for permits of the semaphore of that name: a
// majority of the members has that many in line. All callers of one client that want one mutex are one
// there, because they wait for each other in the client. Callers that want permits are one each.
func (d *Deployment) AwaitWaiting(name string, n int) {
	d.t.Helper()
	waiting := 0
	need := d.members.Len()/2 + 1
	d.awaitSeen(name, "%[2]d wait for %[1]q, and not %[3]d", func(lock *redlock.Inspection, permits *redlock.Inspection) bool {
		votes := make(map[string]int)
		for _, m := range lock.Members {
			for _, w := range m.Queue {
				if w.Live {
					votes["lock "+w.Owner]++
				}
			}
		}
		for _, m := range permits.Members {
			for _, w := range m.Queue {
				if w.Live {
					votes["permit "+w.Owner]++
				}
			}
		}
		for _, h := range lock.Holders { // one that waited may be in line for a while where it got no vote
			delete(votes, "lock "+h.Owner)
		}
		for _, h := range permits.Holders {
			delete(votes, "permit "+h.Owner)
		}
		waiting = 0
		for _, v := range votes {
			if v >= need {
				waiting++
			}
		}
		return waiting == n
	}, &waiting, &n)
}

// awaitSeen polls what the members say of a name. failed is what is not so, for the name and numbers.
func (d *Deployment) awaitSeen(name, failed string, ready func(*redlock.Inspection, *redlock.Inspection) bool, numbers ...*int) {
	d.t.Helper()
	other, last := d.somebody("await", name), error(nil)
	none := &redlock.Inspection{}
	d.await(patience, seldom, func(ctx context.Context) bool {
		lock, err := other.Inspect(ctx, name)
		permits := none
		if err == nil && !d.config.Interop { // which has no semaphores
			permits, err = other.InspectSemaphore(ctx, name)
		}
		if last = err; err != nil {
			return false
		}
		return ready(lock, permits)
	}, func() string {
		args := []any{name}
		for _, n := range numbers {
			args = append(args, *n)
		}
		text := fmt.Sprintf(failed, args...)
		if last != nil {
			return text + ": " + last.Error()
		}
		return text + d.has()
	})
}

// has says what members have, for a test that waits for another name.
func (d *Deployment) has() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.t.Context()), time.Second)
	defer cancel()
	keys, err := d.members.Leftovers(ctx, lasting...)
	switch {
	case err != nil:
		return ""
	case len(keys) == 0:
		return ", and members have no keys"
	}
	return fmt.Sprintf(", and members have the keys %q", keys)
}

// AwaitState waits until Deployment.Client sees the members in a state, as redlock.MemberVoting.
func (d *Deployment) AwaitState(state string, members ...int) {
	d.t.Helper()
	if states := []string{redlock.MemberVoting, redlock.MemberQuarantined, redlock.MemberRestoring, redlock.MemberDown}; !slices.Contains(states, state) {
		d.t.Fatalf("redlocktest: there is no state %q: it is one of %q", state, states)
	}
	members = d.these(members)
	longest := max(d.config.MaxTTL, 30*time.Second) // a quarantine
	d.await(2*longest+patience, seldom, func(context.Context) bool {
		infos := d.Client.Members()
		return !slices.ContainsFunc(members, func(i int) bool { return infos[i].State != state })
	}, func() string {
		var not []string
		for i, m := range d.Client.Members() {
			if slices.Contains(members, i) && m.State != state {
				not = append(not, describe(i, m))
			}
		}
		return fmt.Sprintf("not all members are %s: %s", state, strings.Join(not, "; "))
	})
}

// describe says in which state a client sees a member, and why.
func describe(i int, m redlock.MemberInfo) string {
	text := fmt.Sprintf("member %d is %s", i, m.State)
	if !m.Until.IsZero() {
		text += " until " + m.Until.Format(time.TimeOnly)
	}
	if m.Err != nil {
		text += " (" + m.Err.Error() + ")"
	}
	return text
}

// Take gives the lock to somebody else, and takes it from its holders first. A holder learns of it
// with its next renewal, and until then the lease seems to be valid: so a program must be ready for
// that. Take works while Deployment.Client is cut off, and needs a majority of members that run.
// Unlock the lease to free the lock again. A semaphore has a permit for many: use Lose.
func (d *Deployment) Take(name string) *redlock.Lease {
	d.t.Helper()
	other := d.somebody("take", name)
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	for range 1000 { // a lock that is forced open goes to whoever waits for it
		lease, err := other.Mutex(name).TryLock(ctx)
		if err == nil {
			return lease
		}
		if !errors.Is(err, redlock.ErrHeld) {
			d.failed("take", name, err)
		}
		if _, err := other.ForceUnlock(ctx, name); err != nil {
			d.failed("take", name, err)
		}
	}
	d.t.Fatalf("redlocktest: take %q: too many wait for it", name)
	return nil
}

// Lose takes the votes of a lease from its members, and has its client notice. When Lose returns, the
// lease has ended with a LostError. Its lock is free, or belongs to who waited for it. The lease may
// be of any kind, and nobody else loses anything, but for readers: those of one client share what they
// hold, and lose it together. Lease.Extend is what notices, so the client must reach a majority. A
// lease that was lost before is left alone.
func (d *Deployment) Lose(lease *redlock.Lease) {
	d.t.Helper()
	switch {
	case lease == nil:
		d.t.Fatalf("redlocktest: lose: nil lease")
	case errors.Is(lease.Err(), redlock.ErrLost):
		return
	case lease.Err() != nil:
		d.t.Fatalf("redlocktest: lose %q: the lease has ended by itself: %v", lease.Key(), lease.Err())
	}
	other := d.somebody("lose", lease.Key())
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	if err := force(ctx, other, lease); err != nil {
		d.failed("lose", lease.Key(), err)
	}
	ttl := 30 * time.Second
	if d.config.MaxTTL > 0 {
		ttl = min(ttl, d.config.MaxTTL)
	}
	var said error
	d.await(patience, seldom, func(ctx context.Context) bool { // again, because a lease that has just been extended asks nobody
		if said = force(ctx, other, lease); said == nil { // and again, because members may not have agreed yet on who has which slot
			said = lease.Extend(ctx, ttl)
		}
		return lease.Err() != nil
	}, func() string {
		return fmt.Sprintf("the lease of %q has not ended: its client must reach a majority: %v", lease.Key(), said)
	})
}

// force takes what a lease has at the members, and nothing of anybody else.
func force(ctx context.Context, other *redlock.Client, lease *redlock.Lease) error {
	look := other.Inspect
	if len(lease.Slots()) > 0 {
		look = other.InspectSemaphore
	}
	seen, err := look(ctx, lease.Key())
	if err != nil {
		return err
	}
	seen.Holders = nil // the votes of members, also if they are no majority
	found := false
	for i := range seen.Members {
		m := &seen.Members[i]
		m.Votes = slices.DeleteFunc(m.Votes, func(v redlock.VoteView) bool { return v.Owner != lease.Owner() })
		found = found || len(m.Votes) > 0
	}
	if !found {
		return nil
	}
	_, err = other.ForceUnlockSeen(ctx, seen)
	return err
}

// Cut breaks the connections of the clients under test to members, and refuses new ones until Heal.
// When it returns, each of the clients knows that. Somebody else, who has what Take took, reaches the
// members all the same.
func (d *Deployment) Cut(members ...int) {
	d.t.Helper()
	d.eachPath(members, func(l *redistest.Link) { l.Refuse(true); l.Cut() })
	d.know(members, true)
}

// Heal ends Cut, Network and Delay for all clients. When it returns, they have connected again to all
// of these members that run. That takes them half a second at most, and each of the members votes, or
// is in quarantine.
func (d *Deployment) Heal(members ...int) {
	d.t.Helper()
	d.eachPath(members, func(l *redistest.Link) { l.Heal(); l.CutMute() })
	d.know(members, false)
}

// know waits until the clients know that members are down, or that those which run are not.
func (d *Deployment) know(members []int, down bool) {
	d.t.Helper()
	members = d.these(members)
	if running := d.running(); !down {
		members = slices.DeleteFunc(slices.Clone(members), func(i int) bool { return !slices.Contains(running, i) })
	}
	for _, c := range d.clients {
		d.sees(c, members, down)
	}
}

// sees waits until a client knows that members are down, or that they are not.
func (d *Deployment) sees(c *redlock.Client, members []int, down bool) {
	d.t.Helper()
	d.await(patience, time.Millisecond, func(ctx context.Context) bool {
		infos := c.Members()
		if !slices.ContainsFunc(members, func(i int) bool { return (infos[i].State == redlock.MemberDown) != down }) {
			return true
		}
		_, err := c.Inspect(ctx, "redlocktest")
		return errors.Is(err, redlock.ErrClosed) // which knows nothing any more
	}, func() string {
		var all []string
		for _, i := range members {
			all = append(all, describe(i, c.Members()[i]))
		}
		return "a client does not know of its network: " + strings.Join(all, "; ")
	})
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

// Evict deletes what members have of one lock, semaphore, latch, or barrier of that name, and nothing else, as
// a server does that is short of memory and evicts keys, or a person who deletes one. No restart guard
// sees that: the members go on voting. Who holds the lock gives it back to a minority with its next
// renewal. If a majority has lost it, somebody else can get the lock before the holder learns of that.
func (d *Deployment) Evict(name string, members ...int) {
	d.t.Helper()
	members = d.these(members)
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	key, gone := d.config.Prefix+name, int64(0)
	for _, i := range members {
		n, err := d.members.Servers[i].Do(ctx, "DEL", key, slot.Sibling("redquorum:s1", key), slot.Sibling("redquorum:l1", key), slot.Sibling("redquorum:b1", key), slot.Sibling("redquorum:e1", key))
		if err != nil {
			d.failed("evict", name, fmt.Errorf("member %d: %w", i, err))
		}
		deleted, _ := n.(int64)
		gone += deleted
	}
	if gone == 0 {
		d.t.Fatalf("redlocktest: evict %q: none of the members %v has anything of that name%s", name, members, d.has())
	}
}

// Step sets the clocks of members forward, or back if by is negative. Keys end that much sooner, or
// later. No lock stands that: see what is claimed in docs/exclusion.md.
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
