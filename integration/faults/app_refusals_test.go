//go:build linux || darwin

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// Members of the random application that refuse, or do not answer, and forget nothing.

// appRefusal is a state of a member in which it answers with an error, or not at all.
type appRefusal struct {
	name  string
	code  string // the first word of its errors; unanswered: there is no answer
	keeps bool   // what is held is renewed and released all the same
	rests bool   // members rest afterwards, as those that forgot
	// What lasts for longer than that at all members costs leases their lives, or callers their patience.
	all   time.Duration
	begin func(t testing.TB, s *redistest.Real, long time.Duration) (end func())
}

// unanswered stands for the error of a request of which no answer came.
const unanswered = "no answer"

// appRefusals are rows of the plan. All last for longer at one member than leases of its clients do.
var appRefusals = []appRefusal{
	{"full", "OOM", true, false, 2 * longestRefusal, setting("maxmemory", "1", "0")},
	{"no replicas", "NOREPLICAS", false, false, 700 * time.Millisecond, setting("min-replicas-to-write", "1", "0")},
	{"failed saves", "MISCONF", false, false, 700 * time.Millisecond, lasts(misconf)},
	{"replica", "READONLY", false, true, 700 * time.Millisecond, lasts(replica)},
	{"no clients", unanswered, false, false, 700 * time.Millisecond, lasts(crowded)},
	{"paused writes", unanswered, false, false, 1500 * time.Millisecond, paused("WRITE")},
	{"paused", unanswered, false, false, 1500 * time.Millisecond, paused("ALL")},
	{"busy script", "BUSY", false, false, 1500 * time.Millisecond, lasts(busy)},
}

// longestRefusal is longer than the TTL of all leases but those of a roll-out, and by as much as a heartbeat.
const longestRefusal = 4 * time.Second

func lasts(begin func(testing.TB, *redistest.Real) func()) func(testing.TB, *redistest.Real, time.Duration) func() {
	return func(t testing.TB, s *redistest.Real, _ time.Duration) func() { return begin(t, s) }
}

func setting(name, value, back string) func(testing.TB, *redistest.Real, time.Duration) func() {
	return lasts(func(t testing.TB, s *redistest.Real) func() {
		admin(t, s, "CONFIG", "SET", name, value)
		return func() { admin(t, s, "CONFIG", "SET", name, back) }
	})
}

func replica(t testing.TB, s *redistest.Real) func() {
	admin(t, s, "REPLICAOF", "127.0.0.1", "1")
	return func() { admin(t, s, "REPLICAOF", "NO", "ONE") }
}

// misconf makes a server fail to save itself: in the place of its file is a directory. It refuses all
// writes then, the deleting ones too.
func misconf(t testing.TB, s *redistest.Real) func() {
	file := filepath.Join(s.Dir(), "dump.rdb")
	require.NoError(t, os.RemoveAll(file))
	require.NoError(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	admin(t, s, "CONFIG", "SET", "save", "3600 1000000000") // a server that is not to save anything does not care
	saved := func(status string) {
		admin(t, s, "BGSAVE")
		require.Eventually(t, func() bool {
			info, _ := admin(t, s, "INFO", "persistence").(string)
			return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+status)
		}, 20*time.Second, 2*time.Millisecond)
	}
	saved("err")
	return func() {
		require.NoError(t, os.RemoveAll(file))
		saved("ok")
		admin(t, s, "CONFIG", "SET", "save", "")
	}
}

// busy lets a server run an endless script, until the script is killed. With the least priority: the fault is
// what it answers, and not that cores are missing.
func busy(t testing.TB, s *redistest.Real) func() {
	admin(t, s, "CONFIG", "SET", "lua-time-limit", "20") // busy-reply-threshold since Redis 7
	c := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
	require.NoError(t, unix.Setpriority(unix.PRIO_PROCESS, s.Pid(), 19))
	require.NoError(t, c.Send([]string{"EVAL", "while true do end", "0"}))
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, s.Pid(), 0) // only root may
		admin(t, s, "SCRIPT", "KILL")
		require.NoError(t, c.Close())
	}
}

