package redlock_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

type guardTold struct {
	mu    sync.Mutex
	steps map[string][]string
	until map[string]time.Time // of the last step
}

func (g *guardTold) Guard(member, step string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.steps == nil {
		g.steps, g.until = map[string][]string{}, map[string]time.Time{}
	}
	g.steps[member] = append(g.steps[member], step)
	g.until[member] = until
}

func (g *guardTold) of(member string) (steps string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	steps = strings.Join(g.steps[member], " ")
	delete(g.steps, member)
	return steps, g.until[member]
}

func linesOf(log *transcript, member, text string) (out []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "member="+member) && strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// A first start says of each member, in one line, why it waits, how long, and what skips
// that; so does the error of who does not wait, and names the members.
func TestFirstStartSaysWhyItWaitsAndWhatSkipsThat(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		var log transcript
		told := &guardTold{}
		began := time.Now()
		p := redlock.Guarded(t, cluster, short, redlock.WithLogger(log.logger()), redlock.WithTracer(told))
		p.Until(t, 4, redlock.MemberQuarantined)
		synctest.Wait()
		err := p.LockFor(t, "k", 100*time.Millisecond)
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		for i, m := range p.Members() {
			lines := linesOf(&log, m.Name, "does not vote")
			require.Len(t, lines, 1, "%s", log.String())
			for _, text := range []string{"used for the first time", "may be one that lost everything", "for=1", "until=", "Config.FreshMembers"} {
				require.Contains(t, lines[0], text)
			}
			require.Contains(t, err.Error(), m.Name+": member is in quarantine until "+m.Until.Format(time.TimeOnly))
			require.WithinDuration(t, began.Add(time.Second), m.Until, 100*time.Millisecond)
			steps, until := told.of(m.Name)
			require.Equal(t, "marked", steps, "member %d", i)
			require.WithinDuration(t, m.Until, until, time.Millisecond)
		}
	})
}

// One line and one event for each step: of the client that marks a member which forgot, of one that finds
// it in quarantine, and when it votes again.
func TestEachStepOfTheGuardIsTold(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		var logs [2]transcript
		var told [2]guardTold
		var all []*redlock.Peer
		for i := range told {
			all = append(all, redlock.Guarded(t, cluster, short, redlock.WithFreshMembers(), redlock.WithLogger(logs[i].logger()), redlock.WithTracer(&told[i])))
			all[i].Voting(t, 5)
		}
		member := all[0].Members()[2].Name
		for i, want := range []string{"marked", ""} {
			steps, _ := told[i].of(member)
			require.Equal(t, want, steps)
		}
		all[1].Links[2].Refuse(true) // the other marks it
		began := time.Now()
		require.NoError(t, cluster.Restart(true, 2))
		all[0].Until(t, 2, redlock.MemberQuarantined)
		all[1].Links[2].Refuse(false)
		all[1].Until(t, 2, redlock.MemberQuarantined)
		for i, want := range []string{"forgot", "quarantined"} {
			synctest.Wait()
			steps, until := told[i].of(member)
			require.Equal(t, want, steps)
			require.WithinDuration(t, began.Add(time.Second), until, 100*time.Millisecond)
		}
		require.Len(t, linesOf(&logs[0], member, "it may have forgotten leases that still run"), 1, "%s", logs[0].String())
		require.Len(t, linesOf(&logs[1], member, "may have forgotten, and does not vote yet"), 1, "%s", logs[1].String())
		all[0].Voting(t, 5)
		all[1].Voting(t, 5)
		synctest.Wait()
		var ends []string
		for i := range told {
			steps, _ := told[i].of(member)
			ends = append(ends, steps)
			want := 0
			if steps == "restored" {
				want = 1
			}
			require.Len(t, linesOf(&logs[i], member, "votes again, its token counters are restored"), want, "%s", logs[i].String())
		}
		require.Contains(t, ends, "restored")
		for _, steps := range ends {
			require.Contains(t, []string{"", "restored"}, steps)
		}
	})
}
