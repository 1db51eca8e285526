//go:build linux || darwin

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

type appRun struct {
	t       testing.TB
	j       *appJudge
	cluster *redistest.Cluster
	links   [][]*redistest.Link // [seat][member]
	urls    [][]string
	orders  appOrders
	checks  sync.WaitGroup // looks at what closed clients left
	busy    chan struct{}  // one for each of them
	turns   []sync.Mutex   // of each slot: of who replaces its process
	crowded atomic.Bool    // the scene of a crowd is played

	mu      sync.Mutex
	slots   []*appProcess
	next    int
	use     appUse // of the process that lives as long as the run
	closes  int    // closes of clients that were looked at, times members
	waiters map[string][]chan struct{}
}

// appUse is what the longest-lived process uses.
type appUse struct {
	rss, heap  uint64
	goroutines int64
}

type appProcess struct {
	number int
	slot   int
	seats  []int
	cmd    *exec.Cmd
	in     io.WriteCloser
	ended  chan struct{}
	noise  bytes.Buffer

	mu     sync.Mutex // of kill, stop, resume, quit
	killed bool
	gone   bool // it said that it was done
}

const (
	appProcesses = 5
	appSeats     = 2 // of each
)

var appEntries = []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}

// Names of locks: those that all want all the time, those that many want, those that are held for long, and those that
// hardly anybody wants but for what the plan arranges. Each seat has one of its own, which others want now and then.
var (
	appHot  = []string{"app:hot:1", "app:hot:2", "app:hot:3", "app:hot:4"}
	appWarm = []string{"app:warm:1", "app:warm:2"}
	appLong = []string{"app:long:1", "app:long:2"}
	appRare = []string{"app:rare:1", "app:rare:2"}
	appOwn  = func() (names []string) {
		for seat := range appProcesses * appSeats {
			names = append(names, fmt.Sprint("app:own:", seat))
		}
		return names
	}()
	appNames = slices.Concat(appHot, appWarm, appLong, appRare, appOwn)
)

func newAppRun(t testing.TB, cluster *redistest.Cluster, seed uint64, report func(finding)) *appRun {
	seats := appProcesses * appSeats
	r := &appRun{
		t: t, cluster: cluster, j: newAppJudge(cluster.Len(), seats, report), slots: make([]*appProcess, appProcesses),
		busy: make(chan struct{}, 8), turns: make([]sync.Mutex, appProcesses), waiters: map[string][]chan struct{}{},
		orders: appOrders{Seed: seed, Workers: 5, Brisk: 3, Hot: appHot, Warm: appWarm, Long: appLong, Rare: appRare},
	}
	for seat := range seats {
		var links []*redistest.Link
		var urls []string
		for _, s := range cluster.Servers {
			l := s.Path()
			front := rt.Must(l.Listen("127.0.0.1:0"))(t)
			t.Cleanup(func() { _ = front.Close() })
			links, urls = append(links, l), append(urls, "redis://"+front.Addr())
		}
		r.links, r.urls = append(r.links, links), append(r.urls, urls)
		for m := range links {
			r.listen(seat, m)
		}
	}
	return r
}

// listen learns the uuid of each client, by which its owners are told at the members, from its subscription.
func (r *appRun) listen(seat, m int) {
	r.links[seat][m].Call(redistest.Named("SUBSCRIBE"), -1, func(cmd []string) {
		for _, channel := range cmd[1:] {
			if uuid, found := strings.CutPrefix(channel, "redquorum:inbox:"); found {
				r.j.seen(seat, uuid)
			}
		}
	})
}

