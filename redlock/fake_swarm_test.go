package redlock_test

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Seeds: clients on embedded members in fake time, with faults of every kind at random moments. A seed
// draws everything: members, clients, terms, delays, what each caller does, what breaks and when. Whatever
// it draws, this must hold:
//
//   - nobody gets a lock while another believes in its lease of it;
//   - tokens rise;
//   - a storage that looks at the tokens loses no update, and refuses no write of a valid lease;
//   - once the faults are over, everybody gets every lock within seconds, and nothing is left behind:
//     no key at a member, and (by synctest) no goroutine.
//
// REDQUORUM_SEED=7 plays seed 7 alone, and with -v prints what happened. REDQUORUM_SEEDS=1000 plays so many.
//
// How exactly a seed replays: everything that is random in the clients, the members and the test has the
// seed as its source, all runs on one processor, and delays are drawn to the nanosecond, so that two things
// hardly ever happen at one instant. What is left to the Go runtime is the order of what does: of timers
// that are due together, of the ready cases of a select, of maps, and where the wall clock preempts a
// goroutine. So about nine seeds in ten have the same history each time (TestSeedsReplayExactly measures
// it), and the tenth may need a few runs: add -count 20. Under the race detector, which shuffles the
// scheduler on purpose, none is promised to.

// Scenes of sets, of all kinds and of semaphores: every other call takes several of three names, in any order; each call is of
// any kind, plain or in strict order, a writer's or a reader's, of one name or of several; each is for one to three slots.
func ofSets(_ uint64, sc *scene) { sc.sets, sc.names = true, []string{"{s}a", "{s}b", "{s}c"} }
func ofKinds(seed uint64, sc *scene) {
	sc.kinds, sc.sets, sc.fair, sc.names = true, true, 0, []string{"{s}a", "{s}b", "{s}c"}[:1+seed%3]
}
func ofSemaphores(seed uint64, sc *scene) { sc.fair, sc.slots = 0, []int{2, 1, 3, 5, 50}[seed%5] }
func ofMutexes(uint64, *scene)            {}

func playSeeds(t *testing.T, first, n uint64, change func(seed uint64, sc *scene)) (sum seedTally) {
	t.Helper()
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			sc := drawScene(seed)
			change(seed, &sc)
			s := playScene(t, sc)
			sum.add(s)
			if testing.Verbose() && n == 1 {
				t.Log("\n" + s.book.history())
			}
			if wrong := s.wrong(); len(wrong) > 0 {
				test, _, _ := strings.Cut(t.Name(), "/")
				t.Errorf("REDQUORUM_SEED=%d go test -run '^%s$' ./redlock\n%v, %d slots\n%s\nlast events:\n%s",
					seed, test, s.scene, s.slots, strings.Join(wrong, "\n"), s.book.last(60))
			}
		})
	}
	t.Log(sum.String())
	return sum
}

// The ways of asking in scenes of all kinds.
const (
	wayMutex = iota
	wayFair
	wayWrite
	wayRead
	waySet
	wayFairSet
	wayDowngrade
	ways
)

var wayNames = [ways]string{"mutex", "fair", "write", "read", "set", "fair set", "downgrade"}

// sceneKind is which faults a scene has.
type sceneKind int

const (
	sceneNetwork   sceneKind = iota // all that can happen between clients and members, and members that are killed and remember
	sceneClocks                     // the same, and members' clocks within the bounds: other rates, and set back
	sceneForgetFew                  // members forget, never more at a time than leaves enough that know; clocks at other rates
	sceneForgetAny                  // any number of members forget; their clocks are right
	sceneFenceOnly                  // locks are forced open and clocks jump: only the tokens keep order
	sceneKinds
	sceneCalm // no faults, for what a test breaks by itself
)

var sceneNames = map[sceneKind]string{sceneNetwork: "network", sceneClocks: "clocks", sceneForgetFew: "forget few", sceneForgetAny: "forget any", sceneFenceOnly: "fence only", sceneCalm: "calm"}

type scene struct {
	seed             uint64
	kind             sceneKind
	members, clients int
	callers          int // of each client
	fair             int // clients that lock in strict order: 0 none, 1 each second one, 2 all
	names            []string
	guard            bool // the clients have a restart guard
	maxTTL, entry    time.Duration
	jitter           [3]time.Duration // requests, replies, pushes: up to
	hold             time.Duration    // up to
	length           time.Duration    // of the faults
	sets             bool             // every other call takes several names
	kinds            bool             // each call is of any kind
	slots            int              // each call is of a semaphore with so many; 0: none is

	// What TestSeedsFindWhatIsBroken takes out.
	rate      float64 // of all members' clocks
	unguarded bool    // members forget, and nobody looks
	lowered   bool    // counters fall
	unfenced  bool    // the storage takes every write
	squatter  bool    // somebody has the lock for good
	litter    bool    // a key that nobody owns
}

