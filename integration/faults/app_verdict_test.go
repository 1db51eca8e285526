//go:build linux || darwin

package faults

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/timeline"
	"github.com/redquorum/redquorum/slot"
)

// What the judge of the random application says of short histories, each of which breaks one rule,
// or none.

// hearing is a judge of three members, to which three seats tell events. Seat i belongs to process
// i+1, and is well.
type hearing struct {
	*appJudge
	t     *testing.T
	zero  int64 // the times of told events count from there
	texts []string
	page  *timeline.Log // of the last one
}

func newHearing(t *testing.T) *hearing {
	h := &hearing{t: t}
	h.appJudge = newAppJudge(3, 3, func(f finding) { h.texts, h.page = append(h.texts, f.text), f.page })
	h.zero = h.began
	for seat := range h.seats {
		h.fresh(seat+1, []int{seat})
		h.hear(seat+1, appEvent{Kind: "votes", Seat: seat, Votes: 7, At: h.zero - int64(time.Hour)})
		h.hear(seat+1, appEvent{Kind: "open", Seat: seat, Client: 1, At: h.zero - int64(time.Hour)})
	}
	return h
}

func (h *hearing) at(ms int) int64 { return h.zero + int64(ms)*int64(time.Millisecond) }

// tell tells an event of a seat, with what all events have.
func (h *hearing) tell(seat, ms int, e appEvent) {
	e.Seat, e.At = seat, h.at(ms)
	if e.Name == "" && e.Names == nil {
		e.Name = "app:hot:1"
	}
	if e.TTL == 0 {
		e.TTL = time.Second
	}
	if e.Kind == "ask" {
		e.Entry = 3 * time.Second
	}
	h.hear(seat+1, e)
}

func (h *hearing) holds(seat int, attempt, token uint64, from, to int, sort string) {
	owner := string(rune('a'+seat)) + string(rune('0'+attempt))
	h.tell(seat, from, appEvent{
		Kind: "grant", Attempt: attempt, Token: token, Owner: owner, Sort: sort, Shared: sort == readLock,
		Until: h.at(from + 1000),
	})
	if to > 0 {
		h.ends(seat, attempt, to)
	}
}

func (h *hearing) ends(seat int, attempt uint64, ms int) {
	h.tell(seat, ms, appEvent{Kind: "end", Attempt: attempt, Text: "unlock", Until: h.at(ms + 1000), Back: h.at(ms + 1)})
}

func (h *hearing) becomesReader(seat int, was, attempt, token uint64, ms int, owner string) {
	h.tell(seat, ms, appEvent{
		Kind: "downgraded", Attempt: attempt, Was: was, Token: token, Owner: owner, Sort: downgraded, Shared: true,
		Until: h.at(ms + 1000),
	})
}

func (h *hearing) only(kind string, n int) {
	h.t.Helper()
	want := map[string]int{}
	if kind != "" {
		want[kind] = n
	}
	require.Equal(h.t, want, h.appJudge.found, "%v", h.texts)
}