func (r *appRun) spawn(place int) {
	o := r.orders
	r.mu.Lock()
	r.next++
	o.Process = r.next
	r.mu.Unlock()
	o.Steady = place == 0
	p := &appProcess{number: o.Process, slot: place, ended: make(chan struct{})}
	for i := range appSeats {
		seat := place*appSeats + i
		p.seats = append(p.seats, seat)
		o.Seats = append(o.Seats, appSeat{
			Seat: seat, URLs: r.urls[seat],
			MaxTTLs: []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
			Entries: appEntries,
		})
	}
	o.Seed += uint64(o.Process)
	text := rt.Must(json.Marshal(o))(r.t)
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestApplicationProcess$", "-test.timeout=0")
	p.cmd.Env = append(os.Environ(), appEnv+"="+string(text))
	p.cmd.Stderr = &p.noise
	p.in = rt.Must(p.cmd.StdinPipe())(r.t)
	out := rt.Must(p.cmd.StdoutPipe())(r.t)
	r.j.fresh(p.number, p.seats)
	require.NoError(r.t, p.cmd.Start())
	rt.Locked(&r.mu, func() { r.slots[place] = p })
	go func() { // ends with the process
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e appEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Kind != "" {
				r.hear(p, e)
			}
		}
		_ = p.cmd.Wait()
	}()
}

// hear takes an event: to the judge, and to who waits for it.
func (r *appRun) hear(p *appProcess, e appEvent) {
	switch e.Kind {
	case "use":
		if p.slot == 0 {
			rt.Locked(&r.mu, func() { r.use = appUse{rss: e.Token, heap: e.Heap, goroutines: e.Number} })
		}
		return
	case "gone":
		p.gone = true // read after ended is closed
		return
	case "handoff":
		r.handOver(p, e)
		return
	}
	r.j.hear(p.number, e)
	if e.Kind == "closed" {
		r.closed(p, e)
	}
	r.mu.Lock()
	about := fmt.Sprint(e.Kind, " ", e.Seat, " ", e.Name)
	for _, ch := range r.waiters[about] {
		close(ch)
	}
	delete(r.waiters, about)
	r.mu.Unlock()
}

// nextOf returns a channel that is closed when a seat tells of something next; name "": of no lock.
func (r *appRun) nextOf(kind string, seat int, name string) <-chan struct{} {
	ch := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	about := fmt.Sprint(kind, " ", seat, " ", name)
	r.waiters[about] = append(r.waiters[about], ch)
	return ch
}

func (r *appRun) handOver(p *appProcess, e appEvent) {
	if owner := ownerIn(e.Text); owner != "" {
		r.j.mu.Lock()
		now := judge.Now()
		r.j.handed[owner] = now
		for o, at := range r.j.handed {
			if at < now-int64(2*time.Minute) {
				delete(r.j.handed, o)
			}
		}
		r.j.mu.Unlock()
	}
	to := (e.Seat + appSeats + int(e.Attempt)%appSeats) % len(r.links)
	r.tell(to, appCommand{Do: "adopt", Text: e.Text})
}

func ownerIn(text string) string {
	_, body, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	var w struct {
		Owner string `json:"o"`
	}
	if err != nil || json.Unmarshal(raw, &w) != nil {
		return ""
	}
	return w.Owner
}

func (r *appRun) at(seat int) *appProcess {
	return rt.Under(&r.mu, func() *appProcess { return r.slots[seat/appSeats] })
}

// tell gives a command to the process at a seat. A process that is dead does not hear it. Never called while a
// process is stopped for long enough to fill the pipe: commands are short and rare.
func (r *appRun) tell(seat int, x appCommand) {
	x.Seat = seat
	text, err := json.Marshal(x)
	if err == nil {
		_, _ = r.at(seat).in.Write(append(text, '\n'))
	}
}

func (r *appRun) kill(p *appProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	at := judge.Now()
	_ = p.cmd.Process.Kill()
	<-p.ended
	r.j.stopped(p.number, at)
}

// replace kills a process and starts another one, unless somebody else does.
func (r *appRun) replace(ctx context.Context, p *appProcess, rest time.Duration) {
	r.turns[p.slot].Lock()
	defer r.turns[p.slot].Unlock()
	if r.at(p.seats[0]) != p {
		return
	}
	r.kill(p)
	pause(ctx, rest)
	r.spawn(p.slot)
}