func (sc scene) String() string {
	return fmt.Sprintf("seed %d: %s, %d members, %d clients with %d callers, fair %d, %d names, guard %v, MaxTTL %v, delays %v, holds %v, faults for %v",
		sc.seed, sceneNames[sc.kind], sc.members, sc.clients, sc.callers, sc.fair, len(sc.names), sc.guard, sc.maxTTL, sc.jitter, sc.hold, sc.length)
}

func drawScene(seed uint64) scene {
	r := rand.New(rand.NewPCG(seed, 0xd1ce))
	pick := func(d ...time.Duration) time.Duration { return d[r.IntN(len(d))] }
	ms := time.Millisecond
	sc := scene{
		seed: seed, kind: sceneKind(r.IntN(int(sceneKinds))),
		members: []int{1, 3, 3, 5, 5}[r.IntN(5)], clients: 2 + r.IntN(7), callers: 1 + r.IntN(2),
		names:  []string{"{s}a", "{s}b"}[:1+r.IntN(2)], // one bucket
		maxTTL: pick(time.Second, 2*time.Second), entry: pick(300*ms, 900*ms),
		hold: pick(5*ms, 60*ms), length: 1200 * ms, rate: 1,
	}
	sc.jitter = [3]time.Duration{pick(ms, 5*ms, 20*ms), pick(ms, 5*ms, 20*ms), pick(ms, 10*ms, 50*ms)}
	sc.guard = r.IntN(3) == 0
	sc.fair = max(0, int(seed%5)-2)
	if sc.kind == sceneForgetFew || sc.kind == sceneForgetAny {
		sc.guard, sc.maxTTL, sc.length = true, time.Second, 3*time.Second
		sc.clients, sc.callers = min(sc.clients, 5), 1
	}
	return sc
}

type swarm struct {
	scene
	t       *testing.T
	cluster *redistest.Cluster
	peers   []*redlock.Peer
	book    *ledger
	wg      sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	over     bool
	calls    int // of Lock and TryLock
	faults   int
	forgot   int   // members that were made to forget
	waitedMS int64 // the longest wait when all was well again
	ways     [ways]int
}

// playScene plays a scene in a bubble, on one processor and with one source of random numbers.
func playScene(t *testing.T, sc scene) *swarm {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	before := crand.Reader
	crand.Reader = seeded(sc.seed)
	defer func() { crand.Reader = before }()
	s := &swarm{scene: sc}
	faketime.Test(t, func(t *testing.T) {
		s.t, s.cluster, s.book = t, rt.Embedded(t, sc.members), newLedger(sc)
		s.run()
	})
	return s
}

// seeded is where client names and the pauses between dials come from.
func seeded(seed uint64) io.Reader {
	var s [32]byte
	s[0], s[1], s[2], s[3] = byte(seed), byte(seed>>8), byte(seed>>16), byte(seed>>24)
	return &lockedReader{r: rand.NewChaCha8(s)}
}

type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

func (s *swarm) config(c *redlock.Config) {
	c.TTL, c.MaxTTL, c.Entry = time.Second, s.maxTTL, s.entry
	c.PingInterval, c.StallTimeout = 500*time.Millisecond, 500*time.Millisecond
	if s.guard && (s.kind != sceneForgetFew && s.kind != sceneForgetAny || s.unguarded) {
		c.RestartGuard = redlock.GuardOff // members that are killed remember
	}
}

func (s *swarm) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, stream)) }

