package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
)

// outside are the folders whose tests the first ring leaves out: what they import takes longer to compile than all of
// their tests, or what they test takes a server that must be fetched.
var outside = []string{"bench", "examples/writer", "fence/fencegrpc", "integration/fencing", "integration/docker", "integration/interop"}

// part is a sixth of all that the first ring leaves out, but for what measures. Continuous integration runs one of them with
// each landing.
type part struct {
	tests   []chosen
	servers []string // versions on which all tests run that need a server: see internal/servers
	needs   []string // what .ci/run installs for it: browser, databases, java, spin, storages; where it has servers, packages
}

// chosen are some tests of a package, or of a folder and those below it ("bench/..."), and what their environment has.
type chosen struct {
	pkg, pattern string
	env          []string
	again        bool // they are of the first ring, and play longer here
}

const (
	long  = "^TestLong"
	every = "^Test"
)

// Each takes about eight minutes of a quiet machine with two processors.
var parts = [6]part{
	{
		tests: []chosen{
			{pkg: "redlock", pattern: "^TestLongSchedules"}, {pkg: "redlock/internal/kinds/latch", pattern: long},
			{pkg: "node/...", pattern: long},
		},
		servers: []string{"redis-6.2"},
	},
	{
		tests: []chosen{{pkg: "cluster", pattern: long}, {pkg: "cmd/redlock", pattern: long}, {pkg: ".", pattern: long}, {pkg: "redlock/internal/core", pattern: long},
			{pkg: "internal/timeline", pattern: long}},
		servers: []string{"redis-7.2"},
		needs:   []string{"browser", "spin"},
	},
	{
		tests:   []chosen{{pkg: "integration/faults", pattern: "^Test(Long|Faults)", env: []string{"REDQUORUM_FAULTS=each"}}},
		servers: []string{"redis-7.4"},
	},
	{
		tests: []chosen{
			{pkg: "redlock", pattern: "^TestLong(Semaphore)?Script|^TestLong(Random|Lease|Reentry)"},
			{pkg: "redlock", pattern: "^TestSeeds($|OfSets|OfKinds)", env: []string{"REDQUORUM_SEEDS=1000"}, again: true},
			{pkg: "redlock", pattern: "^TestSeedsOfRestarts", env: []string{"REDQUORUM_SEEDS=100"}, again: true}, // of each of eleven kinds
		},
		servers: []string{"redis-8.2"},
	},
	{
		tests:   []chosen{{pkg: "integration/fencing/...", pattern: every}, {pkg: "examples/writer", pattern: every}},
		servers: []string{"valkey-8.0", "valkey-8.1"},
		needs:   []string{"databases", "java", "storages"},
	},
	{
		tests: []chosen{
			{pkg: "bench/...", pattern: "^Test[A-KM-Z]"}, {pkg: "integration/interop", pattern: every}, {pkg: "integration/docker", pattern: every},
			{pkg: "fence/fencegrpc", pattern: every}, {pkg: "internal/mutants", pattern: long}, {pkg: "redlock", pattern: "^TestLongSemaphoreSchedules"},
			{pkg: "redlock", pattern: "^TestSeedsOfSemaphores", env: []string{"REDQUORUM_SEEDS=1000"}, again: true},
		},
		servers: []string{"valkey-9.0", "valkey-9.1"},
		needs:   []string{"java"},
	},
}

// measured are tests of how fast something is on real servers, which a busy machine fails: make test-all without a PART runs
// them, and no landing depends on them.
var measured = part{tests: []chosen{{pkg: "redlock", pattern: "^TestLong(Crowd|Idle)"}, {pkg: "bench/suite", pattern: "^TestLongRun"}}}

// has reports whether a test is among the chosen.
func (c chosen) has(t test) bool {
	dir, below := c.pkg, false
	if n := len(dir) - len("/..."); n > 0 && dir[n:] == "/..." {
		dir, below = dir[:n], true
	}
	return (t.pkg == dir || below && within(t.pkg, dir)) && regexp.MustCompile(c.pattern).MatchString(t.name)
}

// play runs a part.
func (p part) play(ctx context.Context, all []test, out io.Writer) (err error) {
	for _, c := range p.tests {
		some := slices.DeleteFunc(slices.Clone(all), func(t test) bool { return !c.has(t) })
		if len(some) == 0 {
			err = errors.Join(err, fmt.Errorf("no test of %s matches %q", c.pkg, c.pattern))
		}
		for _, r := range calls(some, append(c.env, longEnv)...) {
			err = errors.Join(err, r.do(ctx, nil, out))
		}
	}
	if len(p.servers) > 0 {
		cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"run", "./internal/servers", "-test", "-all"}, p.servers)...)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		err = errors.Join(err, cmd.Run())
	}
	return err
}

func needs(some []part) (all []string) {
	for _, p := range some {
		all = append(all, p.needs...)
		if len(p.servers) > 0 {
			all = append(all, "packages")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ring is the name of the one that a test is of: "first", or "part 3".
func (t test) ring() string {
	if t.first() {
		return "first"
	}
	has := func(c chosen) bool { return c.has(t) }
	for i, p := range parts {
		if slices.ContainsFunc(p.tests, has) {
			return fmt.Sprint("part ", i+1)
		}
	}
	if slices.ContainsFunc(measured.tests, has) {
		return "measured"
	}
	return "none"
}
