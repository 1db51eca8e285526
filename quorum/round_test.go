package quorum

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// fake is a member that answers when it is told to.
type fake struct {
	name string
	mu   sync.Mutex
	got  []*member.Call
	auto member.Outcome // answer inside Submit, if not Unanswered
	err  error

	waiting func() (time.Time, bool) // nil: nothing is in line
}

func (f *fake) Waiting(uint16) (since time.Time, ok bool) {
	if f.waiting == nil {
		return time.Time{}, false
	}
	return f.waiting()
}

func (f *fake) Name() string { return f.name }
func (f *fake) State() member.State {
	return member.State{Brief: member.Brief{Gen: 1, Votes: true}, Up: true}
}
func (f *fake) Listen(string, member.Listener) {}
func (f *fake) Close(context.Context) error    { return nil }
func (f *fake) Submit(c *member.Call) {
	f.mu.Lock()
	f.got = append(f.got, c)
	f.mu.Unlock()
	if f.auto != member.Unanswered {
		f.answer(f.auto, f.err)
	}
}

// answer completes the oldest call.
func (f *fake) answer(o member.Outcome, err error) {
	f.mu.Lock()
	c := f.got[0]
	f.got = f.got[1:]
	f.mu.Unlock()
	c.Outcome, c.Err = o, err
	c.Sink.Done(c)
}

// judge takes an answer for a yes, and remembers who was judged.
type judge struct {
	mu   sync.Mutex
	seen []int
}

func (j *judge) Judge(_ *Round, c *member.Call) Vote {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, c.Index)
	switch c.Outcome {
	case member.Answered:
		return Yes
	case member.Unknown:
		return Unsure
	}
	return No
}

func fakes(n int) ([]*fake, []member.Member) {
	fs, ms := make([]*fake, n), make([]member.Member, n)
	for i := range fs {
		fs[i] = &fake{name: string(rune('a' + i))}
		ms[i] = fs[i]
	}
	return fs, ms
}

func start(ms []member.Member, j Judge) *Round {
	return asking(new(Rounds), ms, Question{To: memberset.All(len(ms)), Need: member.Majority(len(ms)), Judge: j, Command: member.Command{Cmd: []byte("x")}}).Start()
}

// asking is a round with that question.
func asking(p *Rounds, ms []member.Member, q Question) *Round {
	r := p.New(ms)
	r.Question = q
	return r
}

// decided waits for a round so long at most, and makes sure how it ends.
func decided(t *testing.T, r *Round, timeout time.Duration, want Verdict) {
	t.Helper()
	require.Equal(t, want, rt.Must(r.Wait(t.Context(), time.Now(), timeout))(t))
}

func TestRoundIsDecidedWithoutTheSlowest(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		fs, ms := fakes(5)
		j := &judge{}
		r := start(ms, j)
		go func() {
			for i := range 3 {
				time.Sleep(time.Millisecond)
				fs[i].answer(member.Answered, nil)
			}
		}()
		began := time.Now()
		decided(t, r, time.Second, Won)
		require.Equal(t, 3*time.Millisecond, time.Since(began))
		r.Free()
		// Stragglers still reach the judge, after the caller has gone.
		fs[3].answer(member.Answered, nil)
		fs[4].answer(member.Unknown, member.ErrBroken)
		require.Equal(t, []int{0, 1, 2, 3, 4}, j.seen)
	})
}

func TestRoundIsLostAsSoonAsAMajorityIsImpossible(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7} {
		faketime.Test(t, func(t *testing.T) {
			fs, ms := fakes(n)
			r := start(ms, &judge{})
			defer r.Free()
			lost := n - member.Majority(n) + 1
			go func() {
				for i := range lost {
					time.Sleep(time.Millisecond)
					fs[i].answer(member.Unknown, member.ErrBroken)
				}
			}()
			began := time.Now()
			decided(t, r, time.Minute, Lost)
			require.Equal(t, time.Duration(lost)*time.Millisecond, time.Since(began), "n=%d", n)
		})
	}
}

func TestRoundReturnsAtItsTimeoutAndAtTheContextsEnd(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		_, ms := fakes(3)
		r := start(ms, &judge{})
		defer r.Free()
		began := time.Now()
		decided(t, r, 50*time.Millisecond, Undecided)
		require.Equal(t, 50*time.Millisecond, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		v, err := r.Wait(ctx, time.Now(), time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, Undecided, v)
		require.Equal(t, 70*time.Millisecond, time.Since(began))
	})
}