func (s *swarm) run() {
	guard := s.guard && !s.unguarded
	for range s.clients {
		if guard {
			s.peers = append(s.peers, redlock.Guarded(s.t, s.cluster, s.config, redlock.WithFreshMembers()))
		} else {
			s.peers = append(s.peers, redlock.Connect(s.t, s.cluster, s.config))
		}
	}
	s.settled(guard)
	for i, p := range s.peers {
		p.Jitter(s.seed*100+uint64(i), s.jitter[0], s.jitter[1], s.jitter[2])
		for k := range s.callers {
			s.wg.Go(func() { s.caller(p, i, s.random(uint64(10*i+k))) })
		}
	}
	s.chaos(s.random(1000))
	rt.Locked(&s.mu, func() { s.over = true })
	s.wg.Wait()

	// Quiet again: everybody gets each lock once more.
	s.book.event("quiet")
	time.Sleep(5 * time.Second)
	s.settled(guard)
	if s.squatter {
		redlock.Admin(s.t, s.cluster.Servers[0], "HSET", s.names[0], somebody, "1")
		for _, srv := range s.cluster.Servers[1:] {
			redlock.Admin(s.t, srv, "HSET", s.names[0], somebody, "1")
			redlock.Admin(s.t, srv, "PEXPIRE", s.names[0], "600000")
		}
		redlock.Admin(s.t, s.cluster.Servers[0], "PEXPIRE", s.names[0], "600000")
	}
	for i, p := range s.peers {
		for k, name := range s.names {
			d := time.Duration(i*len(s.names)+k) * time.Microsecond
			s.wg.Go(func() { time.Sleep(d); s.onceMore(p, i, name) })
		}
	}
	s.wg.Wait()
	if s.litter {
		redlock.Admin(s.t, s.cluster.Servers[0], "SET", "litter", "1")
	}
	time.Sleep(time.Second)
	if s.kinds {
		time.Sleep(2 * s.entry) // a plain release leaves the last ticket to the end of the entries
	}
	left := rt.Must(s.cluster.Leftovers(context.Background(), redlock.Lasting...))(s.t)
	if len(left) > 0 && !s.squatter {
		s.book.bad("keys left behind: %v", left)
	}
	s.book.close()
}

func (s *swarm) settled(guard bool) {
	for _, p := range s.peers {
		p.Settle(s.t, s.members)
		if guard {
			p.Voting(s.t, s.members)
		}
	}
}

func (s *swarm) onceMore(p *redlock.Peer, i int, name string) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	get := p.Mutex(name).Lock
	if s.slots > 0 {
		get = p.Semaphore(name, s.slots).Acquire
	}
	if s.kinds {
		get = []func(context.Context) (*redlock.Lease, error){get, p.Mutex(name, redlock.Fair()).Lock, p.RWMutex(name).Lock, p.RWMutex(name).RLock}[i%4]
	}
	start, floor, floors := time.Now(), s.book.floor(name), s.book.floors(name, s.slots)
	l, err := get(ctx)
	if err != nil {
		s.book.bad("after the faults: client %d: %v", i, err)
		return
	}
	s.entered(i, l, floor, floors)
	rt.Locked(&s.mu, func() { s.waitedMS = max(s.waitedMS, time.Since(start).Milliseconds()) })
	if err := l.Unlock(ctx); err != nil {
		s.book.bad("after the faults: client %d: %v", i, err)
	}
}

func (s *swarm) entered(i int, l *redlock.Lease, least floor, slots []floor) {
	if s.slots > 0 {
		s.book.permitted(i, l, slots)
		return
	}
	s.book.granted(i, l, least)
}

func (s *swarm) wrong() []string { return s.book.verdict() }

func (s *swarm) ended() bool { return rt.Under(&s.mu, func() bool { return s.over }) }

func (s *swarm) came(way int) { rt.Locked(&s.mu, func() { s.ways[way]++ }) }

