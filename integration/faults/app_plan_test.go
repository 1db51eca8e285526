//go:build linux || darwin

package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
)

// What happens to the random application. Three hands draw from seeds of their own, one after the other of what
// each can do: the first at members and paths, the second at processes, the third at delays.

// trouble is something that a hand can do. It ends with ctx at the latest, and heals what it broke.
type trouble struct {
	weight int
	name   string
	do     func(ctx context.Context, rng *rand.Rand)
}

// hand does one trouble after the other until ctx ends, as cards that are dealt: each comes as often as it weighs before all
// are shuffled anew. One that stands aside does nothing to the clients of a crowd.
func (r *appRun) hand(ctx context.Context, rng *rand.Rand, rest time.Duration, aside bool, all []trouble) {
	var cards []trouble
	for _, x := range all {
		for range x.weight {
			cards = append(cards, x)
		}
	}
	for n := 0; ; n++ {
		pause(ctx, upTo(rng, rest))
		if ctx.Err() != nil {
			return
		}
		if n%len(cards) == 0 {
			rng.Shuffle(len(cards), func(i, k int) { cards[i], cards[k] = cards[k], cards[i] })
		}
		if !aside || !r.crowded.Load() {
			cards[n%len(cards)].do(ctx, rng)
		}
	}
}

// plan lets all hands go until ctx ends, and waits until everything is healed.
func (r *appRun) plan(ctx context.Context, seed uint64) {
	var hands sync.WaitGroup
	for i, x := range []struct {
		rest  time.Duration
		aside bool
		all   []trouble
	}{
		{1500 * time.Millisecond, false, append(r.refusals(), []trouble{
			{4, "crash", r.crash}, {2, "flush", r.flush}, {2, "freeze", r.freeze},
			{1, "kill connections", r.disconnect}, {3, "cut", r.cut},
			{2, "roll out", r.rollOut}, {2, "force beside", r.forceBeside}, {6, "crowd", r.crowd}, {6, "cross", r.cross},
			{2, "deaths together", r.deaths}, {1, "beyond a minority", r.beyond},
		}...)},
		{2500 * time.Millisecond, true, []trouble{
			{4, "kill process", r.killProcess}, {3, "stop process", r.stopProcess}, {5, "reopen", r.reopen},
		}},
		{3 * time.Second, true, []trouble{{1, "delay", r.delay}}},
	} {
		hands.Go(func() { r.hand(ctx, rand.New(rand.NewPCG(seed, uint64(100+i))), x.rest, x.aside, x.all) })
	}
	hands.Wait()
}

// spare draws a member whose loss leaves a majority; false: there is none now.
func (r *appRun) spare(rng *rand.Rand) (int, bool) {
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	now := judge.Now()
	bad := map[int]bool{}
	for m := range r.j.members {
		blind := 0 // seats for which it does not vote
		for _, s := range r.j.seats {
			if !s.stopped && s.votes != 0 && s.votes>>m&1 == 0 {
				blind++
			}
		}
		if !r.j.servers[m].well(now-int64(500*time.Millisecond)) || blind > len(r.j.seats)/3 {
			bad[m] = true
		}
	}
	if len(bad) >= r.j.members-r.j.need {
		return 0, false
	}
	return rng.IntN(r.j.members), true // one that is bad is bad for a second reason
}

func (r *appRun) broken(ctx context.Context, what string, m int, long time.Duration, heal func()) {
	r.j.fault("member %d: %s for %v", m, what, long)
	pause(ctx, long)
	heal()
	r.j.fault("member %d: no more %s", m, what)
}

// comeBack restarts a member that is dead, in one of the ways there are.
func (r *appRun) comeBack(rng *rand.Rand, m int) (how string) {
	s := r.cluster.Servers[m]
	var err error
	r.j.reborn(m)
	switch rng.IntN(4) {
	case 0, 1:
		how, err = "empty", s.Restart(false)
	case 2:
		how, err = "with its AOF", s.Restart(true)
	default:
		if how, err = "with old data", s.Rollback(); err != nil { // there was no snapshot yet
			how, err = "empty", s.Restart(false)
		}
	}
	if err != nil {
		r.t.Errorf("restart of member %d: %v", m, err)
	}
	return how
}

