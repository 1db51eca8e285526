//go:build !race

// go/types would be compiled for the race detector for these tests alone. Of the goroutines that try mutants each writes
// to its own place.

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
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

const root = "../.."

// Each pattern names a test that exists, or the tests that should notice do not run.
func TestMutantsNameTestsThatExist(t *testing.T) {
	list := rt.Must(mutants())(t)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := make(map[string][]string)
	for _, m := range list {
		pkg := m.tests.pkg
		if found[pkg] == nil {
			for _, f := range rt.Must(filepath.Glob(filepath.Join(root, pkg, "*_test.go")))(t) {
				text := rt.Must(os.ReadFile(f))(t)
				for _, d := range declared.FindAllStringSubmatch(string(text), -1) {
					found[pkg] = append(found[pkg], d[1])
				}
			}
		}
		run, _, _ := strings.Cut(m.tests.run, "/")
		for one := range strings.SplitSeq(run, "|") {
			pattern := rt.Must(regexp.Compile(one))(t)
			assert.True(t, slices.ContainsFunc(found[pkg], pattern.MatchString), "%s: no test of %s matches %q", m.name, pkg, one)
		}
	}
}

// Nine of ten guards are noticed by make test. The rest is noticed by make test-all.
func TestMostMutantsAreOfTheFirstRing(t *testing.T) {
	list := rt.Must(mutants())(t)
	first := 0
	for _, m := range list {
		if m.tests.ring() == firstRing {
			first++
		}
	}
	t.Logf("%d of %d", first, len(list))
	require.GreaterOrEqual(t, 10*first, 9*len(list))
}

// checked is a package that can be type-checked again with one file changed.
type checked struct {
	path     string
	files    map[string]*ast.File // from the root of the module
	fset     *token.FileSet
	importer types.Importer
}

// loadPackages parses the packages of the mutants, with the compiler's export data for what they import.
func loadPackages(t *testing.T, list []change) map[string]*checked {
	dirs := make(map[string]*checked)
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles"}
	for _, c := range list {
		if dir := path.Dir(c.file); strings.HasSuffix(c.file, ".go") && dirs[dir] == nil {
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
			f := rt.Must(parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution))(t)
			c.files[strings.TrimPrefix(p.ImportPath, modulePath+"/")+"/"+name] = f
		}
	}
	return dirs
}