// check books an error that is none of the documented ones, or that names an owner.
func (s *swarm) check(err error, allowed ...error) {
	if err == nil {
		return
	}
	for _, p := range s.peers {
		if strings.Contains(err.Error(), redlock.UUID(p.Client)) {
			s.book.bad("a secret in an error: %v", err)
		}
	}
	if !slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }) {
		s.book.bad("an error that nothing explains: %v", err)
	}
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// caller takes one lock after the other, in every way there is.
func (s *swarm) caller(p *redlock.Peer, i int, random *rand.Rand) {
	allowed := []error{redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrTooSlow, context.DeadlineExceeded, context.Canceled}
	if s.guard {
		allowed = append(allowed, redlock.ErrQuarantined)
	}
	time.Sleep(1 + upTo(random, 20*time.Millisecond))
	for !s.ended() {
		name := s.names[random.IntN(len(s.names))]
		opt := redlock.AutoRenew(150*time.Millisecond + upTo(random, 800*time.Millisecond))
		if random.IntN(3) == 0 {
			opt = redlock.TTL(60*time.Millisecond + upTo(random, 900*time.Millisecond))
		}
		var set []string
		way := wayMutex
		if s.kinds {
			way = []int{wayMutex, wayFair, wayWrite, wayRead, wayRead, waySet, wayFairSet}[random.IntN(7)]
		}
		if s.kinds && (way == waySet || way == wayFairSet) || !s.kinds && s.sets && random.IntN(2) == 0 {
			for _, k := range random.Perm(len(s.names))[:1+random.IntN(len(s.names))] {
				set = append(set, s.names[k])
			}
		}
		opts := []redlock.LockOption{opt}
		if s.fair == 2 || s.fair == 1 && i%2 == 1 {
			opts = append(opts, redlock.Fair())
		}
		if way == wayFair || way == wayFairSet {
			opts = append(opts, redlock.Fair())
		}
		ctx, cancel := context.WithCancel(s.t.Context())
		patience := upTo(random, 3*time.Second)
		if random.IntN(4) == 0 {
			patience = upTo(random, 30*time.Millisecond)
		}
		if random.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(s.t.Context(), patience)
		} else { // cancelled, and not late
			timer := time.AfterFunc(patience, cancel)
			defer timer.Stop()
		}
		m, rw := p.Mutex(name, opts...), p.RWMutex(name, opt)
		get, try := m.Lock, m.TryLock
		switch way {
		case wayWrite:
			get, try = rw.Lock, rw.TryLock
		case wayRead:
			get, try = rw.RLock, rw.TryRLock
		}
		if s.slots > 0 {
			sem := p.Semaphore(name, s.slots, opt, redlock.Permits(min(s.slots, 1+max(0, random.IntN(5)-2))))
			get, try = sem.Acquire, sem.TryAcquire
		}
		if random.IntN(5) == 0 {
			get = try
		}
		rt.Locked(&s.mu, func() { s.calls++ })
		if set != nil {
			try := random.IntN(5) == 0
			s.callSet(ctx, i, p.Multi(set, opts...), set, way, try, random, append(allowed, redlock.ErrLost)) // the third loss of a lease in hand
			cancel()
			time.Sleep(upTo(random, 250*time.Millisecond))
			continue
		}
		floor, floors := s.book.floor(name), s.book.floors(name, s.slots)
		l, err := get(ctx)
		s.check(err, allowed...)
		if err == nil {
			s.came(way)
			s.entered(i, l, floor, floors)
			s.use(i, l, way, random)
		} else {
			s.book.event("client %d does not get %s", i, name)
		}
		cancel()
		if s.kind == sceneFenceOnly && random.IntN(6) == 0 {
			_, err := p.ForceUnlock(s.t.Context(), name)
			s.check(err, append(allowed, redlock.ErrForeignKey)...)
			s.book.event("client %d forces %s", i, name)
		}
		time.Sleep(upTo(random, 250*time.Millisecond))
	}
}

func (s *swarm) callSet(ctx context.Context, i int, m *redlock.Multi, set []string, way int, try bool, random *rand.Rand, allowed []error) {
	get := m.Lock
	if try {
		get = m.TryLock
	}
	floors := make(map[string]floor, len(set))
	for _, name := range set {
		floors[name] = s.book.floor(name)
	}
	leases, err := get(ctx)
	s.check(err, allowed...)
	if err != nil {
		s.book.event("client %d does not get %d names", i, len(set))
		return
	}
	s.came(way)
	for _, l := range leases.All() {
		s.book.granted(i, l, floors[l.Key()])
	}
	for _, l := range leases.All() {
		s.book.write(l, upTo(random, 3*time.Millisecond), s.unfenced)
	}
	switch random.IntN(6) {
	case 0:
		s.check(leases.Extend(s.t.Context(), 50*time.Millisecond+upTo(random, 900*time.Millisecond)), redlock.ErrNoQuorum, redlock.ErrLost)
	case 1:
		time.Sleep(upTo(random, 1500*time.Millisecond))
	}
	select {
	case <-leases.Done():
		if ended := slices.ContainsFunc(leases.All(), func(l *redlock.Lease) bool { return l.Err() != nil }); !ended {
			s.book.bad("a set has ended, and none of its leases")
		}
	case <-time.After(1 + upTo(random, s.hold)):
	}
	for _, l := range leases.All() {
		s.book.write(l, upTo(random, 3*time.Millisecond), s.unfenced)
	}
	err = leases.Unlock(s.t.Context())
	s.check(err, redlock.ErrLost, redlock.ErrInDoubt)
	s.book.event("client %d unlocks %d names: %v", i, len(set), errors.Is(err, redlock.ErrLost))
}