// crowded throws all connections but one out of a server, and lets nobody in. Whether a client was waiting for an answer is
// chance; that some come back, and are refused, is not.
func crowded(t testing.TB, s *redistest.Real) func() {
	c := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
	ask := func(args ...string) any { return rt.Must(c.Do(context.Background(), args...))(t) }
	rejected := func() string { return resp.Field([]byte(ask("INFO", "stats").(string)), "rejected_connections:") }
	ask("CONFIG", "SET", "maxclients", "1")
	before := rejected()
	ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	ask("CLIENT", "KILL", "TYPE", "pubsub")
	return func() {
		require.NotEqual(t, before, rejected(), "nobody came back")
		ask("CONFIG", "SET", "maxclients", "10000")
		require.NoError(t, c.Close())
	}
}

// paused lets a server keep what clients ask for a time. Where all commands wait, that which ends it waits, too.
func paused(what string) func(testing.TB, *redistest.Real, time.Duration) func() {
	return func(t testing.TB, s *redistest.Real, long time.Duration) func() {
		admin(t, s, "CLIENT", "PAUSE", strconv.FormatInt(long.Milliseconds(), 10), what)
		return func() { admin(t, s, "CLIENT", "UNPAUSE") }
	}
}

func (r *appRun) refusals() (all []trouble) {
	for _, x := range appRefusals {
		all = append(all, trouble{2, x.name, func(ctx context.Context, rng *rand.Rand) { r.refusing(ctx, rng, x) }})
	}
	return all
}

// refusing lets one member refuse for longer than a lease lasts, or all, for as long as the row says. Leases of all kinds are
// held meanwhile. Afterwards all clients must have the votes again.
func (r *appRun) refusing(ctx context.Context, rng *rand.Rand, x appRefusal) {
	m, ok := r.spare(rng)
	if !ok {
		return
	}
	members, long := []int{m}, longestRefusal*3/4+upTo(rng, longestRefusal)
	if rng.IntN(3) == 0 {
		members, long = rng.Perm(r.j.members), x.all/2+upTo(rng, x.all/2)
	}
	for _, seat := range r.seatsApart(rng, appProcesses-1) {
		r.tell(seat, appCommand{
			Do: "take", Name: drawn(rng, slices.Concat(appLong, appRare)), Sort: sortDrawn(rng),
			TTL: time.Second + upTo(rng, time.Second), Hold: settled + long + time.Second, Patience: long,
		})
	}
	pause(ctx, settled)
	if ctx.Err() != nil {
		return
	}
	r.j.fault("members %v: %s for %v", members, x.name, long)
	var ends []func()
	for _, m := range members {
		r.j.server(m, true)
		defer r.j.server(m, false)
	}
	r.j.refuses(members, x)
	for _, m := range members {
		ends = append(ends, x.begin(r.t, r.cluster.Real(m), long))
	}
	pause(ctx, long)
	for i, m := range members {
		ends[i]()
		r.j.accepts(m)
	}
	r.j.fault("members %v: no more %s", members, x.name)
	if !x.rests {
		r.voteAgain(ctx, members, x.name)
	}
}