// The rules for holds and tokens have tests in internal/judge: here is that they are told to it.
func TestJudgeOfReadersAndWriters(t *testing.T) {
	for _, x := range []struct {
		name, kind string
		n          int
		history    func(h *hearing)
	}{
		{"readers together, writers before and after", "", 0, func(h *hearing) {
			h.holds(0, 1, 1, 0, 10, writeLock)
			h.holds(1, 1, 3, 20, 60, readLock)
			h.holds(2, 1, 2, 30, 50, readLock)
			h.holds(2, 2, 3, 55, 70, readLock)
			h.holds(0, 2, 4, 80, 90, plainLock)
		}},
		{"a writer beside a reader", "two holders", 1, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, readLock)
			h.holds(1, 1, 2, 10, 20, writeLock)
			h.ends(0, 1, 30)
		}},
		{"a reader with the token of the writer before", "tokens", 1, func(h *hearing) {
			h.holds(0, 1, 5, 0, 10, fairLock)
			h.holds(1, 1, 5, 20, 30, readLock)
		}},
		{"downgraded, with another reader, and a writer after both", "", 0, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, writeLock)
			h.becomesReader(0, 1, 2, 1, 10, "a1")
			h.holds(1, 1, 2, 15, 30, readLock)
			h.ends(0, 2, 20)
			h.holds(2, 1, 3, 40, 50, writeLock)
		}},
		{"a writer while a downgrade is under way", "two holders", 1, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, writeLock)
			h.holds(2, 1, 3, 12, 14, writeLock)
			h.becomesReader(0, 1, 2, 1, 10, "a1")
			h.ends(0, 2, 20)
		}},
		{"a reader while the writer has not ended", "two holders", 1, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, writeLock)
			h.holds(1, 1, 2, 5, 30, readLock)
			h.becomesReader(0, 1, 2, 1, 10, "a1")
			h.ends(0, 2, 20)
		}},
		{"a downgrade with another token", "downgrade", 1, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, writeLock)
			h.becomesReader(0, 1, 2, 2, 10, "a1")
		}},
		{"a downgrade with another owner", "downgrade", 1, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, writeLock)
			h.becomesReader(0, 1, 2, 1, 10, "a2")
		}},
		{"a Lock that another kind refuses", "error", 1, func(h *hearing) {
			h.tell(0, 0, appEvent{Kind: "ask", Attempt: 1, Sort: writeLock})
			h.tell(0, 1, appEvent{Kind: "fail", Attempt: 1, Sort: writeLock, Error: "upgrade"})
		}},
		{"a reader that is killed while it holds", "", 0, func(h *hearing) {
			h.holds(0, 1, 1, 0, 0, readLock)
			h.stopped(1, h.at(10))
			h.holds(1, 1, 2, 20, 30, writeLock)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			x.history(h)
			h.only(x.kind, x.n)
			if x.kind == "two holders" {
				require.Len(t, h.page.CloseUps, 1, "both are drawn")
			}
		})
	}
}

func (h *hearing) lost(seat, from, to int, fixed bool) {
	h.tell(seat, from, appEvent{Kind: "grant", Client: 1, Attempt: 1, Token: 1, Owner: "a", Sort: plainLock, Until: h.at(from + 1000)})
	h.tell(seat, to, appEvent{Kind: "end", Client: 1, Attempt: 1, Text: "lost", Fixed: fixed, Until: h.at(to), Back: h.at(to + 1)})
}

func (h *hearing) refusing(x appRefusal, members ...int) {
	for _, m := range members {
		h.server(m, true)
	}
	h.refuses(members, x)
}

// failed tells of a call that failed while members refuse, and of what it said of them.
func (h *hearing) failed(from, to int, said ...string) {
	h.tell(0, from, appEvent{Kind: "ask", Attempt: 1, Sort: plainLock})
	h.tell(0, to, appEvent{Kind: "fail", Attempt: 1, Sort: plainLock, Error: "no quorum", Said: said})
}

func TestJudgeOfRefusals(t *testing.T) {
	full, busy := appRefusals[0], appRefusals[len(appRefusals)-1]
	for _, x := range []struct {
		name, kind string
		n          int
		history    func(h *hearing)
	}{
		{"lost while all are well", "not kept", 1, func(h *hearing) { h.lost(0, -3000, 10, false) }},
		{"a fixed lease ends", "", 0, func(h *hearing) { h.lost(0, -3000, 10, true) }},
		{"lost at its first renewal", "", 0, func(h *hearing) { h.lost(0, -300, 10, false) }},
		{"lost while one is busy", "not kept", 1, func(h *hearing) { h.refusing(busy, 1); h.lost(0, -3000, 10, false) }},
		{"lost while two are busy", "", 0, func(h *hearing) { h.refusing(busy, 1, 2); h.lost(0, -3000, 10, false) }},
		{"lost while all are full", "not kept", 1, func(h *hearing) { h.refusing(full, 0, 1, 2); h.lost(0, -3000, 10, false) }},
		{"lost while two are full, and one is cut off", "", 0, func(h *hearing) {
			h.path(0, 0, true)
			h.refusing(full, 1, 2)
			h.lost(0, -3000, 10, false)
		}},
		{"a release that a full member refused", "not kept", 1, func(h *hearing) {
			h.tell(0, 0, appEvent{Kind: "refused", Number: 1, Text: "OOM", Token: 1, Said: []string{"release x"}})
		}},
		{"its own word", "", 0, func(h *hearing) { h.refusing(busy, 1, 2); h.failed(300, 700, "", "BUSY", "BUSY") }},
		{"another word", "words", 1, func(h *hearing) { h.refusing(busy, 1, 2); h.failed(300, 700, "", "BUSY", "open") }},
		{"another word, soon", "", 0, func(h *hearing) { h.refusing(busy, 1, 2); h.failed(300, 400, "", "BUSY", "open") }},
		{"a lease that is adopted once", "", 0, func(h *hearing) { h.adopted(1) }},
		{"a lease that is adopted twice", "tokens", 2, func(h *hearing) { h.adopted(2) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			x.history(h)
			h.only(x.kind, x.n)
		})
	}
}

