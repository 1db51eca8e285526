package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	everyTest = "^Test"
	slowTests = "^Test(Long|Interop|Faults)" // what the first ring leaves out: see internal/rings
	skipSlow  = "-skip=" + slowTests
)

// outside are the folders whose tests are none of the first ring: internal/rings has the same list.
var outside = regexp.MustCompile(`^\./(bench|examples/writer|fence/fencegrpc|integration/(fencing|docker|interop))(/|$)`)

// The rings in which a mutant can be caught.
const (
	firstRing  = "first"
	secondRing = "second"
)

// rings are those that tests of one pattern belong to.
func (t tests) rings() (first, second bool) {
	if outside.MatchString(t.pkg) {
		return false, true
	}
	names, _, _ := strings.Cut(t.run, "/")
	for one := range strings.SplitSeq(names, "|") {
		if slow.MatchString(strings.TrimLeft(one, "^(")) {
			second = true
		} else {
			first = true
		}
	}
	return first, second
}

var slow = regexp.MustCompile(slowTests)

// bench runs mutants.
type bench struct {
	root  string // of the module, absolute
	jobs  int
	limit time.Duration
	wide  bool
	out   io.Writer
	tmp   string // everything temporary; gone at the end

	binaries  map[string]string // tests with all mutants that fit, by package
	chosen    map[int]string    // what chooses one of them, by its place in the list
	test2json string            // the program
}

// result is what became of one mutant.
type result struct {
	change
	end   string // one of caught, survived and untried
	by    string // which test noticed, or what went wrong
	ring  string // in which that test is
	alone bool   // in a build of its own
}

const (
	caught   = "caught"
	survived = "survived"
	untried  = "untried"
)

// all tries every mutant, in order of the list as far as jobs allows. An error: the tests fail without
// any change, or ctx has ended.
func (b *bench) all(ctx context.Context, list []mutant) (results []result, err error) {
	for _, m := range list { // mistakes in the list are told before anything runs
		c, err := m.apply(b.root)
		if err != nil {
			return nil, err
		}
		results = append(results, result{change: c})
	}
	if b.tmp, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.tmp)
	if err := b.build(ctx, results); err != nil {
		return nil, err
	}
	if err := b.unchanged(ctx, list); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	running, waiting := make(chan struct{}, b.jobs), make(chan struct{}, 4*b.jobs)
	for i := range results {
		running <- struct{}{}
		done := make(chan struct{})
		wg.Go(func() { hold(running, waiting, done) })
		wg.Go(func() {
			defer close(done)
			r, began := &results[i], time.Now()
			o, err := b.try(ctx, i, r)
			switch {
			case err != nil:
				r.end, r.by = untried, fmt.Sprintf("could not be tried: %.1000s", strings.TrimSpace(err.Error()))
			case o.failed == "":
				r.end, r.by = survived, "**survived**"
			case o.hung:
				r.end, r.by = caught, "`"+o.failed+"` (hung)"
			default:
				r.end, r.by = caught, "`"+o.failed+"`"
			}
			if r.end == caught {
				r.ring = tests{r.tests.pkg, o.failed}.ring()
			}
			if ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				how := ""
				if r.alone {
					how = "built alone: "
				}
				fmt.Fprintf(b.out, "%-8s %5.1fs  %s%s (%s): %s\n", r.end, time.Since(began).Seconds(), how, r.name, r.in, strings.TrimSpace(r.by+" "+r.ring))
			}
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

// hold gives a place among the running back at the end, or when the mutant is found to hang: the tests wait, and take no processor.
func hold(running, waiting chan struct{}, done <-chan struct{}) {
	select {
	case <-done:
		<-running
		return
	case <-time.After(10 * time.Second):
	}
	select {
	case <-done:
		<-running
	case waiting <- struct{}{}:
		<-running
		<-done
		<-waiting
	}
}

// ring is the one that the named tests are of, the first if some are.
func (t tests) ring() string {
	if first, _ := t.rings(); first {
		return firstRing
	}
	return secondRing
}

// build builds the tests of each package with all mutants that fit. One that does not compile is left out.
func (b *bench) build(ctx context.Context, all []result) error {
	tool := exec.CommandContext(ctx, "go", "tool", "-n", "test2json")
	path, err := tool.Output()
	if err != nil {
		return fmt.Errorf("%v: %w", tool.Args, err)
	}
	b.test2json = strings.TrimSpace(string(path))
	var changes []change
	for _, r := range all {
		changes = append(changes, r.change)
	}
	without := make(map[int]bool)
	for {
		n := len(without)
		if err := b.compile(ctx, changes, without); err == nil || len(without) == n {
			return err
		}
	}
}

// compile adds to without what does not compile.
func (b *bench) compile(ctx context.Context, all []change, without map[int]bool) error {
	texts, fit, err := together(b.root, all, without)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.tmp, fmt.Sprint("without", len(without)))
	overlay, err := b.overlay(dir, texts)
	if err != nil {
		return err
	}
	b.chosen, b.binaries = fit, make(map[string]string)
	for _, c := range all {
		pkg := c.tests.pkg
		if b.binaries[pkg] != "" {
			continue
		}
		began := time.Now()
		b.binaries[pkg] = filepath.Join(dir, fmt.Sprint(len(b.binaries), ".test"))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.binaries[pkg], "-vet=off", "-ldflags=-s -w", quick, "-overlay", overlay, pkg)
		cmd.Dir = b.root
		if out, err := cmd.CombinedOutput(); err != nil {
			for _, m := range faulty.FindAllSubmatch(out, -1) {
				number, _ := strconv.Atoi(string(m[1]))
				without[number-1] = true
			}
			return fmt.Errorf("%s with all mutants: %w\n%s", pkg, err, out)
		}
		fmt.Fprintf(b.out, "built     %s with all mutants in %.1fs\n", pkg, time.Since(began).Seconds())
	}
	return nil
}