func (r *appRun) dead(ctx context.Context, rng *rand.Rand, m int, long time.Duration) {
	r.broken(ctx, "dead", m, long, func() { r.j.fault("member %d came back %s", m, r.comeBack(rng, m)) })
}

// crash kills a member, or two one after the other where that leaves a majority. They come back in any order.
func (r *appRun) crash(ctx context.Context, rng *rand.Rand) {
	var dead []int
	for range 2 {
		m, ok := r.spare(rng)
		if !ok || slices.Contains(dead, m) {
			break
		}
		if rng.IntN(2) == 0 {
			_ = r.cluster.Servers[m].Snapshot()
			pause(ctx, upTo(rng, time.Second))
		}
		r.j.server(m, true)
		defer r.j.server(m, false)
		r.j.fault("member %d: dead", m)
		r.cluster.Kill(m)
		dead = append(dead, m)
		pause(ctx, upTo(rng, 2500*time.Millisecond))
	}
	rng.Shuffle(len(dead), func(i, k int) { dead[i], dead[k] = dead[k], dead[i] })
	for _, m := range dead {
		r.j.fault("member %d came back %s", m, r.comeBack(rng, m))
	}
}

func (r *appRun) flush(ctx context.Context, rng *rand.Rand) {
	if m, ok := r.spare(rng); ok {
		r.j.server(m, true)
		defer r.j.server(m, false)
		r.j.fault("member %d: FLUSHALL", m)
		_ = r.cluster.Flush(m)
	}
}

func (r *appRun) freeze(ctx context.Context, rng *rand.Rand) {
	if m, ok := r.spare(rng); ok {
		r.j.server(m, true)
		defer r.j.server(m, false)
		r.cluster.Pause(m)
		r.broken(ctx, "stopped", m, 100*time.Millisecond+upTo(rng, 2500*time.Millisecond), func() { r.cluster.Resume(m) })
	}
}

func (r *appRun) disconnect(ctx context.Context, rng *rand.Rand) {
	m, ok := r.spare(rng)
	if !ok {
		return
	}
	r.j.server(m, true)
	defer r.j.server(m, false)
	what := drawn(rng, [][]string{{"CLIENT", "KILL", "TYPE", "normal"}, {"CLIENT", "KILL", "TYPE", "pubsub"}, {"SCRIPT", "FLUSH"}})
	r.j.fault("member %d: %s", m, strings.Join(what, " "))
	asking, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = r.cluster.Servers[m].Do(asking, what...)
}

func (r *appRun) off(how func(*redistest.Link), paths [][2]int) (heal func()) {
	for _, p := range paths {
		r.j.path(p[0], p[1], true)
		how(r.links[p[0]][p[1]])
	}
	return func() {
		for _, p := range paths {
			r.mend(p[0], p[1])
			r.j.path(p[0], p[1], false)
		}
	}
}

// mend ends all faults of a path, and what is mute because it lost something.
func (r *appRun) mend(seat, m int) {
	l := r.links[seat][m]
	l.Heal()
	l.Cut()
	r.listen(seat, m)
}

func refused(l *redistest.Link) { l.Refuse(true); l.Cut() }

func (r *appRun) cut(ctx context.Context, rng *rand.Rand) {
	var paths [][2]int
	for seat := range r.links {
		if rng.IntN(3) == 0 {
			paths = append(paths, [2]int{seat, rng.IntN(r.j.members)})
		}
	}
	which := rng.IntN(4)
	how := []func(*redistest.Link){
		refused, (*redistest.Link).BlackHole, (*redistest.Link).DropReplies, (*redistest.Link).Pause,
	}[which]
	r.j.fault("paths %v: %s", paths, [...]string{"refused", "black hole", "replies lost", "stuck"}[which])
	heal := r.off(how, paths)
	pause(ctx, 100*time.Millisecond+upTo(rng, 2*time.Second))
	heal()
	r.j.fault("paths %v: mended", paths)
}

