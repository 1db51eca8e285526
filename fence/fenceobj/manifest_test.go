package fenceobj

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// memory is a right store, of which a test takes a part out.
type memory struct {
	mu      sync.Mutex
	objects map[string]object // guarded by mu
	writes  int               // guarded by mu

	matches func(there object, found bool, version string) bool
	between func()                         // a Put looks, lets others in, and writes
	answer  func(apply func() error) error // what becomes of a Put, and what its caller hears
}

type object struct {
	body    []byte
	version string
}

func newMemory() *memory {
	return &memory{objects: map[string]object{}, matches: func(there object, found bool, version string) bool {
		return there.version == version && found == (version != "")
	}}
}

func (m *memory) Get(_ context.Context, key string) ([]byte, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return nil, "", ErrNotFound
	}
	return bytes.Clone(o.body), o.version, nil
}

func (m *memory) Put(ctx context.Context, key string, body []byte, version string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	apply := func() error { return m.put(key, body, version) }
	if m.answer != nil {
		return m.answer(apply)
	}
	return apply()
}

func (m *memory) put(key string, body []byte, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, found := m.objects[key]
	if !m.matches(o, found, version) {
		return fmt.Errorf("412: %w", ErrConflict)
	}
	if m.between != nil {
		m.mu.Unlock()
		m.between()
		m.mu.Lock()
	}
	m.writes++
	m.objects[key] = object{bytes.Clone(body), fmt.Sprint("v", m.writes)}
	return nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

type states struct {
	*Guard
	store *memory
}

func (s states) Get(ctx context.Context, resource string) (string, error) {
	v, err := s.read(ctx, s.Key(resource), resource)
	return string(v.State), err
}

func (s states) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return s.Update(ctx, resource, token, func([]byte) ([]byte, error) {
		if entered != nil {
			entered()
			entered = nil
		}
		return []byte(value), nil
	})
}

func (s states) Overwrite(ctx context.Context, resource, value string) error {
	body := fmt.Appendf(nil, `{"resource":%q,"token":"1","nonce":"n","state":%q}`, b64(resource), b64(value))
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.writes++
	s.store.objects[s.Key(resource)] = object{body, fmt.Sprint("v", s.store.writes)}
	return nil
}

func fixture(t *testing.T, m *memory) fencetest.Fixture {
	g := rt.Must(Open(t.Context(), m, "locks/"))(t)
	return fencetest.Fixture{
		Guard: g, Storage: states{g, m}, Lacks: "endings crash",
		Reopen: func() (fence.Guard, error) { return Open(t.Context(), m, "locks/") },
	}
}

func TestManifestIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture { return fixture(t, newMemory()) })
}

func TestGuardedManifestLosesNothing(t *testing.T) {
	t.Parallel()
	fencetest.RunSet(t, func(t *testing.T) fencetest.Fixture { return fixture(t, newMemory()) }, 200)
}

// Something between the guard and the store sends writes twice, or late. The probe, the suite and the set see to it.
func TestRepeatedWritesLoseNoAddition(t *testing.T) {
	t.Parallel()
	repeated := func(t *testing.T) fencetest.Fixture {
		m, b := newMemory(), fencetest.NewBetween(t)
		m.answer = func(apply func() error) error {
			return rt.Err(fencetest.Send(b, func() (any, error) { return nil, apply() }))
		}
		return fixture(t, m)
	}
	fencetest.Run(t, repeated)
	t.Run("set", func(t *testing.T) {
		result := fencetest.Set(t, repeated(t), fencetest.Guarded, 200)
		assert.Zero(t, result.Lost, "%v", result)
	})
}

// Answers are lost, of writes that have happened, of those that have not, and of those that happen later.
func TestLostAnswersLoseNoAddition(t *testing.T) { faketime.Test(t, lostAnswers) }

func lostAnswers(t *testing.T) {
	m := newMemory()
	f := fixture(t, m)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	lost := errors.New("connection reset")
	var late sync.WaitGroup
	defer late.Wait()
	m.answer = func(apply func() error) error {
		mu.Lock()
		chance := rng.IntN(10)
		mu.Unlock()
		switch chance {
		case 0:
			_ = apply()
			return lost
		case 1:
			return lost
		case 2:
			late.Go(func() {
				time.Sleep(time.Duration(1+chance) * time.Millisecond) // later than the next read
				_ = apply()
			})
			return lost
		}
		return apply()
	}
	doubtful := unknown{states{f.Guard.(*Guard), m}, lost}
	f.Guard, f.Storage = doubtful, doubtful
	result := fencetest.Set(t, f, fencetest.Guarded, 200)
	t.Log(result)
	assert.Zero(t, result.Lost)
}

