// Package fencetest tests that a fence.Guard refuses what it must. It is the contract of package
// fence as a suite, which every guard passes, also those of other modules.
//
//	func TestMyGuard(t *testing.T) {
//		fencetest.Run(t, func(t *testing.T) fencetest.Fixture { ... })
//	}
//
// Run it with the race detector. Start at Run. The concurrent checks are in concurrent.go, those of
// a storage with data in storage.go. RunSet, in set.go, counts the updates that a storage loses.
package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/fence"
)

// Fixture is a guard under test that has accepted nothing yet. Its creator closes it with
// t.Cleanup.
type Fixture struct {
	// Guard is the guard. If it is a fence.AtomicGuard, Run tests Do as well. If it is a
	// fence.SharedGuard, Run tests CheckShared.
	Guard fence.Guard

	// Reopen stops the storage behind the guard, starts it again with the data that it kept, and
	// returns a guard over it. Run does not use the old guard after that. Reopen is nil if the
	// storage cannot restart within a test. Run then skips those tests and says so.
	Reopen func() (fence.Guard, error)

	// Storage is the data behind the guard, or nil. Run then skips the tests of writes and says so.
	Storage Storage

	// Endings are the ways in which the storage ends a transaction, or a part of it, before its commit. If
	// there are none, Run skips that test and says so.
	Endings []Ending

	// Crash ends the storage as kill -9 does, starts it again, and returns guard and storage over
	// what is left. The fixture that it returns needs no Crash. It may be called while a write has
	// entered. Crash is nil if the storage cannot crash within a test. Run then skips those tests
	// and says so.
	Crash func() (Fixture, error)

	// Lacks has those of the words restart, data, endings and crash that name what the storage can never
	// offer. Run logs that and skips nothing, as with the methods that the guard has not.
	Lacks string
}

// Storage has one value for each resource, and writes it under the guard of the Fixture.
type Storage interface {
	// Get returns the value of a resource, or "" if there is none. It reads what is committed.
	Get(ctx context.Context, resource string) (value string, err error)

	// Put enters under token, calls entered, and writes value, all in one transaction. If the guard
	// refuses the token, Put returns the guard's error and does not call entered. If the check and
	// the write are one step of the storage, Put does not call entered. Put does not claim a token
	// that is below one that has been claimed. entered may be nil.
	Put(ctx context.Context, resource string, token uint64, value string, entered func()) error

	// Overwrite writes value without a guard. RunSet needs it to show that the guard does anything.
	Overwrite(ctx context.Context, resource, value string) error
}

// Ending is one way in which a storage ends a transaction: a deadlock, a statement that commits, a
// connection that is killed.
type Ending struct {
	Name string

	// Put is that of Storage. Its function lets the storage end what it can end in this way, passes over
	// the error, calls entered, and writes value nevertheless.
	Put func(ctx context.Context, resource string, token uint64, value string, entered func()) error

	// Stays says that nobody can take back what the function writes after that. The storage's documents
	// say so, too.
	Stays bool
}

// Run tests guards made by newGuard, one for each subtest, and one more that says what can be tested.
// Tokens go up to 2^63-1, because databases have signed integers. Resource names are any bytes, up to
// 256 of them.
func Run(t *testing.T, newGuard func(t *testing.T) Fixture) {
	var fixture Fixture
	began := false
	t.Run("Fixture", func(t *testing.T) { began, fixture = true, newGuard(t) })
	if !began { // the flag -run names one of the others
		fixture = newGuard(t)
	}
	if fixture.Guard == nil {
		return // newGuard has failed, or skipped
	}
	told := map[string]bool{} // one test of each kind says why it cannot run, and the others of that kind do not begin
	for _, c := range checks {
		why, author := c.missing(fixture)
		switch {
		case why == "":
			t.Run(c.name, func(t *testing.T) { c.run(t, newGuard(t)) })
		case told[why]:
		case author:
			t.Run(c.name, func(t *testing.T) { t.Skip(why) })
		default:
			t.Log(why)
		}
		told[why] = true
	}
}

// patience is for how long a guard may keep a call waiting that it must not accept.
const patience = 50 * time.Millisecond

// check is one rule of the contract.
type check struct {
	name                              string
	needsDo, needsShared, needsReopen bool
	needsStorage, needsCrash          bool
	needsEndings                      bool
	run                               func(t testing.TB, f Fixture)
}