// delay makes some paths slow for a while. What is said of paths that are well holds for them, too.
func (r *appRun) delay(ctx context.Context, rng *rand.Rand) {
	var slow [][2]int
	for seat := range r.links {
		if rng.IntN(3) == 0 {
			p := [2]int{seat, rng.IntN(r.j.members)}
			d := redistest.Delay{Fixed: upTo(rng, 30*time.Millisecond), Jitter: 1 + upTo(rng, 10*time.Millisecond)}
			r.links[p[0]][p[1]].SetDelay(d, d)
			slow = append(slow, p)
		}
	}
	r.j.fault("paths %v: slow", slow)
	pause(ctx, 500*time.Millisecond+upTo(rng, 4*time.Second))
	for _, p := range slow {
		r.links[p[0]][p[1]].SetDelay(redistest.Delay{}, redistest.Delay{})
	}
	r.j.fault("paths %v: quick", slow)
}

func (r *appRun) mortal(rng *rand.Rand) *appProcess {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots[1+rng.IntN(len(r.slots)-1)]
}

func (r *appRun) killProcess(ctx context.Context, rng *rand.Rand) {
	p := r.mortal(rng)
	r.j.fault("process %d (seats %v): SIGKILL", p.number, p.seats)
	r.replace(ctx, p, upTo(rng, 500*time.Millisecond))
}

func (r *appRun) stopProcess(ctx context.Context, rng *rand.Rand) {
	p := r.mortal(rng)
	long := 50*time.Millisecond + upTo(rng, 4*time.Second)
	r.j.fault("process %d (seats %v): SIGSTOP for %v", p.number, p.seats, long)
	r.stop(p)
	pause(ctx, long)
	r.resume(p)
	r.j.fault("process %d: SIGCONT", p.number)
}

// reopen closes a client, with all that is going on, and opens another one.
func (r *appRun) reopen(ctx context.Context, rng *rand.Rand) {
	seat := appSeats + rng.IntN(len(r.links)-appSeats)
	r.j.fault("seat %d: close and open", seat)
	r.tell(seat, appCommand{Do: "close"})
	pause(ctx, upTo(rng, time.Second))
	r.tell(seat, appCommand{Do: "open"})
}

func (r *appRun) deaths(ctx context.Context, rng *rand.Rand) {
	m, ok := r.spare(rng)
	if !ok {
		return
	}
	p := r.mortal(rng)
	r.j.server(m, true)
	defer r.j.server(m, false)
	killMember := func() { r.cluster.Kill(m) }
	killProcess := func() { r.replace(ctx, p, 0) }
	both := []func(){killMember, killProcess}
	rng.Shuffle(2, func(i, k int) { both[i], both[k] = both[k], both[i] })
	r.j.fault("member %d and process %d (seats %v) die", m, p.number, p.seats)
	both[0]()
	pause(ctx, upTo(rng, 20*time.Millisecond))
	both[1]()
	r.dead(ctx, rng, m, 2*time.Second+upTo(rng, 5*time.Second))
}

func (r *appRun) beyond(ctx context.Context, rng *rand.Rand) {
	members := rng.Perm(r.j.members)[:r.j.need+rng.IntN(r.j.members-r.j.need+1)]
	for _, m := range members {
		r.j.server(m, true)
		defer r.j.server(m, false)
	}
	switch rng.IntN(3) {
	case 0:
		r.j.fault("members %v: SIGSTOP", members)
		r.cluster.Pause(members...)
		pause(ctx, 100*time.Millisecond+upTo(rng, 2*time.Second))
		r.cluster.Resume(members...)
	case 1:
		r.j.fault("members %v: FLUSHALL", members)
		_ = r.cluster.Flush(members...)
	default:
		r.j.fault("members %v: SIGKILL", members)
		r.cluster.Kill(members...)
		pause(ctx, upTo(rng, time.Second))
		for _, m := range members {
			r.j.fault("member %d came back %s", m, r.comeBack(rng, m))
		}
	}
	r.j.fault("members %v: mended", members)
}

