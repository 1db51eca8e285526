package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/tested"
)

// repository are the tests of all packages. To find them costs seconds, so it is done once.
var repository = sync.OnceValues(func() ([]test, error) { return scan("../..") })

// Cost: 7 s, of the Go of all tests, which is parsed.
func TestEachTestIsOfOneRing(t *testing.T) {
	all := rt.Must(repository())(t)
	require.Greater(t, len(all), 500)
	for _, one := range all {
		var of []int
		for i, p := range append(parts[:], measured) {
			for _, c := range p.tests {
				if c.has(one) && !c.again {
					of = append(of, i+1)
				}
			}
		}
		if one.first() {
			assert.Empty(t, of, "%s %s is of the first ring", one.pkg, one.name)
		} else {
			assert.Len(t, of, 1, "%s %s is of one part", one.pkg, one.name)
		}
	}
	var servers, names []string
	for _, p := range append(parts[:], measured) {
		servers = append(servers, p.servers...)
		for _, c := range p.tests {
			assert.True(t, slices.ContainsFunc(all, c.has), "no test of %s matches %q", c.pkg, c.pattern)
		}
	}
	for _, s := range tested.Servers {
		if s != tested.Redis70 {
			names = append(names, s.Name())
		}
	}
	assert.ElementsMatch(t, names, servers)
}

// Cost: 7 s, if it is alone, of looking through all tests once.
func TestTablesNameTestsThatAreThere(t *testing.T) {
	all := rt.Must(repository())(t)
	there := map[string]bool{"TestName": true, "TestLong": true, "TestFaults": true, "TestInterop": true}
	for _, one := range all {
		there[one.name] = true
	}
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/protocol/*.md", "integration/*.md", "redlock/spec_test.go", "docs/spec/mutex.pml"} {
		some := rt.Must(filepath.Glob(filepath.Join("../..", pattern)))(t)
		require.NotEmpty(t, some)
		files = append(files, some...)
	}
	for _, file := range files {
		text := regexp.MustCompile(`(?m)^func Test\w+`).ReplaceAll(rt.Must(os.ReadFile(file))(t), nil) // blocks that are tests
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			if filepath.Base(file) != "CHANGELOG.md" {
				assert.True(t, there[name], "%s: no %s", file, name)
			}
		}
	}
}

func small(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module small\n\ngo 1.25\n",
		"a/a_test.go":          "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n\nfunc TestLongA(t *testing.T) { t.Fatal() }\n",
		"a/plain_test.go":      "//go:build !race\n\npackage a\n\nimport \"testing\"\n\n// Cost: none.\nfunc TestPlain(t *testing.T) {}\n",
		"b/c/c_test.go":        "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) { t.Fatal() }\n\nfunc TestA(t *testing.T) {}\n",
		"bench/b_test.go":      "package bench\n\nimport \"testing\"\n\nfunc TestBench(t *testing.T) { t.Fatal() }\n",
		"a/testdata/x_test.go": "package x\n\nfunc TestX(t *testing.T) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
}

func results(t *testing.T, events string) (out []string) {
	t.Helper()
	for line := range strings.Lines(events) {
		var e struct{ Action, Package, Test string }
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		if e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			out = append(out, e.Action+" "+e.Package+" "+e.Test)
		}
	}
	slices.Sort(out)
	return out
}

// Cost: 4 s, of the builds of a module.
func TestRingsRunTheirTests(t *testing.T) {
	small(t)
	for _, tc := range []struct {
		args, want string
		fails      bool
	}{
		{"test", "fail small/b/c TestC, pass small/a TestA, pass small/a TestPlain, pass small/b/c TestA", true},
		{"test ./b/... -- -run TestA", "pass small/b/c TestA", false},
		{"test ./a -- -run TestPlain", "pass small/a TestPlain", false},
		{"long", "fail small/a TestLongA", true},
	} {
		var out bytes.Buffer
		err := do(t.Context(), strings.Fields(tc.args), &out)
		assert.Equal(t, tc.fails, err != nil, "%s: %v", tc.args, err)
		assert.Equal(t, strings.Split(tc.want, ", "), results(t, out.String()), tc.args)
	}
	for _, wrong := range []string{"", "all 7", "needs x", "others", "test ./a ./b"} {
		require.Error(t, do(t.Context(), strings.Fields(wrong), io.Discard), wrong)
	}
	// A part runs what it has chosen, with and without the race detector, and says which choice finds nothing.
	all := rt.Must(scan("."))(t)
	var out bytes.Buffer
	p := part{tests: []chosen{{pkg: "a", pattern: "^Test(Plain|Long)"}, {pkg: "none", pattern: every}}}
	require.ErrorContains(t, p.play(t.Context(), all, &out), "no test of none")
	require.Equal(t, []string{"fail small/a TestLongA", "pass small/a TestPlain"}, results(t, out.String()))
	// What each test costs is told, and each that has no reason.
	out.Reset()
	require.NoError(t, cost(t.Context(), choose(all, "./a", test.first), time.Minute, &out))
	require.Empty(t, out.String())
	require.ErrorContains(t, cost(t.Context(), choose(all, "./a", test.first), -time.Minute, &out), "1 tests")
	require.Regexp(t, `(?s)^ *-?\d+\.\d s  ./a TestA: no reason\n *-?\d+\.\d s  ./a TestPlain\n$`, out.String())
}

// Two commands write whole lines, however they come.
func TestLinesAreWhole(t *testing.T) {
	var out bytes.Buffer
	to := &lines{out: &out}
	a, endA := to.writer()
	b, endB := to.writer()
	for _, piece := range []string{"on", "e\ntw", "o\n", "last"} {
		require.NoError(t, rt.Err(io.WriteString(a, piece)))
		require.NoError(t, rt.Err(io.WriteString(b, "x\n")))
	}
	require.NoError(t, endA())
	require.NoError(t, endB())
	require.Equal(t, "x\none\nx\ntwo\nx\nx\nlast\n", out.String())
}