func (r *appRun) stop(p *appProcess) {
	r.j.stopped(p.number, 0)
	_ = p.cmd.Process.Signal(unix.SIGSTOP) // an error: it was killed
}

func (r *appRun) resume(p *appProcess) {
	_ = p.cmd.Process.Signal(unix.SIGCONT)
	r.j.resumed(p.number)
}

func (r *appRun) quit(p *appProcess) bool {
	r.tell(p.seats[0], appCommand{Do: "quit"})
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		r.kill(p)
		return false
	}
	r.j.stopped(p.number, judge.Now())
	return p.gone
}

// leftScript lists what a client has at a member: ARGV[1] is its uuid, then come names, queues and waiters. An entry that has
// run out is nothing any more: it lies there until somebody meets it, if the member could not be reached for as long as the
// release was owed. So is a reader whose time is over, while others keep the key.
const leftScript = `
local out, mine, time = {}, ARGV[1] .. ':', redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function look(what, name, all, entries)
  if type(all) ~= 'table' or all.err then return end
  for _, x in ipairs(all) do
    local entry = entries and redis.pcall('HGET', entries, x)
    local deadline = type(entry) == 'string' and tonumber(string.match(entry, '^%d+'))
    if not entries and redis.call('HEXISTS', name, 'r') == 1 then
      deadline = tonumber(redis.call('HGET', name, x)) -- a reader's vote ends by itself
    end
    if string.sub(x, 1, #mine) == mine and not (deadline and deadline < now) then
      out[#out + 1] = what .. '|' .. name .. '|' .. x .. '|' .. redis.call('PTTL', name)
    end
  end
end
for i = 2, #ARGV, 3 do
  local dated = string.find(ARGV[i], '^redquorum:') and ARGV[i] -- its fields begin with their deadlines
  look(ARGV[i + 1] == '' and 'watch' or 'vote', ARGV[i], redis.pcall('HKEYS', ARGV[i]), dated)
  look('place in the queue', ARGV[i + 1], redis.pcall('ZRANGE', ARGV[i + 1], 0, -1), ARGV[i + 2])
  look('entry', ARGV[i + 2], redis.pcall('HKEYS', ARGV[i + 2]), ARGV[i + 2])
end
return out`

func (r *appRun) left(ctx context.Context, m int, uuid string) (out []string, err error) {
	args := []string{"EVAL", leftScript, "0", uuid}
	for _, name := range appNames {
		args = append(args, name, slot.Sibling("redquorum:q", name), slot.Sibling("redquorum:w", name))
	}
	for _, x := range appSemaphores {
		args = append(args, slot.Sibling("redquorum:s1", x.name), slot.Sibling("redquorum:sq", x.name), slot.Sibling("redquorum:sw", x.name))
	}
	for _, key := range watched() {
		args = append(args, key, "", "") // which no key is
	}
	v, err := r.cluster.Servers[m].Do(ctx, args...)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	r.j.mu.Lock()
	for _, x := range list {
		f := strings.Split(fmt.Sprint(x), "|")
		if len(f) == 4 && r.j.handed[f[2]] == 0 {
			_, n, _ := strings.Cut(f[2], ":")
			out = append(out, fmt.Sprintf("member %d: %s of attempt %s in %s, for %s ms", m, f[0], n, f[1], f[3]))
		}
	}
	r.j.mu.Unlock()
	v, err = r.cluster.Servers[m].Do(ctx, "PUBSUB", "NUMSUB", "redquorum:inbox:"+uuid)
	if err != nil {
		return nil, err
	}
	if n, _ := v.([]any); len(n) == 2 && fmt.Sprint(n[1]) != "0" {
		out = append(out, fmt.Sprintf("member %d: a subscription", m))
	}
	return out, nil
}