// voteAgain waits until members that refused vote for all clients that reach them, and for which they voted before.
func (r *appRun) voteAgain(ctx context.Context, members []int, after string) {
	j := r.j
	began := judge.Now()
	for ctx.Err() == nil {
		pause(ctx, 20*time.Millisecond)
		var missing []string
		j.mu.Lock()
		for i, s := range j.seats {
			if s.shutting != 0 || s.stopped || s.resumed >= began-int64(settled) {
				continue
			}
			for _, m := range members {
				n := j.refused[m]
				if s.votes>>m&1 == 0 && s.paths[m].well(began-int64(settled)) && n.clean && n.voters[i] == (client{s.process, s.client}) {
					missing = append(missing, fmt.Sprintf("member %d for seat %d", m, i))
				}
			}
		}
		took := time.Duration(judge.Now() - began)
		late := took > settled+gapAllowance+2*time.Duration(j.stalledSince(began))
		if late && len(missing) > 0 {
			j.wrong("no vote", "", "%v after %s: no vote of %s", took, after, strings.Join(missing, ", "))
		}
		if late || len(missing) == 0 {
			j.longest["votes again"] = max(j.longest["votes again"], took)
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
	}
}

type refusalPlay struct {
	name   string
	from   int64
	voters int // clients that its members voted for before: who has no vote of a member may not meet it
	felt   int // requests of clients that ended so
}

// refusedMember is the last refusal of a member, as the judge knows it.
type refusedMember struct {
	appRefusal
	play     *refusalPlay
	from, to int64    // to is 0 while it lasts
	since    int64    // since when the member had been well before
	clean    bool     // it had been well for long enough to be voting, before
	voters   []client // at each seat, for which the member voted; zero: it did not
}

type client struct{ process, number int }

// refuses tells that members begin to refuse. They have just been told to be unwell.
func (j *appJudge) refuses(members []int, x appRefusal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := judge.Now()
	play := &refusalPlay{name: x.name, from: now}
	j.plays = append(j.plays, play)
	for _, m := range members {
		n := &refusedMember{appRefusal: x, play: play, from: now, since: j.wellSince[m], clean: j.wellSince[m] < now-int64(settled)}
		for _, s := range j.seats {
			var voter client
			if s.votes>>m&1 == 1 && s.voting[m] < now-int64(settled)/3 && s.shutting == 0 {
				voter = client{s.process, s.client}
				play.voters++
			}
			n.voters = append(n.voters, voter)
		}
		j.refused[m] = n
	}
}

func (j *appJudge) accepts(m int) { rt.Locked(&j.mu, func() { j.refused[m].to = judge.Now() }) }

func (j *appJudge) feels(e appEvent) {
	j.kinds[e.Text] += int(e.Token)
	for _, op := range e.Said {
		j.wrong("not kept", "", "seat %d: member %d refused %s: %s", e.Seat, e.Number, op, e.Text)
	}
	if n := j.refused[e.Number]; n != nil && n.code == e.Text && (n.to == 0 || e.At < n.to+int64(time.Second)) {
		n.play.felt += int(e.Token)
	}
}

// words looks at what a failed call says of members that refuse: it must be what they say themselves.
func (j *appJudge) words(a *asking, e appEvent) {
	s := j.seats[e.Seat]
	for m, said := range e.Said {
		n := j.refused[m]
		if n == nil || n.to != 0 || n.code == unanswered || n.voters[e.Seat] != (client{s.process, s.client}) || !n.clean || s.stopped ||
			!s.paths[m].well(n.from-int64(settled)) || s.resumed > n.from-int64(settled) {
			continue
		}
		// It has asked after the state began, and the answer had the time to come.
		if a.at < n.from+int64(200*time.Millisecond) || e.At-a.at < int64(300*time.Millisecond)+2*j.stalledSince(a.at) {
			continue
		}
		j.judgedWords++
		if said != "" && said != n.code {
			j.wrong("words", a.names[0], "seat %d: %q of member %d, which has said %s for %v", e.Seat, said, m, n.code,
				time.Duration(e.At-n.from))
		}
	}
}

// served looks at a lease that was lost: no majority of the members can have served it all the time. until is the end of its
// validity.
func (j *appJudge) served(b *belief, until int64) {
	s := j.seats[b.seat]
	since := until - int64(b.ttl)*4/3
	// Votes of whoever waited end with an entry, until the first renewal.
	if b.ttl < time.Second || b.From > since || s.client != b.client || s.shutting != 0 || s.stopped || s.resumed > since || s.process != b.id.process ||
		j.forced[j.first(b.Owner)] != nil || 4*j.stalledSince(since) > int64(b.ttl) {
		return
	}
	well, all, full := 0, 0, []string{}
	for m := range j.members {
		if !s.paths[m].well(since) || s.votes>>m&1 == 0 || s.voting[m] > since {
			continue
		}
		n := j.refused[m]
		switch {
		case j.servers[m].well(since):
			well, all = well+1, all+1
		case n != nil && n.keeps && n.since < since && n.from > b.From && j.onlyRefused(m, n):
			all++
			full = append(full, strconv.Itoa(m))
		}
	}
	if well >= j.need || all == j.members {
		j.wrong("not kept", b.Key, "%v: lost, TTL %v, though %d members were well and %q full", b.Hold, b.ttl, well, full)
	}
}

// onlyRefused says that nothing else has been wrong with a member since it began to refuse.
func (j *appJudge) onlyRefused(m int, n *refusedMember) bool {
	s, slack := j.servers[m], int64(50*time.Millisecond)
	if n.to == 0 {
		return s.on == 1
	}
	return s.on == 0 && s.until < n.to+slack
}

func (j *appJudge) keeps(b *belief, now int64) {
	for m := range j.members {
		n := j.refused[m]
		if n == nil || !n.keeps || b.From > n.from || now < n.from+int64(b.ttl) || n.to != 0 && n.to < n.from+int64(b.ttl) {
			return
		}
	}
	j.kept++
}

func wordOf(err error) string {
	var reply *member.ReplyError
	if !errors.As(err, &reply) {
		return ""
	}
	word, _, _ := strings.Cut(reply.Text, " ")
	return word
}

// saidOf lists what an error says of each member: its own word; nothing if it voted, or was not waited for.
func saidOf(err error) (said []string) {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return nil
	}
	for _, v := range q.Votes {
		text := v.Vote.String()
		switch word := wordOf(v.Err); {
		case word != "":
			text = word
		case v.Err != nil:
			text = v.Err.Error()
		case q.Early, text == "yes", text == "no", text == "not asked":
			text = ""
		}
		said = append(said, text)
	}
	return said
}

