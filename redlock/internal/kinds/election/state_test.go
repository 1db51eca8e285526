package election

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What an observer is told, in every order of a few hundred things that happen at members: leaders
// that come and go, values, restarts without memory, re-joins, members that are silent, and words
// that were overtaken by others. It asks the members one by one, each at a moment of its own.

// stage is an election without clocks and messages.
type stage struct {
	*rand.Rand
	at     []script.ElectionAnswer // what each member would say
	terms  []int64                 // the last sequence of each leader; LastWord: it has resigned
	held   int                     // the leader that may still lead, by its number from 1; 0: none
	now    time.Time
	out    Outlook
	heard  []script.ElectionAnswer // the last word of each member
	fresh  []bool                  // it was said since the observer was told
	silent []bool
}

func newStage(members int, seed uint64) *stage {
	return &stage{
		Rand: rand.New(rand.NewPCG(seed, 1)), at: make([]script.ElectionAnswer, members), now: time.Unix(1e9, 0),
		out:   Outlook{State: New(members, member.Majority(members))},
		heard: make([]script.ElectionAnswer, members), fresh: make([]bool, members), silent: make([]bool, members),
	}
}

func candidate(n int) string { return fmt.Sprint("candidate ", n) }

func (s *stage) happens(t *testing.T) {
	i := s.IntN(len(s.at))
	m := &s.at[i]
	switch s.IntN(9) {
	case 0: // somebody is elected: by a majority of members without a vote of the leader before
		if s.held != 0 || s.IntN(3) > 0 {
			return
		}
		s.terms = append(s.terms, 1)
		s.held = len(s.terms)
		for k, at := range s.Perm(len(s.at)) {
			if k < s.out.need || s.IntN(2) == 0 {
				s.at[at].Owner, s.at[at].TTL = candidate(s.held), time.Hour
			}
		}
	case 1, 2: // what a leader has said arrives at a member, perhaps late, perhaps again
		if len(s.terms) == 0 {
			return
		}
		n := 1 + s.IntN(len(s.terms))
		seq := min(s.terms[n-1], 1+int64(s.IntN(4)))
		if s.terms[n-1] == script.LastWord && s.IntN(2) == 0 {
			seq = script.LastWord
		}
		if m.Owner != candidate(n) || m.By == candidate(n) && m.Seq >= seq {
			return
		}
		m.By, m.Seq, m.Token, m.Value = candidate(n), seq, int64(n), fmt.Append(nil, n, ".", seq)
		if seq == script.LastWord {
			m.Value = nil
		}
	case 3: // it says something else
		if s.held != 0 && s.terms[s.held-1] < 4 {
			s.terms[s.held-1]++
		}
	case 4: // its lease ends
		if s.held != 0 && s.IntN(4) == 0 {
			if s.IntN(2) == 0 {
				s.terms[s.held-1] = script.LastWord
			}
			for k := range s.at {
				if s.at[k].Owner == candidate(s.held) && s.IntN(3) > 0 {
					s.at[k].Owner, s.at[k].TTL = "", 0
				}
			}
			s.held = 0
		}
	case 5: // a vote ends, or is given back
		switch {
		case s.held == 0:
			m.Owner, m.TTL = "", 0
		case m.Owner == "":
			m.Owner, m.TTL = candidate(s.held), time.Hour
		}
	case 6: // a member forgets
		if s.IntN(6) == 0 {
			*m = script.ElectionAnswer{}
		}
	case 7: // it is silent
		if s.IntN(4) == 0 {
			s.out.Silent(i)
			s.silent[i] = true
		}
	default:
		s.asks(t, i)
	}
}

// asks has a member say what it knows, and tells the observer.
func (s *stage) asks(t *testing.T, i int) {
	sent := s.now.Add(time.Second)
	s.now = sent.Add(time.Millisecond)
	s.out.Heard(i, s.at[i], sent, s.now)
	s.heard[i], s.fresh[i], s.silent[i] = s.at[i], true, false
	for n := 0; s.tell(t); n++ {
		require.Less(t, n, 2, "told again and again")
	}
}

// count counts the last words that name a candidate who has not resigned there, and those from
// before the observer was told, or of members that are silent.
func (s *stage) count(n int) (named, unknown int) {
	for i, w := range s.heard {
		switch {
		case s.silent[i]:
			unknown++
		case w.Owner == candidate(n) && !(w.By == candidate(n) && w.Seq == script.LastWord):
			named++
		case !s.fresh[i]:
			unknown++
		}
	}
	return named, unknown
}

// tell compares what the observer is told with what the members have said.
func (s *stage) tell(t *testing.T) bool {
	last, none := s.out.last, s.out.none
	l, ok := s.out.Next(s.now)
	if !ok {
		return false
	}
	if l.None {
		require.False(t, none, "None twice")
		if last.Token != 0 {
			named, unknown := s.count(int(last.Token))
			require.Less(t, named+unknown, s.out.need, "a majority may name the leader")
		}
		return true
	}
	named, _ := s.count(int(l.Token))
	require.GreaterOrEqual(t, named, s.out.need, "%d is named by a majority", l.Token)
	var n, seq int64
	require.NoError(t, rt.Err(fmt.Sscanf(string(l.Value), "%d.%d", &n, &seq)))
	require.EqualValues(t, l.Token, n, "the value is the leader's")
	for i, w := range s.heard {
		if !s.silent[i] && w.By == candidate(int(n)) {
			require.GreaterOrEqual(t, seq, w.Seq, "the last that any member knows")
		}
	}
	again := none && l.Token == last.Token && seq == last.seq
	require.True(t, again || l.Token > last.Token || l.Token == last.Token && seq > last.seq, "%v after %v", l, last)
	clear(s.fresh) // what is known of others is older
	for i, w := range s.heard {
		s.fresh[i] = w.Owner == candidate(int(n))
	}
	return true
}

