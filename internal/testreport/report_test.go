package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The recordings in testdata are what `go test -trimpath -json` (Go 1.26) printed for small packages, one
// each, without the times: mixed (passed, failed and skipped tests), good, broken (does not compile), panics (one
// of two parallel tests), exits (TestMain exits with 3 after passed tests), none (no test files).
func recording(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		all.Write(content)
	}
	return all.String()
}

func TestReportOfOnePackage(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ok    bool
		lines []string // all must be there, in this order
	}{
		{"good", true, []string{
			"ok    example.test/sample/good  0.0s  4 tests",
			"4 passed, 0 failed, 0 skipped",
		}},
		{"mixed", false, []string{
			"=== example.test/sample/mixed.TestTable",
			"=== example.test/sample/mixed.TestTable/a/b",
			"    m_test.go:6: got 1,",
			"        want 2",
			"FAIL  example.test/sample/mixed  0.0s  9 tests, 1 failed, 3 skipped",
			"failed:",
			"  example.test/sample/mixed.TestTable/a/b",
			"did not run:",
			"  example.test/sample/mixed.TestTable/skipped: REDIS MISSING: redis-server is not in PATH",
			"  example.test/sample/mixed.TestSkipped: looking for docker; DOCKER MISSING: no daemon at the socket",
			"  example.test/sample/mixed.TestSilent: no reason given",
			"5 passed, 1 failed, 3 skipped",
		}},
		{"broken", false, []string{
			"broken/b_test.go:3:28: undefined: undefined",
			"FAIL  example.test/sample/broken  did not build",
			"  example.test/sample/broken",
			"0 passed, 1 failed, 0 skipped",
		}},
		{"panics", false, []string{
			"--- NO RESULT: the test did not finish",
			"panic: boom [recovered, repanicked]",
			"FAIL  example.test/sample/panics  0.0s  3 tests, 2 failed",
			"1 passed, 2 failed, 0 skipped",
		}},
		{"exits", false, []string{
			"=== example.test/sample/exits, outside its tests",
			"found a leaked goroutine",
			"FAIL  example.test/sample/exits  0.0s  1 test  failed outside its tests",
			"  example.test/sample/exits",
			"1 passed, 1 failed, 0 skipped",
		}},
		{"none", false, []string{
			"-     example.test/sample/none  no test files",
			"no test ran",
			"0 passed, 0 failed, 0 skipped",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := run(strings.NewReader(recording(t, tc.name)), &out, false, false)
			require.NoError(t, err)
			assert.Equal(t, tc.ok, ok)
			rest := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			assert.Equal(t, tc.lines[len(tc.lines)-1], rest[len(rest)-1], "the last line")
			for _, want := range tc.lines {
				at := 0
				for at < len(rest) && rest[at] != want {
					at++
				}
				require.Less(t, at, len(rest), "no line %q in the rest of\n%s", want, out.String())
				rest = rest[at+1:]
			}
			assert.NotContains(t, out.String(), "not shown", "output of a passed test")
		})
	}
}

func TestPackagesAreReportedWhenTheyEnd(t *testing.T) {
	reader, writer := io.Pipe()
	seen := make(chan string, 100)
	go func() {
		_, _ = io.WriteString(writer, recording(t, "good"))
		seen <- "" // the report asks for more only when all of good has been printed
		_ = writer.Close()
	}()
	var out strings.Builder
	ok, err := run(readerFunc(func(b []byte) (int, error) {
		seen <- out.String()
		return reader.Read(b)
	}), &out, false, false)
	require.NoError(t, err)
	assert.True(t, ok)
	close(seen)
	var last string
	for s := range seen {
		last = max(last, s)
	}
	assert.Contains(t, last, "ok    example.test/sample/good")
	assert.NotContains(t, last, "passed", "the summary came before the end")
}

func TestLogsOfPassedTestsAreShownWhereTheyAreAskedFor(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: 42 tenures\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p"}`,
	}, "\n")
	for _, logs := range []bool{false, true} {
		var out strings.Builder
		ok, err := run(strings.NewReader(in), &out, logs, false)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, logs, strings.Contains(out.String(), "    a_test.go:7: 42 tenures\n"))
		assert.NotContains(t, out.String(), "RUN")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestOneFailureFailsTheWhole(t *testing.T) {
	for _, tc := range []struct {
		input string
		ok    bool
		last  string
	}{
		{recording(t, "good", "none"), true, "4 passed, 0 failed, 0 skipped"},
		{recording(t, "good", "mixed", "good"), false, "13 passed, 1 failed, 3 skipped"},
		{recording(t, "broken", "good"), false, "4 passed, 1 failed, 0 skipped"},
		{recording(t, "good", "exits", "panics"), false, "6 passed, 3 failed, 0 skipped"},
		{"", false, "0 passed, 0 failed, 0 skipped"},
		{"go: errors parsing go.mod\n", false, "0 passed, 0 failed, 0 skipped"},
	} {
		var out strings.Builder
		ok, err := run(strings.NewReader(tc.input), &out, false, false)
		require.NoError(t, err)
		assert.Equal(t, tc.ok, ok, out.String())
		assert.True(t, strings.HasSuffix(out.String(), "\n"+tc.last+"\n"), out.String())
	}
}

