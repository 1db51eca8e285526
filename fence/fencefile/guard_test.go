//go:build linux || darwin

package fencefile

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// The test binary is also the process that is killed while it writes.
const childEnv = "REDQUORUM_FENCEFILE_CHILD"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(childEnv)); len(words) > 0 {
		os.Exit(child(words))
	}
	os.Exit(m.Run())
}

func child(words []string) int {
	var text [3]string // folder, resource, value
	for i, at := range []int{0, 1, 3} {
		b, err := hex.DecodeString(strings.TrimPrefix(words[at], "x"))
		if err != nil {
			panic(err)
		}
		text[i] = string(b)
	}
	token, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		panic(err)
	}
	f := &files{dir: text[0], guard: must(Open(guards(text[0])))}
	err = f.Put(context.Background(), text[1], token, text[2], func() {
		fmt.Println("entered")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			os.Exit(3)
		}
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type files struct {
	dir   string
	guard *Guard
	mu    sync.Mutex
	kill  func() // guarded by mu: what entered in another process; nil if none has
}

func guards(dir string) string { return filepath.Join(dir, "guard") }

func (f *files) name(resource string) string {
	return filepath.Join(f.dir, hex.EncodeToString([]byte(resource))+".data")
}

func (f *files) Get(_ context.Context, resource string) (string, error) {
	content, err := os.ReadFile(f.name(resource))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(content), err
}

func (f *files) Overwrite(_ context.Context, resource, value string) error {
	return replace(f.name(resource), []byte(value), 0o600)
}

func (f *files) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	if entered == nil {
		return f.guard.WriteFile(ctx, resource, token, f.name(resource), []byte(value), 0o600)
	}
	return f.guard.Do(ctx, resource, token, func() error {
		entered()
		return replace(f.name(resource), []byte(value), 0o600)
	})
}

// elsewhere is files whose writes with an entered happen in another process.
type elsewhere struct{ *files }

func (f elsewhere) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	if entered == nil {
		return f.files.Put(ctx, resource, token, value, nil)
	}
	if err := f.guard.Check(ctx, resource, token); err != nil { // with its type
		return err
	}
	cmd := exec.CommandContext(ctx, must(os.Executable()))
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=x%x x%x %d x%x", childEnv, f.dir, resource, token, value))
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "entered" {
		return cmp.Or(f.guard.Check(ctx, resource, token), errors.Join(fmt.Errorf("child says %q", lines.Text()), cmd.Wait()))
	}
	f.mu.Lock()
	f.kill = func() { _ = cmd.Process.Kill() }
	f.mu.Unlock()
	entered()
	_, _ = fmt.Fprintln(in) // fails if it was killed
	return cmd.Wait()
}

func open(t *testing.T, dir string) fencetest.Fixture {
	f := elsewhere{&files{dir: dir, guard: must(Open(guards(dir)))}}
	return fencetest.Fixture{
		Guard: f.guard, Storage: f, Lacks: "endings",
		Reopen: func() (fence.Guard, error) { return Open(guards(dir)) },
		Crash: func() (fencetest.Fixture, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.kill != nil {
				f.kill()
			}
			return open(t, dir), nil
		},
	}
}

// Writes of one process happen one after the other for Go's memory model, too: the race detector sees no
// race between them. The second one comes while the first one writes, and they have nothing else in common.
func TestWritesOfOneProcessHappenInTheirOrder(t *testing.T) {
	dir := t.TempDir()
	first, second := must(Open(guards(dir))), must(Open(guards(dir))) // as two packages of one program
	entered, waits := filepath.Join(dir, "entered"), filepath.Join(dir, "waits")
	there := func(name string) { // what a channel would say would be an order of its own
		for start := time.Now(); time.Since(start) < time.Minute; runtime.Gosched() {
			if _, err := os.Stat(name); err == nil {
				return
			}
		}
	}
	written := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		there(entered)
		assert.NoError(t, os.Mkdir(waits, 0o700))
		assert.NoError(t, second.Do(t.Context(), "r", 2, func() error { written++; return nil }))
	})
	assert.NoError(t, first.Do(t.Context(), "r", 1, func() error {
		assert.NoError(t, os.Mkdir(entered, 0o700))
		there(waits)
		written++
		return nil
	}))
	wg.Wait()
	require.Equal(t, 2, written)
}

// Cost: 2 s, of all tests of a guard.
func TestFolderIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture { return open(t, t.TempDir()) })
}

func TestGuardedFileLosesNothing(t *testing.T) {
	t.Parallel()
	fencetest.RunSet(t, func(t *testing.T) fencetest.Fixture { return open(t, t.TempDir()) }, 100)
}

func TestBadTokensLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := rt.Must(Open(dir))(t)
	name := filepath.Join(dir, "data")
	for token, want := range map[uint64]error{0: fence.ErrNoToken, fence.MaxToken + 1: fence.ErrTokenRange} {
		assert.ErrorIs(t, g.Check(t.Context(), "r", token), want)
		assert.ErrorIs(t, g.WriteFile(t.Context(), "r", token, name, nil, 0o600), want)
	}
	assert.Empty(t, rt.Must(os.ReadDir(dir))(t))

	assert.ErrorContains(t, rt.Err(Open("")), "no folder")
	assert.Error(t, rt.Err(Open(filepath.Join(must(os.Executable()), "below a file"))))
}

