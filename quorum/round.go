package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Judge says what an answer counts for. The round calls it once for every member asked, in any order, also for answers that come
// after the decision. It must not block, nor lock a mutex that somebody holds around Start.
type Judge interface {
	Judge(r *Round, c *member.Call) Vote
}

// decider is a Judge that hears of the decision, after the answer that decides and on the same goroutine: then nobody has
// to wait for the round. It hears nothing of a round that is decided when it starts.
type decider interface {
	Decided(r *Round, v Verdict)
}

// Question is what a Round asks, of all members in the same words. The caller encodes Cmd once, into Round.Buf.
type Question struct {
	Op string // for the Judge and for errors
	// Sent was taken before the first call was submitted: validity counts from here. The round has it, or the instant at
	// which it began, if that was earlier.
	Sent time.Time
	TTL  time.Duration // what the question asks for, and for how long after Sent an answer is of use; 0: always
	To   memberset.Set // the members asked; the others count as lost votes
	// Deny is how many plain refusals decide the round as well, when it cannot be won any more; 0:
	// the first answer by which it cannot be won decides it. A refusal is plain if it has no error.
	Deny  int32
	Need  int // yes votes to win
	Judge Judge

	member.Command
	member.Delivery
}

// Rounds recycles rounds. Each client has its own, because a round holds a channel, and they have a timer, which must
// not travel between testing/synctest bubbles.
type Rounds struct {
	pool   sync.Pool
	alarms alarms
}

// Round is one question to many members. It wakes its caller once, when it is decided. Its memory is recycled after the last
// answer, so nobody waits for stragglers.
type Round struct {
	Question        // filled in before Start
	Buf      []byte // memory for its Cmd: it is used again
	rounds   *Rounds
	members  []member.Member
	calls    []member.Call
	wake     chan struct{} // capacity 1: Wait is to look again
	alarm    alarm         // guarded by the mutex of rounds.alarms
	refs     atomic.Int32  // calls not done yet, and the caller

	mu      sync.Mutex // guards the fields below; never held around Submit or Judge
	votes   []Vote
	errs    []error
	yes     int
	no      int // plain refusals
	open    int
	verdict Verdict
}

// New makes a round with members, for the caller to fill in its Question. The caller owns it until it calls Free.
func (p *Rounds) New(members []member.Member) *Round {
	r, _ := p.pool.Get().(*Round)
	if r == nil {
		r = &Round{rounds: p, wake: make(chan struct{}, 1), Buf: make([]byte, 0, 512)}
	}
	if n := len(members); len(r.calls) != n {
		r.calls, r.votes, r.errs = make([]member.Call, n), make([]Vote, n), make([]error, n)
	}
	r.members = members
	return r
}

// Start submits the question to the members of To, in order. Of several rounds with the same members, it submits all to one
// member before it goes on to the next, in one group if the member takes groups (ability.Grouped).
func (r *Round) Start(others ...*Round) *Round {
	if len(others) > 0 {
		startAll(append([]*Round{r}, others...))
		return r
	}
	r.prepare()
	for i, m := range r.members {
		if r.To.Has(i) {
			m.Submit(&r.calls[i])
		}
	}
	return r
}

func startAll(rounds []*Round) {
	for _, r := range rounds {
		r.prepare()
	}
	calls := make([]*member.Call, 0, len(rounds))
	for i, m := range rounds[0].members {
		calls = calls[:0]
		for _, r := range rounds {
			if r.To.Has(i) {
				calls = append(calls, &r.calls[i])
			}
		}
		if g, ok := m.(ability.Grouped); ok && len(calls) > 1 {
			g.SubmitGroup(calls)
			continue
		}
		for _, c := range calls {
			m.Submit(c)
		}
	}
}

// prepare makes the calls ready to be submitted.
func (r *Round) prepare() {
	if now := time.Now(); r.Sent.After(now) {
		r.Sent = now
	}
	asked := r.To.Len()
	r.yes, r.no, r.open = 0, 0, asked
	r.verdict = Decide(0, asked, r.Need)
	r.refs.Store(int32(asked) + 1)
	for i := range r.calls {
		r.votes[i], r.errs[i] = NotAsked, nil
		if r.To.Has(i) {
			r.votes[i] = Open
			c := &r.calls[i]
			c.Command, c.Delivery, c.Sink, c.Index, c.Hop = r.Command, r.Delivery, r, i, nil
			c.Result = member.Result{Reply: c.Reply} // its memory is used again
		}
	}
}

// Done implements member.Sink.
func (r *Round) Done(c *member.Call) {
	v := r.Judge.Judge(r, c)
	r.mu.Lock()
	r.votes[c.Index], r.errs[c.Index] = v, c.Err
	r.open--
	if v == Yes {
		r.yes++
	} else if v == No && c.Err == nil {
		r.no++
	}
	wake := r.decideLocked()
	verdict := r.verdict
	r.mu.Unlock()
	if wake {
		r.look()
		if j, ok := r.Judge.(decider); ok {
			j.Decided(r, verdict)
		}
	}
	r.unref()
}

// Free gives the round back. The caller must not use it afterwards.
func (r *Round) Free() { r.unref() }

func (r *Round) unref() {
	if r.refs.Add(-1) != 0 {
		return
	}
	select { // nobody has waited, or not for this
	case <-r.wake:
	default:
	}
	r.Question, r.members = Question{}, nil
	if cap(r.Buf) > 16<<10 { // an unusually long name must not stay in the pool
		r.Buf = nil
	}
	r.rounds.pool.Put(r)
}
