package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// A mutant that no longer applies, or does not compile, tests nothing: that is told here, and not an hour
// into a run.
func TestMutantsApply(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	list := mutants()
	require.GreaterOrEqual(t, len(list), 40)
	pkgs := loadPackages(t, root, list)
	redis := redistest.NewEmbedded()
	defer redis.Close()
	names := make(map[string]bool)
	for _, m := range list {
		assert.False(t, names[m.name], "listed twice: %s", m.name)
		names[m.name] = true
		assert.NotEmpty(t, m.tests, m.name)
		text, err := m.apply(root)
		if !assert.NoError(t, err) {
			continue
		}
		if strings.HasSuffix(m.file, ".lua") {
			_, err := redis.Do(t.Context(), "SCRIPT", "LOAD", string(text))
			assert.NoError(t, err, m.name)
			_, err = linkScript((&bench{root: root}).scriptVariable(m.file), text)
			assert.NoError(t, err, m.name)
			continue
		}
		assert.NoError(t, pkgs[filepath.Dir(m.file)].check(m.file, text), m.name)
	}
}

// Each pattern names a test that exists, or the tests that should notice do not run.
func TestMutantsNameTestsThatExist(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := make(map[string][]string)
	for _, m := range mutants() {
		for _, at := range m.tests {
			if found[at.pkg] == nil {
				files, err := filepath.Glob(filepath.Join(root, at.pkg, "*_test.go"))
				require.NoError(t, err)
				for _, f := range files {
					text, err := os.ReadFile(f)
					require.NoError(t, err)
					for _, d := range declared.FindAllStringSubmatch(string(text), -1) {
						found[at.pkg] = append(found[at.pkg], d[1])
					}
				}
			}
			run, _, _ := strings.Cut(at.run, "/")
			for one := range strings.SplitSeq(run, "|") {
				pattern, err := regexp.Compile(one)
				require.NoError(t, err)
				if !slices.ContainsFunc(found[at.pkg], pattern.MatchString) {
					t.Errorf("%s: no test of %s matches %q", m.name, at.pkg, one)
				}
			}
		}
	}
}

// checked is a package that can be type-checked again with one file changed.
type checked struct {
	path     string
	files    map[string]*ast.File // from the root of the module
	fset     *token.FileSet
	importer types.Importer
}

// loadPackages parses the packages of the mutants, with the compiler's export data for what they import.
func loadPackages(t *testing.T, root string, list []mutant) map[string]*checked {
	dirs := make(map[string]*checked)
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles"}
	for _, m := range list {
		if dir := filepath.Dir(m.file); strings.HasSuffix(m.file, ".go") && dirs[dir] == nil {
			dirs[dir] = &checked{}
			args = append(args, "./"+dir)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	exports := make(map[string]string)
	fset := token.NewFileSet()
	shared := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %q", path)
		}
		return os.Open(exports[path])
	})
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		exports[p.ImportPath] = p.Export
		c := dirs[strings.TrimPrefix(p.ImportPath, modulePath+"/")]
		if c == nil {
			continue
		}
		*c = checked{path: p.ImportPath, files: make(map[string]*ast.File), fset: fset, importer: shared}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			c.files[strings.TrimPrefix(p.ImportPath, modulePath+"/")+"/"+name] = f
		}
	}
	return dirs
}

// check type-checks the package with the text of one file replaced.
func (c *checked) check(file string, text []byte) error {
	changed, err := parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	all := []*ast.File{changed}
	for name, f := range c.files {
		if name != file {
			all = append(all, f)
		}
	}
	_, err = (&types.Config{Importer: c.importer}).Check(c.path, c.fset, all, nil)
	return err
}

func TestApplyWantsItsTextOnce(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("one two two"), 0o600))
	got, err := mutant{file: "f", old: "one", new: "1"}.apply(dir)
	require.NoError(t, err)
	require.Equal(t, "1 two two", string(got))
	for _, m := range []mutant{
		{name: "gone", file: "f", old: "three", new: "3"},
		{name: "ambiguous", file: "f", old: "two", new: "2"},
		{name: "no change", file: "f", old: "one", new: "one"},
	} {
		_, err := m.apply(dir)
		require.ErrorContains(t, err, m.name)
	}
}

