package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// Options say how a demo runs.
type Options struct {
	Duration time.Duration // 1 s to 1 h
	Workers  int           // 2 to 64
	Redis    bool          // start redis-server processes instead of embedded members
	Members  []string      // URLs of running members; the demo kills none of them
	Fresh    bool          // nobody has ever held a lock at Members
	Progress Progress
}

// Progress says where and how to show a run.
type Progress struct {
	To    io.Writer // nil: nowhere
	Live  bool      // To is a terminal: draw in place
	Color bool
	Size  func() (width, height int) // of the terminal, if Live
}

// Validate reports all mistakes at once.
func (o Options) Validate() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if o.Duration < time.Second || o.Duration > time.Hour {
		bad("--duration is %v, must be between 1s and 1h", o.Duration)
	}
	if o.Workers < 2 || o.Workers > 64 {
		bad("--workers is %d, must be between 2 and 64", o.Workers)
	}
	if o.Redis && len(o.Members) > 0 {
		bad("--redis starts members and --members uses yours: choose one")
	}
	if o.Fresh && len(o.Members) == 0 {
		bad("--fresh is for --members; members that the demo starts are always fresh")
	}
	if len(o.Members) > 0 {
		if _, err := givenMembers(o.Members); err != nil {
			bad("--members: %w", err)
		}
	}
	return errors.Join(all...)
}

// Shares of the duration at which things happen.
const (
	holdOnAt  = killAt - 0.025
	killAt    = 0.25
	restartAt = 0.50
	stallAt   = 0.60
)

const (
	victim  = 2 // the member that is killed
	keeper  = 0 // the worker that holds on meanwhile
	sleeper = 1 // the worker that stalls
	// grace is how long a run is prolonged at most for the stalled worker to wake up.
	grace = 15 * time.Second
)

// stallTTL is the lease of the worker that stalls: short, since the rest waits for its end.
func (o Options) stallTTL() time.Duration {
	return min(max(o.Duration/20, 250*time.Millisecond), 500*time.Millisecond)
}

// maxTTL is the longest lease, and so the quarantine of a member that comes back empty.
func (o Options) maxTTL() time.Duration {
	return max(2*o.stallTTL(), time.Second/2)
}

// demo is one run.
type demo struct {
	options Options
	members *members
	board   *board
	store   *store
	workers []*worker

	killed     bool // a member was killed
	restartErr error
}

// Run carries out a demo and returns its result. An error says that the demo could not begin. If
// ctx ends, the run ends early, and the result is what was seen until then.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	m, err := startMembers(ctx, o)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	defer func() { _ = m.close() }()
	d := &demo{options: o, members: m, board: newBoard(o.Workers, m.names), store: &store{}}
	defer d.closeClients()
	if err := d.open(ctx); err != nil {
		return interruptedOr(ctx, err)
	}
	d.board.begin()
	show := newShow(o, m, d.board)
	d.awaitVotes(ctx)
	d.play(ctx)
	result := d.result(ctx)
	show.end()
	return result, nil
}

// interruptedOr tells a start that was called off from one that failed.
func interruptedOr(ctx context.Context, err error) (Result, error) {
	if ctx.Err() != nil {
		return Result{Interrupted: true}, nil
	}
	return Result{}, err
}

// open makes the workers, each with a client of its own.
func (d *demo) open(ctx context.Context) error {
	key := "redlock-demo:" + rand.Text()[:8]
	for range d.options.Workers {
		if err := d.hire(ctx, key, d.members.urls); err != nil {
			return err
		}
	}
	return nil
}

// awaitVotes waits until a majority of the members may vote, and starts the clock then. It matters for
// members of the user's that were never used, or that have just restarted.
func (d *demo) awaitVotes(ctx context.Context) {
	for told := false; ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		voting := 0
		var until time.Time
		members := d.workers[0].client.Members()
		for _, m := range members {
			if m.State == redlock.MemberVoting {
				voting++
			}
			if m.Until.After(until) {
				until = m.Until
			}
		}
		if voting >= member.Majority(len(members)) {
			break
		}
		if !told && !until.IsZero() {
			told = true
			d.board.say("waiting %v: too many members may have forgotten leases (--fresh, if nobody has ever held a lock there)",
				time.Until(until).Round(time.Second))
		}
	}
	d.board.begin()
}

