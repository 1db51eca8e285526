package suite

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/work"
)

// Two runs of so many operations in all: the difference leaves out what opening and closing costs. A floor is done with four
// times as many in the time of redquorum.
const fewOps, manyOps = 512, 4096

// countedFor bounds what a child does under valgrind, on a busy machine.
const countedFor = 5 * time.Minute

// valgrind is what a client that is counted runs under. The caches are those of the processor for which the goals were set.
var valgrind = []string{"valgrind", "--tool=callgrind", "--fair-sched=try", "--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64"}

// slowly lets one thread of Go run at a time, and keeps its signals away, over which callgrind stumbles.
var slowly = []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"}

// clientInstructions counts what the client executes, with its garbage collection and without the kernel.
func (r *runner) clientInstructions(ctx context.Context, cell Cell, rep int, spec *entry.Spec) (*Slice, error) {
	s := &Slice{Cell: cell, Entry: spec.Name, Rep: rep, Floor: spec.Floor, Commands: -1, Allocs: -1}
	if _, err := exec.LookPath(valgrind[0]); err != nil {
		s.Failed = "no valgrind (apt-get install valgrind)"
		return s, nil
	}
	each := [2]int{max(1, fewOps/cell.Callers), manyOps / cell.Callers}
	if spec.Floor {
		each[1] *= 4
	}
	var profiles [2]*entry.Callgrind
	for i, ops := range each {
		p, err := r.counted(ctx, cell, spec, ops)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.Failed = err.Error()
			return s, nil
		}
		profiles[i] = p
	}
	few, many := profiles[0], profiles[1]
	ops := float64((each[1] - each[0]) * cell.Callers)
	per := func(events ...string) (n float64) {
		for _, e := range events {
			n += float64(many.Events[e]-few.Events[e]) / ops
		}
		return n
	}
	s.Ops, s.Instructions = int64(ops), per("Ir")
	s.MissL1i, s.MissL1d, s.MissL2 = per("I1mr"), per("D1mr", "D1mw"), per("ILmr", "DLmr", "DLmw")
	timers := func(p *entry.Callgrind) int {
		return p.Calls["runtime.(*timer).modify"] + p.Calls["runtime.(*timer).stop"]
	}
	s.Timers = float64(max(0, timers(many)-timers(few))) / ops
	return s, nil
}

// counted lets each caller work ops times under callgrind.
func (r *runner) counted(ctx context.Context, cell Cell, spec *entry.Spec, ops int) (*entry.Callgrind, error) {
	set, err := newSet(ctx, spec, cell.Members, false)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	r.seq++
	profile := filepath.Join(r.dir, "callgrind."+strconv.Itoa(r.seq))
	o := r.openOrder(cell, set.Members())
	o.Ops, o.LeaseMS = ops, 30_000
	c, err := startChild(spec, o, append(valgrind, "--callgrind-out-file="+profile), slowly)
	if err != nil {
		return nil, err
	}
	defer c.close()
	res, err := c.order(work.Order{Op: "slice", Prefix: fmt.Sprintf("b%s.%d:", r.id, r.seq), SliceMS: int(countedFor.Milliseconds())}, countedFor)
	if err == nil && res.Errors > 0 {
		err = fmt.Errorf("%d errors: %q", res.Errors, res.Samples)
	}
	if err == nil {
		_, err = c.order(work.Order{Op: "close"}, countedFor)
	}
	if err != nil {
		return nil, err
	}
	_ = c.in.Close()
	select {
	case <-c.done: // the profile is written
	case <-time.After(countedFor):
	}
	return entry.ReadCallgrind(profile)
}

// memberInstructions counts what a member executes: redquorum's are so many locks in one call, and as many unlocks in another.
func (r *runner) memberInstructions(ctx context.Context, cell Cell, rep int, spec *entry.Spec) (*Slice, error) {
	s := &Slice{Cell: cell, Entry: spec.Name, Rep: rep, Floor: spec.Floor, Commands: -1, Allocs: -1}
	n, err := entry.MemberInstructions(ctx, spec.Floor, cell.Count)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.Failed = err.Error()
	}
	s.Instructions = float64(n)
	return s, nil
}