// settle lets everything arrive, and asks everybody twice: what was asked when the observer was told
// counts, and what was before does not.
func (s *stage) settle(t *testing.T) {
	for i := range s.at {
		m := &s.at[i]
		if s.held == 0 {
			m.Owner, m.TTL = "", 0
			continue
		}
		name := candidate(s.held)
		m.Owner, m.TTL = name, time.Hour
		m.By, m.Seq, m.Token = name, s.terms[s.held-1], int64(s.held)
		m.Value = fmt.Append(nil, s.held, ".", m.Seq)
	}
	for range 2 {
		for i := range s.at {
			s.asks(t, i)
		}
	}
	if s.held == 0 {
		require.True(t, s.out.none, "it is told that nobody leads")
		return
	}
	require.False(t, s.out.none)
	require.EqualValues(t, s.held, s.out.last.Token)
	require.Equal(t, s.terms[s.held-1], s.out.last.seq, "it is told the last value")
}

func TestObserverIsToldWhatTheMembersSay(t *testing.T) {
	for _, members := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			for seed := range uint64(400) {
				s := newStage(members, seed)
				for range 300 {
					s.happens(t)
				}
				s.settle(t)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// tells has one member after the other say something, each a second later, and returns what the
// observer is told.
func (o *Outlook) tells(now *time.Time, words ...script.ElectionAnswer) (out []string) {
	for i, w := range words {
		*now = now.Add(time.Second)
		o.Heard(i, w, *now, *now)
		for l, ok := o.Next(*now); ok && len(out) < 9; l, ok = o.Next(*now) {
			if l.None {
				out = append(out, "-")
			} else {
				out = append(out, string(l.Value))
			}
		}
	}
	return out
}

// vote is what a member says that has a vote, and a value of its owner; "": it has none.
func vote(owner, value string, token, seq int64) script.ElectionAnswer {
	s := script.ElectionAnswer{Owner: owner, TTL: time.Minute}
	if value != "" {
		s.By, s.Value, s.Token, s.Seq = owner, []byte(value), token, seq
	}
	return s
}

func TestObserverIsToldStepByStep(t *testing.T) {
	now := time.Unix(1e9, 0)
	free := script.ElectionAnswer{}
	o := &Outlook{State: New(3, 2)}
	require.Equal(t, []string{"-"}, o.tells(&now, free, free, free))
	require.Empty(t, o.tells(&now, vote("a", "", 0, 0), vote("a", "", 0, 0), free), "a majority, and no value")
	require.Equal(t, []string{"one"}, o.tells(&now, vote("a", "one", 7, 1)))
	require.Equal(t, []string{"two"}, o.tells(&now, vote("a", "two", 7, 2)), "one member knows it")
	require.Empty(t, o.tells(&now, vote("a", "one", 7, 1), vote("a", "one", 7, 1)), "others are behind")
	require.Empty(t, o.tells(&now, free, vote("a", "two", 7, 2)), "the word of one member, and an old one of another")
	require.Empty(t, o.tells(&now, vote("a", "two", 7, 2), vote("a", "two", 7, 2), free))
	require.Equal(t, []string{"-"}, o.tells(&now, free), "two of them have no vote")
	require.Equal(t, []string{"two"}, o.tells(&now, vote("a", "two", 7, 2)), "it is back")
	resigned := script.ElectionAnswer{Owner: "a", TTL: time.Minute, By: "a", Token: 7, Seq: script.LastWord}
	require.Empty(t, o.tells(&now, resigned), "one has heard it")
	require.Equal(t, []string{"-"}, o.tells(&now, resigned, resigned))
	require.Empty(t, o.tells(&now, vote("b", "", 0, 0), vote("b", "", 0, 0)))
	require.Equal(t, []string{"next"}, o.tells(&now, vote("b", "next", 8, 1)))
	require.Equal(t, []string{"-"}, o.tells(&now, vote("a", "two", 7, 2), vote("a", "two", 7, 2)), "a smaller token leads nobody")
}

func TestWordEndsWithItsVote(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := &Outlook{State: New(3, 2)}
	require.Equal(t, []string{"one"}, o.tells(&now, vote("a", "one", 7, 1), vote("a", "one", 7, 1)))
	now = now.Add(2 * time.Minute)
	_, led := o.leader(now)
	require.False(t, led)
	_, told := o.Next(now)
	require.False(t, told, "the members have not said that it is over")
	require.Empty(t, o.tells(&now, script.ElectionAnswer{}))
	require.Equal(t, []string{"-"}, o.tells(&now, script.ElectionAnswer{}, script.ElectionAnswer{}))
}

func TestVacantIsWhatTheSilentCannotChange(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tc := range []struct {
		said   []script.ElectionAnswer // others are silent
		vacant bool
	}{
		{nil, false},
		{[]script.ElectionAnswer{{}}, false},
		{[]script.ElectionAnswer{{}, {}}, true},
		{[]script.ElectionAnswer{{}, vote("a", "", 0, 0)}, false},
		{[]script.ElectionAnswer{{}, vote("a", "", 0, 0), {}}, true},
		{[]script.ElectionAnswer{vote("a", "", 0, 0), vote("a", "", 0, 0)}, true},
		{[]script.ElectionAnswer{vote("a", "", 0, 0), vote("a", "x", 1, 1)}, false},
		{[]script.ElectionAnswer{vote("a", "", 0, 0), vote("b", "", 0, 0), vote("c", "", 0, 0)}, true},
	} {
		s := New(3, 2)
		for i, w := range tc.said {
			s.Heard(i, w, now, now)
		}
		require.Equal(t, tc.vacant, s.Vacant(now), "%v", tc.said)
	}
}