// A folder that is new is on disk before the first claim in it, and so is each one above it. It is no
// parallel test, so no other one runs while it listens.
func TestNewFolderIsOnDisk(t *testing.T) {
	var synced []string
	sync := syncFolder
	defer func() { syncFolder = sync }()
	syncFolder = func(folder string) error {
		synced = append(synced, folder)
		return sync(folder)
	}
	dir := t.TempDir()
	below := filepath.Join(dir, "a", "b")
	g := rt.Must(Open(below))(t)
	assert.ElementsMatch(t, []string{dir, filepath.Join(dir, "a")}, synced)
	require.NoError(t, g.Check(t.Context(), "r", 5))
	assert.Equal(t, below, synced[len(synced)-1], "the name of the token")

	synced = nil
	require.NoError(t, rt.Err(Open(below)))
	assert.Empty(t, synced)
	broken := errors.New("broken")
	syncFolder = func(string) error { return broken }
	assert.ErrorIs(t, rt.Err(Open(filepath.Join(dir, "c"))), broken)
	step := rt.As[*fence.StepError](t, g.Check(t.Context(), "r", 6))
	assert.Equal(t, fence.StepClaim, step.Step)
	assert.ErrorIs(t, step, broken)
	synced = nil
	syncFolder = func(folder string) error { synced = append(synced, folder); return sync(folder) }
	require.NoError(t, g.Check(t.Context(), "r", 6))
	assert.NotEmpty(t, synced, "the token was there, and perhaps not on disk")
}

func TestContextEndsTheWaitForAWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, other := must(Open(dir)), must(Open(dir))
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, g.Do(ctx, "r", 5, func() error {
		go cancel()
		step := rt.As[*fence.StepError](t, other.Check(ctx, "r", 6))
		assert.Equal(t, fence.StepClaim, step.Step)
		require.ErrorAs(t, other.WriteFile(ctx, "r", 6, filepath.Join(dir, "data"), nil, 0o600), &step)
		assert.Equal(t, fence.StepError{Step: fence.StepEnter, Resource: "r", Token: 6, Err: context.Canceled}, *step)
		return nil
	}))
	assert.NoFileExists(t, filepath.Join(dir, "data"))
	assert.NoError(t, other.Check(t.Context(), "r", 5), "a wait that ended has claimed nothing")
}

// What the guard has not written says nothing about the greatest token.
func TestDamagedTokenAcceptsNobody(t *testing.T) {
	t.Parallel()
	g := must(Open(t.TempDir()))
	require.NoError(t, g.Check(t.Context(), "r", 5))
	name := g.path("r") + ".token"
	whole := rt.Must(os.ReadFile(name))(t)
	for _, content := range []string{
		"", "5\n", string(whole[:len(whole)-1]), string(whole[:10]), string(whole) + "x", string(encode("s", 5)),
		string(encode("r", 0)), string(encode("r", fence.MaxToken+1)), "-0000000000000000005 \"r\"\n",
	} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		assert.ErrorIs(t, g.Check(t.Context(), "r", 9), ErrDamaged, "%q", content)
	}
	require.NoError(t, os.WriteFile(name, whole, 0o600))
	assert.NoError(t, g.Check(t.Context(), "r", 5))
}

func TestWriteThatFailsLeavesTheFileAndKeepsTheToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := must(Open(guards(dir)))
	name := filepath.Join(dir, "data")
	require.NoError(t, g.WriteFile(t.Context(), "r", 5, name, []byte("five"), 0o640))
	info := rt.Must(os.Stat(name))(t)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	step := rt.As[*fence.StepError](t, g.WriteFile(t.Context(), "r", 6, filepath.Join(dir, "none", "data"), nil, 0o600))
	assert.Equal(t, fence.StepWrite, step.Step)
	assert.ErrorIs(t, step, os.ErrNotExist)
	require.ErrorAs(t, g.WriteFile(t.Context(), "r", 6, guards(dir), nil, 0o600), &step, "a folder is in the way")
	assert.ErrorIs(t, g.WriteFile(t.Context(), "r", 5, name, nil, 0o600), fence.ErrStale)
	assert.Equal(t, "five", string(rt.Must(os.ReadFile(name))(t)))
	left := rt.Must(os.ReadDir(dir))(t)
	assert.Len(t, left, 2, "the file and the folder of the guard: %v", left)

	reader := rt.Must(os.Open(name))(t)
	defer reader.Close()
	require.NoError(t, g.WriteFile(t.Context(), "r", 6, name, []byte("six"), 0o600))
	old := rt.Must(io.ReadAll(reader))(t)
	assert.Equal(t, "five", string(old), "who reads has the old content, and no part of the new one")
	info = rt.Must(os.Stat(name))(t)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "a file keeps its permissions")
}