// A run in which everything was skipped has tested nothing.
func TestSkipsAloneAreNoSuccess(t *testing.T) {
	const p = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestX"}
{"Action":"output","Package":"p","Test":"TestX","Output":"    x_test.go:1: why: because\n"}
{"Action":"skip","Package":"p","Test":"TestX"}
{"Action":"pass","Package":"p"}
`
	var out strings.Builder
	ok, err := run(strings.NewReader(p), &out, false, false)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "  p.TestX: why: because\n\nno test ran\n\n0 passed, 0 failed, 1 skipped\n")
}

// Wherever go test is killed, the part that is there must not look like success.
func TestTruncatedOutputFails(t *testing.T) {
	lines := strings.SplitAfter(recording(t, "good"), "\n")
	lines = lines[:len(lines)-1]
	for n := range lines { // all but the whole
		var out strings.Builder
		ok, err := run(strings.NewReader(strings.Join(lines[:n], "")), &out, false, false)
		require.NoError(t, err)
		assert.False(t, ok, "after %d lines:\n%s", n, out.String())
	}
}

func TestReadErrorFails(t *testing.T) {
	broken := errors.New("broken pipe")
	ok, err := run(io.MultiReader(strings.NewReader(recording(t, "good")), iotest.ErrReader(broken)), io.Discard, false, false)
	assert.False(t, ok)
	assert.ErrorIs(t, err, broken)
}

func TestOtherLinesAreShown(t *testing.T) {
	var out strings.Builder
	_, err := run(strings.NewReader("go: downloading x v1.0.0\n{not json\n"+recording(t, "good")), &out, false, false)
	require.NoError(t, err)
	assert.Contains(t, out.String(), "go: downloading x v1.0.0\n{not json\n")
}

func TestLongLinesAreRead(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	in := strings.ReplaceAll(recording(t, "mixed"), "got 1,", long)
	var out strings.Builder
	ok, err := run(strings.NewReader(in), &out, false, false)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), long)
}

func FuzzReportNeverLosesAFailure(f *testing.F) {
	f.Add(`{"Action":"fail","Package":"p","Test":"T"}`)
	f.Add(`{"Action":"pass","Package":"p","Test":"T/a"}` + "\n" + `{"Action":"fail","Package":"p"}`)
	f.Fuzz(func(t *testing.T, noise string) {
		const failure = `{"Action":"run","Package":"fuzz","Test":"TestLast"}` + "\n" +
			`{"Action":"fail","Package":"fuzz","Test":"TestLast"}` + "\n" + `{"Action":"fail","Package":"fuzz"}` + "\n"
		ok, err := run(strings.NewReader(noise+"\n"+failure), io.Discard, false, false)
		assert.NoError(t, err)
		assert.False(t, ok)
	})
}

// Each server has a line of its own, and one on which no test ran has failed.
func TestServersAreCountedEachAndOneOnWhichNothingRanFails(t *testing.T) {
	on := func(server, name string) string {
		return strings.ReplaceAll(recording(t, name), "example.test/sample/", server+"/")
	}
	for _, tc := range []struct {
		in    string
		ok    bool
		lines []string
	}{
		{on("a-1.0", "good") + on("b-1.0", "good"), true, []string{
			"ok    a-1.0/good", "ok    b-1.0/good",
			"a-1.0            4 passed    0 failed    0 skipped", "b-1.0            4 passed    0 failed    0 skipped", "\n8 passed, 0 failed, 0 skipped",
		}},
		{on("a-1.0", "good") + on("b-1.0", "mixed") + on("b-1.0", "exits"), false, []string{
			"failed:", "  b-1.0/mixed.TestTable/a/b", "did not run:", "  b-1.0/mixed.TestTable/skipped: REDIS MISSING",
			"a-1.0            4 passed    0 failed    0 skipped", "b-1.0            6 passed    2 failed    3 skipped", "\n10 passed, 2 failed, 3 skipped",
		}},
		{on("a-1.0", "good") + on("b-1.0", "none"), false, []string{
			"failed:", "  b-1.0: no test ran", "b-1.0            0 passed    0 failed", "\n4 passed, 1 failed, 0 skipped",
		}},
		{on("a-1.0", "good") + `{"Action":"output","Package":"b-1.0","Output":"no such package\n"}` + "\n" + `{"Action":"fail","Package":"b-1.0"}` + "\n", false, []string{
			"=== b-1.0, outside its tests\nno such package", "failed:", "  b-1.0\n", "b-1.0            0 passed    1 failed", "\n4 passed, 1 failed, 0 skipped",
		}},
	} {
		var out strings.Builder
		ok, err := run(strings.NewReader(tc.in), &out, false, true)
		require.NoError(t, err)
		require.Equal(t, tc.ok, ok)
		rest := out.String()
		for _, line := range tc.lines {
			_, after, found := strings.Cut(rest, line)
			require.True(t, found, "%q in\n%s", line, &out)
			rest = after
		}
	}
}
