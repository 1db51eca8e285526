package fencetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/fence"
)

// recorder stands in for the *testing.T of a check that must fail.
type recorder struct {
	testing.TB // panics on anything not listed below
	ctx        context.Context
	mu         sync.Mutex
	failures   []string // guarded by mu
}

func (r *recorder) Helper()                  {}
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

// failing returns the names of the checks that the guard does not pass.
func failing(t *testing.T, newGuard func() Fixture) (names []string) {
	for _, c := range checks {
		fixture := newGuard()
		_, readers := fixture.Guard.(fence.SharedGuard)
		if _, atomic := fixture.Guard.(fence.AtomicGuard); c.needsDo && !atomic || c.needsShared && !readers || c.needsReopen && fixture.Reopen == nil {
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

// checkFunc is a guard without Do.
type checkFunc func(ctx context.Context, resource string, token uint64) error

func (f checkFunc) Check(ctx context.Context, resource string, token uint64) error {
	return f(ctx, resource, token)
}

// doFunc is a right guard with a Do of its own.
type doFunc struct {
	*fence.Memory
	do func(m *fence.Memory, ctx context.Context, resource string, token uint64, write func() error) error
}

func (f doFunc) Do(ctx context.Context, resource string, token uint64, write func() error) error {
	return f.do(f.Memory, ctx, resource, token, write)
}

// sharedFunc is a right guard with a CheckShared of its own.
type sharedFunc struct {
	*fence.Memory
	shared func(m *fence.Memory, ctx context.Context, resource string, token uint64) error
}

func (f sharedFunc) CheckShared(ctx context.Context, resource string, token uint64) error {
	return f.shared(f.Memory, ctx, resource, token)
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
		{"accepts token 0", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				if token == 0 {
					return nil
				}
				return m.Check(ctx, resource, token)
			})}
		}, "ZeroIsNoToken"},
		{"refuses an equal token", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				if h := m.Highest(resource); token > 0 && token == h {
					return &fence.StaleError{Resource: resource, Token: token, Highest: h}
				}
				return m.Check(ctx, resource, token)
			})}
		}, "TokensAreAcceptedUpwards"},
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
		{"says only that a token is stale", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				if err := m.Check(ctx, resource, token); errors.Is(err, fence.ErrStale) {
					return fence.ErrStale
				} else {
					return err
				}
			})}
		}, "TokensAreAcceptedUpwards"},
		{"keeps tokens as floats", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				return m.Check(ctx, resource, uint64(float64(token)))
			})}
		}, "LargeTokensKeepEveryDigit"},
		{"compares names without case", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				return m.Check(ctx, strings.ToLower(resource), token)
			})}
		}, "ResourcesAreIndependent"},
		{"pads names", func() Fixture {
			var m fence.Memory
			return Fixture{Guard: checkFunc(func(ctx context.Context, resource string, token uint64) error {
				return m.Check(ctx, strings.TrimRight(resource, " "), token)
			})}
		}, "ResourcesAreIndependent"},
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
		{"forgets the token of a failed write", func() Fixture {
			return Fixture{Guard: doFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, r string, token uint64, write func() error) error {
				if err := fence.Admit(r, m.Highest(r), token); err != nil {
					return err
				}
				return m.Do(ctx, r+" write", 1, func() error {
					if err := write(); err != nil {
						return err
					}
					return m.Check(ctx, r, token)
				})
			}}}
		}, "FailedWriteKeepsItsToken"},
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
		{"does not remember readers", func() Fixture {
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
				return fence.AdmitShared(resource, m.Highest(resource), token)
			}}}
		}, "ReaderEndsTheWritersBefore"},
		{"accepts every reader", func() Fixture {
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
				if err := m.CheckShared(ctx, resource, token); !errors.Is(err, fence.ErrStale) {
					return err
				}
				return nil
			}}}
		}, "WriterEndsTheReadersBefore"},
		{"judges readers as writers", func() Fixture {
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
				return m.Check(ctx, resource, token)
			}}}
		}, "ReadersDoNotRefuseEachOther"},
		{"remembers refused readers", func() Fixture {
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(m *fence.Memory, ctx context.Context, resource string, token uint64) error {
				err := m.CheckShared(ctx, resource, token)
				if err != nil && token > 0 {
					_ = m.Check(ctx, resource, m.Highest(resource)+token)
				}
				return err
			}}}
		}, "RefusedReaderChangesNothing"},
		{"does not let a reader wait for a write", func() Fixture {
			highest := new(fence.Memory)
			return Fixture{Guard: sharedFunc{new(fence.Memory), func(_ *fence.Memory, ctx context.Context, resource string, token uint64) error {
				return highest.CheckShared(ctx, resource, token)
			}}}
		}, "ReaderWaitsForAWrite"},
		{"forgets readers in a restart", func() Fixture {
			m := new(fence.Memory)
			return Fixture{m, func() (fence.Guard, error) {
				again := new(fence.Memory)
				again.Restore(map[string]uint64{"r": 5, "s": 8})
				return again, nil
			}}
		}, "RestartForgetsNoReader"},
		{"forgets all in a restart", func() Fixture {
			return Fixture{new(fence.Memory), func() (fence.Guard, error) { return new(fence.Memory), nil }}
		}, "RestartForgetsNothing"},
		{"does not restart", func() Fixture {
			return Fixture{new(fence.Memory), func() (fence.Guard, error) { return nil, errors.New("no disk") }}
		}, "RestartForgetsNothing"},
		{"keeps one resource in a restart", func() Fixture {
			m := new(fence.Memory)
			return Fixture{m, func() (fence.Guard, error) {
				kept := maps.Clone(m.Snapshot())
				delete(kept, "s")
				again := new(fence.Memory)
				again.Restore(kept)
				return again, nil
			}}
		}, "RestartForgetsNothing"},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			assert.Contains(t, failing(t, tc.newGuard), tc.want)
		})
	}
}

func TestSuitePassesARightGuard(t *testing.T) {
	assert.Empty(t, failing(t, func() Fixture {
		m := new(fence.Memory)
		return Fixture{m, func() (fence.Guard, error) { return m, nil }}
	}))
}