// seatsApart draws n seats of different processes, not of the one that lives as long as the run.
func (r *appRun) seatsApart(rng *rand.Rand, n int) (seats []int) {
	for _, p := range rng.Perm(appProcesses - 1)[:n] {
		seats = append(seats, (p+1)*appSeats+rng.IntN(appSeats))
	}
	return seats
}

func heard(ctx context.Context, ch <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// rollOut lets one client have a greater MaxTTL than all others, while it does not reach all members, and hold a
// lease that long. Then one of the members that it does reach forgets, and it reaches that one no more, while a client
// comes that reaches others first.
func (r *appRun) rollOut(ctx context.Context, rng *rand.Rand) {
	order := rng.Perm(r.j.members)
	far, near := order[:r.j.members-r.j.need], order[r.j.members-r.j.need:] // near is what the client reaches
	forgets, slow := near[0], near[1:]
	seats := r.seatsApart(rng, 2)
	first, second := seats[0], seats[1]
	r.j.mu.Lock()
	before := r.j.greatest
	r.j.mu.Unlock()
	greatest := before
	if before < 7*time.Second { // each restart costs a quarantine that long
		greatest += 3*time.Second + upTo(rng, 2*time.Second)
	}
	name := drawn(rng, appRare)
	r.j.fault("roll-out: seat %d closes, and opens with MaxTTL %v, cut off from %v; seat %d closes",
		first, greatest, far, second)
	for _, seat := range seats {
		closed := r.nextOf("closed", seat, "")
		r.tell(seat, appCommand{Do: "close"})
		defer r.tell(seat, appCommand{Do: "open"}) // if it is not open
		if !heard(ctx, closed, 5*time.Second) {
			return
		}
	}
	heal := r.off(refused, across([]int{first}, far))
	defer func() { heal(); r.j.fault("seat %d reaches all members", first) }()
	opened := r.nextOf("open", first, "")
	r.tell(first, appCommand{Do: "open", MaxTTL: greatest, Entry: time.Second})
	if !heard(ctx, opened, 5*time.Second) {
		return
	}
	pause(ctx, 300*time.Millisecond) // a ping, which it waits before it grants as long
	granted := r.nextOf("grant", first, name)
	sort := drawn(rng, []string{plainLock, writeLock, readLock})
	r.tell(first, appCommand{Do: "take", Name: name, Sort: sort, TTL: greatest, Hold: greatest, Fixed: true})
	if !heard(ctx, granted, 5*time.Second) {
		return
	}
	d := redistest.Delay{Fixed: 20*time.Millisecond + upTo(rng, 80*time.Millisecond)}
	for _, m := range slow {
		r.links[second][m].SetDelay(d, d)
	}
	var others []int
	for seat := range r.links {
		if seat != first && seat != second {
			others = append(others, seat)
		}
	}
	back := r.off(refused, across(others, []int{forgets}))
	// Or it would tell the member once more.
	apart := r.off(refused, across([]int{first}, []int{forgets}))
	defer apart()
	r.j.server(forgets, true)
	r.j.fault("roll-out: member %d forgets, only seat %d reaches it, which reaches %v slowly (%v)",
		forgets, second, slow, d.Fixed)
	if rng.IntN(2) == 0 {
		_ = r.cluster.Flush(forgets)
	} else if err := r.cluster.Restart(false, forgets); err != nil {
		r.t.Errorf("restart of member %d: %v", forgets, err)
	}
	r.j.server(forgets, false)
	r.tell(second, appCommand{Do: "open", MaxTTL: time.Second, Entry: 300 * time.Millisecond})
	pause(ctx, 300*time.Millisecond+upTo(rng, 500*time.Millisecond))
	back()
	r.j.fault("roll-out: all but seat %d reach member %d", first, forgets)
	alone := drawn(rng, []string{plainLock, fairLock, writeLock})
	r.tell(second, appCommand{
		Do: "take", Name: name, Sort: alone, TTL: 500 * time.Millisecond, Hold: 300 * time.Millisecond,
	})
	pause(ctx, min(before, 6*time.Second)+upTo(rng, 2*time.Second))
	for _, m := range slow {
		r.links[second][m].SetDelay(redistest.Delay{}, redistest.Delay{})
	}
}

func across(seats, members []int) (paths [][2]int) {
	for _, seat := range seats {
		for _, m := range members {
			paths = append(paths, [2]int{seat, m})
		}
	}
	return paths
}

// crowd lets four clients want one lock. The first has it, in most cases without a vote of one
// member, which the second reaches sooner than all others. The third dies while it waits, and so
// does another member, shortly before the lock is free; and the second loses its patience after
// that. The fourth only waits. Half the time each of them wants a lock of any kind.
func (r *appRun) crowd(ctx context.Context, rng *rand.Rand) {
	if _, ok := r.spare(rng); !ok {
		return
	}
	r.crowded.Store(true)
	defer r.crowded.Store(false)
	seats := r.seatsApart(rng, 4)
	first, second, third, fourth := seats[0], seats[1], seats[2], seats[3]
	order := rng.Perm(r.j.members)
	apart, dies := order[0], order[1]
	name := drawn(rng, appRare)
	opened := r.nextOf("open", third, "")
	r.tell(third, appCommand{Do: "close"})
	r.tell(third, appCommand{Do: "open", MaxTTL: 3 * time.Second, Entry: 3 * time.Second})
	if !heard(ctx, opened, 5*time.Second) {
		return
	}
	pause(ctx, settled) // so that what follows is judged
	hold := 2*time.Second + upTo(rng, 1500*time.Millisecond)
	early := 350*time.Millisecond + upTo(rng, 600*time.Millisecond) // the third dies before the end of that
	d := redistest.Delay{Fixed: upTo(rng, 150*time.Millisecond)}
	r.j.fault("crowd at %s: seats %v; the second reaches member %d sooner than others (%v), member %d dies",
		name, seats, apart, d.Fixed, dies)
	heal := func() {}
	if rng.IntN(4) > 0 {
		heal = r.off((*redistest.Link).Pause, across(seats[:1], []int{apart}))
	}
	sorts := []string{plainLock, plainLock, plainLock, plainLock}
	if rng.IntN(2) == 0 {
		for i := range sorts {
			sorts[i] = sortDrawn(rng)
		}
	}
	granted := r.nextOf("grant", first, name)
	r.tell(first, appCommand{Do: "take", Name: name, Sort: sorts[0], Hold: hold})
	held := heard(ctx, granted, 5*time.Second)
	for _, m := range order[1:] {
		r.links[second][m].SetDelay(d, d)
	}
	patience := hold + upTo(rng, 3500*time.Millisecond)
	if rng.IntN(4) > 0 { // shortly before the entry of the third runs out, which is 2 to 3 s after its death
		patience = hold + 1900*time.Millisecond - early
	}
	r.tell(second, appCommand{Do: "take", Name: name, Sort: sorts[1], Hold: time.Millisecond, Patience: patience})
	pause(ctx, upTo(rng, 30*time.Millisecond))
	r.tell(third, appCommand{Do: "take", Name: name, Sort: sorts[2], Hold: time.Millisecond})
	pause(ctx, 300*time.Millisecond)
	heal()
	for _, m := range order[1:] {
		r.links[second][m].SetDelay(redistest.Delay{}, redistest.Delay{})
	}
	r.tell(fourth, appCommand{
		Do: "take", Name: name, Sort: sorts[3], Hold: time.Millisecond, Patience: 12 * time.Second,
	})
	if !held {
		return
	}
	pause(ctx, hold-early-300*time.Millisecond)
	r.j.server(dies, true)
	defer r.j.server(dies, false)
	p := r.at(third)
	r.j.fault("crowd: process %d (seats %v) dies", p.number, p.seats)
	r.cluster.Kill(dies)
	r.replace(ctx, p, 0)
	r.dead(ctx, rng, dies, 5*time.Second+upTo(rng, 3*time.Second))
}

// cross lets two clients come to two members in opposite order, and a third one between them, while
// a bare majority of the members can be reached. So each of the first two has a vote that the other
// one needs. Half the time these two are readers, and the third one waits behind both.
func (r *appRun) cross(ctx context.Context, rng *rand.Rand) {
	r.crowded.Store(true)
	defer r.crowded.Store(false)
	seats := r.seatsApart(rng, 3)
	order := rng.Perm(r.j.members)
	far, near := order[:r.j.members-r.j.need], order[r.j.members-r.j.need:]
	name := drawn(rng, appRare)
	sorts := []string{sortDrawn(rng), sortDrawn(rng), drawn(rng, []string{plainLock, fairLock, writeLock})}
	switch rng.IntN(4) {
	case 0, 1:
		sorts[0], sorts[1] = readLock, readLock
	case 2:
		sorts[0], sorts[1] = plainLock, fairLock
	}
	d := redistest.Delay{Fixed: 40*time.Millisecond + upTo(rng, 60*time.Millisecond)}
	r.j.fault("cross at %s: seats %v want %v, cut off from %v; members %v, %v later by the first and the second",
		name, seats, sorts, far, near[:2], d.Fixed)
	heal := r.off(refused, across(seats, far))
	pause(ctx, 100*time.Millisecond)
	for i, seat := range seats[:2] {
		r.links[seat][near[1-i]].SetDelay(d, d)
	}
	for i, seat := range seats {
		if i == 2 {
			pause(ctx, d.Fixed/4+upTo(rng, d.Fixed/2))
		}
		r.tell(seat, appCommand{Do: "take", Name: name, Sort: sorts[i], Hold: time.Millisecond, Patience: 6 * time.Second})
	}
	pause(ctx, 2*d.Fixed)
	for i, seat := range seats[:2] {
		r.links[seat][near[1-i]].SetDelay(redistest.Delay{}, redistest.Delay{})
	}
	pause(ctx, 2500*time.Millisecond)
	heal()
	r.j.fault("cross: seats %v reach all members", seats)
}

// forceBeside has a lease forced out by a client that does not reach all members, while the holder reaches some of
// them later than others.
func (r *appRun) forceBeside(ctx context.Context, rng *rand.Rand) {
	order := rng.Perm(r.j.members)
	seats := r.seatsApart(rng, 2)
	holder, forcer := seats[0], seats[1]
	name := drawn(rng, appRare)
	granted := r.nextOf("grant", holder, name)
	ttl := 600*time.Millisecond + upTo(rng, 400*time.Millisecond)
	r.tell(holder, appCommand{Do: "take", Name: name, Sort: sortDrawn(rng), TTL: ttl, Hold: 6 * time.Second})
	if !heard(ctx, granted, 5*time.Second) {
		return
	}
	pause(ctx, upTo(rng, time.Second))
	paths := across([]int{forcer}, order[:r.j.members-r.j.need])
	slow := order[len(order)-1]
	d := redistest.Delay{Fixed: 5*time.Millisecond + upTo(rng, 40*time.Millisecond)}
	r.links[holder][slow].SetDelay(d, d)
	r.j.fault("force: seat %d holds, and reaches member %d in %v; seat %d forces, cut off from %v",
		holder, slow, d.Fixed, forcer, paths)
	heal := r.off(refused, paths)
	r.tell(forcer, appCommand{Do: "force", Name: name})
	pause(ctx, 2*time.Second+upTo(rng, 2*time.Second))
	heal()
	r.links[holder][slow].SetDelay(redistest.Delay{}, redistest.Delay{})
	r.j.fault("paths %v: mended", paths)
}
