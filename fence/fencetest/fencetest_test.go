package fencetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/faketime"
)

// recorder stands in for the *testing.T of a check that must fail.
type recorder struct {
	testing.TB // panics on anything not listed below
	ctx        context.Context
	mu         sync.Mutex
	failures   []string // guarded by mu
}

func (r *recorder) Helper()                  {}
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func failing(t *testing.T, newGuard func() Fixture) (names []string) {
	for _, c := range checks {
		fixture := newGuard()
		if why, _ := c.missing(fixture); why != "" {
			continue
		}
		r := &recorder{ctx: t.Context()}
		ended := make(chan struct{})
		go func() { // of its own, because Fatalf ends it
			defer close(ended)
			c.run(r, fixture)
		}()
		<-ended
		if len(r.failures) > 0 {
			t.Logf("%s: %s", c.name, r.failures[0])
			names = append(names, c.name)
		}
	}
	return names
}

type checkFunc func(ctx context.Context, resource string, token uint64) error

func (f checkFunc) Check(ctx context.Context, resource string, token uint64) error {
	return f(ctx, resource, token)
}

type doFunc struct {
	*fence.Memory
	do func(m *fence.Memory, ctx context.Context, resource string, token uint64, write func() error) error
}

func (f doFunc) Do(ctx context.Context, resource string, token uint64, write func() error) error {
	return f.do(f.Memory, ctx, resource, token, write)
}

type sharedFunc struct {
	*fence.Memory
	shared func(m *fence.Memory, ctx context.Context, resource string, token uint64) error
}

func (f sharedFunc) CheckShared(ctx context.Context, resource string, token uint64) error {
	return f.shared(f.Memory, ctx, resource, token)
}

// checking, doing and sharing make right guards of which one method has a fault.
func checking(f func(m *fence.Memory, ctx context.Context, resource string, token uint64) error) func() Fixture {
	return func() Fixture {
		m := new(fence.Memory)
		return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error { return f(m, ctx, resource, token) })}
	}
}

func doing(f func(m *fence.Memory, ctx context.Context, resource string, token uint64, write func() error) error) func() Fixture {
	return func() Fixture { return Fixture{Guard: doFunc{new(fence.Memory), f}} }
}

func sharing(f func(m *fence.Memory, ctx context.Context, resource string, token uint64) error) func() Fixture {
	return func() Fixture { return Fixture{Guard: sharedFunc{new(fence.Memory), f}} }
}

// shelved makes a right storage of which change takes a part out.
func shelved(change func(s *shelf)) func() Fixture {
	return func() Fixture {
		s := newShelf()
		change(s)
		return s.fixture()
	}
}