func TestRoundDecidedInsideSubmitWakesItsCaller(t *testing.T) {
	fs, ms := fakes(3)
	for _, f := range fs {
		f.auto, f.err = member.NotSent, member.ErrDown
	}
	r := start(ms, &judge{})
	defer r.Free()
	decided(t, r, 0, Lost)
}

func TestRoundAsksOnlyWhomItIsTold(t *testing.T) {
	fs, ms := fakes(3)
	r := asking(new(Rounds), ms, Question{To: memberset.Set(0).With(1), Need: 1, Judge: &judge{}}).Start()
	defer r.Free()
	require.Empty(t, fs[0].got)
	require.Empty(t, fs[2].got)
	fs[1].answer(member.Answered, nil)
	decided(t, r, 0, Won)
	require.Equal(t, []MemberVote{{"a", NotAsked, nil}, {"b", Yes, nil}, {"c", NotAsked, nil}}, r.Votes(ms))

	nobody := asking(new(Rounds), ms, Question{Need: 2, Judge: &judge{}}).Start()
	decided(t, nobody, 0, Lost)
	nobody.Free()

	from := time.Now()
	late := asking(new(Rounds), ms, Question{Need: 2, Sent: from.Add(time.Hour), Judge: &judge{}}).Start()
	defer late.Free()
	require.WithinRange(t, late.Sent, from, time.Now(), "no later than it begins")
}

func TestRoundsAreRecycledClean(t *testing.T) {
	fs, ms := fakes(3)
	var pool Rounds
	for i := range 200 {
		r := asking(&pool, ms, Question{To: memberset.All(3), Need: 2, Judge: &judge{}})
		r.Buf = append(r.Buf[:0], strings.Repeat("c", i)...)
		r.Cmd = r.Buf
		r.Start()
		require.Equal(t, strings.Repeat("c", i), string(fs[0].got[0].Cmd))
		o, want := member.Answered, Won
		if i%2 == 1 {
			o, want = member.Refused, Lost
		}
		for _, f := range fs[:2] {
			f.answer(o, nil)
		}
		if i%3 > 0 { // sometimes the decision is never waited for
			decided(t, r, time.Second, want)
		}
		r.Free()
		fs[2].answer(member.Answered, nil)
	}
}

// grouped is a fake that takes groups, and notes the size of each.
type grouped struct {
	*fake
	groups []int
}

func (g *grouped) SubmitGroup(calls []*member.Call) {
	g.groups = append(g.groups, len(calls))
	for _, c := range calls {
		g.Submit(c)
	}
}

// Rounds that start together are submitted member by member, in a group where the member takes groups. Each is decided by
// itself.
func TestRoundsThatStartTogetherAreDecidedApart(t *testing.T) {
	fs, ms := fakes(3)
	g := &grouped{fake: fs[1]}
	ms[1] = g
	question := func(cmd string, to memberset.Set) *Round {
		return asking(new(Rounds), ms, Question{To: to, Need: 2, Judge: &judge{}, Command: member.Command{Cmd: []byte(cmd)}})
	}
	rounds := []*Round{question("x", memberset.All(3)), question("y", memberset.All(3).Without(0)), question("z", memberset.All(3))}
	rounds[0].Start(rounds[1:]...)
	asked := func(f *fake) (out []string) {
		for _, c := range f.got {
			out = append(out, string(c.Cmd))
		}
		return out
	}
	require.Equal(t, []string{"x", "z"}, asked(fs[0]))
	require.Equal(t, []string{"x", "y", "z"}, asked(fs[1]))
	require.Equal(t, []int{3}, g.groups)
	require.Equal(t, []string{"x", "y", "z"}, asked(fs[2]))
	for range 3 {
		fs[1].answer(member.Answered, nil)
	}
	fs[0].answer(member.Answered, nil)
	fs[0].answer(member.Refused, nil)
	fs[2].answer(member.Refused, nil)
	fs[2].answer(member.Refused, nil)
	for i, want := range []Verdict{Won, Lost, Undecided} {
		decided(t, rounds[i], time.Millisecond, want)
		rounds[i].Free()
	}
	fs[2].answer(member.Answered, nil)
	one := question("alone", memberset.All(3)).Start()
	require.Equal(t, []int{3}, g.groups, "one call is no group")
	one.Free()
}