func (h *hearing) adopted(n int) {
	h.tell(0, 0, appEvent{Kind: "grant", Attempt: 1, Token: 1, Owner: "a", Sort: plainLock, Until: h.at(1000)})
	h.tell(0, 10, appEvent{Kind: "end", Attempt: 1, Text: "handoff", Until: h.at(1000), Back: h.at(11)})
	for i := range n {
		h.tell(1, 20+20*i, appEvent{Kind: "grant", Attempt: uint64(1 + i), Token: 1, Owner: string(rune('b' + i)), Sort: plainLock, Text: "adopted", Until: h.at(1000)})
		h.ends(1, uint64(1+i), 30+20*i)
	}
}

// A writer that waits for readers, a set that has names in hand, and a circle of sets that wait for
// each other.
func TestJudgeOfThoseWhoWait(t *testing.T) {
	ask := func(h *hearing, seat int, attempt uint64, ms int, names ...string) {
		sort := setOfLocks
		if len(names) == 1 {
			sort = writeLock
		}
		h.tell(seat, ms, appEvent{Kind: "ask", Attempt: attempt, Sort: sort, Names: names})
	}
	one, two, three := "app:hot:1", "app:hot:2", "app:hot:3"
	for _, x := range []struct {
		name    string
		history func(h *hearing)
		late    int // when the judge looks, ms
		gaps    int
	}{
		{"a writer waits for a name that is free", func(h *hearing) { ask(h, 0, 1, 0, one) }, 1600, 1},
		{"not yet for long", func(h *hearing) { ask(h, 0, 1, 0, one) }, 1400, 0},
		{"it waits for a reader", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			ask(h, 0, 1, 0, one)
		}, 9000, 0},
		{"it waits for what a dead reader has left", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			h.stopped(2, h.at(0))
			ask(h, 0, 1, 0, one)
		}, 2400, 0},
		{"it waits for longer", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			h.stopped(2, h.at(0))
			ask(h, 0, 1, 0, one)
		}, 2700, 1},
		{"a reader leaves that was there beside a dead one: no more is left of that", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			h.stopped(2, h.at(0))
			h.holds(2, 1, 1, 0, 800, readLock)
			ask(h, 0, 1, 0, one)
		}, 2700, 1},
		{"a reader leaves after the end of a dead one: nothing is left", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			h.stopped(2, h.at(0))
			h.holds(2, 1, 1, 0, 2000, readLock)
			ask(h, 0, 1, 0, one)
		}, 3600, 1},
		{"and it takes a heartbeat until the writer has it", func(h *hearing) {
			h.holds(1, 1, 1, 0, 0, readLock)
			h.stopped(2, h.at(0))
			h.holds(2, 1, 1, 0, 2000, readLock)
			ask(h, 0, 1, 0, one)
		}, 3400, 0},
		{"a reader dies beside one that left: its own end counts", func(h *hearing) {
			h.holds(1, 1, 1, 0, 500, readLock)
			h.holds(2, 1, 1, 0, 0, readLock)
			h.stopped(3, h.at(1000))
			ask(h, 0, 1, 0, one)
		}, 2400, 0},
		{"a set waits for free names", func(h *hearing) { ask(h, 0, 1, 0, two, one) }, 2600, 1},
		{"it may need two heartbeats", func(h *hearing) { ask(h, 0, 1, 0, two, one) }, 2400, 0},
		{"it has the first in hand, and waits for the second", func(h *hearing) {
			h.tell(1, 0, appEvent{Kind: "grant", Name: two, Attempt: 1, Token: 1, Owner: "b1", Sort: plainLock, Until: h.at(100_000)})
			ask(h, 0, 1, 0, two, one)
			ask(h, 2, 1, 0, one)
		}, 9000, 0},
		{"the third is held, for which a set waits that has the second", func(h *hearing) {
			h.tell(1, 0, appEvent{Kind: "grant", Name: three, Attempt: 1, Token: 1, Owner: "b1", Sort: plainLock, Until: h.at(100_000)})
			ask(h, 1, 2, 0, two, three)
			ask(h, 0, 1, 0, two, one)
			ask(h, 2, 1, 0, one)
		}, 9000, 0},
		{"what is held comes before the names of the set", func(h *hearing) {
			h.tell(1, 0, appEvent{Kind: "grant", Attempt: 1, Token: 1, Owner: "b1", Sort: plainLock, Until: h.at(100_000)})
			ask(h, 0, 1, 0, two, three)
		}, 2600, 1},
		{"two sets wait for each other", func(h *hearing) {
			ask(h, 0, 1, 0, one, two)
			ask(h, 1, 1, 0, two, one)
		}, 2600, 1},
		{"a set had the name in hand, and gave it back", func(h *hearing) {
			ask(h, 0, 1, 0, one)
			ask(h, 1, 1, 0, one, two)
			h.tell(1, 2000, appEvent{Kind: "fail", Attempt: 1, Sort: setOfLocks, Names: []string{one, two}, Error: "held"})
		}, 3400, 0},
		{"and nobody takes it then", func(h *hearing) {
			ask(h, 0, 1, 0, one)
			ask(h, 1, 1, 0, one, two)
			h.tell(1, 2000, appEvent{Kind: "fail", Attempt: 1, Sort: setOfLocks, Names: []string{one, two}, Error: "held"})
		}, 3600, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			x.history(h)
			h.gap(one, h.at(x.late))
			if x.gaps == 0 {
				h.only("", 0)
				return
			}
			h.gap(two, h.at(x.late))
			h.only("gap", x.gaps)
		})
	}
}

