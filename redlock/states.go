package redlock

import (
	"slices"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

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
	if known := c.compared[i].Load(); epoch > 0 && (known == nil || !slices.Contains(*known, epoch)) { // 0: there was none
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

// barDuplicates takes the vote from every member that is one Redis with an earlier one: both have the same process, or each
// has one of a third member.
func (c *Client) barDuplicates() {
	c.barring.Lock() // of two that compare at once the later must not be overtaken
	before := c.barred.Load()
	same := c.compareLocked()
	c.barring.Unlock()
	for i, first := range same {
		if first != i && before>>i&1 == 0 {
			c.log.Error("two members are one Redis; the second does not vote",
				"member", c.members[i].Name(), "same_as", c.members[first].Name())
		}
	}
}

// compareLocked says of each member which is the first that it is one Redis with, perhaps itself, and bars all others.
func (c *Client) compareLocked() (same []int) {
	owner := make(map[string]int, len(c.members))
	same, epochs := make([]int, len(c.members)), make([][]uint64, len(c.members))
	for i := range c.members {
		same[i] = i
		for _, p := range c.processesOf(i) {
			epochs[i] = append(epochs[i], p.Epoch)
			if had, known := owner[p.RunID]; known && p.RunID != "" {
				x, y := same[had], same[i]
				for j := range i + 1 {
					if same[j] == max(x, y) {
						same[j] = min(x, y)
					}
				}
			}
			owner[p.RunID] = i
		}
	}
	var bar uint32
	for i, first := range same {
		if first != i {
			bar |= 1 << i
		}
	}
	c.barred.Store(bar)
	for i := range epochs {
		c.compared[i].Store(&epochs[i])
	}
	return same
}
