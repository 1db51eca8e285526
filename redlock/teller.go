package redlock

import (
	"sync"
)

// notifier tells Logger and Tracer of leases that were lost, in order, on a goroutine of its own: one that blocks
// holds up neither the end of another lease nor the reader of a member.
type notifier struct {
	c    *Client
	poke chan struct{} // capacity 1
	done chan struct{} // run has ended

	mu     sync.Mutex // guards the fields below; not held while anybody is told
	lost   []*LostError
	missed int // that were not told of, because too many wait
	ended  bool
}

// mostUntold bounds what waits behind a Logger or a Tracer that blocks.
const mostUntold = 1 << 17

func (t *notifier) init(c *Client) {
	t.c, t.poke, t.done = c, make(chan struct{}, 1), make(chan struct{})
}

func (t *notifier) tell(lost ...*LostError) {
	if len(lost) == 0 {
		return
	}
	t.mu.Lock()
	n := min(len(lost), mostUntold-len(t.lost))
	t.lost = append(t.lost, lost[:n]...)
	t.missed += len(lost) - n
	t.mu.Unlock()
	signal(t.poke)
}

// run is owned by the client: started by newClient, ended by end, after it has told all.
func (t *notifier) run() {
	defer close(t.done)
	for range t.poke {
		t.mu.Lock()
		lost, missed, ended := t.lost, t.missed, t.ended
		t.lost, t.missed = nil, 0
		t.mu.Unlock()
		for _, err := range lost {
			t.c.log.Warn("lease lost", "key", logged(err.Key), "token", err.Token, "reason", string(err.Reason))
			if t.c.trace.Lost != nil {
				t.c.trace.Lost(err)
			}
		}
		if missed > 0 {
			t.c.log.Warn("Logger or Tracer is too slow: lost leases were not reported", "missed", missed)
		}
		if ended {
			return
		}
	}
}

func (t *notifier) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	signal(t.poke)
}
