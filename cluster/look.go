package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/topology"
	"github.com/redquorum/redquorum/member"
)

// Topology asks the seeds, one after the other, until one of them says which master serves which
// slots. It leaves out masters without slots. Of c it uses Seeds, Dial, and Node without a Guard.
func Topology(ctx context.Context, c Config) ([]topology.Master, error) {
	errs := []error{errors.New("cluster: Config.Seeds is empty")}
	for i, seed := range c.Seeds {
		infos, err := c.ask(ctx, seed)
		if err == nil {
			out := make([]topology.Master, len(infos))
			for k, m := range infos {
				out[k] = topology.Master{ID: m.id, Addr: m.addr, Dial: c.dial(m.addr), Slots: m.slots}
			}
			return out, nil
		}
		errs = append(errs[:i], err)
	}
	return nil, errors.Join(errs...)
}

var (
	_ ability.Clocked = (*cluster)(nil)
	_ ability.Parted  = (*cluster)(nil)
)

// Silence implements ability.Parted. The State of the cluster votes if any master votes.
func (cl *cluster) Silence() ability.Silence {
	t := cl.table.Load()
	var out ability.Silence
	slots := make([]int, len(t.masters))
	for _, at := range t.owner {
		slots[at]++
	}
	for i, m := range t.masters {
		if i == 0 || slots[i] == 0 {
			continue
		}
		st := m.node.State()
		if st.Votes {
			continue
		}
		out.Masters++
		out.Slots += slots[i]
		if st.Quarantine.After(out.Until) {
			out.Until = st.Quarantine
		}
		if out.Err == nil || !st.Quarantine.IsZero() && !errors.Is(out.Err, member.ErrQuarantined) {
			out.Err = m.node.WhyNot()
		}
	}
	if out.Slots += slots[0]; out.Slots > 0 && out.Err == nil {
		cl.mu.Lock()
		seen := cl.seen
		cl.mu.Unlock()
		if out.Err = cl.errNobody; len(t.masters) == 1 && seen != nil {
			out.Err = fmt.Errorf("%w: %w", member.ErrDown, seen)
		}
	}
	return out
}

// ClockOffset implements ability.Clocked. It reports the master whose known clock is farthest from
// ours.
func (cl *cluster) ClockOffset() (ahead, within time.Duration, ok bool) {
	for _, m := range cl.table.Load().masters[1:] {
		if a, w, known := m.node.ClockOffset(); known && (!ok || a.Abs() > ahead.Abs()) {
			ahead, within, ok = a, w, true
		}
	}
	return ahead, within, ok
}