// unknown takes a call that stays without an answer for a refusal: nobody was told that it was accepted.
type unknown struct {
	states
	lost error
}

func (u unknown) Check(ctx context.Context, resource string, token uint64) error {
	return u.refused(u.states.Check(ctx, resource, token))
}

func (u unknown) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return u.refused(u.states.Put(ctx, resource, token, value, entered))
}

func (u unknown) refused(err error) error {
	if errors.Is(err, u.lost) {
		return errors.Join(err, fence.ErrStale)
	}
	return err
}

// What became of a write without an answer is found out, or said to be unknown.
func TestWriteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	lost := errors.New("connection reset")
	begin := func() (*memory, *Guard) {
		m := newMemory()
		g := rt.Must(Open(ctx, m, ""))(t)
		require.NoError(t, rt.Err(g.Claim(ctx, "r", 5)))
		return m, g
	}
	once := func(m *memory, f func(apply func() error)) {
		m.answer = func(apply func() error) error {
			m.answer = nil
			f(apply)
			return lost
		}
	}
	state := func(g *Guard) string { return string(rt.Must(g.Claim(ctx, "r", 9))(t)) }

	m, g := begin() // it has happened
	once(m, func(apply func() error) { require.NoError(t, apply()) })
	require.NoError(t, g.Commit(ctx, "r", 5, []byte("five")))
	assert.Equal(t, "five", state(g))

	m, g = begin() // it has not
	once(m, func(func() error) {})
	require.NoError(t, g.Commit(ctx, "r", 5, []byte("five")))
	assert.Equal(t, "five", state(g))

	m, g = begin() // it happens between the read and the second write
	var later func() error
	m.answer = func(apply func() error) error {
		if later == nil {
			later = apply
			return lost
		}
		m.answer = nil
		require.NoError(t, later())
		return apply()
	}
	require.NoError(t, g.Update(ctx, "r", 5, func(state []byte) ([]byte, error) { return append(state, 'x'), nil }))
	assert.Equal(t, "x", state(g), "one addition, and not two")

	var step *fence.StepError
	m, g = begin() // the function fails when it is called again, and the write happens after that
	broken := errors.New("broken")
	calls := 0
	later = nil
	m.answer = func(apply func() error) error { later, m.answer = apply, nil; return lost }
	err := g.Update(ctx, "r", 5, func(state []byte) ([]byte, error) {
		if calls++; calls > 1 {
			return nil, broken
		}
		return append(state, 'x'), nil
	})
	require.NoError(t, later())
	require.ErrorAs(t, err, &step)
	assert.Equal(t, fence.StepCommit, step.Step, "it may have been written, and is")
	assert.ErrorIs(t, err, lost)
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, "x", state(g))

	m, g = begin() // who looks after a doubt knows: a write without an answer happens before that, or never
	var pending []func() error
	m.answer = func(apply func() error) error { pending = append(pending, apply); return lost }
	require.ErrorAs(t, g.Commit(ctx, "r", 5, []byte("five")), &step)
	assert.Equal(t, fence.StepCommit, step.Step)
	require.ErrorAs(t, g.Check(ctx, "r", 5), &step)
	assert.Equal(t, fence.StepClaim, step.Step, "the store does not answer, so nobody knows")
	m.answer = nil
	looked := rt.Must(g.Claim(ctx, "r", 5))(t)
	assert.Nil(t, looked)
	for _, apply := range pending {
		assert.ErrorIs(t, apply(), ErrConflict)
	}
	writes := m.writes
	looked = rt.Must(g.Claim(ctx, "r", 5))(t)
	assert.Nil(t, looked)
	assert.Equal(t, writes, m.writes, "a claim without a doubt that is there already writes nothing")

	m, g = begin() // no answer at all
	tries := 0
	m.answer = func(func() error) error { tries++; return lost }
	err = g.Commit(ctx, "r", 5, []byte("five"))
	require.ErrorAs(t, err, &step)
	assert.Equal(t, fence.StepCommit, step.Step)
	assert.ErrorIs(t, err, lost)
	assert.Equal(t, doubts, tries)
	require.ErrorAs(t, g.Check(ctx, "r", 6), &step)
	assert.Equal(t, fence.StepClaim, step.Step)
}

