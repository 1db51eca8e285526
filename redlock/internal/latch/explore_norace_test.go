//go:build !race

package latch

import (
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/explore"
)

// Without the race detector, which would take ten times as long.
func init() {
	searches = append(searches, []search{
		{bounds{members: 3, arrivals: 2, awaiters: 1, dies: true}, 25_000},
		{bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 2}, 15_000},
		{bounds{members: 3, arrivals: 2, awaiters: 1, stale: true, dies: true}, 26_000},
	}...)
}

func long(t *testing.T) {
	t.Helper()
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("LONG: more worlds; `make test-long` sets REDQUORUM_LONG=1 and runs it without the race detector")
	}
}

// What the counter-examples break holds within their bounds.
func TestLongLatchExplored(t *testing.T) {
	long(t)
	for _, b := range []bounds{
		{members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true},
		{members: 3, arrivals: 1, awaiters: 1, forgets: 3},
	} {
		search{b, 10_000}.run(t)
	}
}

func TestLongLatchCounterExamples(t *testing.T) {
	long(t)
	for what, c := range map[string]counter{
		"who is there does not arrive again": {bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 3}, func(r *rules) { r.noReassert = true }, explore.Stuck},
		"nobody joins what members have":     {bounds{members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true}, func(r *rules) { r.noJoin = true }, explore.Stuck},
	} {
		t.Run(what, c.run)
	}
}