// faulty is where the compiler says that a mutant has a mistake.
var faulty = regexp.MustCompile(`\bmutant(\d+)\.go:`)

// overlay writes the files that stand in place of those of the checkout.
func (b *bench) overlay(dir string, texts map[string]string) (file string, _ error) {
	replace := make(map[string]string)
	err := os.Mkdir(dir, 0o700)
	for name, text := range texts {
		changed := filepath.Join(dir, fmt.Sprint(len(replace), "_", filepath.Base(name)))
		replace[filepath.Join(b.root, name)] = changed
		err = errors.Join(err, os.WriteFile(changed, []byte(text), 0o600))
	}
	file = filepath.Join(dir, "overlay.json")
	spec, jsonErr := json.Marshal(map[string]any{"Replace": replace})
	return file, errors.Join(err, jsonErr, os.WriteFile(file, spec, 0o600))
}

// way is how tests are run: their binary with all mutants, of which one is chosen or none, or a build of their own.
type way struct {
	together        bool
	choice, overlay string
}

// unchanged runs the tests that the mutants name as they are: they must pass. If they do not pass beside all mutants, each
// gets a build of its own.
func (b *bench) unchanged(ctx context.Context, list []mutant) error {
	patterns := make(map[string][]string)
	for _, m := range list {
		if t := m.tests; !slices.Contains(patterns[t.pkg], t.run) {
			patterns[t.pkg] = append(patterns[t.pkg], t.run)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		began := time.Now()
		t := tests{pkg, strings.Join(patterns[pkg], "|")}
		o, err := b.named(ctx, way{together: true}, t, 30*time.Minute)
		if err != nil || o.failed != "" {
			fmt.Fprintf(b.out, "failed    unchanged, beside all mutants: %s of %s: %v\n", o.failed, pkg, err)
			delete(b.binaries, pkg)
			o, err = b.named(ctx, way{}, t, 30*time.Minute)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s, unchanged: %w", pkg, err)
		case o.failed != "":
			return fmt.Errorf("%s, unchanged: %s fails:\n%s", pkg, o.failed, o.output.String())
		}
		fmt.Fprintf(b.out, "passed    unchanged: %d tests of %s in %.1fs\n", o.ran, pkg, time.Since(began).Seconds())
		for _, name := range o.skipped {
			fmt.Fprintf(b.out, "skipped   %s of %s: what only it can see is not seen\n", name, pkg)
		}
	}
	return nil
}

// try runs the tests of the mutant with its change. If they pass beside the other mutants, it builds them with this change
// alone, and if they pass again, it runs all fast tests of their package.
func (b *bench) try(ctx context.Context, i int, r *result) (outcome, error) {
	c := r.change
	dir := filepath.Join(b.tmp, fmt.Sprint(i))
	overlay, err := b.overlay(dir, map[string]string{c.file: string(c.text)})
	if err != nil {
		return outcome{}, err
	}
	if chosen, ok := b.chosen[i]; ok && b.binaries[c.tests.pkg] != "" {
		if chosen == c.file {
			chosen += "=" + filepath.Join(dir, "0_"+filepath.Base(c.file))
		}
		if o, err := b.named(ctx, way{together: true, choice: chosen}, c.tests, b.limit); err == nil && o.failed != "" {
			return o, nil
		}
	}
	r.alone = true
	o, err := b.named(ctx, way{overlay: overlay}, c.tests, b.limit)
	if b.wide && err == nil && o.failed == "" {
		o, err = b.test(ctx, way{overlay: overlay}, tests{c.tests.pkg, everyTest}, 5*b.limit, skipSlow) // a busy machine is not a hanging test
	}
	return o, err
}

// named runs tests that a mutant names: first those of the first ring, and then the others.
func (b *bench) named(ctx context.Context, w way, t tests, limit time.Duration) (outcome, error) {
	first, second := t.rings()
	if !second {
		return b.test(ctx, w, t, limit, skipSlow)
	}
	if first {
		if o, err := b.test(ctx, w, t, limit, skipSlow); err != nil || o.failed != "" {
			return o, err
		}
	}
	return b.test(ctx, w, t, limit+10*time.Minute)
}

// quick is for tests that are named: most of the time went into building them.
const quick = "-gcflags=-N -l"

// test runs tests of one package and stops at the first failure.
func (b *bench) test(ctx context.Context, w way, t tests, limit time.Duration, more ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Minute) // limit is for the test alone, this one for the build, too
	defer cancel()
	flags := append([]string{"-failfast", "-timeout=" + limit.String(), "-run=" + t.run}, more...)
	var cmd *exec.Cmd
	if w.together { // as go test runs it
		cmd = exec.CommandContext(ctx, b.test2json, "-p", t.pkg, b.binaries[t.pkg], "-test.v=test2json", "-test.paniconexit0")
		for _, flag := range flags {
			cmd.Args = append(cmd.Args, "-test."+flag[1:])
		}
		cmd.Dir = filepath.Join(b.root, t.pkg)
	} else {
		cmd = exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-overlay", w.overlay)
		if t.run != everyTest {
			cmd.Args = append(cmd.Args, quick)
		}
		cmd.Args = append(append(cmd.Args, flags...), t.pkg)
		cmd.Dir = b.root
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp, choice+"="+w.choice) // what is killed cannot tidy up
	if len(more) == 0 {
		cmd.Env = append(cmd.Env, "REDQUORUM_LONG=1") // without it tests of the second ring do nothing
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	ownGroup(cmd) // so that what go started ends with it
	events, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	o, readErr := read(events)
	if o.failed != "" {
		cancel() // nothing more to learn
	}
	_, _ = io.Copy(io.Discard, events)
	waitErr := cmd.Wait()
	switch {
	case o.failed != "":
		return o, nil
	case o.unbuilt:
		return o, fmt.Errorf("does not compile:\n%s", o.output.String())
	case readErr != nil:
		return o, readErr
	case waitErr != nil || !o.ended:
		return o, fmt.Errorf("go test %s: %w\n%s%s", t.pkg, waitErr, stderr.String(), o.output.String())
	case o.ran == 0 && len(o.skipped) == 0:
		return o, fmt.Errorf("no test of %s matches %q", t.pkg, t.run)
	}
	return o, nil
}