// A refusal proves nothing, nor does silence: something between has sent the write twice, and tells of the second one. The
// manifests after it tell what became of it, whoever has written them since.
func TestWriteThatWasRefusedOrLostHappensOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	lost := errors.New("connection reset")
	add := func(g *Guard, token uint64, what string) error {
		return g.Update(ctx, "r", token, func(state []byte) ([]byte, error) { return append(state, what...), nil })
	}
	for name, c := range map[string]struct {
		since func(t *testing.T, m *memory, other *Guard) // between the two
		ends  fence.Step
		state string
	}{
		"nobody":          {func(*testing.T, *memory, *Guard) {}, "", "ax"},
		"another writer":  {func(t *testing.T, _ *memory, other *Guard) { require.NoError(t, add(other, 5, "y")) }, "", "axy"},
		"the next holder": {func(t *testing.T, _ *memory, other *Guard) { require.NoError(t, add(other, 6, "y")) }, "", "axy"},
		"a claim":         {func(t *testing.T, _ *memory, other *Guard) { require.NoError(t, other.Check(ctx, "r", 6)) }, "", "ax"},
		"as many as it knows": {func(t *testing.T, _ *memory, other *Guard) {
			for range mostBefore {
				require.NoError(t, add(other, 5, "y"))
			}
		}, "", "ax" + strings.Repeat("y", mostBefore)},
		"more": {func(t *testing.T, _ *memory, other *Guard) {
			for range mostBefore + 2 {
				require.NoError(t, add(other, 5, "y"))
			}
		}, fence.StepCommit, "ax" + strings.Repeat("y", mostBefore+2)},
		"a program that does not know of it": {func(_ *testing.T, m *memory, _ *Guard) {
			m.objects["manifest-72"] = object{fmt.Appendf(nil, `{"resource":%q,"token":"5","nonce":"n","state":%q}`, b64("r"), b64("axz")), "v0"}
		}, fence.StepCommit, "axz"},
	} {
		for how, answer := range map[string]func(apply func() error) error{
			"refused": func(apply func() error) error { return apply() },
			"lost":    func(func() error) error { return lost },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				m := newMemory()
				g, other := rt.Must(Open(ctx, m, ""))(t), rt.Must(Open(ctx, m, ""))(t)
				require.NoError(t, add(g, 5, "a"))
				m.answer = func(apply func() error) error {
					m.answer = nil
					require.NoError(t, apply())
					c.since(t, m, other)
					return answer(apply)
				}
				err := add(g, 5, "x")
				if c.ends == "" {
					require.NoError(t, err)
				} else {
					step := rt.As[*fence.StepError](t, err)
					assert.Equal(t, c.ends, step.Step, "it may have been written, and was")
				}
				assert.Equal(t, c.state, string(rt.Must(g.Claim(ctx, "r", 9))(t)))
			})
		}
	}

	// One that is refused because of another's is tried again, once: the manifests tell that it has not happened.
	m := newMemory()
	g, other := rt.Must(Open(ctx, m, ""))(t), rt.Must(Open(ctx, m, ""))(t)
	m.answer = func(apply func() error) error {
		m.answer = nil
		require.NoError(t, add(other, 5, "y"))
		return apply()
	}
	require.NoError(t, add(g, 5, "x"))
	assert.Equal(t, "yx", string(rt.Must(g.Claim(ctx, "r", 5))(t)))
	m.answer = func(apply func() error) error {
		m.answer = nil
		require.NoError(t, add(other, 6, "z"))
		return apply()
	}
	assert.ErrorIs(t, add(g, 5, "x"), fence.ErrStale, "nothing was written, and no doubt is left")
	assert.Equal(t, "yxz", string(rt.Must(g.Claim(ctx, "r", 6))(t)))

	// A store that refuses the version that is there is asked for a while.
	refused := 0
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	m.answer = func(func() error) error {
		if refused++; refused == 2 {
			cancel()
		}
		return ErrConflict
	}
	assert.Equal(t, fence.StepCommit, rt.As[*fence.StepError](t, g.Commit(short, "r", 6, nil)).Step)
	assert.Equal(t, 2, refused)
}

// A store refuses what it would not give back: nothing was written, and nothing is in doubt.
func TestStateThatIsTooLarge(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := newMemory()
	g := rt.Must(Open(ctx, m, ""))(t)
	require.NoError(t, g.Check(ctx, "r", 5))
	puts := 0
	m.answer = func(func() error) error { puts++; return fmt.Errorf("%w: 64 MiB", ErrTooLarge) }
	err := g.Commit(ctx, "r", 5, []byte("large"))
	assert.Equal(t, fence.StepEnter, rt.As[*fence.StepError](t, err).Step)
	assert.ErrorIs(t, err, ErrTooLarge)
	assert.Equal(t, 1, puts, "it is not tried again")
	m.answer = nil
	assert.Nil(t, rt.Must(g.Claim(ctx, "r", 5))(t))
}