// use holds a lease for a while and writes under it, longer than it lasts now and then.
func (s *swarm) use(i int, l *redlock.Lease, way int, random *rand.Rand) {
	ctx := s.t.Context()
	s.book.write(l, upTo(random, 3*time.Millisecond), s.unfenced)
	switch random.IntN(10) {
	case 0:
		s.check(l.Extend(ctx, 50*time.Millisecond+upTo(random, 900*time.Millisecond)), redlock.ErrNoQuorum, redlock.ErrLost)
	case 1: // forgotten: it is lost, or ends here
		select {
		case <-l.Done():
		case <-time.After(1200 * time.Millisecond):
		}
	case 2: // the process is stopped, and goes on as if nothing had happened
		time.Sleep(upTo(random, 1500*time.Millisecond))
	}
	select {
	case <-l.Done():
	case <-time.After(1 + upTo(random, s.hold)):
	}
	s.book.write(l, upTo(random, 3*time.Millisecond), s.unfenced)
	if way == wayWrite && random.IntN(2) == 0 {
		down, err := l.Downgrade(ctx)
		if s.check(err, redlock.ErrLost); err != nil {
			return
		}
		s.came(wayDowngrade)
		s.book.downgraded(l, down)
		s.use(i, down, wayDowngrade, random)
		return
	}
	err := l.Unlock(ctx)
	s.check(err, redlock.ErrLost, redlock.ErrInDoubt)
	s.book.event("client %d unlocks %s %d: %v", i, l.Key(), l.Token(), errors.Is(err, redlock.ErrLost))
}

// chaos breaks something every now and then, and mends it a little later.
func (s *swarm) chaos(random *rand.Rand) {
	if s.rate != 1 {
		for i := range s.members {
			s.cluster.Embedded(i).SetRate(s.rate)
		}
	}
	if s.kind == sceneClocks || s.kind == sceneForgetFew {
		for i := range s.members {
			s.cluster.Embedded(i).SetRate(1 + 0.004*(2*random.Float64()-1))
		}
	}
	var mending sync.WaitGroup
	down := make([]bool, s.members)
	var mu sync.Mutex // guards down
	lapse := time.Now().Add(upTo(random, 500*time.Millisecond))
	for end := time.Now().Add(s.length); time.Now().Before(end); time.Sleep(1 + upTo(random, 80*time.Millisecond)) {
		if time.Now().After(lapse) && s.lapse(random) {
			lapse = time.Now().Add(upTo(random, 2*time.Second))
		}
		if s.kind == sceneCalm {
			continue
		}
		rt.Locked(&s.mu, func() { s.faults++ })
		i, d := random.IntN(s.members), 1+upTo(random, 900*time.Millisecond)
		later := func(f func()) { mending.Go(func() { time.Sleep(d); f() }) }
		c := random.IntN(len(s.peers))
		p := s.peers[c]
		link, server := p.Links[i], s.cluster.Servers[i]
		scripts := []script.Script{script.Acquire, script.Wait, script.Release, script.Yield, script.Raise, script.Extend, script.Rejoin}
		if s.kinds {
			scripts = append(scripts, script.FairAcquire, script.FairWait, script.FairRelease, script.FairYield, script.RWRead, script.RWAwait, script.RWWait,
				script.RWRelease, script.RWDowngrade, script.RWRaise, script.RWExtend, script.RWRejoin)
		}
		if s.slots > 0 {
			scripts = []script.Script{script.SemAcquire, script.SemWait, script.SemRelease, script.SemClaim, script.SemRaise, script.SemExtend, script.SemRejoin}
		}
		script := redistest.WithArg(scripts[random.IntN(len(scripts))].SHA)
		short := 1 + upTo(random, 300*time.Millisecond)
		what := random.IntN(14)
		s.book.event("fault %d at client %d, member %d for %v", what, c, i, d)
		switch what {
		case 0:
			link.Cut()
		case 1:
			link.Zombie(short)
		case 2:
			link.LoseReply(script, 1)
		case 3:
			link.CutAfter(script, 1)
		case 4:
			link.CutBefore(script, 1)
		case 5:
			link.DelayCommand(script, 1, short)
		case 6:
			link.LosePush(1 + random.IntN(3))
		case 7:
			link.DelayPush(redistest.Delay{Fixed: short, Jitter: time.Millisecond})
			later(func() { link.DelayPush(redistest.Delay{Jitter: s.jitter[2]}) })
		case 8:
			link.Pause()
			later(link.Resume)
		case 9: // a client by itself
			p.Away()
			later(func() { p.EveryLink(func(l *redistest.Link) { l.Refuse(false) }) })
		case 10:
			server.Pause()
			later(server.Resume)
		case 11:
			link.DelayReply(script, 1, short)
		case 12:
			link.ZombieOn(script, 1, short)
		case 13:
			if s.kind == sceneForgetFew || s.kind == sceneForgetAny {
				break // a restart is a lapse there
			}
			mu.Lock()
			if !down[i] {
				down[i] = true
				server.Kill()
				later(func() {
					_ = server.Restart(true)
					rt.Locked(&mu, func() { down[i] = false })
				})
			}
			mu.Unlock()
		}
	}
	mending.Wait()
	for i, p := range s.peers {
		p.EveryLink((*redistest.Link).Heal)
		p.Jitter(s.seed*100+uint64(50+i), s.jitter[0], s.jitter[1], s.jitter[2])
	}
	synctest.Wait()
}

