package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// test is one test function.
type test struct {
	pkg    string // its folder, from the root: "redlock", "." for the root itself
	name   string
	plain  bool // runs without the race detector alone: see plainFile
	reason bool // its comment says why it costs more than others: see cost
}

var (
	// slow are the tests of the second ring.
	slow = regexp.MustCompile(`^Test(Long|Faults|Interop)`)

	declared = regexp.MustCompile(`(?m)((?:^//.*\n)*)^func (Test\w*)\(\w+ \*testing\.T\)`)

	// plainFile marks a file of tests that have one goroutine: the race detector would find nothing in them, and takes
	// up to ten times as long.
	plainFile = regexp.MustCompile(`(?m)^//go:build .*!race`)
)

// scan finds all tests below a folder, in the order of their packages and names.
func scan(root string) (all []test, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (entry.Name()[0] == '.' || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllSubmatch(text, -1) {
			all = append(all, test{filepath.ToSlash(pkg), string(m[2]), plainFile.Match(text), bytes.Contains(m[1], []byte("Cost: "))})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b test) int { return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name) })
	return all, err
}

// first reports whether a test is of the first ring.
func (t test) first() bool { return !slow.MatchString(t.name) && !t.outside() }

// outside reports whether the package of a test is left out of the first ring as a whole.
func (t test) outside() bool {
	return slices.ContainsFunc(outside, func(dir string) bool { return within(t.pkg, dir) })
}

func within(pkg, dir string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// longEnv is what tests of the second ring look for.
const longEnv = "REDQUORUM_LONG=1"

// run is one call of go test.
type run struct {
	race  bool
	later bool // gives way to others
	pkgs  []string
	tests []test
	env   []string
}

// calls are the calls of go test that run some tests: one with the race detector, and one for those that go without it.
func calls(some []test, env ...string) (out []run) {
	for _, race := range []bool{true, false} {
		r := run{race: race, env: env}
		for _, t := range some {
			if t.plain == race {
				continue
			}
			r.tests = append(r.tests, t)
			if pkg := "./" + t.pkg; !slices.Contains(r.pkgs, pkg) {
				r.pkgs = append(r.pkgs, pkg)
			}
		}
		slices.SortStableFunc(r.pkgs, func(a, b string) int { return weight(b) - weight(a) })
		if len(r.tests) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// weight puts the packages first whose tests take longest, so that none of them is alone at the end.
func weight(pkg string) int { return len(heavy) - slices.Index(append(heavy, pkg), pkg) }

var heavy = []string{"./redlock", "./cmd/redlock", "./cluster", "./node/internal/guard", "./internal/rings", "./node"}

// pattern matches the tests of a call, and no others.
func (r run) pattern() string {
	var names []string
	for _, t := range r.tests {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return "^(" + strings.Join(slices.Compact(names), "|") + ")$"
}

// matching are the packages that have a test that -run with a pattern would run.
func (r run) matching(pattern string) (pkgs []string) {
	first, _, _ := strings.Cut(pattern, "/")
	matches, err := regexp.Compile(first)
	for _, t := range r.tests {
		if pkg := "./" + t.pkg; (err != nil || matches.MatchString(t.name)) && !slices.Contains(pkgs, pkg) {
			pkgs = append(pkgs, pkg) // go test says what is wrong with a pattern
		}
	}
	return pkgs
}
