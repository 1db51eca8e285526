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
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const modulePath = "github.com/redquorum/redquorum"

// findRoot is the folder of the module, from here upwards.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("run this inside the repository")
		}
		dir = up
	}
}

// apply returns the changed text of the mutant's file.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, err
	}
	switch n := bytes.Count(text, []byte(m.old)); {
	case m.old == m.new:
		return nil, fmt.Errorf("mutant %q changes nothing", m.name)
	case n != 1:
		return nil, fmt.Errorf("mutant %q: its text occurs %d times in %s, and not once: adapt it to the file", m.name, n, m.file)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

const (
	everyTest = "^Test"
	slowTests = "^Test(Long|Interop|Faults)" // what `make test` leaves out
)

// bench runs mutants.
type bench struct {
	root  string
	jobs  int
	limit time.Duration
	wide  bool
	tmp   string // everything temporary; gone at the end

	mu  sync.Mutex // guards out
	out io.Writer
}

// result is what became of one mutant.
type result struct {
	mutant
	by   string // the test that noticed; "": none
	hung bool   // by never ending
	took time.Duration
	err  error // it could not be tried
}

func (b *bench) printf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, format, args...)
}

// all tries every mutant, in order of the list as far as jobs allows. An error: the tests fail without
// any change, or ctx has ended.
func (b *bench) all(ctx context.Context, list []mutant) ([]result, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b.tmp = dir
	for _, m := range list { // mistakes in the list are told before anything runs
		if _, err := m.apply(b.root); err != nil {
			return nil, err
		}
	}
	if err := b.unchanged(ctx, list); err != nil {
		return nil, err
	}
	results := make([]result, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range b.jobs {
		wg.Go(func() {
			for i := range next {
				results[i] = b.try(ctx, list[i], filepath.Join(dir, fmt.Sprint(i)))
				if ctx.Err() == nil {
					b.tell(results[i])
				}
			}
		})
	}
	for i := range list {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return results, ctx.Err()
}

func (b *bench) tell(r result) {
	took := r.took.Seconds()
	switch {
	case r.err != nil:
		b.printf("ERROR     %s (%s): %s\n", r.name, r.file, firstLines(r.err.Error(), 10))
	case r.by == "":
		b.printf("SURVIVED  %s (%s)\n", r.name, r.file)
	case r.hung:
		b.printf("caught    hung: %s in %.1fs   %s\n", r.by, took, r.name)
	default:
		b.printf("caught    by %s in %.1fs   %s\n", r.by, took, r.name)
	}
}

// unchanged runs the tests that the mutants name as they are: they must pass.
func (b *bench) unchanged(ctx context.Context, list []mutant) error {
	patterns := make(map[string][]string)
	for _, m := range list {
		for _, t := range m.tests {
			if !slices.Contains(patterns[t.pkg], t.run) {
				patterns[t.pkg] = append(patterns[t.pkg], t.run)
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(patterns)) {
		began := time.Now()
		o, err := b.test(ctx, nil, tests{pkg, strings.Join(patterns[pkg], "|")}, 10*time.Minute)
		switch {
		case err != nil:
			return fmt.Errorf("%s, unchanged: %w", pkg, err)
		case o.failed != "":
			return fmt.Errorf("%s, unchanged: %s fails:\n%s", pkg, o.failed, o.output.String())
		}
		b.printf("passed    unchanged: %d tests of %s in %.1fs\n", o.ran, pkg, time.Since(began).Seconds())
		for _, name := range o.skipped {
			b.printf("skipped   %s of %s: what only it can see is not seen\n", name, pkg)
		}
	}
	return nil
}

// try runs the mutant's tests until one fails.
func (b *bench) try(ctx context.Context, m mutant, dir string) result {
	began := time.Now()
	done := func(o outcome, err error) result {
		return result{mutant: m, by: o.failed, hung: o.hung, took: time.Since(began), err: err}
	}
	text, err := m.apply(b.root)
	if err != nil {
		return done(outcome{}, err)
	}
	var with []string
	if variable := b.scriptVariable(m.file); variable != "" {
		with, err = linkScript(variable, text)
	} else {
		with, err = writeOverlay(dir, filepath.Join(b.root, filepath.FromSlash(m.file)), text)
	}
	if err != nil {
		return done(outcome{}, err)
	}
	steps := m.tests
	if b.wide {
		var pkgs []string
		for _, t := range m.tests {
			if !slices.Contains(pkgs, t.pkg) {
				pkgs = append(pkgs, t.pkg)
				steps = append(slices.Clip(steps), tests{t.pkg, everyTest})
			}
		}
	}
	for _, t := range steps {
		limit := b.limit
		if t.run == everyTest { // a busy machine is not a hanging test
			limit *= 5
		}
		o, err := b.test(ctx, with, t, limit)
		if err != nil || o.failed != "" {
			return done(o, err)
		}
	}
	return done(outcome{}, nil)
}

// writeOverlay writes what -overlay takes: file is replaced by text.
func writeOverlay(dir, file string, text []byte) (args []string, _ error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	changed := filepath.Join(dir, filepath.Base(file))
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return []string{"-overlay", overlay, strip}, errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, spec, 0o600))
}

// strip leaves out what only a debugger needs.
const strip = "-ldflags=-s -w"

// scriptVariable finds the variable that a script is embedded in, "path.name", or "" for a Go source.
func (b *bench) scriptVariable(file string) string {
	dir, name := path.Split(path.Dir(file))
	sources, _ := filepath.Glob(filepath.Join(b.root, filepath.FromSlash(dir), "*.go"))
	embed := regexp.MustCompile(`//go:embed ` + regexp.QuoteMeta(name+"/"+path.Base(file)) + `\n\s*(?:var )?(\w+) string\n`)
	for _, source := range sources {
		if text, err := os.ReadFile(source); err == nil {
			if found := embed.FindSubmatch(text); found != nil {
				return modulePath + "/" + dir[:len(dir)-1] + "." + string(found[1])
			}
		}
	}
	return ""
}

// linkScript has the linker replace an embedded script. Nothing is compiled, which takes most of the time
// of the others. Comments go: an option of the linker can hold one kind of quotes.
func linkScript(variable string, text []byte) (args []string, _ error) {
	text = regexp.MustCompile(`(?m)^\s*--.*$`).ReplaceAll(text, nil)
	if bytes.ContainsRune(text, '"') {
		return nil, errors.New("a script that is changed must have no double quotes")
	}
	return []string{fmt.Sprintf("%s -X \"%s=%s\"", strip, variable, text)}, nil
}

// test runs tests of one package and stops at the first failure.
func (b *bench) test(ctx context.Context, with []string, t tests, limit time.Duration) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Minute) // limit is for the test alone, this one for the build, too
	defer cancel()
	args := []string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", limit.String(), "-run", t.run, "-skip", slowTests}
	if t.run != everyTest { // named ones: most of the time goes into building them
		args = append(args, "-gcflags=-N -l")
	}
	if with == nil {
		with = []string{strip}
	}
	args = append(args, with...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp) // what is killed cannot tidy up
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

// firstLines keeps a report readable where all mutants fail in the same way.
func firstLines(s string, n int) string {
	lines := strings.SplitAfterN(strings.TrimSpace(s), "\n", n+1)
	if len(lines) > n {
		lines[n] = "...\n"
	}
	return strings.Join(lines, "")
}