// Each of these guards has one fault, and the suite must see it.
func TestSuiteFindsTheFaultOfEveryBrokenGuard(t *testing.T) {
	for _, tc := range []struct {
		fault    string
		newGuard func() Fixture
		want     string // a check that must fail
	}{
		{"accepts everything", func() Fixture {
			return Fixture{Guard: checkFunc(func(context.Context, string, uint64) error { return nil })}
		}, "TokensAreAcceptedUpwards"},
		{"accepts token 0", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			if token == 0 {
				return nil
			}
			return m.Check(ctx, resource, token)
		}), "ZeroIsNoToken"},
		{"refuses an equal token", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			if h := m.Highest(resource); token > 0 && token == h {
				return &fence.StaleError{Resource: resource, Token: token, Highest: h}
			}
			return m.Check(ctx, resource, token)
		}), "TokensAreAcceptedUpwards"},
		{"remembers refused tokens", func() Fixture {
			highest := map[string]uint64{}
			var mu sync.Mutex
			return Fixture{Guard: checkFunc(func(_ context.Context, resource string, token uint64) error {
				mu.Lock()
				defer mu.Unlock()
				err := fence.Admit(resource, highest[resource], token)
				highest[resource] = token
				return err
			})}
		}, "RefusalChangesNothing"},
		{"says only that a token is stale", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			if err := m.Check(ctx, resource, token); errors.Is(err, fence.ErrStale) {
				return fence.ErrStale
			} else {
				return err
			}
		}), "TokensAreAcceptedUpwards"},
		{"keeps tokens as floats", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, resource, uint64(float64(token)))
		}), "LargeTokensKeepEveryDigit"},
		{"compares names without case", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, strings.ToLower(resource), token)
		}), "ResourcesAreIndependent"},
		{"pads names", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, strings.TrimRight(resource, " "), token)
		}), "ResourcesAreIndependent"},
		{"reads and writes in two steps", func() Fixture {
			highest := map[string]uint64{}
			var mu sync.Mutex
			return Fixture{Guard: checkFunc(func(_ context.Context, resource string, token uint64) error {
				mu.Lock()
				before := highest[resource]
				mu.Unlock()
				for range 30 {
					runtime.Gosched()
				}
				if err := fence.Admit(resource, before, token); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				highest[resource] = token
				return nil
			})}
		}, "ConcurrentChecksNeverGoBack"},
		{"writes before it checks", func() Fixture {
			one := make(chan struct{}, 1)
			return Fixture{Guard: doFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, r string, token uint64, write func() error) error {
				select {
				case one <- struct{}{}:
					defer func() { <-one }()
				case <-ctx.Done():
					return ctx.Err()
				}
				return errors.Join(write(), m.Check(ctx, r, token))
			}}}
		}, "RefusedWriteDoesNotRun"},
		{"forgets the token of a failed write", doing(func(m *fence.Memory, ctx context.Context, r string, token uint64, write func() error) error {
			if err := fence.Admit(r, m.Highest(r), token); err != nil {
				return err
			}
			return m.Do(ctx, r+" write", 1, func() error {
				if err := write(); err != nil {
					return err
				}
				return m.Check(ctx, r, token)
			})
		}), "FailedWriteKeepsItsToken"},
		{"lets Check overtake a write", func() Fixture {
			one := make(chan struct{}, 1) // keeps writes apart, but not checks
			return Fixture{Guard: doFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, r string, token uint64, write func() error) error {
				select {
				case one <- struct{}{}:
					defer func() { <-one }()
				case <-ctx.Done():
					return ctx.Err()
				}
				if err := m.Check(ctx, r, token); err != nil {
					return err
				}
				return write()
			}}}
		}, "NobodyIsAcceptedDuringAWrite"},
		{"does not remember readers", sharing(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return fence.AdmitShared(resource, m.Highest(resource), token)
		}), "ReaderEndsTheWritersBefore"},
		{"accepts every reader", sharing(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			if err := m.CheckShared(ctx, resource, token); !errors.Is(err, fence.ErrStale) {
				return err
			}
			return nil
		}), "WriterEndsTheReadersBefore"},
		{"judges readers as writers", sharing(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, resource, token)
		}), "ReadersDoNotRefuseEachOther"},
		{"remembers refused readers", sharing(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			err := m.CheckShared(ctx, resource, token)
			if err != nil && token > 0 {
				_ = m.Check(ctx, resource, m.Highest(resource)+token)
			}
			return err
		}), "RefusedReaderChangesNothing"},
		{"does not let a reader wait for a write", func() Fixture {
			highest := new(fence.Memory)
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(_ *fence.Memory, ctx context.Context, resource string, token uint64) error {
				return highest.CheckShared(ctx, resource, token)
			}}}
		}, "ReaderWaitsForAWrite"},
		{"forgets readers in a restart", func() Fixture {
			m := new(fence.Memory)
			return Fixture{Guard: m, Reopen: func() (fence.Guard, error) {
				again := new(fence.Memory)
				again.Restore(map[string]uint64{"r": 5, "s": 8})
				return again, nil
			}}
		}, "RestartForgetsNoReader"},
		{"forgets all in a restart", func() Fixture {
			return Fixture{Guard: new(fence.Memory), Reopen: func() (fence.Guard, error) { return new(fence.Memory), nil }}
		}, "RestartForgetsNothing"},
		{"does not restart", func() Fixture {
			return Fixture{Guard: new(fence.Memory), Reopen: func() (fence.Guard, error) { return nil, errors.New("no disk") }}
		}, "RestartForgetsNothing"},
		{"keeps one resource in a restart", func() Fixture {
			m := new(fence.Memory)
			return Fixture{Guard: m, Reopen: func() (fence.Guard, error) {
				kept := maps.Clone(m.Snapshot())
				delete(kept, "s")
				again := new(fence.Memory)
				again.Restore(kept)
				return again, nil
			}}
		}, "RestartForgetsNothing"},
		{"takes names for text", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, strings.ToValidUTF8(resource, "?"), token)
		}), "NamesAreBytes"},
		{"ends names at a zero byte", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			name, _, _ := strings.Cut(resource, "\x00")
			return m.Check(ctx, name, token)
		}), "NamesAreBytes"},
		{"cuts long names", checking(func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
			return m.Check(ctx, resource[:min(len(resource), 255)], token)
		}), "NamesAreBytes"},
		{"compares with the tokens of writes alone", func() Fixture {
			s, writes := newShelf(), new(fence.Memory)
			s.enter = func(ctx context.Context, resource string, token uint64, write func() error) error {
				return writes.Do(ctx, resource, token, write)
			}
			return s.fixture()
		}, "ClaimAloneRefusesTheWriteBefore"},
		{"writes what it has refused", shelved(func(s *shelf) {
			s.enter = func(ctx context.Context, resource string, token uint64, write func() error) error {
				return errors.Join(s.guard.Check(ctx, resource, token), write())
			}
		}), "ClaimAloneRefusesTheWriteBefore"},
		{"counts the rows that a write has changed", shelved(func(s *shelf) {
			s.changed = func(resource string, token uint64) error {
				return &fence.StaleError{Resource: resource, Token: token, Highest: s.guard.Highest(resource)}
			}
		}), "EqualWriteIsAcceptedTwice"},
		{"asks before the transaction", shelved(func(s *shelf) {
			s.enter = func(ctx context.Context, resource string, token uint64, write func() error) error {
				if err := s.guard.Check(ctx, resource, token); err != nil {
					return err
				}
				return write()
			}
		}), "ClaimWaitsForWhatHasEntered"},
		{"lets those that enter pass a claim", func() Fixture {
			s := newShelf()
			var inside atomic.Int64
			s.enter = func(ctx context.Context, resource string, token uint64, write func() error) error {
				inside.Add(1)
				defer inside.Add(-1)
				if err := fence.Admit(resource, s.guard.Highest(resource), token); err != nil {
					return err
				}
				return write()
			}
			f := s.fixture()
			f.Guard = checkFunc(func(ctx context.Context, resource string, token uint64) error {
				for inside.Load() > 0 && resource == "r" && token == 34 {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					runtime.Gosched()
				}
				return s.guard.Check(ctx, resource, token)
			})
			return f
		}, "ClaimComesBetweenOverlappingWrites"},
		{"acknowledges what it has written after the end", ending(func(s *shelf, _ error) error { return nil }), "EndedTransactionIsNotAcknowledged"},
		{"writes what it has written after the end", ending(func(s *shelf, err error) error {
			return errors.Join(err, s.Overwrite(context.Background(), "end", "six"))
		}), "EndedTransactionIsNotAcknowledged"},
		{"tells of a claim that is not on disk", shelved(func(s *shelf) {
			s.kept = func() map[string]uint64 { return map[string]uint64{"s": 1<<53 + 1} }
		}), "CrashForgetsNoClaim"},
		{"tells of a write that is not on disk", shelved(func(s *shelf) {
			s.left = func(values map[string]string) map[string]string { return nil }
		}), "CrashLeavesNoHalfWrite"},
		{"leaves half a write", shelved(func(s *shelf) {
			s.left = func(values map[string]string) map[string]string { return map[string]string{"r": "si"} }
		}), "CrashLeavesNoHalfWrite"},
	} {
		t.Run(tc.fault, func(t *testing.T) { assert.Contains(t, failing(t, tc.newGuard), tc.want) })
	}
}

