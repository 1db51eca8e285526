package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// Eight clients on five members, with faults of every kind at random moments: at most one of them ever
// believes that it holds a lock, tokens rise, everybody gets on once the faults are over, and nothing is
// left behind. The seed decides the faults and what clients do; how goroutines interleave at one instant
// it does not, so a failing seed may need a few runs: go test -run 'Swarm/seed=7$' -count 20.
func TestSwarm(t *testing.T) {
	n := uint64(50)
	if raceEnabled || testing.Short() {
		n = 3 // under the race detector they take seconds each
	}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
				(&swarm{t: t, cluster: cluster, seed: seed}).run()
			})
		})
	}
}

// The same with members that forget: restarted empty or with their data, flushed, restored from a
// snapshot. The restart guard must keep all of it true.
func TestSwarmOnMembersThatForget(t *testing.T) {
	n := uint64(10)
	if raceEnabled || testing.Short() {
		n = 1
	}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
				(&swarm{t: t, cluster: cluster, seed: seed, forgets: true}).run()
			})
		})
	}
}

type swarm struct {
	t       *testing.T
	cluster *redistest.Cluster
	seed    uint64
	forgets bool
	peers   []*peer
	ref     referee
	wg      sync.WaitGroup

	mu   sync.Mutex
	odd  []string // errors that no call should return, or that tell a secret
	done bool
}

func (s *swarm) run() {
	config := func(c *Config) {
		c.TTL, c.MaxTTL, c.Entry = time.Second, 2*time.Second, 900*time.Millisecond
		c.PingInterval, c.StallTimeout = 500*time.Millisecond, 500*time.Millisecond
	}
	if s.forgets {
		s.peers = nil
		for range 8 {
			s.peers = append(s.peers, guarded(s.t, s.cluster, config, WithFreshMembers(), func(c *Config) { c.MaxTTL = time.Second }))
		}
		for _, p := range s.peers {
			p.voting(s.t, s.cluster.Len())
		}
	} else {
		s.peers = peers(s.t, s.cluster, 8, config)
	}
	for i, p := range s.peers {
		p.jitter(s.seed*100+uint64(i), 5*time.Millisecond, 5*time.Millisecond, 10*time.Millisecond)
		s.wg.Go(func() { s.client(p, rand.New(rand.NewPCG(s.seed, uint64(i)))) })
	}
	s.chaos(rand.New(rand.NewPCG(s.seed, 1000)))

	// Quiet again: everybody gets each lock once more.
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.wg.Wait()
	time.Sleep(5 * time.Second)
	for _, p := range s.peers {
		p.settle(s.t, s.cluster.Len())
		if s.forgets {
			p.voting(s.t, s.cluster.Len())
		}
	}
	for _, p := range s.peers {
		for _, name := range swarmNames {
			s.wg.Go(func() {
				ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
				defer cancel()
				l, err := p.Mutex(name).Lock(ctx)
				if err != nil {
					s.note(fmt.Sprint("after the faults: ", err))
					return
				}
				s.ref.granted(l)
				_ = l.Unlock(ctx)
			})
		}
	}
	s.wg.Wait()
	time.Sleep(time.Second)
	s.ref.verdict(s.t)
	require.Empty(s.t, s.odd)
	require.Greater(s.t, s.ref.count, 20, "too few grants to prove anything")
	leftovers(s.t, s.cluster)
}

var swarmNames = []string{"{s}a", "{s}b"} // one bucket

func (s *swarm) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = append(s.odd, what)
}

func (s *swarm) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// check notes an error that is none of the documented ones, or that names an owner.
func (s *swarm) check(err error, allowed ...error) {
	if err == nil {
		return
	}
	for _, p := range s.peers {
		if strings.Contains(err.Error(), p.uuid) {
			s.note("a secret: " + err.Error())
		}
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	s.note(err.Error())
}

// client takes one lock after the other, in every way there is.
func (s *swarm) client(p *peer, random *rand.Rand) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for !s.over() {
		opt := AutoRenew(150*time.Millisecond + upTo(800*time.Millisecond))
		if random.IntN(3) == 0 {
			opt = TTL(60*time.Millisecond + upTo(900*time.Millisecond))
		}
		m := p.Mutex(swarmNames[random.IntN(2)], opt)
		ctx, cancel := context.WithTimeout(s.t.Context(), upTo(3*time.Second))
		if random.IntN(4) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(s.t.Context(), upTo(30*time.Millisecond))
		}
		get := m.Lock
		if random.IntN(5) == 0 {
			get = m.TryLock
		}
		l, err := get(ctx)
		allowed := []error{ErrHeld, ErrNoQuorum, ErrTooSlow, context.DeadlineExceeded}
		if s.forgets {
			allowed = append(allowed, ErrQuarantined)
		}
		s.check(err, allowed...)
		if err == nil {
			s.ref.granted(l)
			s.use(l, random)
		}
		cancel()
		time.Sleep(upTo(250 * time.Millisecond))
	}
}