func TestOutcomeOfARun(t *testing.T) {
	lines := func(l ...string) string { return strings.Join(l, "\n") + "\n" }
	for _, tc := range []struct {
		name, events string
		want         outcome
	}{
		{"all pass", lines(
			`{"Action":"run","Test":"TestA"}`, `{"Action":"pass","Test":"TestA"}`,
			`{"Action":"skip","Test":"TestB"}`, `{"Action":"output","Output":"PASS\n"}`, `{"Action":"pass"}`),
			outcome{ran: 1, skipped: []string{"TestB"}, ended: true}},
		{"a subtest fails", lines(
			`{"Action":"pass","Test":"TestA"}`, `{"Action":"fail","Test":"TestB/sub"}`, `{"Action":"fail","Test":"TestB"}`, `{"Action":"fail"}`),
			outcome{ran: 1, failed: "TestB/sub"}},
		{"a test hangs", lines(
			`{"Action":"output","Test":"TestB","Output":"panic: test timed out after 1m0s\n"}`, `{"Action":"fail"}`),
			outcome{failed: "TestB", hung: true}},
		{"nothing runs, and time is over", lines(
			`{"Action":"output","Output":"panic: test timed out after 1m0s\n"}`, `{"Action":"fail"}`), outcome{}},
		{"the process dies inside a test", lines(
			`{"Action":"output","Test":"TestB","Output":"fatal error: all goroutines are asleep - deadlock!\n"}`, `{"Action":"fail"}`),
			outcome{failed: "TestB"}},
		{"it does not compile", lines(
			`{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}`, `{"ImportPath":"p","Action":"build-fail"}`,
			`{"Action":"output","Output":"FAIL p [build failed]\n"}`, `{"Action":"fail","FailedBuild":"p"}`),
			outcome{unbuilt: true}},
		{"goroutines are left", lines(
			`{"Action":"pass","Test":"TestA"}`, `{"Action":"output","Output":"goleak: Errors on successful test run\n"}`, `{"Action":"fail"}`),
			outcome{ran: 1, failed: leaks}},
		{"the process dies outside a test", lines(`{"Action":"output","Output":"exit status 2\n"}`, `{"Action":"fail"}`), outcome{}},
		{"a line that is none", lines(`go: warning`, `{"Action":"pass","Test":"TestA"}`, `{"Action":"pass"}`), outcome{ran: 1, ended: true}},
	} {
		got, err := read(strings.NewReader(tc.events))
		require.NoError(t, err, tc.name)
		got.output.Reset()
		require.Equal(t, tc.want, got, tc.name)
	}
}

// The program itself, on a module of a few lines: what is caught, what survives, what does not compile.
func TestMutantsOfASmallModule(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":          "module " + modulePath + "\n\ngo 1.25\n",
		"p/add.go":        "package p\n\nfunc Add(a, b int) int { return a + b } // sum\n",
		"p/add_test.go":   "package p\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) { if Add(2, 3) != 5 { t.Fatal() } }\n",
		"p/lua.go":        "package p\n\nimport _ \"embed\"\n\nvar (\n\t//go:embed script/it.lua\n\titLua string\n)\n",
		"p/script/it.lua": "-- 'says' \"it\"\nreturn 'it'\n",
		"p/lua_test.go":   "package p\n\nimport (\n\"strings\"\n\"testing\"\n)\n\nfunc TestLua(t *testing.T) { if !strings.Contains(itLua, \"\\nreturn 'it'\\n\") { t.Fatal(itLua) } }\n",
	}
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("GOWORK", "off")
	var out bytes.Buffer
	b := &bench{root: dir, jobs: 2, limit: time.Second, wide: true, out: &out}
	results, err := b.all(t.Context(), []mutant{
		{name: "minus", file: "p/add.go", old: "a + b", new: "a - b", tests: by("p", "TestAdd")},
		{name: "other order", file: "p/add.go", old: "a + b", new: "b + a", tests: by("p", "TestAdd")},
		{name: "no Go", file: "p/add.go", old: "a + b", new: "a +", tests: by("p", "TestAdd")},
		{name: "for ever", file: "p/add.go", old: "return a", new: "for {}; return a", tests: by("p", "TestAdd")},
		{name: "no test", file: "p/add.go", old: "// sum", new: "// ", tests: by("p", "TestNothing")},
		{name: "another script", file: "p/script/it.lua", old: "'it'\n", new: "'that'\n", tests: by("p", "TestLua")},
		{name: "the same script", file: "p/script/it.lua", old: "says", new: "tells", tests: by("p", "TestLua")},
	})
	require.NoError(t, err)
	require.Equal(t, "TestAdd", results[0].by)
	require.False(t, results[0].hung)
	require.Empty(t, results[1].by)
	require.NoError(t, results[1].err)
	require.ErrorContains(t, results[2].err, "does not compile")
	require.Equal(t, "TestAdd", results[3].by)
	require.True(t, results[3].hung)
	require.ErrorContains(t, results[4].err, "no test")
	require.Equal(t, "TestLua", results[5].by)
	require.Empty(t, results[6].by)
	require.NoError(t, results[6].err)
	for name, text := range files {
		now, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, text, string(now), "the checkout is not touched")
	}
	require.NoDirExists(t, b.tmp)
	var md bytes.Buffer
	table(&md, results)
	require.Contains(t, md.String(), "| minus | p/add.go | `TestAdd` |\n| other order | p/add.go | **survived** |\n")

	broken := mutant{name: "minus", file: "p/add_test.go", old: "5", new: "6", tests: by("p", "TestAdd")}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p/add.go"), []byte("package p\n\nfunc Add(a, b int) int { return 0 }\n"), 0o600))
	_, err = b.all(t.Context(), []mutant{broken})
	require.ErrorContains(t, err, "unchanged: TestAdd fails")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.all(ctx, []mutant{broken})
	require.Error(t, err)
	require.NoDirExists(t, b.tmp)
}