// missing says what the fixture lacks for the check, and whether its author can enable it: by a field, and not by
// another guard or storage.
func (c check) missing(f Fixture) (why string, author bool) {
	_, atomic := f.Guard.(fence.AtomicGuard)
	_, shared := f.Guard.(fence.SharedGuard)
	has := func(word string) bool { return !strings.Contains(f.Lacks, word) }
	switch {
	case c.needsDo && !atomic:
		return fmt.Sprintf("NO ATOMIC WRITES: %T has no Do; a fence.AtomicGuard enables these tests", f.Guard), false
	case c.needsShared && !shared:
		return fmt.Sprintf("NO READERS: %T has no CheckShared; a fence.SharedGuard enables these tests", f.Guard), false
	case c.needsReopen && f.Reopen == nil:
		return "NO RESTART: Fixture.Reopen is nil; setting it enables these tests", has("restart")
	case c.needsStorage && f.Storage == nil:
		return "NO DATA: Fixture.Storage is nil; setting it enables these tests", has("data")
	case c.needsEndings && len(f.Endings) == 0:
		return "NO ENDINGS: Fixture.Endings is empty; ways in which the storage ends a transaction enable this test", has("endings")
	case c.needsCrash && f.Crash == nil:
		return "NO CRASH: Fixture.Crash is nil; setting it enables these tests", has("crash")
	}
	return "", false
}

var checks = []check{
	{name: "TokensAreAcceptedUpwards", run: acceptedUpwards},
	{name: "ZeroIsNoToken", run: zeroIsNoToken},
	{name: "RefusalChangesNothing", run: refusalChangesNothing},
	{name: "LargeTokensKeepEveryDigit", run: largeTokens},
	{name: "ResourcesAreIndependent", run: independentResources},
	{name: "NamesAreBytes", run: namesAreBytes},
	{name: "ConcurrentChecksNeverGoBack", run: concurrentChecks},
	{name: "ResourcesDoNotMixUnderLoad", run: concurrentResources},
	{name: "RefusedWriteDoesNotRun", needsDo: true, run: refusedWrite},
	{name: "FailedWriteKeepsItsToken", needsDo: true, run: failedWrite},
	{name: "NobodyIsAcceptedDuringAWrite", needsDo: true, run: exclusiveWrite},
	{name: "ConcurrentWritesNeverGoBack", needsDo: true, run: concurrentWrites},
	{name: "ReaderEndsTheWritersBefore", needsShared: true, run: readerAfterWriter},
	{name: "WriterEndsTheReadersBefore", needsShared: true, run: writerAfterReader},
	{name: "ReadersDoNotRefuseEachOther", needsShared: true, run: readersTogether},
	{name: "RefusedReaderChangesNothing", needsShared: true, run: refusedReader},
	{name: "ReaderWaitsForAWrite", needsDo: true, needsShared: true, run: readDuringWrite},
	{name: "RestartForgetsNothing", needsReopen: true, run: restart},
	{name: "RestartForgetsNoReader", needsShared: true, needsReopen: true, run: restartWithReaders},
	{name: "ClaimAloneRefusesTheWriteBefore", needsStorage: true, run: claimWithoutWrite},
	{name: "EqualWriteIsAcceptedTwice", needsStorage: true, run: equalWrites},
	{name: "ClaimWaitsForWhatHasEntered", needsStorage: true, run: claimDuringWrite},
	{name: "ClaimComesBetweenOverlappingWrites", needsStorage: true, run: claimAmongWrites},
	{name: "EndedTransactionIsNotAcknowledged", needsStorage: true, needsEndings: true, run: endedTransactions},
	{name: "CrashForgetsNoClaim", needsCrash: true, run: crashAfterClaim},
	{name: "CrashLeavesNoHalfWrite", needsStorage: true, needsCrash: true, run: crashDuringWrite},
}

func acceptedUpwards(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 5) // the first
	accept(t, f.Guard, "r", 5) // the same holder again
	accept(t, f.Guard, "r", 6) // the next holder
	refuse(t, f.Guard, "r", 5, 6)
	refuse(t, f.Guard, "r", 1, 6)
	accept(t, f.Guard, "r", 6)
	accept(t, f.Guard, "r", 100) // tokens have gaps
	refuse(t, f.Guard, "r", 99, 100)
	accept(t, f.Guard, "r", 100)
}

func zeroIsNoToken(t testing.TB, f Fixture) {
	for range 2 {
		if err := f.Guard.Check(t.Context(), "r", 0); !errors.Is(err, fence.ErrNoToken) {
			t.Errorf("Check with token 0 = %v, want ErrNoToken", err)
		}
		accept(t, f.Guard, "r", 1)
	}
}

func refusalChangesNothing(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 10)
	for token := uint64(1); token < 10; token++ {
		refuse(t, f.Guard, "r", token, 10)
	}
	accept(t, f.Guard, "r", 10)
}

func largeTokens(t testing.TB, f Fixture) {
	// Neighbours that a float64, or a 32-bit integer, cannot tell apart.
	for _, token := range []uint64{1<<32 + 1, 1<<53 + 1, math.MaxInt64} {
		accept(t, f.Guard, "r", token)
		refuse(t, f.Guard, "r", token-1, token)
		accept(t, f.Guard, "r", token)
	}
}

func independentResources(t testing.TB, f Fixture) {
	// Pairs that careless comparison, quoting or joining of names takes for one another.
	names := []string{"a", "A", "a ", " a", "ä", "a\u0308", "a:b", "a/b", "a%", "a_", "a'", `a"`, "a\\", "{a}", "a\n", "ab", ""}
	for i, name := range names {
		accept(t, f.Guard, name, uint64(100-i))
	}
	for i, name := range names {
		refuse(t, f.Guard, name, uint64(100-i-1), uint64(100-i))
		accept(t, f.Guard, name, uint64(100-i))
	}
}