type ears struct{ s *seat }

func (e ears) Request(_ context.Context, x redlock.Request) {
	if x.Err == nil {
		return
	}
	word := wordOf(x.Err)
	if word == "" {
		word = unanswered
	}
	m := slices.IndexFunc(e.s.URLs, func(url string) bool { return strings.HasSuffix(url, x.Member) })
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	if e.s.refused == nil {
		e.s.refused = map[refusedRequest]*refusedRequests{}
	}
	at := refusedRequest{m, word}
	if e.s.refused[at] == nil {
		e.s.refused[at] = &refusedRequests{}
	}
	n := e.s.refused[at]
	n.count++
	for _, row := range appRefusals { // whoever holds something gives no more to do to who is full
		if row.keeps && row.code == word && slices.Contains([]string{"extend", "release", "resign"}, x.Op) {
			n.keeping = append(n.keeping, x.Op+" "+x.Key)
		}
	}
}

type refusedRequest struct {
	member int
	word   string
}

// refusedRequests counts requests that ended so, and lists those of them that must not.
type refusedRequests struct {
	count   uint64
	keeping []string
}

func (s *seat) tellRefused() {
	s.mu.Lock()
	all := s.refused
	s.refused = nil
	s.mu.Unlock()
	for x, n := range all {
		s.app.say(appEvent{Kind: "refused", Seat: s.Seat, Number: int64(x.member), Text: x.word, Token: n.count, Said: n.keeping})
	}
}

// refusalsTold logs what came of each row, counts how often each was played, and lists the times that no client met.
func (j *appJudge) refusalsTold(t testing.TB) (played map[string]int, unmet []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	played = map[string]int{}
	felt := map[string]int{}
	for _, x := range j.plays {
		played[x.name]++
		felt[x.name] += x.felt
		if x.felt == 0 && x.voters >= len(j.seats)/2 && x.name != "no clients" {
			unmet = append(unmet, fmt.Sprintf("%s at %s s", x.name, j.ms(x.from)))
		}
	}
	t.Logf("refusals played: %v; requests of clients that met them: %v; errors of all requests: %v", played, felt, j.kinds)
	t.Logf("%d leases outlived a time in which all members were full; %d times the words of a member that refused were looked at; "+
		"all members voted again after %v at most", j.kept, j.judgedWords, j.longest["votes again"])
	return played, unmet
}