func TestSuitePassesARightGuard(t *testing.T) {
	assert.Empty(t, failing(t, func() Fixture {
		m := new(fence.Memory)
		return Fixture{Guard: m, Reopen: func() (fence.Guard, error) { return m, nil }}
	}))
	assert.Empty(t, failing(t, ending(func(_ *shelf, err error) error { return err })))
}

// A list of skipped tests has what the author of a fixture can enable, and nothing else.
func TestOnlyWhatItsAuthorCanEnableIsSkipped(t *testing.T) {
	guard := checkFunc(nil)
	for _, c := range checks {
		why, author := c.missing(Fixture{Guard: guard})
		assert.Equal(t, why != "" && !c.needsDo && !c.needsShared, author, c.name)
		_, author = c.missing(Fixture{Guard: guard, Lacks: "restart data endings crash"})
		assert.False(t, author, c.name)
	}
}

// ending makes a right storage that ends transactions, but for what fault makes of it.
func ending(fault func(s *shelf, err error) error) func() Fixture {
	return func() Fixture {
		s := newShelf()
		f := s.fixture()
		f.Endings = []Ending{{Name: "end", Put: func(ctx context.Context, resource string, token uint64, value string, entered func()) error {
			if err := s.guard.Check(ctx, resource, token); err != nil {
				return err
			}
			entered()
			return fault(s, errors.New("ended"))
		}}}
		return f
	}
}