// hire makes the next worker.
func (d *demo) hire(ctx context.Context, key string, urls []string) error {
	i := len(d.workers)
	config := redlock.Config{
		Tracer: observer{d.board, i}.tracer(),
		// Embedded members share the processor with everything else on a busy machine.
		DialTimeout: 5 * time.Second, MemberTimeout: time.Second,
	}
	if d.members.killable() {
		// Made for this demo: nothing was ever held there, and its leases are short, so that the
		// quarantine of the member that is killed is over before the demo is.
		config.FreshMembers, config.MaxTTL = true, d.options.maxTTL()
	} else {
		config.FreshMembers = d.options.Fresh
	}
	client, err := redlock.Open(ctx, urls, config)
	if err != nil {
		return err
	}
	d.workers = append(d.workers, &worker{
		i: i, client: client, key: key, board: d.board, store: d.store,
		stallTTL: d.options.stallTTL(), stalled: make(chan struct{}),
	})
	return nil
}

func (d *demo) closeClients() {
	var wg sync.WaitGroup
	for _, w := range d.workers {
		wg.Go(func() { _ = w.client.Close() })
	}
	wg.Wait()
}

// play runs the workers until the last act is over or ctx ends, and waits for them.
func (d *demo) play(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, w := range d.workers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Go(func() { d.scene(ctx) })
	wg.Go(func() { d.room(ctx) })
	d.direct(ctx)
	cancel()
	wg.Wait()
}

// direct makes things happen.
func (d *demo) direct(ctx context.Context) {
	at := func(share float64) bool {
		due := d.board.start.Add(time.Duration(share * float64(d.options.Duration)))
		sleep(ctx, time.Until(due))
		return ctx.Err() == nil
	}
	if !d.members.killable() {
		d.board.say("these members are yours, so none of them is killed")
	}
	if !at(holdOnAt) {
		return
	}
	d.workers[keeper].keep.Store(true)
	if d.members.killable() {
		if !at(killAt) {
			return
		}
		d.kill()
		if !at(restartAt) {
			return
		}
		d.restart()
	}
	if !at(stallAt) {
		return
	}
	w := d.workers[sleeper]
	w.stall.Store(true)
	if !at(1) {
		return
	}
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-w.stalled:
	case <-wait.Done():
	}
}

func (d *demo) kill() {
	d.board.begins(timeline.Dead, victim, time.Time{})
	d.members.kill(victim)
	d.killed = true
	d.board.say("member %d is killed: %d of %d are left, %d are enough", victim+1, own-1, own, member.Majority(own))
}

func (d *demo) restart() {
	d.board.ends(timeline.Dead, victim, time.Now())
	if err := d.members.restart(victim); err != nil {
		d.restartErr = err
		d.board.say("member %d cannot be restarted: %v", victim+1, err)
		return
	}
	d.board.say("member %d comes back, and has forgotten everything it granted", victim+1)
}

func (d *demo) result(ctx context.Context) Result {
	b := d.board
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.handoffs.quantiles(0, 0.5, 0.99)
	value, accepted, refused := d.store.books()
	r := Result{
		Acquisitions: b.ledger.grants, HandoffP50: q[0].Microseconds(), HandoffP99: q[1].Microseconds(),
		Overlaps: b.ledger.overlaps, Monotonic: b.ledger.disorder == 0, StaleRefused: refused,
		Members: len(b.members),
		Reads:   b.page.reads, ReadersAtOnce: b.readersAtOnce, Rewrites: b.page.grants - b.page.reads,
		BesideWriter: b.page.overlaps, TokensBetween: b.page.disorder == 0,
		Permits: b.limit, PermitGrants: b.desks.grants, PermitsAtOnce: b.permitsAtOnce,
		BesidePermit: b.desks.overlaps, SlotTokens: b.desks.disorder == 0,

		Elapsed: time.Since(b.start), Interrupted: ctx.Err() != nil,
		LostUpdates: accepted - value, Errors: b.errors, Killed: d.killed, RestartErr: d.restartErr,
	}
	for _, w := range b.workers {
		r.ByWorker = append(r.ByWorker, w.grants)
	}
	r.Timeline = b.timelineLocked(r.Broken())
	return r
}
