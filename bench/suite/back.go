package suite

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
)

// Quarantine is that of a member that comes back in W16: the longest lease of its clients.
const Quarantine = 3 * time.Second

// back runs a slice of W16: a member of many clients, with as many counters as the cell says, is killed and comes back without
// data. What the others send and receive counts from then on.
func (r *runner) back(ctx context.Context, cell Cell, rep int, spec *entry.Spec) error {
	set, err := server.StartRedis(ctx, cell.Members, false)
	if err != nil {
		return err
	}
	defer set.Close()
	t, err := r.team(spec, cell, set.Members())
	if err != nil {
		return r.cannot(cell, rep, spec, set, err)
	}
	defer t.close()
	if err := set.Count(ctx, cell.Count); err != nil { // the first client has deleted what was there before
		return err
	}
	var killed time.Time
	var before server.Traffic
	s, err := r.slice(ctx, cell, rep, spec, t, set, 0, func() (err error) {
		if before, err = set.Traffic(ctx); err != nil {
			return err
		}
		killed = time.Now()
		return set.Break(cell.Fault)
	})
	if err != nil || s.Failed != "" {
		return r.write(s, err)
	}
	after, err := set.Traffic(ctx)
	s.In, s.Out, s.Slow, s.Slowest = after.In-before.In, after.Out-before.Out, after.Slow, after.Slowest
	if s.Back > 0 { // as the child's clock says, which is ours
		s.Back, s.BackAll = s.Back-killed.UnixNano(), s.BackAll-killed.UnixNano()
	}
	return errors.Join(err, r.write(s, nil))
}