// lapse does what a kind of scene has beside the faults of the network. It does not wait, and reports
// false if nothing could be done now.
func (s *swarm) lapse(random *rand.Rand) bool {
	i := random.IntN(s.members)
	switch {
	case s.lowered:
		for _, srv := range s.cluster.Servers {
			redlock.Admin(s.t, srv, "HSET", member.TokensKey, redlock.BucketOf(s.names[0]), "1000")
		}
	case s.kind == sceneClocks: // back: what is held is held for longer
		d := -upTo(random, time.Second)
		s.book.event("clock of %d set by %v", i, d)
		s.cluster.Embedded(i).Step(d)
	case s.kind == sceneFenceOnly:
		d := upTo(random, 4*time.Second) - 2*time.Second
		s.book.event("clock of %d set by %v", i, d)
		s.cluster.Embedded(i).Step(d)
	case s.kind == sceneForgetFew:
		return s.forget(random, (s.members-1)/2-s.uncertain())
	case s.kind == sceneForgetAny:
		n := 1 + random.IntN(2)
		if random.IntN(8) == 0 {
			n = s.members
		}
		return s.forget(random, n)
	}
	return true
}

// uncertain counts the members that could not lend their counters to another now.
func (s *swarm) uncertain() (n int) {
	for _, srv := range s.cluster.Servers {
		ctx, cancel := context.WithTimeout(s.t.Context(), 1) // a paused one does not answer
		id, err := srv.Do(ctx, "HGET", "redquorum:boot", "id")
		state, err2 := srv.Do(ctx, "HGET", "redquorum:boot", "state")
		resting, err3 := srv.Do(ctx, "EXISTS", "redquorum:quarantine")
		info, err4 := srv.Do(ctx, "INFO", "server")
		cancel()
		run, _, _ := strings.Cut(fmt.Sprint(id), " ")
		if errors.Join(err, err2, err3, err4) != nil || state != "n" && state != "w" || resting != int64(0) ||
			!strings.Contains(fmt.Sprint(info), run) {
			n++
		}
	}
	return n
}

func (s *swarm) forget(random *rand.Rand, n int) bool {
	if n <= 0 {
		return false
	}
	for _, i := range random.Perm(s.members)[:min(n, s.members)] {
		server, way := s.cluster.Servers[i], random.IntN(4)
		pause := 1 + upTo(random, 500*time.Millisecond)
		s.book.event("member %d forgets, way %d", i, way)
		rt.Locked(&s.mu, func() { s.forgot++ })
		if way == 0 && !s.answers(server) {
			way = 1 // it is paused
		}
		if way == 3 && server.Snapshot() != nil {
			way = 2
		}
		switch way {
		case 0:
			_ = server.Flush()
		case 1, 2:
			server.Kill()
			s.wg.Go(func() { time.Sleep(pause); _ = server.Restart(way == 1) })
		case 3:
			s.wg.Go(func() { time.Sleep(pause); _ = server.Rollback() })
		}
	}
	return true
}

func (s *swarm) answers(srv redistest.Server) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 1)
	defer cancel()
	_, err := srv.Do(ctx, "PING")
	return err == nil
}

type ledger struct {
	began     time.Time
	fenceOnly bool
	storage   fence.Memory

	mu      sync.Mutex // guards the fields below
	events  []happening
	pages   map[string]*ledgerPage
	grants  int
	refused int // writes of overtaken holders
	lost    int
	faulty  []string
}

type happening struct {
	at   time.Duration
	text string
}

type ledgerPage struct {
	believed []*redlock.Lease // those that may still be
	tokens   map[uint64]bool  // those granted, and whether to a writer
	greatest floor            // of those granted
	value    int              // in the storage
	writes   int              // that it accepted
	writer   uint64           // the token of the last
}

func newLedger(sc scene) *ledger {
	b := &ledger{began: time.Now(), fenceOnly: sc.kind == sceneFenceOnly, pages: map[string]*ledgerPage{}}
	for _, n := range sc.names {
		b.pages[n] = &ledgerPage{tokens: map[uint64]bool{}}
		for slot := range sc.slots {
			b.pages[slotPage(n, slot)] = &ledgerPage{tokens: map[uint64]bool{}}
		}
	}
	return b
}

