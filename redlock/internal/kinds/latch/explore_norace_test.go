//go:build !race

package latch

import (
	"testing"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Without the race detector, which would take ten times as long.
func init() {
	searches = append(searches, []search{
		{bounds{members: 3, arrivals: 2, awaiters: 1, dies: true}, 25_000},
		{bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 2}, 15_000},
		{bounds{members: 3, arrivals: 2, awaiters: 1, stale: true, dies: true}, 26_000},
	}...)
}

// What the counter-examples break holds within their bounds.
func TestLongLatchExplored(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for _, b := range []bounds{
		{members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true},
		{members: 3, arrivals: 1, awaiters: 1, forgets: 3},
	} {
		search{b, 10_000}.run(t)
	}
}

func TestLongLatchCounterExamples(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for what, c := range map[string]counter{
		"who is there does not arrive again": {bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 3}, func(r *rules) { r.noReassert = true }, explore.Stuck},
		"nobody joins what members have":     {bounds{members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true}, func(r *rules) { r.noJoin = true }, explore.Stuck},
	} {
		t.Run(what, c.run)
	}
}

// TestBarrierExplored, where a process ends or a Wait fails.
func TestBarrierExploredWithFailures(t *testing.T) {
	for _, b := range []barrierBounds{
		{parties: 2, names: 2, rounds: 1, deaths: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 1, aborts: 1, oneMind: true},
	} {
		b.run(t)
	}
}

func TestLongBarrierExplored(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for _, b := range []barrierBounds{
		{parties: 2, names: 3, rounds: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 2, deaths: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 2, forgets: 1, oneMind: true},
		{parties: 2, names: 3, rounds: 2, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 2, aborts: 1, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 1, aborts: 2, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 1, aborts: 1, deaths: 1, oneMind: true, limit: 700_000},
		{parties: 3, names: 3, rounds: 1, oneMind: true, limit: 700_000},
	} {
		b.run(t)
	}
}

func TestLongBarrierCounterExamples(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for what, c := range map[string]hallCounter{
		"members keep no parties":         {barrierBounds{parties: 2, names: 3, rounds: 1, oneMind: true}, func(r *barrierRules) { r.strangers = true }, "the parties of a round"},
		"a Wait that failed is forgotten": {barrierBounds{parties: 2, names: 2, rounds: 1, aborts: 1, oneMind: true}, func(r *barrierRules) { r.forgetFail = true }, explore.Stuck},
	} {
		t.Run(what, c.run)
	}
}
