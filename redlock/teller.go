package redlock

import (
	"sync"
)

// notifier tells Logger and Tracer of leases that were lost, and the Logger of releases in doubt that nobody waits for,
// in order, on a goroutine of its own: one that blocks holds up neither the end of another lease nor the reader of a
// member.
type notifier struct {
	c    *Client
	poke chan struct{} // capacity 1
	done chan struct{} // run has ended

	mu     sync.Mutex // guards the fields below; not held while anybody is told
	untold []error
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
	for _, err := range lost {
		t.addLocked(err)
	}
	t.mu.Unlock()
	signal(t.poke)
}

// doubts tells of a release that nobody waits for and that is in doubt.
func (t *notifier) doubts(err error) {
	t.mu.Lock()
	t.addLocked(err)
	t.mu.Unlock()
	signal(t.poke)
}

func (t *notifier) addLocked(err error) {
	if len(t.untold) == mostUntold {
		t.missed++
		return
	}
	t.untold = append(t.untold, err)
}

// run is owned by the client: started by newClient, ended by end, after it has told all.
func (t *notifier) run() {
	defer close(t.done)
	for range t.poke {
		t.mu.Lock()
		untold, missed, ended := t.untold, t.missed, t.ended
		t.untold, t.missed = nil, 0
		t.mu.Unlock()
		for _, told := range untold {
			err, lost := told.(*LostError)
			if !lost {
				t.c.log.Warn("release is in doubt", "err", told)
				continue
			}
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
