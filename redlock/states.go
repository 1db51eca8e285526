package redlock

import (
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

// states is what every member is good for now.
func (c *Client) states() []member.State {
	out := make([]member.State, len(c.members))
	for i := range out {
		out[i] = c.state(i)
	}
	return out
}

// statesOf is what every member is good for in a slot now.
func (c *Client) statesOf(slot uint16) []member.State { return c.appendStatesOf(nil, slot) }

// fewStates is room for those of a usual number of members, on the stack of who asks.
type fewStates [5]member.State

func (c *Client) appendStatesOf(out []member.State, slot uint16) []member.State {
	from := len(out)
	for i := range c.members {
		out = append(out, c.stateOf(i, slot))
	}
	if c.barred.Load() != 0 { // by the last of them, perhaps
		for i := range c.members {
			out[from+i] = c.unlessBarred(i, out[from+i])
		}
	}
	return out
}

// stateOf is what member i is good for in a slot now.
func (c *Client) stateOf(i int, slot uint16) member.State {
	if c.perSlot && c.slotted[i] != nil {
		st := c.slotted[i].StateOf(slot)
		c.compare(i, st.Epoch)
		return c.unlessBarred(i, st)
	}
	return c.state(i)
}

// state is what member i is good for now.
func (c *Client) state(i int) member.State {
	st := c.members[i].State()
	c.compare(i, st.Epoch)
	return c.unlessBarred(i, st)
}

// briefOf is the part of stateOf by which an answer is judged.
func (c *Client) briefOf(i int, slot uint16) member.Brief {
	if c.briefed[i] == nil || c.perSlot && c.slotted[i] != nil {
		st := c.stateOf(i, slot)
		return st.Brief
	}
	b := c.briefed[i].Brief()
	c.compare(i, b.Epoch)
	if c.isBarred(i) {
		b.Votes = false
	}
	return b
}

// compare sees to it that the process behind a connection of member i was compared with those of the others before
// anything that was said on it counts: a listener hears of a connection only after others can see it.
func (c *Client) compare(i int, epoch uint64) {
	at := &c.compared[i]
	known := epoch <= at.epoch.Load() // 0: there was none
	if list := at.epochs.Load(); !known && list != nil {
		known = slices.Contains(*list, epoch)
	}
	if !known {
		c.barDuplicates()
	}
}

// isBarred reports whether member i is one Redis with an earlier one.
func (c *Client) isBarred(i int) bool { return c.barred.Load()>>i&1 == 1 }

func (c *Client) unlessBarred(i int, st member.State) member.State {
	if c.isBarred(i) {
		st.Votes = false
	}
	return st
}

// processesOf are the server processes that member i is known to have.
func (c *Client) processesOf(i int) []ability.Process {
	if s := c.spread[i]; s != nil {
		return s.Processes()
	}
	st := c.members[i].State()
	return []ability.Process{{Epoch: st.Epoch, RunID: st.RunID}}
}

// duplicate says which earlier member is one Redis with member i, if both have the same process.
func (c *Client) duplicate(i int) error {
	mine := c.processesOf(i)
	for j := range i {
		for _, p := range c.processesOf(j) {
			if p.RunID != "" && slices.ContainsFunc(mine, func(q ability.Process) bool { return p.RunID == q.RunID }) {
				return fmt.Errorf("%w: it is that of %s", ErrDuplicateMember, c.members[j].Name())
			}
		}
	}
	return ErrDuplicateMember
}

// barDuplicates takes the vote from every member that is one Redis with an earlier one: both have the same process, or each
// has one of a third member.
func (c *Client) barDuplicates() {
	c.barring.Lock() // of two that compare at once the later must not be overtaken
	defer c.barring.Unlock()
	owner := make(map[string]int, len(c.members))
	same := make([]int, len(c.members)) // as an earlier one, or as itself
	first := func(i int) int {
		for same[i] != i {
			i = same[i]
		}
		return i
	}
	epochs := make([][]uint64, len(c.members))
	for i := range c.members {
		same[i] = i
		for _, p := range c.processesOf(i) {
			epochs[i] = append(epochs[i], p.Epoch)
			if p.RunID == "" {
				continue
			}
			if had, known := owner[p.RunID]; known {
				x, y := first(had), first(i)
				same[max(x, y)] = min(x, y)
			}
			owner[p.RunID] = i
		}
	}
	var bar uint32
	for i, m := range c.members {
		if first(i) == i {
			continue
		}
		bar |= 1 << i
		if !c.isBarred(i) {
			c.log.Error("two members are one Redis; the second does not vote",
				"member", m.Name(), "same_as", c.members[first(i)].Name())
		}
	}
	c.barred.Store(bar)
	for i := range c.members {
		if at := &c.compared[i]; c.spread[i] != nil {
			at.epochs.Store(&epochs[i])
		} else {
			at.epoch.Store(max(epochs[i][0], at.epoch.Load()))
		}
	}
}
