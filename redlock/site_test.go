package redlock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/stretchr/testify/require"
)

// queue lets callers stand in one line, and notes whose turn begins.
type queue struct {
	t      *testing.T
	sites  sites
	turns  []string // since they were looked at last
	places map[string]*place
	giveUp map[string]context.CancelFunc
}

func newQueue(t *testing.T) *queue {
	return &queue{t: t, places: map[string]*place{}, giveUp: map[string]context.CancelFunc{}}
}

// enter has a caller join the line.
func (q *queue) enter(who string, width int) {
	ctx, cancel := context.WithCancel(q.t.Context())
	q.giveUp[who] = cancel
	go func() {
		p, _, err := q.sites.enter(ctx, "k", width, nil, nil)
		if err == nil {
			q.places[who] = p
			q.turns = append(q.turns, who)
		}
	}()
	synctest.Wait()
}

func (q *queue) leave(who string) {
	q.sites.leave("k", q.places[who])
	synctest.Wait()
}

// begun are the callers whose turn has begun since it was asked last.
func (q *queue) begun() (who []string) {
	who, q.turns = q.turns, nil
	return who
}

func TestLineHasAsManyTurnsAsItIsWide(t *testing.T) {
	for _, tc := range []struct {
		name  string
		width int
		first []string   // whose turn begins at once
		then  [][]string // and with each that leaves, in the order of their turns
	}{
		{"width 1", 1, []string{"a"}, [][]string{{"b"}, {"c"}, {"d"}, nil}},
		{"width 2", 2, []string{"a", "b"}, [][]string{{"c"}, {"d"}, nil, nil}},
		{"wider than the line", 9, []string{"a", "b", "c", "d"}, [][]string{nil, nil, nil, nil}},
	} {
		t.Run(tc.name, faketime.In(func(t *testing.T) {
			q := newQueue(t)
			for _, who := range []string{"a", "b", "c", "d"} {
				q.enter(who, tc.width)
			}
			require.Equal(t, tc.first, q.begun())
			for i, who := range []string{"a", "b", "c", "d"} {
				q.leave(who)
				require.Equal(t, tc.then[i], q.begun(), "after %s", who)
			}
			require.Empty(t, q.sites.shard("k").m, "nobody stands there")
		}))
	}
}

func TestCallerThatGivesUpItsPlaceLeavesItToTheNext(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		q := newQueue(t)
		for _, who := range []string{"a", "b", "c", "d", "e"} {
			q.enter(who, 2)
		}
		require.Equal(t, []string{"a", "b"}, q.begun())
		q.giveUp["c"]()
		synctest.Wait()
		require.Empty(t, q.begun(), "both turns last")
		q.leave("b")
		require.Equal(t, []string{"d"}, q.begun())
		q.giveUp["e"]()
	})
}

// Callers that ask for the same name with other terms may bring another width.
func TestNobodyPassesTheFirstInLine(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		q := newQueue(t)
		q.enter("a", 2)
		q.enter("alone", 1)
		q.enter("b", 2)
		q.enter("c", 2)
		require.Equal(t, []string{"a"}, q.begun(), "there is room for b, but not before the first in line")
		q.giveUp["alone"]()
		synctest.Wait()
		require.Equal(t, []string{"b"}, q.begun())
		q.enter("alone", 1)
		q.leave("a")
		require.Equal(t, []string{"c"}, q.begun())
		q.leave("b")
		require.Empty(t, q.begun())
		q.leave("c")
		require.Equal(t, []string{"alone"}, q.begun())
	})
}