func TestRoundsFromManyGoroutines(t *testing.T) {
	_, ms := fakes(5)
	for _, m := range ms {
		m.(*fake).auto = member.Answered
	}
	async := make([]member.Member, 5)
	for i, m := range ms {
		async[i] = asyncMember{m}
	}
	var pool Rounds
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				r := asking(&pool, async, Question{To: memberset.All(5), Need: 3, Judge: &judge{}, Command: member.Command{Cmd: []byte("x")}}).Start()
				v, err := r.Wait(t.Context(), time.Now(), time.Minute)
				assert.False(t, v != Won || err != nil, "%v %v", v, err)
				r.Free()
			}
		})
	}
	wg.Wait()
}

// asyncMember answers on goroutines of its own, in any order.
type asyncMember struct{ member.Member }

func (m asyncMember) Submit(c *member.Call) {
	go func() {
		runtime.Gosched()
		c.Outcome = member.Answered
		c.Sink.Done(c)
	}()
}

// Answers may come after the decision, before the error is made.
func TestFailureOfAMajoritySaysThatItWasLate(t *testing.T) {
	f := &Failure{Op: "acquire", Key: "k", Need: 2, Votes: []MemberVote{{"a:1", Yes, nil}, {"b:1", No, nil}, {"c:1", Yes, nil}}}
	require.EqualError(t, f, `acquire "k": 2 of 3 members agreed too late, need 2 (1 refused, 0 failed or silent)`)
}

func TestFailureTellsCountsAndEveryCause(t *testing.T) {
	cause := &member.ReplyError{Kind: member.KindBusy, Text: "BUSY Redis is busy"}
	f := &Failure{Op: "acquire", Key: "k", Need: 3, Votes: []MemberVote{
		{"a:1", Yes, nil}, {"b:1", No, nil}, {"c:1", No, cause}, {"d:1", Unsure, member.ErrStalled}, {"e:1", Open, nil}, {"f:1", NotAsked, nil},
	}}
	require.Equal(t, `acquire "k": 1 of 6 members agreed, need 3 (1 refused, 3 failed or silent, 1 not asked); `+
		`c:1: BUSY Redis is busy; d:1: member stopped answering; e:1: no answer`, f.Error())
	early := *f
	early.Early = true
	require.Equal(t, `acquire "k": 1 of 6 members agreed, need 3 (1 refused, 2 failed or silent, 1 not waited for, 1 not asked); `+
		`c:1: BUSY Redis is busy; d:1: member stopped answering`, early.Error())
	// A member that says no for a cause of its own has not looked at the lock: it is one of those that failed.
	yes, no, unsure := (&Failure{Votes: []MemberVote{{"a", No, nil}, {"b", No, nil}, {"c", No, member.ErrStalled}}}).Counts()
	require.Equal(t, []int{0, 2, 1}, []int{yes, no, unsure})
	err := error(f)
	require.ErrorIs(t, err, member.ErrStalled)
	var reply *member.ReplyError
	require.ErrorAs(t, err, &reply)
	require.Equal(t, member.KindBusy, reply.Kind)
	require.NoError(t, (&Failure{Votes: []MemberVote{{"a", No, nil}}}).Unwrap())
	require.NotErrorIs(t, &Failure{Votes: []MemberVote{{"a", Unsure, context.DeadlineExceeded}}}, context.DeadlineExceeded, "the caller's")
	require.Less(t, len(printable.Quote(strings.Repeat("\x00", 5000))), 300)
}

// A round that can no longer be won waits for the refusals that decide it as well, but not for
// members that fail.
func TestRoundThatRefusalsDecide(t *testing.T) {
	down := errors.New("down")
	ask := func() ([]*fake, *Round) {
		fs, ms := fakes(3)
		return fs, asking(new(Rounds), ms, Question{To: memberset.All(3), Need: 2, Deny: 2, Judge: &judge{}, Command: member.Command{Cmd: []byte("x")}}).Start()
	}
	fs, r := ask()
	fs[0].answer(member.NotSent, down)
	fs[1].answer(member.Refused, nil)
	require.Equal(t, Undecided, r.result())
	fs[2].answer(member.Refused, nil)
	decided(t, r, 0, Lost)
	r.Free()

	fs, r = ask()
	fs[0].answer(member.NotSent, down)
	fs[1].answer(member.Unknown, down)
	require.Equal(t, Lost, r.result())
	fs[2].answer(member.Refused, nil)
	r.Free()
}