func slotPage(name string, slot int) string { return fmt.Sprintf("%s slot %d", name, slot) }

func (b *ledger) floors(name string, slots int) (all []floor) {
	for slot := range slots {
		all = append(all, b.floor(slotPage(name, slot)))
	}
	return all
}

func (b *ledger) permitted(client int, l *redlock.Lease, least []floor) {
	for _, s := range l.Slots() {
		if s.Number >= len(least) {
			b.bad("%q: slot %d of %d", l.Key(), s.Number, len(least))
			continue
		}
		b.enters(client, l, slotPage(l.Key(), s.Number), s.Token, least[s.Number])
	}
}

func (b *ledger) event(format string, args ...any) {
	rt.Locked(&b.mu, func() { b.eventLocked(format, args...) })
}

func (b *ledger) eventLocked(format string, args ...any) {
	b.events = append(b.events, happening{time.Since(b.began), fmt.Sprintf(format, args...)})
}

func (b *ledger) bad(format string, args ...any) {
	rt.Locked(&b.mu, func() { b.badLocked(format, args...) })
}

func (b *ledger) badLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.eventLocked("WRONG: %s", text)
	b.faulty = append(b.faulty, fmt.Sprintf("at %v: %s", time.Since(b.began), text))
}

// floor is the greatest token of any and of writers. What is asked for later must get a greater one
// than the first if it is a writer's, than the second if it is a reader's.
type floor struct{ any, written uint64 }

// floor is that of what was granted so far.
func (b *ledger) floor(name string) floor {
	return rt.Under(&b.mu, func() floor { return b.pages[name].greatest })
}

func (b *ledger) granted(client int, l *redlock.Lease, least floor) {
	b.enters(client, l, l.Key(), l.Token(), least)
}

// enters is granted for a lock, or for a slot of a semaphore.
func (b *ledger) enters(client int, l *redlock.Lease, key string, token uint64, least floor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[key]
	b.grants++
	b.eventLocked("client %d has %s, token %d, shared %v", client, key, token, l.Shared())
	if !b.fenceOnly { // without overlap they come in the order of their tokens
		least = p.greatest
	}
	if l.Shared() {
		least.any = least.written
	}
	if token <= least.any {
		b.badLocked("%q: token %d granted after %d", key, token, least.any)
	}
	if writer, before := p.tokens[token]; before && (writer || !l.Shared()) {
		b.badLocked("%q: token %d granted after itself", key, token)
	}
	p.believed = slices.DeleteFunc(p.believed, func(old *redlock.Lease) bool { return old.Err() != nil })
	for _, old := range p.believed {
		if !b.fenceOnly && !(l.Shared() && old.Shared()) {
			b.badLocked("%q: token %d granted while %d is valid for %v", key, token, old.Token(), time.Until(old.ValidUntil()))
		}
	}
	p.believed = append(p.believed, l)
	p.tokens[token] = !l.Shared()
	if p.greatest.any = max(p.greatest.any, token); !l.Shared() {
		p.greatest.written = max(p.greatest.written, token)
	}
}

func (b *ledger) downgraded(l, down *redlock.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eventLocked("token %d is downgraded", l.Token())
	if down.Token() != l.Token() || !down.Shared() || !errors.Is(l.Err(), redlock.ErrDowngraded) {
		b.badLocked("a downgrade of %d gave %d, and the old lease ended with %v", l.Token(), down.Token(), l.Err())
	}
	p := b.pages[l.Key()]
	p.believed = append(p.believed, down)
}

// read reads a value in the storage twice. Nobody may write between while the lease is valid, and
// the storage must not refuse the lease meanwhile.
func (b *ledger) read(l *redlock.Lease, takes time.Duration) {
	err := b.storage.CheckShared(context.Background(), l.Key(), l.Token())
	p := b.pages[l.Key()]
	b.mu.Lock()
	first := p.writes
	b.mu.Unlock()
	valid := l.Err() == nil
	if err == nil {
		time.Sleep(takes)
	}
	stillValid := l.Err() == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.refused++
		b.eventLocked("a read with token %d is refused", l.Token())
	}
	if valid && err != nil && !b.fenceOnly {
		b.badLocked("%q: a read of the valid lease %d: %v", l.Key(), l.Token(), err)
	}
	if stillValid && err == nil && p.writes != first && !b.fenceOnly {
		b.badLocked("%q: a write while %d is read under a valid lease", l.Key(), l.Token())
	}
	if !valid {
		b.lost++
	}
}