func TestCommitWantsAClaim(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := rt.Must(Open(ctx, newMemory(), ""))(t)
	assert.ErrorIs(t, g.Commit(ctx, "r", 5, []byte("early")), ErrNotClaimed)
	state := rt.Must(g.Claim(ctx, "r", 5))(t)
	assert.Nil(t, state)
	require.NoError(t, g.Commit(ctx, "r", 5, []byte("five")))
	assert.ErrorIs(t, g.Commit(ctx, "r", 6, []byte("early")), ErrNotClaimed)
	state = rt.Must(g.Claim(ctx, "r", 6))(t)
	assert.Equal(t, "five", string(state))
	assert.ErrorIs(t, g.Commit(ctx, "r", 5, []byte("late")), fence.ErrStale)

	broken := errors.New("broken")
	err := g.Update(ctx, "r", 7, func(state []byte) ([]byte, error) { state[0] = 'x'; return nil, broken })
	assert.Equal(t, fence.StepWrite, rt.As[*fence.StepError](t, err).Step)
	assert.ErrorIs(t, err, broken)
	require.NoError(t, g.Commit(ctx, "r", 6, []byte("six")), "an update that failed has claimed nothing")
	assert.NotEqual(t, g.DataName(5), g.DataName(5))
	assert.Contains(t, g.DataName(5), "data-00000000000000000005-")
}

func TestBadInputOfManifests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := newMemory()
	g := rt.Must(Open(ctx, m, ""))(t)
	assert.Empty(t, m.objects, "the probe leaves nothing")
	for token, want := range map[uint64]error{0: fence.ErrNoToken, fence.MaxToken + 1: fence.ErrTokenRange} {
		assert.ErrorIs(t, g.Check(ctx, "r", token), want)
		assert.ErrorIs(t, g.Commit(ctx, "r", token, nil), want)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	step := rt.As[*fence.StepError](t, g.Check(ended, "r", 5))
	assert.Equal(t, fence.StepClaim, step.Step)
	assert.ErrorIs(t, step, context.Canceled)
	require.ErrorAs(t, g.Commit(ended, "r", 5, nil), &step)
	assert.Equal(t, fence.StepEnter, step.Step, "nothing was sent")
	assert.ErrorIs(t, step, context.Canceled)
	assert.Empty(t, m.objects)

	require.NoError(t, g.Check(ctx, "r", 5))
	during, cancel := context.WithCancel(ctx)
	err := g.Update(during, "r", 5, func([]byte) ([]byte, error) { cancel(); return []byte("half"), nil })
	require.ErrorAs(t, err, &step)
	assert.Equal(t, fence.StepCommit, step.Step, "the write was begun")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Nil(t, rt.Must(g.Claim(ctx, "r", 5))(t))
	whole := m.objects[g.Key("r")]
	for _, body := range []string{
		"", "{}", string(whole.body[:len(whole.body)-1]), strings.Replace(string(whole.body), `"5"`, `5`, 1),
		strings.Replace(string(whole.body), `"5"`, `"0"`, 1), strings.Replace(string(whole.body), `"5"`, `"9223372036854775808"`, 1),
		strings.Replace(string(whole.body), b64("r"), b64("s"), 1),
	} {
		m.objects[g.Key("r")] = object{[]byte(body), "v"}
		assert.ErrorIs(t, g.Check(ctx, "r", 9), ErrDamaged, "%s", body)
		require.ErrorAs(t, g.Commit(ctx, "r", 9, nil), &step)
		assert.Equal(t, fence.StepEnter, step.Step, "nothing was written")
	}
	m.objects[g.Key("r")] = whole
	assert.NoError(t, g.Check(ctx, "r", 5))
}

// Real stores have bounds: 1,024 bytes for a key, and over files 255 for what is between two slashes.
func TestKeysOfLongNamesAreShort(t *testing.T) {
	t.Parallel()
	g := &Guard{prefix: "locks/"}
	long := strings.Repeat("n", 1024)
	names := []string{"", "r", "manifest-72", "sha256-", long, long[:101], long[:100], long[:99], long[:1023], long[:1023] + "m"}
	keys := map[string]string{}
	for _, name := range names {
		key := g.Key(name)
		assert.Empty(t, keys[key], "%q", name)
		keys[key] = name + " is here"
		file, found := strings.CutPrefix(key, "locks/manifest-")
		require.True(t, found, "%s", key)
		assert.LessOrEqual(t, len(file), 240)
	}
	assert.NotEqual(t, g.Key(long), g.Key(strings.TrimPrefix(g.Key(long), "locks/manifest-")))
	hash := sha256.Sum256([]byte(long))
	assert.NotEqual(t, g.Key(long), g.Key(string(hash[:])))
	assert.Equal(t, "locks/manifest-696e766f6963653a3432", g.Key("invoice:42"))
}
