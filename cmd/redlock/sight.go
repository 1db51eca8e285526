package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// sight is what the members know of a name: the lock, and the semaphore and the latch of that name.
type sight struct {
	lock      *redlock.Inspection
	leads     *string
	semaphore *redlock.Inspection // nil: it cannot be asked for
	latch     *redlock.Inspection // nil: it cannot be asked for
}

// look asks for all of a name at once. Redisson has neither our semaphores nor our latches.
func (c *connection) look(ctx context.Context, name string) (*sight, error) {
	var s sight
	var wg sync.WaitGroup
	if !c.set.Interop {
		wg.Go(func() {
			if in, err := c.InspectSemaphore(ctx, name); err == nil {
				s.semaphore = in
			}
		})
		wg.Go(func() {
			if in, err := c.InspectLatch(ctx, name); err == nil {
				s.latch = in
			}
		})
	}
	in, err := c.Inspect(ctx, name)
	if err == nil {
		s.lock, s.leads = in, c.leads(ctx, in)
	}
	wg.Wait()
	return &s, err
}

// slots reports whether a member knows anything of the semaphore.
func (s *sight) slots() bool { return s.semaphore != nil && permitsKnown(s.semaphore) }

func permitsKnown(in *redlock.Inspection) bool {
	for _, v := range in.Members {
		if v.Limit >= 0 || len(v.Votes) > 0 || len(v.Queue) > 0 {
			return true
		}
	}
	return false
}

// arrivals reports whether a member has the latch.
func (s *sight) arrivals() bool { return s.latch != nil && s.latch.Latch != nil }

// idle reports whether nobody holds the lock or waits for it, as far as enough members know.
func (s *sight) idle() bool {
	for _, v := range s.lock.Members {
		if len(v.Votes) > 0 || len(v.Queue) > 0 {
			return false
		}
	}
	return answered(s.lock) == nil
}

// free reports whether nobody holds the lock, or a slot of the semaphore. Members that refuse to tell
// of a semaphore have none that this user can hold.
func (s *sight) free() bool {
	if len(s.lock.Holders) > 0 || answered(s.lock) != nil {
		return false
	}
	if s.semaphore == nil {
		return true
	}
	var silent []error
	for _, err := range permitErrors(s.semaphore) {
		if errors.As(err, new(*member.ReplyError)) {
			err = nil
		}
		silent = append(silent, err)
	}
	return heldSlots(s.semaphore) == 0 && tooFew(silent) == nil
}

func (s *sight) json() inspectionJSON {
	out := toJSON(s.lock, s.leads)
	if s.slots() {
		in := semaphoreToJSON(s.semaphore)
		out.Semaphore = &in
	}
	if s.arrivals() {
		in := latchToJSON(s.latch)
		out.Latch = &in
	}
	return out
}

func (s *sight) print(w io.Writer) error {
	if !s.idle() || !s.slots() && !s.arrivals() {
		printInspection(w, s.lock, s.leads)
	}
	if s.slots() {
		if err := printSemaphore(w, s.semaphore); err != nil {
			return err
		}
	}
	if s.arrivals() {
		_, err := fmt.Fprintln(w, latchLine(s.latch))
		if err != nil {
			return err
		}
		printLatchMembers(w, s.latch)
	}
	return nil
}

func latchLine(in *redlock.Inspection) string {
	return printable.Quote(in.Key) + ": latch, " + latchState(in)
}

// sightLines are what watch has printed last, of the lock, the semaphore and the latch; "": nothing.
type sightLines struct{ lock, semaphore, latch string }

// changed returns the lines of what has changed. What was shown once is shown when it ends, too.
func (l *sightLines) changed(s *sight) (lines []string) {
	say := func(last *string, shows bool, now, line string) {
		if (shows || *last != "") && now != *last {
			*last = now
			lines = append(lines, line)
		}
	}
	line, others := watchLine(s.lock, s.leads), s.slots() || s.arrivals() || l.semaphore != "" || l.latch != ""
	say(&l.lock, !s.idle() || !others, line, line)
	if s.semaphore != nil {
		line, all := permitsLine(s.semaphore)
		say(&l.semaphore, s.slots(), all, line)
	}
	if s.latch != nil {
		line := latchLine(s.latch)
		say(&l.latch, s.arrivals(), line, line)
	}
	return lines
}

// permitsLine is what watch prints of a semaphore: of more than three holders how many they are. all
// is what it compares.
func permitsLine(in *redlock.Inspection) (line, all string) {
	var by []string
	for _, h := range in.Holders {
		var slots []string
		for _, s := range h.Slots {
			slots = append(slots, fmt.Sprintf("%d token %d", s.Number, s.Token))
		}
		by = append(by, fmt.Sprintf("%s: slot %s", h.Owner, strings.Join(slots, ", ")))
	}
	waiters, silent := make(map[string]bool), 0
	for _, v := range in.Members {
		if v.Err != nil {
			silent++
		}
		for _, q := range v.Queue {
			if q.Live {
				waiters[q.Owner] = true
			}
		}
	}
	end := fmt.Sprintf(", %d waiting", len(waiters))
	if silent > 0 {
		end += fmt.Sprintf(", %d members silent", silent)
	}
	line, all = permitHeadline(in), strings.Join(by, "; ")
	if len(by) > 0 && len(by) <= 3 {
		return line + " (" + all + ")" + end, line + all + end
	}
	return line + end, line + all + end
}
