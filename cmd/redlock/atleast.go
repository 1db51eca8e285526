package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/redlock"
)

// least is the shortest time that run holds its locks for.
type least struct {
	time.Duration           // 0: none
	from          time.Time // when they were obtained
}

func (l least) left() time.Duration { return l.Duration - time.Since(l.from) }

// within explains why a lock cannot be held for so long.
func (w *waiting) within(atLeast time.Duration, s *settings.Settings) error {
	switch {
	case atLeast < 0:
		return usage("--at-least is %v, must not be negative", atLeast)
	case atLeast == 0:
		return nil
	case w.shared || w.elect != nil:
		return usage("--at-least excludes --shared and --elect: it keeps others from the same job, and readers and candidates want their turn")
	case s.MaxHold > 0 && atLeast > s.MaxHold:
		return usage("--at-least is %v, must not be more than --max-hold (%v)", atLeast, s.MaxHold)
	}
	return nil
}

// linger holds a section whose command has ended until l has passed, or the section is lost. It
// returns true if a signal wants it to end before: told says that one has come already.
func linger(l least, held child.Lease, told bool, signals <-chan os.Signal, log *slog.Logger) (leave bool) {
	left := l.left()
	if left <= 0 || told {
		return left > 0
	}
	log.Info("the command has ended: holding the lock on", "for", left.Round(time.Millisecond))
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return false
		case <-held.Done():
			log.Warn("the lock was lost before --at-least had passed: another may run the same job", "error", held.Err())
			return false
		case s := <-signals:
			if child.Ends(s) {
				return true
			}
		}
	}
}

// leave ends our part in a section without releasing it: its locks free themselves when l has
// passed. The members keep a lock for --max-ttl at most.
func (l least) leave(held section, leases []*redlock.Lease, s *settings.Settings, log *slog.Logger) {
	left := max(time.Millisecond, l.left())
	ttl := min(left+clock.Drift(left, s.Drift), s.MaxTTL)
	errs := []error{held.Extend(context.Background(), max(ttl, shortest))}
	for _, lease := range leases {
		_, err := lease.Handoff()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("the lock may be free before --at-least has passed", "error", err)
		return
	}
	log.Info("the lock is left to end by itself", "after", ttl.Round(time.Millisecond))
}

// shortest is the shortest lease that leave asks for. Shorter ones have no validity.
const shortest = 10 * time.Millisecond
