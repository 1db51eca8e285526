package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// workload is clients that contend for keys, over and over, on real servers, until it is stopped. Each
// client is a redlock.Client with connections of its own, as of a process of its own. It takes a key, adds
// to the guarded and the unguarded set of the key, and gives it back.
type workload struct {
	judge.Recorder
	store judge.Store

	cluster *redistest.Cluster
	clients []*redlock.Client
	terms   terms
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	errs    []error
	unlocks []error
}

// terms describes a workload. The zero value of a field is its default.
type terms struct {
	clients int           // default 16
	keys    int           // shared by all clients; default 1
	name    string        // of the keys, to which their number is added; default "key"
	ttl     time.Duration // of fixed leases; 0: renewed
	maxTTL  time.Duration // default 1 s
	hold    time.Duration // default 1 ms
	config  func(*redlock.Config)
}

// start starts a workload, and waits until every client can vote at all members: the members must be up.
func start(t testing.TB, cluster *redistest.Cluster, x terms) *workload {
	t.Helper()
	if x.clients == 0 {
		x.clients = 16
	}
	if x.keys == 0 {
		x.keys = 1
	}
	if x.name == "" {
		x.name = "key"
	}
	if x.maxTTL == 0 {
		x.maxTTL = time.Second
	}
	if x.hold == 0 {
		x.hold = time.Millisecond
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &workload{cluster: cluster, terms: x, stop: stop}
	t.Cleanup(w.halt)
	for range x.clients {
		c := open(t, cluster, func(c *redlock.Config) {
			c.TTL, c.MaxTTL = x.maxTTL, x.maxTTL
			c.FreshMembers = true // the servers were started for this test; what restarts later is not fresh
			if x.config != nil {
				x.config(c)
			}
		})
		w.clients = append(w.clients, c)
	}
	for i := range w.clients {
		voting(t, w.clients[i], cluster.Len())
	}
	for i := range w.clients {
		w.done.Go(func() { w.work(ctx, i) })
	}
	return w
}

// open opens a client, which ends with the test.
func open(t testing.TB, cluster *redistest.Cluster, configure func(*redlock.Config)) *redlock.Client {
	t.Helper()
	var config redlock.Config
	configure(&config)
	c, err := redlock.Open(t.Context(), cluster.URLs(), redlock.WithConfig(config))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// voting waits until n members vote for this client.
func voting(t testing.TB, c *redlock.Client, n int) {
	t.Helper()
	votingWithin(t, c, n, 30*time.Second)
}

func votingWithin(t testing.TB, c *redlock.Client, n int, patience time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		there := 0
		for _, m := range c.Members() {
			if m.State == redlock.MemberVoting {
				there++
			}
		}
		return there >= n
	}, patience, 2*time.Millisecond, "members: %v", later{c})
}

// later prints the members as they are when it is printed.
type later struct{ c *redlock.Client }

func (l later) String() string { return fmt.Sprint(l.c.Members()) }

func (w *workload) work(ctx context.Context, who int) {
	var opts []redlock.LockOption
	if w.terms.ttl > 0 {
		opts = append(opts, redlock.TTL(w.terms.ttl))
	}
	for turn := who; ctx.Err() == nil; turn++ {
		if err := w.tenure(ctx, who, w.terms.name+":"+strconv.Itoa(turn%w.terms.keys), opts); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.errs = append(w.errs, err)
			w.mu.Unlock()
			// A caller that comes back at once would only measure how fast errors are made.
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// tenure takes a key, works, and books what it believed. An error of Unlock is no failure of the tenure: the
// lease may have been lost.
func (w *workload) tenure(ctx context.Context, who int, key string, opts []redlock.LockOption) error {
	lease, err := w.clients[who].Mutex(key, opts...).Lock(ctx)
	if err != nil {
		return err
	}
	x := judge.Hold{Client: who, Key: key, Token: lease.Token(), From: judge.Now()}
	w.update(lease, key)
	x.To = min(judge.Now(), judge.At(lease.ValidUntil()))
	if lease.Err() == nil {
		if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
			w.mu.Lock()
			w.unlocks = append(w.unlocks, err)
			w.mu.Unlock()
		}
	}
	w.Add(x)
	return nil
}

// update adds to both sets of a key. As most programs do, it does not look at the lease in between.
func (w *workload) update(lease *redlock.Lease, key string) {
	plain, _ := w.store.Read(key, false, lease.Token())
	guarded, err := w.store.Read(key, true, lease.Token())
	pause := time.NewTimer(w.terms.hold)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-lease.Done():
	}
	if err == nil {
		_ = w.store.Add(guarded, lease.Token()) // refused: another holder has been there, which is the point
	}
	_ = w.store.Add(plain, lease.Token())
}

// progress waits until n more tenures have been booked, and until every client has had one of them.
func (w *workload) progress(t testing.TB, n int) {
	t.Helper()
	total, before := w.Len(), w.PerClient(len(w.clients))
	require.Eventually(t, func() bool {
		for i, now := range w.PerClient(len(w.clients)) {
			if now == before[i] {
				return false
			}
		}
		return w.Len() >= total+n
	}, 60*time.Second, 5*time.Millisecond, "no progress: %d tenures, then %d; per client %v; last errors: %v",
		total, w.Len(), w.PerClient(len(w.clients)), w.lastErrors())
}

func (w *workload) lastErrors() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.errs[max(0, len(w.errs)-5):])
}

// errors returns what Lock failed with so far.
func (w *workload) errors() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.errs)
}

// halt stops the clients' work, and waits for it.
func (w *workload) halt() { w.stop(); w.done.Wait() }

// result is what a workload came to.
type result struct {
	tenures   int
	errs      []error // of Lock
	unlocks   []error // of Unlock
	verdict   judge.Verdict
	guarded   int // lost updates
	unguarded int
	refused   int
}

func (r result) String() string {
	return fmt.Sprintf("%d tenures, %d errors, %s; lost updates: %d guarded, %d unguarded; %d refused by the guard",
		r.tenures, len(r.errs), r.verdict, r.guarded, r.unguarded, r.refused)
}

// end stops the workload and checks its history.
func (w *workload) end() result {
	w.halt()
	r := result{tenures: w.Len(), errs: w.errors(), verdict: judge.Check(w.Holds()), refused: w.store.Refused()}
	w.mu.Lock()
	r.unlocks = slices.Clone(w.unlocks)
	w.mu.Unlock()
	r.guarded, r.unguarded = w.store.Lost()
	return r
}

// safe fails the test unless exclusion held, tokens rose, no update was lost, and at least so many tenures
// were there to be judged: a dead system is safe, too.
func (r result) safe(t testing.TB, atLeast int) {
	t.Helper()
	t.Log(r)
	require.True(t, r.verdict.Clean(), "%s", r.verdict)
	// The unguarded set may lose updates of holders who went on after their lease had ended.
	require.Zero(t, r.guarded, "lost updates of the guarded set")
	require.GreaterOrEqual(t, r.tenures, atLeast, "too little happened to say anything")
	for _, err := range r.errs { // whatever was broken, callers hear of it in the words of the package
		known := errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantined) || errors.Is(err, redlock.ErrTooSlow)
		require.True(t, known, "unexpected error: %v", err)
	}
	for _, err := range r.unlocks {
		known := errors.Is(err, redlock.ErrInDoubt) || errors.Is(err, redlock.ErrLost)
		require.True(t, known, "unexpected error of Unlock: %v", err)
	}
}