func (c *checked) check(texts map[string]string) error {
	var all []*ast.File
	for name, f := range c.files {
		if text, ok := texts[name]; ok {
			changed, err := parser.ParseFile(c.fset, name, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			f = changed
		}
		all = append(all, f)
	}
	_, err := (&types.Config{Importer: c.importer}).Check(c.path, c.fset, all, nil)
	return err
}

func files(t *testing.T, texts map[string]string) (dir string) {
	dir = t.TempDir()
	for name, text := range texts {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestMutantIsFoundWhereverItsPlaceIs(t *testing.T) {
	const source = "package p\n\ntype T[K any] struct{ n int }\n\nfunc (t *T[K]) M() int { return 1 }\n\nfunc (t T[K]) M2() int { return 1 }\n\n" +
		"func M() int { return 1 }\n\n// most is 1\nconst (\n\tmost, least = 1, 0\n\tother = 1\n)\n"
	dir := files(t, map[string]string{
		"a/p/z.go": source, "a/p/z_test.go": source, "a/p/doc.go": "// Package p returns 1.\npackage p\n",
		"x/script/one.lua": "return 1\n", "x/script/two.lua": "return 1\n", "y/script/two.lua": "return 1\n", ".git/one.lua": "return 1\n", "y/three.lua": "xxx", "y/someone.lua": "return 1\n",
	})
	for _, tc := range []struct{ in, old, file, want string }{
		{"a/p.(*T).M", "return 1", "a/p/z.go", strings.Replace(source, "return 1", "2", 1)},
		{"a/p.T.M2", "return 1", "a/p/z.go", strings.Replace(source, "M2() int { return 1", "M2() int { 2", 1)},
		{"a/p.M", "return 1", "a/p/z.go", strings.Replace(source, "func M() int { return 1", "func M() int { 2", 1)},
		{"a/p", "other = 1", "a/p/z.go", strings.Replace(source, "other = 1", "2", 1)},
		{"one.lua", "1", "x/script/one.lua", "return 2\n"},
		{"y/script/two.lua", "1", "y/script/two.lua", "return 2\n"},
	} {
		got, err := mutant{in: tc.in, old: tc.old, new: "2"}.apply(dir)
		require.NoError(t, err, tc.in)
		require.Equal(t, tc.file, got.file, tc.in)
		require.Equal(t, tc.want, string(got.text), tc.in)
	}
	for _, m := range []mutant{
		{name: "gone", in: "a/p.M", old: "return 2"},
		{name: "in another function", in: "a/p.M", old: "M2"},
		{name: "ambiguous", in: "a/p.M", old: "t"},
		{name: "overlapping", in: "three.lua", old: "xx"},
		{name: "no such function", in: "a/p.N", old: "return 1"},
		{name: "two such scripts", in: "two.lua", old: "1"},
		{name: "no such folder", in: "b.M", old: "1"},
	} {
		require.ErrorContains(t, rt.Err(m.apply(dir)), m.name)
	}
}

func TestListIsRead(t *testing.T) {
	list, err := parse(`# A comment.

the first: it follows
in p.M
- old
-  text
-
+ new
run p Test One|Test-Two

# About the second.
in spite of all
in vote.lua
- old
run a/b TestThree
`)
	require.NoError(t, err)
	require.Equal(t, []mutant{
		{name: "the first: it follows", in: "p.M", old: "old\n text\n", new: "new", tests: tests{"./p", "Test One|Test-Two"}},
		{name: "in spite of all", in: "vote.lua", old: "old", tests: tests{"./a/b", "TestThree"}},
	}, list)
	for _, text := range []string{
		"name\n- old\nrun p T", "name\nin p.M\nrun p T", "name\nin p.M\n+ new\nrun p T", "name\nin p.M\n- old", "name\nin p.M\n- old\nrun p",
		"name\nin p.M\n- old\n+ old\nrun p T", "name\nin p.M\nin p.N\n- old\nrun p T", "name\nin p.M\n- old\nrun p T\nrun p T", "name\nin p.M\nold\n- old\nrun p T",
	} {
		require.ErrorContains(t, rt.Err(parse(text)), "name", text)
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
		{"no subtest has the name", lines(
			`{"Action":"pass","Test":"TestA"}`, `{"Action":"output","Output":"testing: warning: no tests to run\n"}`, `{"Action":"pass"}`),
			outcome{ended: true}},
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

// All that fit stand in one file, and the code that is there beside them.
func TestChangesOfBodiesAndScriptsStandTogether(t *testing.T) {
	const source = `package p

import "embed"

//go:embed lua/*.lua
var parts embed.FS

var (
	//go:embed a.lua
	a string
	n = 1
)

func (T[K]) M(int, ...K) (K, error) { return one() }

func Say() { say() }

func Loop() {
again:
	goto again
}
`
	dir := files(t, map[string]string{"x/p/p.go": source, "x/p/a.lua": "one", "x/p/lua/b.lua": "two", "x/none.lua": "", "x/p/doc.go": "package p\n"})
	var all []change
	for _, m := range []mutant{
		{in: "x/p.T.M", old: "one", new: "two"},
		{in: "x/p.T.M", old: "return one() }", new: "for {}; return one() }"},
		{in: "x/p.Say", old: "func Say() { say()", new: "func Say() {"},
		{in: "a.lua", old: "one", new: "1"},
		{in: "b.lua", old: "two", new: "2"},
		{in: "x/p", old: "n = 1", new: "n = 2"},             // outside a function
		{in: "x/p.T.M", old: "int,", new: "uint,"},          // its signature
		{in: "x/p.Say", old: "say()", new: "say("},          // not Go
		{in: "x/p.Say", old: "say()", new: "}; func X() {"}, // two functions
		{in: "x/p.Loop", old: "goto", new: "continue"},      // a label twice
		{in: "x/p.Say", old: "say", new: "tell"},            // not asked for
	} {
		all = append(all, rt.Must(m.apply(dir))(t))
	}
	texts, fit, err := together(dir, append(all, change{file: "x/none.lua"}), map[int]bool{10: true})
	require.NoError(t, err)
	require.Equal(t, map[int]string{0: "1", 1: "2", 2: "3", 3: "x/p/a.lua", 4: "x/p/lua/b.lua"}, fit)
	require.Len(t, texts, 2)
	require.Equal(t, strings.NewReplacer(
		"package p", "package p; import mutants_ \""+modulePath+"/internal/mutants/chosen\"",
		"var parts", "var embedded_parts",
		"\ta ", "\tembedded_a ",
		"{ return one() }", "{ if mutants_.Mutant == 1 {\n//line mutant1.go:1\n return two() \n}\n/*line p.go:14:38*/"+
			" if mutants_.Mutant == 2 {\n//line mutant2.go:1\n for {}; return one() \n}\n/*line p.go:14:38*/ return one() }",
		"{ say() }", "{ if mutants_.Mutant == 3 {\n//line mutant3.go:1\n \nreturn\n}\n/*line p.go:16:13*/ say() }",
	).Replace(source)+
		"\nvar parts = mutants_.Folder{FS: embedded_parts, Dir: \"x/p/\"}\n\nvar a = mutants_.Text(\"x/p/a.lua\", embedded_a)\n", texts["x/p/p.go"])
}

// The program itself, on a module of a few lines: what is caught, what survives, what does not compile. Cost: three
// seconds, because go test compiles the module for each mutant that no named test notices.
func TestMutantsOfASmallModule(t *testing.T) {
	texts := map[string]string{
		"go.mod":         "module " + modulePath + "\n\ngo 1.25\n",
		"p/add.go":       "package p\n\nimport _ \"embed\"\n\n//go:embed it.lua\nvar it string\n\nfunc Add(a, b int) int { return a + b /* sum */ }\n",
		"p/add_test.go":  "package p\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) { if Add(2, 3) != 5 { t.Fatal() } }\n",
		"p/long_test.go": "package p\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestLongAdd(t *testing.T) { if os.Getenv(\"REDQUORUM_LONG\") != \"\" && Add(2, 3) != 5 { t.Fatal() } }\n",
		"p/it.lua":       "-- says it\nreturn 'it'\n",
		"p/lua_test.go":  "package p\n\nimport (\n\"strings\"\n\"testing\"\n)\n\nfunc TestLua(t *testing.T) { if !strings.Contains(it, \"\\nreturn 'it'\\n\") { t.Fatal(it) } }\n",
	}
	dir := files(t, texts)
	t.Setenv("GOWORK", "off")
	add, lua := tests{"./p", "TestAdd"}, tests{"./p", "TestLua"}
	var out bytes.Buffer
	b := &bench{root: dir, jobs: 2, limit: time.Second, wide: true, out: &out}
	results, err := b.all(t.Context(), []mutant{
		{name: "minus", in: "p.Add", old: "a + b", new: "a - b", tests: add},
		{name: "other order", in: "p.Add", old: "a + b", new: "b + a", tests: add},
		{name: "no Go", in: "p.Add", old: "a + b", new: "a +", tests: add},
		{name: "no number", in: "p.Add", old: "a + b", new: "\"a\"", tests: add},
		{name: "for ever", in: "p.Add", old: "return a", new: "for {}; return a", tests: add},
		{name: "no test", in: "p.Add", old: "sum", new: "", tests: tests{"./p", "TestNothing"}},
		{name: "another script", in: "it.lua", old: "'it'\n", new: "'that'\n", tests: lua},
		{name: "the same script", in: "it.lua", old: "says", new: "tells", tests: lua},
		{name: "in the second ring", in: "p.Add", old: "a + b", new: "a - b", tests: tests{"./p", "TestLua|TestLongAdd"}},
		{name: "not the test that is named", in: "p.Add", old: "a + b", new: "a - b", tests: lua},
	})
	require.NoError(t, err)
	for i, want := range []struct{ end, by, ring string }{
		{caught, "`TestAdd`", firstRing},
		{survived, "**survived**", ""},
		{untried, "does not compile", ""},
		{untried, "does not compile", ""},
		{caught, "`TestAdd` (hung)", firstRing},
		{untried, "no test of ./p matches", ""},
		{caught, "`TestLua`", firstRing},
		{survived, "**survived**", ""},
		{caught, "`TestLongAdd`", secondRing},
		{caught, "`TestAdd`", firstRing},
	} {
		require.Equal(t, want.end, results[i].end, results[i].name)
		require.Contains(t, results[i].by, want.by, results[i].name)
		require.Equal(t, want.ring, results[i].ring, results[i].name)
		require.Equal(t, want.end != caught || results[i].name == "not the test that is named", results[i].alone, results[i].name)
		require.Contains(t, out.String(), strings.TrimSpace(results[i].name+" ("+results[i].in+"): "+results[i].by+" "+want.ring)+"\n")
	}
	for name, text := range texts {
		now := rt.Must(os.ReadFile(filepath.Join(dir, name)))(t)
		require.Equal(t, text, string(now), "the checkout is not touched")
	}
	require.NoDirExists(t, b.tmp)
	var md bytes.Buffer
	table(&md, results)
	require.Contains(t, md.String(), "| minus | p.Add | `TestAdd` | first |\n| other order | p.Add | **survived** |  |\n")

	same := []mutant{{name: "minus", in: "p.Add", old: "return 0", new: "return 1", tests: add}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p/add.go"), []byte("package p\n\nconst it = `\nreturn 'it'\n`\n\nfunc Add(a, b int) int { return 0 }\n"), 0o600))
	require.ErrorContains(t, rt.Err(b.all(t.Context(), same)), "unchanged: TestAdd fails")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, rt.Err(b.all(ctx, same)))
	require.NoDirExists(t, b.tmp)
}

// A mutant that no longer applies, or does not compile, tests nothing: that is told here, and not an hour
// into a run. Packages whose mutants the second ring catches are compiled there. Cost: 5 s, of the compiler.
func TestMutantsApply(t *testing.T) { mutantsApply(t, firstRing) }

func TestLongMutantsOfTheSecondRingApply(t *testing.T) {
	rt.Long(t, "compiles clients of databases and storages")
	mutantsApply(t, secondRing)
}

func mutantsApply(t *testing.T, ring string) {
	list := rt.Must(mutants())(t)
	require.GreaterOrEqual(t, len(list), 380)
	var changes []change
	first := make(map[string]bool) // the folders that have a mutant of the first ring
	names := make(map[string]bool)
	for _, m := range list {
		assert.False(t, names[m.name], "listed twice: %s", m.name)
		names[m.name] = true
		if c, err := m.apply(root); assert.NoError(t, err) {
			changes = append(changes, c)
			first[path.Dir(c.file)] = first[path.Dir(c.file)] || m.tests.ring() == firstRing
		}
	}
	changes = slices.DeleteFunc(changes, func(c change) bool { return first[path.Dir(c.file)] != (ring == firstRing) })
	require.NotEmpty(t, changes)
	pkgs := loadPackages(t, changes)
	redis := redistest.NewEmbedded()
	defer redis.Close()
	var inGo []change
	for _, c := range changes {
		if strings.HasSuffix(c.file, ".lua") {
			_, err := redis.Do(t.Context(), "SCRIPT", "LOAD", string(c.text))
			assert.NoError(t, err, c.name)
		} else {
			inGo = append(inGo, c)
		}
	}
	for _, together := range rounds(inGo) {
		files := make(map[string]string)
		for _, c := range together { // the last first, so that places before it stay where they are
			if files[c.file] == "" {
				files[c.file] = string(rt.Must(os.ReadFile(filepath.Join(root, c.file)))(t))
			}
			files[c.file] = files[c.file][:c.at] + c.new + files[c.file][c.at+len(c.old):]
		}
		pkg := pkgs[path.Dir(together[0].file)]
		if pkg.check(files) == nil {
			continue
		}
		for _, c := range together { // one is a mistake, or they need each other's text
			assert.NoError(t, pkg.check(map[string]string{c.file: string(c.text)}), c.name)
		}
	}
}

// rounds are changes that can be compiled together: of one package, and of different functions.
func rounds(all []change) (out [][]change) {
	slices.SortStableFunc(all, func(a, b change) int { return b.at - a.at })
	taken := make(map[string]int) // by function, the round after its last
	at := make(map[string]int)    // by package and round, its place in out
	for _, c := range all {
		round := taken[c.in]
		taken[c.in]++
		key := fmt.Sprint(path.Dir(c.file), " ", round)
		if _, ok := at[key]; !ok {
			at[key] = len(out)
			out = append(out, nil)
		}
		out[at[key]] = append(out[at[key]], c)
	}
	return out
}
