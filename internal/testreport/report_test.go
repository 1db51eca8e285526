package testreport

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The recordings in testdata are what `go test -trimpath -json` (Go 1.26) printed for small packages, one
// each, without the times: mixed (passed, failed and skipped tests), good, broken (does not compile), panics (one
// of two parallel tests), exits (TestMain exits with 3 after passed tests), none (no test files).
func recording(t *testing.T, names ...string) string {
	var all strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		all.Write(content)
	}
	return all.String()
}

// report runs the script. What it prints on standard error stands behind the rest.
func report(t *testing.T, in string, args ...string) (out string, ok bool) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("BASH MISSING: the report is a script for it: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), bash, append([]string{"./report"}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var errs strings.Builder
	cmd.Stderr = &errs
	said, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return string(said) + errs.String(), err == nil
}

func TestReport(t *testing.T) {
	const skips = `{"Action":"run","Package":"p","Test":"TestX"}
{"Action":"output","Package":"p","Test":"TestX","Output":"    x_test.go:1: why: because\n"}
{"Action":"skip","Package":"p","Test":"TestX"}
{"Action":"pass","Package":"p"}
`
	for _, tc := range []struct {
		name, in string
		ok       bool
		parts    []string // all must be there, in this order
	}{
		{"tests that pass", recording(t, "good"), true, []string{"example.test/sample/good", "DONE 5 tests in"}},
		{"skips and a failure", recording(t, "mixed"), false, []string{
			"got 1,\n        want 2\n", "example.test/sample/mixed (5ms)\n",
			"SKIP: example.test/sample/mixed TestTable/skipped", "REDIS MISSING: redis-server is not in PATH\n",
			"SKIP: example.test/sample/mixed TestSkipped", "DOCKER MISSING: no daemon\n        at the socket\n",
			"SKIP: example.test/sample/mixed TestSilent", "FAIL: example.test/sample/mixed TestTable/a/b", "got 1,\n        want 2\n",
			"DONE 11 tests, 3 skipped, 2 failures in",
		}},
		{"no build", recording(t, "broken"), false, []string{
			"FAIL: example.test/sample/broken", "b_test.go:3:28: undefined: undefined\n", "DONE 0 tests, 1 failure, 1 error in"}},
		{"a panic", recording(t, "panics"), false, []string{
			"FAIL: example.test/sample/panics TestPanics", "panic: boom [recovered, repanicked]\n", "TestWaits (unknown)\n", "DONE 3 tests, 2 failures in"}},
		{"a test without a result", recording(t, "good") + `{"Action":"run","Package":"p","Test":"TestX"}`, false, []string{"p TestX (unknown)", "DONE 6 tests, 1 failure in"}},
		{"a failure outside the tests", recording(t, "exits"), false, []string{"found a leaked goroutine\n", "DONE 1 tests, 1 failure in"}},
		{"a failure of one package of three", recording(t, "good", "exits", "good"), false, []string{"found a leaked", "DONE 11 tests, 1 failure in"}},
		{"a package without tests beside others", recording(t, "none", "good"), true, []string{"DONE 5 tests in"}},
		{"a package without tests", recording(t, "none"), false, []string{"DONE 0 tests in", "no test ran\n"}},
		{"skips alone", skips, false, []string{"why: because\n", "DONE 1 tests, 1 skipped in", "no test ran\n"}},
		{"nothing", "", false, []string{"DONE 0 tests in", "no test ran\n"}},
		{"lines that are no events", "docker: up\n{no JSON\n" + recording(t, "good"), true, []string{"DONE 5 tests in", "docker: up\n{no JSON\n"}},
		{"a line that is too long", recording(t, "good") + strings.Repeat(" ", 1<<20) + "\n", false, []string{"DONE 5 tests", "ERROR"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, ok := report(t, tc.in)
			assert.Equal(t, tc.ok, ok, out)
			rest := out
			for _, part := range tc.parts {
				_, after, found := strings.Cut(rest, part)
				require.True(t, found, "no %q in the rest of\n%s", part, out)
				rest = after
			}
			assert.NotContains(t, out, "not shown", "output of a passed test")
		})
	}
}

func TestLogsOfPassedTestsAreShownOnRequest(t *testing.T) {
	out, ok := report(t, recording(t, "good", "mixed"), "-v")
	assert.False(t, ok)
	assert.Contains(t, out, "not shown")
}
