package child

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStopperFollowsThePlan(t *testing.T) {
	t.Parallel()
	now := time.Now()
	plan := Plan{KillAfter: 3 * time.Second, Margin: 200 * time.Millisecond}
	for _, tc := range []struct {
		left   time.Duration
		over   bool
		action Action
		wait   time.Duration
	}{
		{left: 10 * time.Second, action: Run, wait: time.Second}, // never longer: timers are late after a suspend
		{left: 3500 * time.Millisecond, action: Run, wait: 500 * time.Millisecond},
		{left: 3 * time.Second, action: Terminate, wait: 2800 * time.Millisecond},
		{left: time.Second, action: Terminate, wait: 800 * time.Millisecond},
		{left: 200 * time.Millisecond, action: Kill},
		{left: 0, action: Kill},
		{left: -time.Hour, action: Kill},
		{left: 10 * time.Second, over: true, action: Kill}, // refused by a majority: another may hold it
	} {
		s := Stopper{Plan: plan}
		if action, wait := s.Look(now, now.Add(tc.left), tc.over); action != tc.action || wait != tc.wait {
			t.Errorf("%v left, over %v: action %d in %v, want %d in %v", tc.left, tc.over, action, wait, tc.action, tc.wait)
		}
	}
}

// Whoever looks when it is told to has asked the command to end KillAfter before the validity ends, and
// killed it Margin before: whatever renewals came in between, and however late the timers are by up to
// the margin.
func TestStopperKillsBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for ttl := 20 * time.Millisecond; ttl < time.Hour; ttl = ttl * 3 / 2 {
		plan := DefaultPlan(ttl)
		require.False(t, plan.KillAfter > ttl/3 || plan.Margin <= 0 || plan.Margin >= plan.KillAfter, "ttl %v: %+v", ttl, plan)
		for renewals := range 4 {
			s := Stopper{Plan: plan}
			start := time.Now()
			now, until := start, start.Add(ttl)
			var asked, killed time.Time
			for steps := 0; killed.IsZero(); steps++ {
				require.True(t, steps <= 10000, "ttl %v: never killed", ttl)
				action, wait := s.Look(now, until, false)
				switch action {
				case Terminate:
					if asked.IsZero() {
						asked = now
					}
				case Kill:
					killed = now
				}
				now = now.Add(wait + plan.Margin/2) // a late timer
				if renewals > 0 && action == Run {
					until, renewals = now.Add(ttl), renewals-1
				}
			}
			assert.True(t, killed.Before(until), "ttl %v: killed %v after the validity", ttl, killed.Sub(until))
			assert.False(t, asked.IsZero() || killed.Sub(asked) < plan.KillAfter/4,
				"ttl %v: asked at %v, killed at %v: no time to end in", ttl, asked.Sub(start), killed.Sub(start))
		}
	}
}

// A renewal that comes after the command was asked to end gives it no more time.
func TestStopperIsNotTalkedOutOfIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := Stopper{Plan: PlanFor(time.Second)}
	until := now.Add(time.Second)
	if action, _ := s.Look(now, until, false); action != Terminate {
		t.Fatalf("action %d", action)
	}
	if action, _ := s.Look(now.Add(400*time.Millisecond), until.Add(time.Hour), false); action != Terminate {
		t.Errorf("renewed too late: action %d", action)
	}
	if action, _ := s.Look(now.Add(800*time.Millisecond), until.Add(time.Hour), false); action != Kill {
		t.Errorf("renewed too late, at the end: action %d", action)
	}
	// An end that moves nearer counts.
	s = Stopper{Plan: PlanFor(time.Second)}
	s.Look(now, until, false)
	if action, _ := s.Look(now.Add(10*time.Millisecond), now.Add(100*time.Millisecond), false); action != Kill {
		t.Errorf("shortened: action %d", action)
	}
}
