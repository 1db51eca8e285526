package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// usual is the version that `make test` runs on where nothing else is asked for: the one of Debian.
const usual = "redis-7.0"

// elsewhere are tests that have make targets of their own.
var elsewhere = regexp.MustCompile(`^Test(Long|Interop|Faults)`)

// built is the tests of one package that need a server. They are built once, for all versions.
type built struct {
	name, dir string // below the module
	binary    string
	tests     []string
}

// build builds every package that has tests that need a server: those of the ring, or all.
func build(ctx context.Context, to string, every bool) (all []built, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Path}}\t{{.ImportPath}}\t{{.Dir}}\t{{join .TestGoFiles \"\t\"}}\t{{join .XTestGoFiles \"\t\"}}", "./...", "./integration/fencing/clients")
	list.Stderr = os.Stderr
	said, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(said)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		s := built{name: strings.TrimPrefix(f[1], f[0]+"/"), dir: f[2], binary: filepath.Join(to, fmt.Sprint(len(all), ".test"))}
		var files []string
		for _, name := range f[3:] {
			if name != "" {
				files = append(files, filepath.Join(s.dir, name))
			}
		}
		found, err := needing(files...)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if !elsewhere.MatchString(name) && (every || slices.Contains(ring[s.name], name)) {
				s.tests = append(s.tests, name)
			}
		}
		if len(s.tests) == 0 {
			continue
		}
		if err := command(ctx, ".", "go", "test", "-c", "-o", s.binary, f[1]); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// matrix runs all tests that need a server on each version. It writes what `go test -json` would, with the version in
// front of a package's name. A version that cannot be fetched is a package that failed. In the end it tells on summary
// what became of each version; one on which no test ran is an error.
func matrix(ctx context.Context, versions []server, get func(context.Context, server) (string, error), packages []built, out, summary io.Writer) error {
	all := &whole{out: out}
	table := tabwriter.NewWriter(summary, 0, 0, 2, ' ', 0)
	for _, v := range versions {
		began := time.Now()
		all.count = map[string]int{}
		dir, err := get(ctx, v)
		if err != nil {
			all.fails(v.Name(), err)
			continue
		}
		var wg sync.WaitGroup
		room := make(chan struct{}, runtime.GOMAXPROCS(0))
		for _, s := range packages {
			wg.Go(func() {
				room <- struct{}{}
				all.take(s.run(ctx, v.Name(), dir))
				<-room
			})
		}
		wg.Wait()
		fmt.Fprintf(table, "%s\t%s\t%d passed\t%d failed\t%d skipped\t%v\n", v.Name(), v.Version,
			all.count["pass"], all.count["fail"], all.count["skip"], time.Since(began).Round(time.Second))
		if all.count["pass"]+all.count["fail"] == 0 {
			all.fails(v.Name(), errors.New("no test ran"))
		}
	}
	return errors.Join(all.err, ctx.Err(), table.Flush())
}

// run runs the tests of one package on the server in a folder. If tests fail, the events tell so.
func (s built) run(ctx context.Context, version, dir string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", version+"/"+s.name, s.binary,
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=10m", "-test.run", "^("+strings.Join(s.tests, "|")+")$")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	events, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	return events, err
}

// whole writes the events of one package at a time, and counts the results of tests.
type whole struct {
	mu    sync.Mutex
	out   io.Writer
	count map[string]int // by Action, of the version that runs
	err   error
}

func (w *whole) take(events []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, failed := w.out.Write(events)
	w.err = errors.Join(w.err, err, failed)
	for line := range bytes.Lines(events) {
		var e struct{ Action, Test string }
		if json.Unmarshal(line, &e) == nil && e.Test != "" {
			w.count[e.Action]++
		}
	}
}

func (w *whole) fails(name string, why error) {
	var events bytes.Buffer
	to := json.NewEncoder(&events)
	err := errors.Join(
		to.Encode(map[string]string{"Action": "output", "Package": name, "Output": why.Error() + "\n"}),
		to.Encode(map[string]string{"Action": "fail", "Package": name}),
	)
	w.take(events.Bytes(), err)
}