// What a reader, or a downgraded lease, leaves at a member is found there; what has run out is not.
func TestJudgeFindsWhatReadersLeave(t *testing.T) {
	cluster := rt.Real(t, 1)
	h := newHearing(t)
	r := &appRun{t: t, cluster: cluster, j: h.appJudge}
	do := func(args ...string) {
		require.NoError(t, rt.Err(cluster.Servers[0].Do(t.Context(), args...)))
	}
	name := appHot[0]
	const soon, far, gone = "4000000000000", "4000000050000", "1000"
	do("HSET", name, "r", "7 7 marking", "uuid-1:1", far, "uuid-1:2", gone, "uuid-2:1", soon)
	do("PEXPIRE", name, "60000")
	do("HSET", slot.Sibling("redquorum:w", name), "uuid-1:3", far+" 1000 r", "uuid-1:4", gone+" 1000 r", "#", "17")
	left := rt.Must(r.left(context.Background(), 0, "uuid-1"))(t)
	require.Len(t, left, 2, "%v", left)
	require.Contains(t, left[0], "vote of attempt 1 ")
	require.Contains(t, left[1], "entry of attempt 3 ")

	token, until, err := r.votes(t.Context(), 0, name, hashOf("uuid-1:1"))
	require.NoError(t, err)
	require.Zero(t, token, "a reader's token is not its own")
	require.Positive(t, until)
	_, until, err = r.votes(t.Context(), 0, name, hashOf("uuid-1:2"))
	require.NoError(t, err)
	require.LessOrEqual(t, until, time.Duration(0), "its time is over, though the key lives")
	do("DEL", name)
	do("HSET", name, "uuid-1:1", "7")
	do("PEXPIRE", name, "60000")
	token, until, err = r.votes(t.Context(), 0, name, hashOf("uuid-1:1"))
	require.NoError(t, err)
	require.EqualValues(t, 7, token)
	require.Greater(t, until, 50*time.Second)
}

func hashOf(owner string) string {
	sum := sha1.Sum([]byte(owner))
	return hex.EncodeToString(sum[:])[:6]
}

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