// closed looks whether a client that was closed has left something at members that were well all the time.
func (r *appRun) closed(p *appProcess, e appEvent) {
	r.j.mu.Lock()
	s := r.j.seats[e.Seat]
	members := slices.Clone(s.closing)
	uuid := ""
	for id, at := range s.clients {
		if at >= e.Number && at <= e.Since {
			uuid = id
		}
	}
	r.j.mu.Unlock()
	if uuid == "" || len(members) == 0 {
		return
	}
	select {
	case r.busy <- struct{}{}:
	default:
		return // enough of them are being looked at
	}
	r.checks.Go(func() {
		defer func() { <-r.busy }()
		for _, m := range members {
			r.lookAt(m, e, uuid)
		}
	})
}

// lookAt gives a member a moment: the last request may be on its way through the harness.
func (r *appRun) lookAt(m int, e appEvent, uuid string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := judge.Now()
	var left []string
	var err error
	for judge.Now() < began+int64(250*time.Millisecond)+r.stalledSince(e.Since) {
		left, err = r.left(ctx, m, uuid)
		if err == nil && len(left) == 0 {
			break
		}
		pause(ctx, 20*time.Millisecond)
	}
	rt.Locked(&r.mu, func() { r.closes++ })
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	since := e.Since - int64(settled)
	s := r.j.seats[e.Seat]
	felt := !r.j.servers[m].well(since) || !s.paths[m].well(since) || s.stopped || s.resumed > since
	if err != nil || len(left) == 0 || felt {
		return
	}
	r.j.wrong("left after Close", "", "seat %d, client %d: %d things are left at member %d, %v after Close returned: %s",
		e.Seat, e.Client, len(left), m, time.Duration(judge.Now()-e.At), strings.Join(left[:min(5, len(left))], "; "))
}

func (r *appRun) stalledSince(at int64) int64 {
	return rt.Under(&r.j.mu, func() int64 { return r.j.stalledSince(at) })
}

// collect looks whether releases that a member refused, or did not get, came to it later.
func (r *appRun) collect(ctx context.Context) {
	r.j.mu.Lock()
	now := judge.Now()
	type look struct {
		d *debt
		m int
	}
	var looks []look
	r.j.debts = slices.DeleteFunc(r.j.debts, func(d *debt) bool {
		s := r.j.seats[d.seat]
		if now > d.until || s.process != d.process || s.client != d.client || s.stopped {
			return true
		}
		for m := range r.j.members {
			if d.settled>>m&1 == 0 && r.j.well(d.seat, m, now) && d.back < now-int64(settled) {
				looks = append(looks, look{d, m})
			}
		}
		return false
	})
	r.j.mu.Unlock()
	for _, x := range looks {
		token, left, err := r.votes(ctx, x.m, x.d.name, x.d.owner)
		r.j.mu.Lock()
		if err == nil {
			x.d.settled |= 1 << x.m
			s := r.j.seats[x.d.seat]
			same := s.client == x.d.client && s.process == x.d.process
			if left > 0 && same && r.j.well(x.d.seat, x.m, now) && !r.j.believed(x.d.name, x.d.owner) &&
				!x.d.lateCall(token, judge.Now()+int64(left)) {
				r.j.wrong("release not repeated", x.d.name, "member %d keeps owner %s for %v more, "+
					"%v after Unlock of seat %d returned, though it has been well for %v",
					x.m, x.d.owner, left, time.Duration(now-x.d.back), x.d.seat, settled)
			}
		}
		r.j.mu.Unlock()
	}
}