// write reads a value in the storage and writes it back greater by one, which takes a while. The storage
// must refuse it if a later holder has been there, and must not if the lease is valid.
func (b *ledger) write(l *redlock.Lease, takes time.Duration, unfenced bool) {
	if l.Shared() {
		b.read(l, takes)
		return
	}
	if slots := l.Slots(); len(slots) > 0 {
		for _, s := range slots {
			b.writeAs(l, slotPage(l.Key(), s.Number), s.Token, takes, unfenced)
		}
		return
	}
	b.writeAs(l, l.Key(), l.Token(), takes, unfenced)
}

// writeAs is write to what belongs to a lock, or to a slot of a semaphore.
func (b *ledger) writeAs(l *redlock.Lease, key string, token uint64, takes time.Duration, unfenced bool) {
	ctx := context.Background()
	p := b.pages[key]
	err := b.storage.Check(ctx, key, token)
	b.mu.Lock()
	read := p.value
	b.mu.Unlock()
	if err == nil || unfenced {
		time.Sleep(takes)
		put := func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if token < p.writer && !unfenced {
				b.badLocked("%q: a write with token %d after one with %d", key, token, p.writer)
			}
			p.value, p.writer = read+1, token
			p.writes++
			return nil
		}
		if unfenced {
			err = put()
		} else {
			err = b.storage.Do(ctx, key, token, put)
		}
	}
	valid := l.Err() == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.refused++
		b.eventLocked("a write with token %d is refused", token)
		if valid && !b.fenceOnly {
			b.badLocked("%q: a write of the valid lease %d: %v", key, token, err)
		}
	}
	if !valid {
		b.lost++
	}
}

func (b *ledger) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, p := range b.pages {
		if p.value != p.writes {
			b.badLocked("%q: lost update: %d writes were accepted, the value is %d", name, p.writes, p.value)
		}
	}
	if b.grants == 0 {
		b.badLocked("no grant: nothing is proved")
	}
}

func (b *ledger) verdict() []string {
	return rt.Under(&b.mu, func() []string { return slices.Clone(b.faulty) })
}

// sorted is the history; what happened at one instant is in the order of its text.
func (b *ledger) sorted() []happening {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.events)
	slices.SortStableFunc(all, func(x, y happening) int {
		return cmp.Or(cmp.Compare(x.at, y.at), strings.Compare(x.text, y.text))
	})
	return all
}

func (b *ledger) history() string { return b.last(1 << 30) }

func (b *ledger) last(n int) string {
	all := b.sorted()
	var out strings.Builder
	for _, e := range all[max(0, len(all)-n):] {
		fmt.Fprintf(&out, "%14v %s\n", e.at, e.text)
	}
	return out.String()
}

func (b *ledger) hash() uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, b.history())
	return h.Sum64()
}

// seedTally is what a number of seeds did, to be sure that they did anything.
type seedTally struct {
	seeds, calls, grants, faults, forgot, refused, lost int
	kinds                                               [sceneKinds]int
	longest                                             int64
	members                                             map[int]int
	ways                                                [ways]int
}

func (y *seedTally) add(s *swarm) {
	if y.members == nil {
		y.members = map[int]int{}
	}
	y.seeds++
	y.kinds[s.kind]++
	y.members[s.scene.members]++
	y.calls += s.calls
	y.faults += s.faults
	y.forgot += s.forgot
	y.grants += s.book.grants
	y.refused += s.book.refused
	y.lost += s.book.lost
	y.longest = max(y.longest, s.waitedMS)
	for way, n := range s.ways {
		y.ways[way] += n
	}
}

func (y *seedTally) String() string {
	return fmt.Sprintf("%d seeds: %d calls, %d grants, %d faults, %d members forgot, %d writes refused, %d of leases that were over; longest wait after the faults %d ms; of each kind %v, by members %v",
		y.seeds, y.calls, y.grants, y.faults, y.forgot, y.refused, y.lost, y.longest, y.kinds, y.members)
}

func (y *seedTally) enough(t *testing.T) {
	t.Helper()
	for k, n := range y.kinds {
		require.Greater(t, n, y.seeds/20, sceneNames[sceneKind(k)])
	}
	require.Greater(t, y.grants, 15*y.seeds)
	require.Greater(t, y.faults, 20*y.seeds)
	require.Greater(t, y.forgot, y.seeds/4)
	require.Positive(t, y.refused)
	require.Greater(t, y.lost, y.seeds/4)
	for _, n := range []int{1, 3, 5} {
		require.Greater(t, y.members[n], y.seeds/20)
	}
}
