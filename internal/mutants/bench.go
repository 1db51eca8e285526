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
	"strings"
	"sync"
	"time"
)

const (
	everyTest = "^Test"
	slowTests = "^Test(Long|Interop|Faults)" // what the first ring leaves out: see internal/rings
)

// outside are the folders whose tests are none of the first ring: internal/rings has the same list.
var outside = regexp.MustCompile(`^\./(bench|integration/(fencing|docker|interop))(/|$)`)

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
}

// result is what became of one mutant.
type result struct {
	change
	end  string // one of caught, survived and untried
	by   string // which test noticed, or what went wrong
	ring string // in which that test is
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
	if err := b.unchanged(ctx, list); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	running := make(chan struct{}, b.jobs)
	for i := range results {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			r, began := &results[i], time.Now()
			o, err := b.try(ctx, r.change, filepath.Join(b.tmp, fmt.Sprint(i)))
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
				fmt.Fprintf(b.out, "%-8s %5.1fs  %s (%s): %s\n", r.end, time.Since(began).Seconds(), r.name, r.in, strings.TrimSpace(r.by+" "+r.ring))
			}
		})
	}
	wg.Wait()
	return results, ctx.Err()
}

// ring is the one that the named tests are of, the first if some are.
func (t tests) ring() string {
	if first, _ := t.rings(); first {
		return firstRing
	}
	return secondRing
}

// unchanged runs the tests that the mutants name as they are: they must pass.
func (b *bench) unchanged(ctx context.Context, list []mutant) error {
	patterns := make(map[string][]string)
	for _, m := range list {
		if t := m.tests; !slices.Contains(patterns[t.pkg], t.run) {
			patterns[t.pkg] = append(patterns[t.pkg], t.run)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		began := time.Now()
		o, err := b.named(ctx, "", tests{pkg, strings.Join(patterns[pkg], "|")}, 30*time.Minute)
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

// try runs the tests of the mutant with its change, and if they pass all fast tests of their package.
func (b *bench) try(ctx context.Context, c change, dir string) (outcome, error) {
	changed, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, c.file): changed}})
	if err := errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(changed, c.text, 0o600), os.WriteFile(overlay, spec, 0o600)); err != nil {
		return outcome{}, err
	}
	o, err := b.named(ctx, overlay, c.tests, b.limit)
	if b.wide && err == nil && o.failed == "" {
		o, err = b.test(ctx, overlay, tests{c.tests.pkg, everyTest}, 5*b.limit, "-skip", slowTests) // a busy machine is not a hanging test
	}
	return o, err
}

// named runs tests that a mutant names: first those of the first ring, and then the others.
func (b *bench) named(ctx context.Context, overlay string, t tests, limit time.Duration) (outcome, error) {
	first, second := t.rings()
	if !second {
		return b.test(ctx, overlay, t, limit, "-skip", slowTests)
	}
	if first {
		if o, err := b.test(ctx, overlay, t, limit, "-skip", slowTests); err != nil || o.failed != "" {
			return o, err
		}
	}
	return b.test(ctx, overlay, t, limit+10*time.Minute)
}

// test runs tests of one package and stops at the first failure.
func (b *bench) test(ctx context.Context, overlay string, t tests, limit time.Duration, more ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Minute) // limit is for the test alone, this one for the build, too
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", limit.String(),
		"-run", t.run, "-ldflags=-s -w", "-overlay", overlay)
	if t.run != everyTest { // named ones: most of the time goes into building them
		cmd.Args = append(cmd.Args, "-gcflags=-N -l")
	}
	cmd.Args = append(append(cmd.Args, more...), t.pkg)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp) // what is killed cannot tidy up
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
