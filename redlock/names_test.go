package redlock_test

import "github.com/redquorum/redquorum/redlock"

// The harness under the names that tests use. It is in package redlock (harness_test.go), because
// tests of the inside use it, too.
type (
	peer      = redlock.Peer
	locking   = redlock.Locking
	yes       = redlock.Yes
	reference = redlock.Reference
)

const raceEnabled = redlock.RaceEnabled

var (
	bubble, alone, pair, among = redlock.Bubble, redlock.Alone, redlock.Pair, redlock.Among
	fakeTime, seeds, long      = redlock.FakeTime, redlock.Seeds, redlock.Long

	join, connect, peers, open = redlock.JoinAll, redlock.Connect, redlock.Peers, redlock.OpenAll
	guarded, guardedVia, quiet = redlock.Guarded, redlock.GuardedVia, redlock.Quiet
	noGuard                    = redlock.NoGuard

	admin, skew, counter, bucketOf  = redlock.Admin, redlock.Skew, redlock.Counter, redlock.BucketOf
	queueOf, waitersOf              = redlock.QueueOf, redlock.WaitersOf
	leftovers, nothingLeft, lasting = redlock.Leftovers, redlock.NothingLeft, redlock.Lasting
	hits, scriptOf                  = redlock.Hits, redlock.ScriptOf

	has, lostFor, validity = redlock.Has, redlock.LostFor, redlock.Validity
	overBelief             = redlock.OverBelief

	agreed         = redlock.Agreed
	javaOf, numsub = redlock.JavaOf, redlock.Numsub
)
