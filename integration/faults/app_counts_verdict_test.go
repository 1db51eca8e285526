//go:build linux || darwin

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
)

// permit tells of a slot of the semaphore that is resized, asked for at asked.
func (h *hearing) permit(seat int, attempt uint64, slot, asked, from, to int, token uint64) {
	h.tell(seat, from, appEvent{
		Kind: "grant", Attempt: attempt, Name: slotName(appResized, slot), Names: []string{appResized}, Number: int64(slot),
		Sort: permitLock, Token: token, Owner: fmt.Sprint(seat, ".", attempt), Since: h.at(asked), Until: h.at(from + 1000),
	})
	h.tell(seat, to, appEvent{Kind: "end", Attempt: attempt, Name: slotName(appResized, slot), Text: "unlock", Until: h.at(to + 1000), Back: h.at(to + 1)})
}

func (h *hearing) resized(attempt uint64, k, from, to int, err string) {
	h.tell(0, from, appEvent{Kind: "limiting", Attempt: attempt, Name: appResized, Number: int64(k)})
	if to > 0 {
		h.tell(0, to, appEvent{Kind: "limited", Attempt: attempt, Name: appResized, Error: err})
	}
}

// round tells of a latch of three arrivals.
func (h *hearing) round(seat, ms int, kind, err string, since int) {
	h.tell(seat, ms, appEvent{Kind: kind, Name: "app:latch:few#1", Number: 3, Since: h.at(since), Error: err})
}

func TestJudgeOfPermitsAndLatches(t *testing.T) {
	for _, x := range []struct {
		name, kind string
		n          int
		history    func(h *hearing)
	}{
		{"two slots at the same time, and one slot twice in turn", "", 0, func(h *hearing) {
			h.permit(0, 1, 0, 0, 10, 50, 1)
			h.permit(1, 1, 1, 0, 10, 50, 1)
			h.permit(2, 1, 0, 0, 60, 70, 2)
		}},
		{"two holders of a slot", "two holders", 1, func(h *hearing) {
			h.permit(0, 1, 3, 0, 10, 50, 1)
			h.permit(1, 1, 3, 0, 40, 60, 2)
		}},
		{"a token of a slot falls", "tokens", 1, func(h *hearing) {
			h.permit(0, 1, 3, 0, 10, 50, 2)
			h.permit(1, 1, 3, 0, 60, 70, 1)
		}},
		{"a slot above the limit of the caller", "limit", 1, func(h *hearing) { h.permit(0, 1, 50, 0, 10, 20, 1) }},
		{"a slot above the limit that was set before", "limit", 1, func(h *hearing) {
			h.resized(1, 2, 0, 10, "")
			h.permit(1, 1, 2, 20, 30, 40, 1)
		}},
		{"a slot above a limit that was set meanwhile", "", 0, func(h *hearing) {
			h.resized(1, 2, 0, 30, "")
			h.permit(1, 1, 2, 20, 40, 50, 1)
		}},
		{"a slot below the limit that is being set", "", 0, func(h *hearing) {
			h.resized(1, 2, 0, 10, "")
			h.resized(2, 9, 20, 0, "")
			h.permit(1, 1, 8, 30, 40, 50, 1)
		}},
		{"a slot of a limit that another has followed", "limit", 1, func(h *hearing) {
			h.resized(1, 9, 0, 10, "")
			h.resized(2, 2, 20, 30, "")
			h.permit(1, 1, 8, 40, 50, 60, 1)
		}},
		{"a slot of a limit that failed to be set and may come later", "", 0, func(h *hearing) {
			h.resized(1, 9, 0, 10, "in doubt")
			h.resized(2, 2, 20, 30, "")
			h.permit(1, 1, 8, 40, 50, 60, 1)
		}},
		{"a latch that opens with its last arrival", "", 0, func(h *hearing) {
			for i := range 3 {
				h.round(i, 10*i, "arriving", "", 10*i)
			}
			h.round(0, 21, "opened", "", 0)
		}},
		{"a latch that opens before", "opened early", 1, func(h *hearing) {
			for i := range 3 {
				h.round(i, 10*i, "arriving", "", 10*i)
			}
			h.round(0, 19, "opened", "", 0)
		}},
		{"a latch that is open for one alone", "not open", 1, func(h *hearing) {
			for i := range 3 {
				h.round(i, 10*i, "arriving", "", 10*i)
			}
			h.round(0, 30, "opened", "", 0)
			h.round(1, 3500, "shut", "deadline", 0)
		}},
		{"a slot of a limit that was cleared", "", 0, func(h *hearing) {
			h.resized(1, 2, 0, 10, "")
			h.resized(2, 50, 20, 30, "")
			h.permit(1, 1, 49, 40, 50, 60, 1)
		}},
		{"a latch that is deleted after it has opened", "", 0, func(h *hearing) {
			for i := range 3 {
				h.round(i, 10*i, "arriving", "", 10*i)
			}
			h.round(0, 30, "opened", "", 0)
			h.round(2, 40, "deleting", "", 40)
			h.round(1, 3500, "shut", "deadline", 0)
		}},
		{"a latch that is deleted and opens before its last arrival", "opened early", 1, func(h *hearing) {
			h.round(0, 0, "arriving", "", 0)
			h.round(2, 10, "deleting", "", 10)
			h.round(1, 20, "arriving", "", 20)
			h.round(1, 30, "opened", "", 20)
		}},
		{"a latch that was open for a moment when a waiter left", "", 0, func(h *hearing) {
			for i := range 3 {
				h.round(i, 10*i, "arriving", "", 10*i)
			}
			h.round(0, 3400, "opened", "", 0)
			h.round(1, 3500, "shut", "deadline", 0)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			h.zero -= int64(time.Minute) // it is over
			x.history(h)
			h.limited(judge.Now(), true)
			h.openings(judge.Now(), true)
			h.only(x.kind, x.n)
		})
	}
}

