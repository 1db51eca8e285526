// Command rings says which test runs when, and runs them:
//
//	go run ./internal/rings test       the first ring: what make test runs
//	go run ./internal/rings all        both rings, for a night or a release: what make test-all runs
//	go run ./internal/rings all 3      the third of the six parts of the second ring: part.go lists them
//	go run ./internal/rings all measured    what measures, and is of no part
//	go run ./internal/rings needs 3    what that part needs beside Go and redis-server, a word a line
//	go run ./internal/rings long       all tests whose names begin with TestLong
//	go run ./internal/rings list       every test, with its ring
//	go run ./internal/rings cost       those of the first ring that cost more than 2 s of processor, each alone
//
// It prints what go test -json does. test, long and cost take a folder, ./slot or ./redlock/..., for some of the tests. What
// stands behind -- goes to go test: -v, or -run with a pattern.
//
// A test is of the first ring unless its name begins with TestLong, TestFaults or TestInterop, or its package is outside
// (part.go). Tests with one goroutine stand in files that the race detector does not see (//go:build !race). They run
// once, without it; all others run with it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := do(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rings:", err)
		os.Exit(1)
	}
}

func do(ctx context.Context, args []string, out io.Writer) error {
	var more []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, more = args[:i], args[i+1:]
	}
	if len(args) == 0 || len(args) > 2 {
		return errors.New("which ring? test, all, long, needs, list or cost")
	}
	all, err := scan(".")
	if err != nil {
		return err
	}
	what := append(args[1:], "")[0]
	switch args[0] {
	case "test":
		return beside(ctx, calls(choose(all, what, test.first)), more, out)
	case "long":
		some := choose(all, what, func(t test) bool { return strings.HasPrefix(t.name, "TestLong") })
		return beside(ctx, calls(some, longEnv), more, out)
	case "all":
		if what == "" {
			err = beside(ctx, calls(choose(all, "", test.first)), more, out)
		}
		some, bad := number(what)
		for _, p := range some {
			err = errors.Join(err, p.play(ctx, all, out))
		}
		return errors.Join(err, bad)
	case "needs":
		some, err := number(what)
		for _, word := range needs(some) {
			fmt.Fprintln(out, word)
		}
		return err
	case "cost":
		return cost(ctx, choose(all, what, test.first), 2*time.Second, out)
	case "list":
		for _, t := range all {
			fmt.Fprintf(out, "%s\t%s\t%s\n", t.ring(), t.pkg, t.name)
		}
		return nil
	}
	return fmt.Errorf("no ring is called %q", args[0])
}

// choose takes the tests of a ring, below a folder if one is named.
func choose(all []test, folder string, ring func(test) bool) (some []test) {
	folder = strings.TrimPrefix(path.Clean(folder), "./")
	for _, t := range all {
		if ring(t) && (folder == "." || chosen{pkg: folder, pattern: every}.has(t)) {
			some = append(some, t)
		}
	}
	return some
}

// number returns the part of a number or name, or all.
func number(n string) ([]part, error) {
	switch n {
	case "":
		return append(parts[:], measured), nil
	case "measured":
		return []part{measured}, nil
	}
	i, err := strconv.Atoi(n)
	if err != nil || i < 1 || i > len(parts) {
		return nil, fmt.Errorf("there are parts 1 to %d, and measured, and no %q", len(parts), n)
	}
	return parts[i-1 : i], nil
}

// beside runs calls at the same time. In fake time the race detector has one processor. What goes without it takes what is
// left, because the tests of redlock with the race detector take longest.
func beside(ctx context.Context, calls []run, more []string, out io.Writer) error {
	var wg sync.WaitGroup
	to := &lines{out: out}
	errs := make([]error, len(calls))
	for i, r := range calls {
		w, flush := to.writer()
		r.later = len(calls) > 1 && !r.race
		wg.Go(func() { errs[i] = errors.Join(r.do(ctx, more, w), flush()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// do runs go test. Most of what tests allocate is gone at once: a collector that comes later takes a fifth less of the
// processors, for three times the memory. Tests are never taken from the cache, because they start servers, and those
// may have changed. make lint has vetted them, and nobody debugs the binaries.
//
// Most packages wait longer than they compute: so in the first ring twice as many as there are processors run at the same
// time. A program with the race detector waits before it exits, for races that are under way: a second is too long.
func (r run) do(ctx context.Context, more []string, out io.Writer) error {
	args := []string{"go", "test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w"}
	switch {
	case len(r.env) > 0: // the second ring
		args = append(args, "-timeout=60m")
	case r.later:
		args = append([]string{"nice"}, append(args, "-timeout=20m")...)
	default:
		args = append(args, "-timeout=20m", fmt.Sprint("-p=", 2*runtime.GOMAXPROCS(0)))
	}
	args = append(args, r.flags()...)
	pkgs := r.pkgs
	if asked := slices.IndexFunc(more, func(s string) bool { return strings.TrimLeft(s, "-") == "run" }); asked >= 0 && asked+1 < len(more) {
		if pkgs = r.matching(more[asked+1]); len(pkgs) == 0 {
			return nil
		}
	} else {
		args = append(args, "-run="+r.pattern())
	}
	args = slices.Concat(args, more, pkgs)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "GOGC=400", "GOMEMLIMIT=3GiB", "GORACE=atexit_sleep_ms=100"), r.env...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends what it started
	return cmd.Run()
}

// flags are those of the race detector.
func (r run) flags() []string {
	if !r.race {
		return nil
	}
	// The embedded server's Lua runs below a mutex of ours, and has no generic code of which another package could get the
	// copy that is not watched.
	return []string{"-race", "-gcflags=github.com/yuin/gopher-lua/...=-race=false"}
}

// lines lets several commands write to one place, a line at a time. Each has a writer of its own.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

// writer is one command's. flush writes what is left when the command has ended.
func (l *lines) writer() (w io.Writer, flush func() error) {
	of := &line{to: l}
	return of, of.flush
}

type line struct {
	to  *lines
	buf []byte
}

func (l *line) Write(b []byte) (int, error) {
	l.buf = append(l.buf, b...)
	end := bytes.LastIndexByte(l.buf, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, err := l.to.out.Write(l.buf[:end])
	l.buf = append(l.buf[:0], l.buf[end:]...)
	return len(b), err
}

func (l *line) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	_, err := l.Write([]byte("\n"))
	return err
}
