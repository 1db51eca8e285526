package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

func TestTooFewMembersWithinReachAreToleratedForAWhile(t *testing.T) {
	start := time.Now()
	votes, down, rests := member.State{Brief: member.Brief{Votes: true}, Up: true}, member.State{}, member.State{Up: true, Quarantine: start}
	for name, tc := range map[string]struct {
		lost     time.Duration // ago; negative: a majority was within reach
		patience time.Duration
		states   []member.State
		errs     []error
		want     bool
	}{
		"for long":          {2 * time.Second, 2 * time.Second, []member.State{votes, down, down}, nil, true},
		"not for so long":   {2*time.Second - 1, 2 * time.Second, []member.State{votes, down, down}, nil, false},
		"for ever":          {time.Hour, -1, []member.State{votes, down, down}, nil, false},
		"from now on":       {-1, 2 * time.Second, []member.State{votes, down, down}, nil, false},
		"one is back":       {time.Hour, 0, []member.State{votes, down, votes}, nil, false},
		"one will vote":     {time.Hour, 0, []member.State{votes, down, rests}, nil, false},
		"two of four":       {time.Hour, 0, []member.State{votes, down, votes, down}, nil, true},
		"two have refused":  {time.Hour, 0, []member.State{votes, votes, votes}, []error{nil, errReply, errReply}, true},
		"one has refused":   {time.Hour, 0, []member.State{votes, votes, votes}, []error{nil, errReply, nil}, false},
		"none has, of some": {time.Hour, 0, []member.State{votes, votes, down}, make([]error, 3), false},
	} {
		var r reach
		if tc.lost >= 0 {
			r.lost = start.Add(-tc.lost)
		}
		_, over := r.left(&Client{need: len(tc.states)/2 + 1, cfg: Config{NoQuorumAfter: tc.patience}}, tc.states, tc.errs, start)
		require.Equal(t, tc.want, over, name)
	}
}