// namesAreBytes: no byte ends a name, is taken for another, or is refused.
func namesAreBytes(t testing.TB, f Fixture) {
	var all []byte
	names := []string{"\x00", "\x00\x00", "a\x00", "a\x00b", "\xff\xfe", "\xc3", "\xef\xbf\xbd"}
	for b := range 256 {
		all = append(all, byte(b))
	}
	for at := 0; at < len(all); at += 16 {
		names = append(names, string(all[at:at+16]))
	}
	names = append(names, string(all), string(all[:255]))
	for i, name := range names {
		accept(t, f.Guard, name, uint64(100-i))
	}
	for i, name := range names {
		refuse(t, f.Guard, name, uint64(100-i-1), uint64(100-i))
	}
	for b := range 256 { // 0x41 and 0x61, 0x20 and 0xa0, and all that is not UTF-8
		accept(t, f.Guard, string([]byte{'n', byte(b)}), uint64(300-b))
	}
	for b := range 256 {
		refuse(t, f.Guard, string([]byte{'n', byte(b)}), uint64(300-b-1), uint64(300-b))
	}
}

func refusedWrite(t testing.TB, f Fixture) {
	guard := f.Guard.(fence.AtomicGuard)
	runs := 0
	write := func() error { runs++; return nil }
	if err := guard.Do(t.Context(), "r", 5, write); err != nil || runs != 1 {
		t.Errorf("Do with the first token = %v, write ran %d times, want nil and once", err, runs)
	}
	if err := guard.Do(t.Context(), "r", 4, write); !errors.Is(err, fence.ErrStale) || runs != 1 {
		t.Errorf("Do with a stale token = %v, write ran %d more times, want ErrStale and not at all", err, runs-1)
	}
	if err := guard.Do(t.Context(), "r", 0, write); !errors.Is(err, fence.ErrNoToken) || runs != 1 {
		t.Errorf("Do with token 0 = %v, write ran %d more times, want ErrNoToken and not at all", err, runs-1)
	}
	refuse(t, guard, "r", 4, 5)
}

func failedWrite(t testing.TB, f Fixture) {
	guard := f.Guard.(fence.AtomicGuard)
	failure := errors.New("write failed")
	if err := guard.Do(t.Context(), "r", 5, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("Do = %v, want the error of the write", err)
	}
	refuse(t, guard, "r", 4, 5) // the failed write may have happened in part
	accept(t, guard, "r", 5)
}

// exclusiveWrite asks for a greater token in the middle of a write. The guard cannot accept it before the
// write ends, so it must wait until the context does.
func exclusiveWrite(t testing.TB, f Fixture) {
	guard := f.Guard.(fence.AtomicGuard)
	err := guard.Do(t.Context(), "r", 5, func() error {
		for name, overtake := range map[string]func(ctx context.Context) error{
			"Check": func(ctx context.Context) error { return guard.Check(ctx, "r", 6) },
			"Do":    func(ctx context.Context) error { return guard.Do(ctx, "r", 6, func() error { return nil }) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := overtake(ctx); err == nil {
				t.Errorf("%s accepted token 6 while token 5 was still writing", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("Do = %v", err)
	}
	accept(t, guard, "r", 6)
}

func restart(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 5)
	accept(t, f.Guard, "s", 8)
	refuse(t, f.Guard, "s", 7, 8)
	for range 2 {
		guard, err := f.Reopen()
		if err != nil {
			t.Fatalf("Reopen: %v", err)
		}
		refuse(t, guard, "r", 4, 5)
		accept(t, guard, "r", 5)
		refuse(t, guard, "s", 7, 8)
		accept(t, guard, "new", 1)
	}
}

func accept(t testing.TB, guard fence.Guard, resource string, token uint64) {
	t.Helper()
	if err := guard.Check(t.Context(), resource, token); err != nil {
		t.Errorf("Check(%q, %d) = %v, want it accepted", resource, token, err)
	}
}

func refuse(t testing.TB, guard fence.Guard, resource string, token, highest uint64) {
	t.Helper()
	checkRefusal(t, guard.Check(t.Context(), resource, token), fence.StaleError{Resource: resource, Token: token, Highest: highest})
}

func checkRefusal(t testing.TB, err error, want fence.StaleError) {
	t.Helper()
	var stale *fence.StaleError
	switch {
	case !errors.Is(err, fence.ErrStale):
		t.Errorf("Check(%q, %d) = %v, want ErrStale", want.Resource, want.Token, err)
	case !errors.As(err, &stale):
		t.Errorf("Check(%q, %d) = %v, which is no *fence.StaleError", want.Resource, want.Token, err)
	case *stale != want:
		t.Errorf("Check(%q, %d) = %+v, want %+v", want.Resource, want.Token, *stale, want)
	}
}
