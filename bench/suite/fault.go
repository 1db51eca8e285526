package suite

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/work"
)

// faultCell runs a cell with a fault: each entry and repetition on servers of its own, because a killed
// member is not the same when it comes back. Three slices: healthy; one in which the fault strikes after
// a tenth, so that the first operations after it are in; and one of a client that starts with the fault
// there.
func (r *runner) faultCell(ctx context.Context, cell Cell) error {
	for rep := range r.Reps {
		for _, spec := range order(r.todo(cell, rep), rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Show.Slice(cell, spec.Name)
			strike := r.strike
			if cell.work() == work.Back {
				strike = r.back
			}
			if err := strike(ctx, cell, rep, spec); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) strike(ctx context.Context, cell Cell, rep int, spec *entry.Spec) error {
	set, err := newSet(ctx, spec, cell.Members, true)
	if err != nil {
		return err
	}
	defer set.Close()
	broken := false
	for _, phase := range []string{Healthy, After, Start} {
		cell.Phase = phase
		if phase == After {
			continue // with Healthy: the client is the same
		}
		opened := time.Now()
		t, err := r.team(spec, cell, set.Members())
		took := time.Since(opened)
		if err != nil {
			if err := r.Out.Write(Record{Slice: &Slice{Cell: cell, Entry: spec.Name, Rep: rep, Floor: spec.Floor, OpenMS: took.Milliseconds(),
				Failed: err.Error(), Servers: set.Version()}}); err != nil {
				return err
			}
			continue
		}
		s, err := r.slice(ctx, cell, rep, spec, t, set, r.Warm, nil)
		if err == nil {
			if s.OpenMS = took.Milliseconds(); phase == Healthy {
				s.OpenMS = 0
			}
			err = r.Out.Write(Record{Slice: s})
		}
		if err == nil && phase == Healthy {
			cell.Phase = After
			broken = true
			if s, err = r.slice(ctx, cell, rep, spec, t, set, 0, func() error { return set.Break(cell.Fault) }); err == nil {
				err = r.Out.Write(Record{Slice: s})
			}
		}
		t.close()
		if err != nil {
			return err
		}
		if !broken {
			return nil
		}
	}
	return nil
}