// shelf is a right storage in memory, of which a test takes a part out.
type shelf struct {
	guard   *fence.Memory
	enter   func(ctx context.Context, resource string, token uint64, write func() error) error
	changed func(resource string, token uint64) error // of a write that changes nothing
	kept    func() map[string]uint64                  // the tokens that survive a crash
	left    func(values map[string]string) map[string]string

	mu      sync.Mutex
	values  map[string]string // guarded by mu
	crashes int               // guarded by mu: a write that began before one does not happen
}

func newShelf() *shelf {
	s := &shelf{guard: new(fence.Memory), values: map[string]string{}}
	s.enter, s.kept = s.guard.Do, s.guard.Snapshot
	s.changed = func(string, uint64) error { return nil }
	s.left = maps.Clone[map[string]string]
	return s
}

func (s *shelf) fixture() Fixture {
	return Fixture{Guard: s.guard, Storage: s, Crash: func() (Fixture, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.crashes++
		after := newShelf()
		after.guard.Restore(s.kept())
		maps.Copy(after.values, s.left(s.values))
		return after.fixture(), nil
	}}
}

func (s *shelf) Get(_ context.Context, resource string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[resource], nil
}

func (s *shelf) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return s.enter(ctx, resource, token, func() error {
		s.mu.Lock()
		crashes := s.crashes
		s.mu.Unlock()
		if entered != nil {
			entered()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.crashes != crashes {
			return errors.New("connection lost")
		}
		if s.values[resource] == value {
			return s.changed(resource, token)
		}
		s.values[resource] = value
		return nil
	})
}

func (s *shelf) Overwrite(_ context.Context, resource, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[resource] = value
	return nil
}

func TestSetLosesNothingWithAGuardAndSomethingWithout(t *testing.T) {
	for use, accepted := range map[Use]int{Guarded: 2000, WriteOnly: 200, Unguarded: 200} {
		faketime.Test(t, func(t *testing.T) { // thinking takes no time
			checkSet(t, use, Set(t, newShelf().fixture(), use, accepted))
		})
	}
}

func TestSetShowsNothingIfNothingCouldBeLost(t *testing.T) {
	for _, tc := range []struct {
		use    Use
		result SetResult
		fails  bool
	}{
		{Guarded, SetResult{Accepted: 9, Refused: 1}, false},
		{Guarded, SetResult{Accepted: 9}, true},
		{Guarded, SetResult{Accepted: 9, Refused: 1, Lost: 1}, true},
		{WriteOnly, SetResult{Accepted: 9, Refused: 1, Lost: 1}, false},
		{WriteOnly, SetResult{Accepted: 9, Refused: 1}, true},
		{Unguarded, SetResult{Accepted: 9}, true},
	} {
		r := &recorder{TB: t, ctx: t.Context()}
		checkSet(r, tc.use, tc.result)
		assert.Equal(t, tc.fails, len(r.failures) > 0, "%s: %v", tc.use, tc.result)
	}
}

func TestSetEndsWithAnErrorThatIsNoRefusal(t *testing.T) {
	s := newShelf()
	s.enter = func(context.Context, string, uint64, func() error) error { return errors.New("disk full") }
	r := &recorder{TB: t, ctx: t.Context()}
	Set(r, s.fixture(), Guarded, 10)
	assert.NotEmpty(t, r.failures)
	assert.Contains(t, r.failures[0], "disk full")
}