// use holds a lease for a while, longer than it lasts now and then.
func (s *swarm) use(l *Lease, random *rand.Rand) {
	ctx := s.t.Context()
	switch random.IntN(8) {
	case 0:
		s.check(l.Extend(ctx, 50*time.Millisecond+time.Duration(random.Int64N(int64(900*time.Millisecond)))), ErrNoQuorum, ErrLost)
	case 1: // forgotten: it is lost, or ends here
		select {
		case <-l.Done():
		case <-time.After(1200 * time.Millisecond):
		}
	}
	select {
	case <-l.Done():
	case <-time.After(time.Duration(random.Int64N(int64(60 * time.Millisecond)))):
	}
	s.check(l.Unlock(ctx), ErrLost, ErrInDoubt)
}

// chaos breaks something every now and then, and mends it a little later, for two seconds.
func (s *swarm) chaos(random *rand.Rand) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	var mending sync.WaitGroup
	later := func(f func()) {
		d := upTo(900 * time.Millisecond)
		mending.Go(func() { time.Sleep(d); f() })
	}
	down := make([]bool, s.cluster.Len())
	var mu sync.Mutex // guards down
	length, lapse := 2*time.Second, time.Now()
	if s.forgets {
		length = 6 * time.Second
	}
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(upTo(80 * time.Millisecond)) {
		if s.forgets && time.Since(lapse) > 0 {
			lapse = time.Now().Add(upTo(2 * time.Second))
			s.forget(random)
		}
		i := random.IntN(s.cluster.Len())
		p := s.peers[random.IntN(len(s.peers))]
		link, server := p.links[i], s.cluster.Servers[i]
		script := redistest.WithArg([]script{acquireScript, waitScript, releaseScript, yieldScript, raiseScript, extendScript}[random.IntN(6)].sha)
		switch random.IntN(12) {
		case 0:
			link.Cut()
		case 1:
			link.Zombie(upTo(300 * time.Millisecond))
		case 2:
			link.LoseReply(script, 1)
		case 3:
			link.CutAfter(script, 1)
		case 4:
			link.CutBefore(script, 1)
		case 5:
			link.DelayCommand(script, 1, upTo(300*time.Millisecond))
		case 6:
			link.LosePush(1 + random.IntN(3))
		case 7:
			link.DelayPush(redistest.Delay{Fixed: upTo(300 * time.Millisecond)})
			later(func() { link.DelayPush(redistest.Delay{}) })
		case 8:
			link.Pause()
			later(link.Resume)
		case 9: // a client by itself
			p.everyLink(func(l *redistest.Link) { l.Refuse(true); l.Cut() })
			later(func() { p.everyLink(func(l *redistest.Link) { l.Refuse(false) }) })
		case 10:
			server.Pause()
			later(server.Resume)
		case 11:
			mu.Lock()
			if !down[i] {
				down[i] = true
				server.Kill()
				later(func() {
					_ = server.Restart(true)
					mu.Lock()
					down[i] = false
					mu.Unlock()
				})
			}
			mu.Unlock()
		}
	}
	mending.Wait()
	for _, p := range s.peers {
		p.everyLink((*redistest.Link).Heal)
	}
	synctest.Wait()
}

// forget makes one or two members forget, in one of the ways there are. It returns at once.
func (s *swarm) forget(random *rand.Rand) {
	n := 1 + random.IntN(2)
	if random.IntN(8) == 0 {
		n = s.cluster.Len()
	}
	for _, i := range random.Perm(s.cluster.Len())[:n] {
		server, kind := s.cluster.Servers[i], random.IntN(4)
		pause := time.Duration(random.Int64N(int64(500 * time.Millisecond)))
		s.wg.Go(func() {
			switch kind {
			case 0:
				_ = server.Flush()
			case 1, 2:
				server.Kill()
				time.Sleep(pause)
				_ = server.Restart(kind == 1)
			case 3:
				if server.Snapshot() == nil {
					time.Sleep(pause)
					_ = server.Rollback()
				}
			}
		})
	}
}