func (h *hearing) observes(ms int, token uint64, value string) {
	e := appEvent{Kind: "observed", Attempt: 99, Token: token, Value: value}
	if value == "" {
		e.Text = "nobody"
	}
	h.tell(0, ms, e)
}

func TestJudgeOfObservers(t *testing.T) {
	for _, x := range []struct {
		name, kind string
		n          int
		history    func(h *hearing)
	}{
		{"leaders one after the other, and one that comes back", "", 0, func(h *hearing) {
			h.observes(10, 4, "a 1")
			h.observes(20, 4, "a 3")
			h.observes(30, 0, "")
			h.observes(40, 4, "a 3")
			h.observes(50, 7, "b 1")
			h.observes(60, 0, "")
			h.observes(70, 8, "c 1")
		}},
		{"a token that falls", "observer", 1, func(h *hearing) {
			h.observes(10, 7, "b 1")
			h.observes(20, 4, "a 9")
		}},
		{"a token that falls, with nobody in between", "observer", 1, func(h *hearing) {
			h.observes(10, 7, "b 1")
			h.observes(20, 0, "")
			h.observes(30, 4, "a 9")
		}},
		{"an older value of one leader", "observer", 1, func(h *hearing) {
			h.observes(10, 7, "b 2")
			h.observes(20, 7, "b 1")
		}},
		{"the same value twice", "observer", 1, func(h *hearing) {
			h.observes(10, 7, "b 2")
			h.observes(20, 7, "b 2")
		}},
		{"nobody twice", "observer", 1, func(h *hearing) {
			h.observes(10, 0, "")
			h.observes(20, 0, "")
		}},
		{"a value that nobody has proclaimed", "observer", 1, func(h *hearing) { h.observes(10, 7, "b") }},
		{"two leaders in one term", "two leaders", 1, func(h *hearing) {
			h.observes(10, 7, "b 1")
			h.observes(20, 7, "c 2")
		}},
		{"a leader that was told of another in its term", "two leaders", 1, func(h *hearing) {
			h.tell(1, 0, appEvent{Kind: "grant", Attempt: 1, Token: 7, Owner: "x", Value: "c", Sort: leaderLock, Until: h.at(1000)})
			h.observes(10, 7, "b 1")
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			x.history(h)
			h.only(x.kind, x.n)
		})
	}
}