// voteScript returns what a member has of an owner, of whom ARGV[1] is the beginning of the hash:
// its token, 0 for a reader, that of its first slot for permits, and for how long. Nothing if it has nothing.
const voteScript = `
local time, reads = redis.call('TIME'), redis.call('HEXISTS', KEYS[1], 'r') == 1
for _, owner in ipairs(redis.call('HKEYS', KEYS[1])) do
  if owner ~= 'r' and string.sub(redis.sha1hex(owner), 1, #ARGV[1]) == ARGV[1] then
    local value, left = redis.call('HGET', KEYS[1], owner), redis.call('PTTL', KEYS[1])
    if reads then
      left = math.min(left, value - time[1] * 1000 - math.floor(time[2] / 1000))
      value = '0'
    end
    local deadline, token = string.match(value, '^(%d+) %d+:(%d+)') -- of permits
    if deadline then
      value, left = token, math.max(0, deadline - time[1] * 1000 - math.floor(time[2] / 1000))
    end
    return {value, tostring(left)}
  end
end
return {}`

// votes is the token of a member's vote for an owner that is told by its hash, and how long the member keeps it.
func (r *appRun) votes(ctx context.Context, m int, name, hash string) (token int64, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if semaphore, _, slots := strings.Cut(name, "#"); slots {
		name = slot.Sibling("redquorum:s1", semaphore)
	}
	v, err := r.cluster.Servers[m].Do(ctx, "EVAL", voteScript, "1", name, hash)
	if err != nil {
		return 0, 0, err
	}
	f, _ := v.([]any)
	if len(f) != 2 {
		return 0, 0, nil
	}
	if token, err = strconv.ParseInt(fmt.Sprint(f[0]), 10, 64); err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseInt(fmt.Sprint(f[1]), 10, 64)
	return token, time.Duration(n) * time.Millisecond, err
}

// load adds up what the members say of connections and keys. It is false where one does not answer.
func (r *appRun) load(ctx context.Context) (connections, keys int, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	for _, s := range r.cluster.Servers {
		v, err := s.Do(ctx, "INFO", "clients")
		text, _ := v.(string)
		_, rest, found := strings.Cut(text, "connected_clients:")
		if err != nil || !found {
			return 0, 0, false
		}
		digits, _, _ := strings.Cut(rest, "\r")
		n, _ := strconv.Atoi(digits)
		connections += n - 1 // but for this one
		size, err := s.Do(ctx, "DBSIZE")
		if err != nil {
			return 0, 0, false
		}
		k, _ := size.(int64)
		keys += int(k)
	}
	return connections, keys, true
}

type appSample struct {
	after  time.Duration
	grants int
	used   [len(appUses)]float64
}

// appUses are columns of the CSV file: of the process that lives as long as the run, and of all members.
var appUses = [...]string{"rss_mib", "heap_mib", "goroutines", "connections", "keys"}

func asCSV(samples []appSample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seconds,grants,%s\n", strings.Join(appUses[:], ","))
	for _, x := range samples {
		fmt.Fprintf(&b, "%.1f,%d", x.after.Seconds(), x.grants)
		for _, n := range x.used {
			fmt.Fprintf(&b, ",%.1f", n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// grown names what is more in the last third of a run than in the one before, by a third and five.
func grown(samples []appSample) (all []string) {
	third := len(samples) / 3
	if third < 100 { // chance has its hand in it
		return nil
	}
	for i, name := range appUses {
		var sums [2]float64
		for k, x := range samples[third : 3*third] {
			sums[k/third] += x.used[i] / float64(third)
		}
		if sums[1] > sums[0]*4/3+5 {
			all = append(all, fmt.Sprintf("%s: %.1f, then %.1f", name, sums[0], sums[1]))
		}
	}
	return all
}

func TestWhatGrowsInARunIsNamed(t *testing.T) {
	var samples []appSample
	for i := range 900 {
		samples = append(samples, appSample{time.Duration(i) * time.Second, 70 * i, [len(appUses)]float64{20, 8, 40, 60, float64(i)}})
	}
	require.Equal(t, []string{"keys: 449.5, then 749.5"}, grown(samples))
	require.Empty(t, grown(samples[:200]))
	require.Contains(t, asCSV(samples), "\n899.0,62930,20.0,8.0,40.0,60.0,899.0\n")
}
