//go:build linux || darwin

package faults

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
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
	last  finding
}

func newHearing(t *testing.T) *hearing {
	h := &hearing{t: t}
	h.appJudge = newAppJudge(3, 3, func(f finding) { h.texts, h.last = append(h.texts, f.text), f })
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

// plays tells events, each of which is parted from the next by a comma: a seat and its attempt, a word, and times in ms.
//
//	0.1 read 7 10-20    has the lock by that sort of asking with token 7, for that time; 10-: it keeps it. One more word: its client may keep it
//	0.1 ends 30         unlocks
//	0.1 turns 2 7 10 a1 has a reader's lease from then on: attempt 2, with that token, for that owner
//	0.1 asks 0 one two  waits for one name, or for a set of them
//	0.1 fails 9 one two has waited for them long enough
//	0.1 keeps two       has that name for all the time
//	0.1 refused 9       is told that its lock is of another kind
//	0 stops 10          its process is stopped, or killed
//	0.1 slot 2 5 10-20 7 has slot 2 of the semaphore that is resized, asked for at 5, with token 7
//	0.1 limits 2 10-20  sets the limit; 10-: the call has not returned. One more word is its error
//	0 arriving 10       at a latch of three arrivals; opened, shut and deleting are told of it, too
//	0.1 leads 7 c       leads with that token and value
//	0 sees 10 7 b 1     observes that leader and its value; 0: nobody
func (h *hearing) plays(history string) {
	names := map[string]string{"one": "app:hot:1", "two": "app:hot:2", "three": "app:hot:3"}
	for event := range strings.SplitSeq(history, ", ") {
		f := strings.Fields(event)
		var seat, from, to int
		var attempt uint64
		_, _ = fmt.Sscanf(f[0], "%d.%d", &seat, &attempt)
		num := func(i int) int { return rt.Must(strconv.Atoi(f[i]))(h.t) }
		span := func(i int) { _, _ = fmt.Sscanf(f[i], "%d-%d", &from, &to) }
		e := appEvent{Attempt: attempt}
		of := func(i int) {
			for _, name := range f[i:] {
				e.Names = append(e.Names, names[name])
			}
		}
		tell := func(ms int, kind string) { e.Kind = kind; h.tell(seat, ms, e) }
		grant := func(ms, until int) { e.Until = h.at(until); tell(ms, "grant") }
		switch word := f[1]; word {
		case "ends":
			h.ends(seat, attempt, num(2))
		case "turns":
			e.Attempt, e.Was, e.Token, e.Owner, e.Sort, e.Shared = uint64(num(2)), attempt, uint64(num(3)), f[5], downgraded, true
			e.Until = h.at(num(4) + 1000)
			tell(num(4), "downgraded")
		case "asks":
			of(3)
			e.Sort = [2]string{writeLock, setOfLocks}[min(len(e.Names)-1, 1)]
			tell(num(2), "ask")
		case "fails":
			of(3)
			e.Sort, e.Error = setOfLocks, "held"
			tell(num(2), "fail")
		case "keeps":
			e.Name, e.Token, e.Owner, e.Sort = names[f[2]], 1, "b1", plainLock
			grant(0, 100_000)
		case "refused":
			e.Sort = writeLock
			tell(0, "ask")
			e.Error = "upgrade"
			tell(num(2), "fail")
		case "stops":
			h.stopped(seat+1, h.at(num(2)))
		case "slot":
			span(4)
			e.Name, e.Names, e.Number, e.Sort = slotName(appResized, num(2)), []string{appResized}, int64(num(2)), permitLock
			e.Token, e.Owner, e.Since = uint64(num(5)), f[0], h.at(num(3))
			grant(from, from+1000)
			e = appEvent{Attempt: attempt, Name: e.Name, Text: "unlock", Until: h.at(to + 1000), Back: h.at(to + 1)}
			tell(to, "end")
		case "limits":
			span(3)
			e.Name, e.Number = appResized, int64(num(2))
			tell(from, "limiting")
			if e.Number, e.Error = 0, strings.Join(f[4:], " "); to > 0 {
				tell(to, "limited")
			}
		case "arriving", "deleting", "opened", "shut":
			e = appEvent{Name: "app:latch:few#1", Number: 3, Since: h.at(0)}
			if word == "arriving" || word == "deleting" {
				e.Since = h.at(num(2))
			} else if word == "shut" {
				e.Error = "deadline"
			}
			tell(num(2), word)
		case "leads":
			e.Token, e.Owner, e.Value, e.Sort = uint64(num(2)), "x", f[3], leaderLock
			grant(0, 1000)
		case "sees":
			e = appEvent{Attempt: 99, Token: uint64(num(3)), Value: strings.Join(f[4:], " ")}
			if e.Value == "" {
				e.Text = "nobody"
			}
			tell(num(2), "observed")
		default:
			require.Contains(h.t, appSorts, word)
			span(3)
			e.Token, e.Owner, e.Sort, e.Shared = uint64(num(2)), string(rune('a'+seat))+string(rune('0'+attempt)), word, word == readLock
			e.Keep = time.Duration(len(f)-4) * time.Second
			if grant(from, from+1000); to > 0 {
				h.ends(seat, attempt, to)
			}
		}
	}
}

func (h *hearing) ends(seat int, attempt uint64, ms int) {
	h.tell(seat, ms, appEvent{Kind: "end", Attempt: attempt, Text: "unlock", Until: h.at(ms + 1000), Back: h.at(ms + 1)})
}

func (h *hearing) only(kind string, n int) {
	h.t.Helper()
	want := map[string]int{}
	if kind != "" {
		want[kind] = n
	}
	require.Equal(h.t, want, h.appJudge.found, "%v", h.texts)
}

// told is a history, and what the judge says of it: a finding of one kind, or none.
type told struct{ name, kind, history string }

func judged(t *testing.T, all []told, end func(h *hearing)) {
	t.Helper()
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			if end != nil {
				h.zero -= int64(time.Minute) // it is over
			}
			h.plays(x.history)
			if end != nil {
				end(h)
			}
			h.only(x.kind, 1)
			if x.kind == "two holders" && end == nil {
				t.Setenv("REDQUORUM_APP_OUT", t.TempDir())
				_, page, _ := strings.Cut(h.last.String(), "look at file://")
				require.Contains(t, string(rt.Must(os.ReadFile(page))(t)), ">Two at once: ", "both are drawn")
			}
		})
	}
}

// The rules for holds and tokens have tests in internal/judge: here is that they are told to it.
func TestJudgeOfReadersAndWriters(t *testing.T) {
	judged(t, []told{
		{"readers together, writers before and after", "",
			"0.1 write 1 0-10, 1.1 read 3 20-60, 2.1 read 2 30-50, 2.2 read 3 55-70, 0.2 plain 4 80-90"},
		{"a writer beside a reader", "two holders", "0.1 read 1 0-, 1.1 write 2 10-20, 0.1 ends 30"},
		{"a reader with the token of the writer before", "tokens", "0.1 fair 5 0-10, 1.1 read 5 20-30"},
		{"downgraded, with another reader, and a writer after both", "",
			"0.1 write 1 0-, 0.1 turns 2 1 10 a1, 1.1 read 2 15-30, 0.2 ends 20, 2.1 write 3 40-50"},
		{"a writer while a downgrade is under way", "two holders",
			"0.1 write 1 0-, 2.1 write 3 12-14, 0.1 turns 2 1 10 a1, 0.2 ends 20"},
		{"a reader while the writer has not ended", "two holders",
			"0.1 write 1 0-, 1.1 read 2 5-30, 0.1 turns 2 1 10 a1, 0.2 ends 20"},
		{"a downgrade with another token", "downgrade", "0.1 write 1 0-, 0.1 turns 2 2 10 a1"},
		{"a downgrade with another owner", "downgrade", "0.1 write 1 0-, 0.1 turns 2 1 10 a2"},
		{"a Lock that another kind refuses", "error", "0.1 refused 1"},
		{"a reader that is killed while it holds", "", "0.1 read 1 0-, 0 stops 10, 1.1 write 2 20-30"},
	}, nil)
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
	for _, x := range []struct {
		name, history string
		late          int // when the judge looks, ms
		gaps          int
	}{
		{"a writer waits for a name that is free", "0.1 asks 0 one", 1600, 1},
		{"not yet for long", "0.1 asks 0 one", 1400, 0},
		{"it waits for a reader", "1.1 read 1 0-, 0.1 asks 0 one", 9000, 0},
		{"it waits for what a dead reader has left", "1.1 read 1 0-, 1 stops 0, 0.1 asks 0 one", 2400, 0},
		{"it waits for longer", "1.1 read 1 0-, 1 stops 0, 0.1 asks 0 one", 2700, 1},
		{"a reader leaves that was there beside a dead one: no more is left of that",
			"1.1 read 1 0-, 1 stops 0, 2.1 read 1 0-800, 0.1 asks 0 one", 2700, 1},
		{"a reader leaves after the end of a dead one: nothing is left",
			"1.1 read 1 0-, 1 stops 0, 2.1 read 1 0-2000, 0.1 asks 0 one", 3600, 1},
		{"and it takes a heartbeat until the writer has it",
			"1.1 read 1 0-, 1 stops 0, 2.1 read 1 0-2000, 0.1 asks 0 one", 3400, 0},
		{"a reader dies beside one that left: its own end counts",
			"1.1 read 1 0-500, 2.1 read 1 0-, 2 stops 1000, 0.1 asks 0 one", 2400, 0},
		{"it waits for what a client kept that died", "1.1 plain 1 0-1 kept, 1 stops 0, 0.1 asks 0 one", 2400, 0},
		{"and for longer", "1.1 plain 1 0-1 kept, 1 stops 0, 0.1 asks 0 one", 2700, 1},
		{"a client that lives gives up what it kept", "1.1 plain 1 0-1 kept, 0.1 asks 2 one", 1600, 1},
		{"a set waits for free names", "0.1 asks 0 two one", 2600, 1},
		{"it may need two heartbeats", "0.1 asks 0 two one", 2400, 0},
		{"it has the first in hand, and waits for the second", "1.1 keeps two, 0.1 asks 0 two one, 2.1 asks 0 one", 9000, 0},
		{"the third is held, for which a set waits that has the second",
			"1.1 keeps three, 1.2 asks 0 two three, 0.1 asks 0 two one, 2.1 asks 0 one", 9000, 0},
		{"what is held comes before the names of the set", "1.1 keeps one, 0.1 asks 0 two three", 2600, 1},
		{"two sets wait for each other", "0.1 asks 0 one two, 1.1 asks 0 two one", 2600, 1},
		{"a set had the name in hand, and gave it back", "0.1 asks 0 one, 1.1 asks 0 one two, 1.1 fails 2000 one two", 3400, 0},
		{"and nobody takes it then", "0.1 asks 0 one, 1.1 asks 0 one two, 1.1 fails 2000 one two", 3600, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := newHearing(t)
			h.plays(x.history)
			h.gap("app:hot:1", h.at(x.late))
			if x.gaps == 0 {
				h.only("", 0)
				return
			}
			h.gap("app:hot:2", h.at(x.late))
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

func TestJudgeOfPermitsAndLatches(t *testing.T) {
	const all = "0 arriving 0, 1 arriving 10, 2 arriving 20, "
	judged(t, []told{
		{"two slots at the same time, and one slot twice in turn", "", "0.1 slot 0 0 10-50 1, 1.1 slot 1 0 10-50 1, 2.1 slot 0 0 60-70 2"},
		{"two holders of a slot", "two holders", "0.1 slot 3 0 10-50 1, 1.1 slot 3 0 40-60 2"},
		{"a token of a slot falls", "tokens", "0.1 slot 3 0 10-50 2, 1.1 slot 3 0 60-70 1"},
		{"a slot above the limit of the caller", "limit", "0.1 slot 50 0 10-20 1"},
		{"a slot above the limit that was set before", "limit", "0.1 limits 2 0-10, 1.1 slot 2 20 30-40 1"},
		{"a slot above a limit that was set meanwhile", "", "0.1 limits 2 0-30, 1.1 slot 2 20 40-50 1"},
		{"a slot below the limit that is being set", "", "0.1 limits 2 0-10, 0.2 limits 9 20-, 1.1 slot 8 30 40-50 1"},
		{"a slot of a limit that another has followed", "limit", "0.1 limits 9 0-10, 0.2 limits 2 20-30, 1.1 slot 8 40 50-60 1"},
		{"a slot of a limit that failed to be set and may come later", "",
			"0.1 limits 9 0-10 in doubt, 0.2 limits 2 20-30, 1.1 slot 8 40 50-60 1"},
		{"a latch that opens with its last arrival", "", all + "0 opened 21"},
		{"a latch that opens before", "opened early", all + "0 opened 19"},
		{"a latch that is open for one alone", "not open", all + "0 opened 30, 1 shut 3500"},
		{"a slot of a limit that was cleared", "", "0.1 limits 2 0-10, 0.2 limits 50 20-30, 1.1 slot 49 40 50-60 1"},
		{"a latch that is deleted after it has opened", "", all + "0 opened 30, 2 deleting 40, 1 shut 3500"},
		{"a latch that is deleted and opens before its last arrival", "opened early",
			"0 arriving 0, 2 deleting 10, 1 arriving 20, 1 opened 30"},
		{"a latch that was open for a moment when a waiter left", "", all + "0 opened 3400, 1 shut 3500"},
	}, func(h *hearing) {
		h.limited(judge.Now(), true)
		h.openings(judge.Now(), true)
	})
}

func TestJudgeOfObservers(t *testing.T) {
	judged(t, []told{
		{"leaders one after the other, and one that comes back", "",
			"0 sees 10 4 a 1, 0 sees 20 4 a 3, 0 sees 30 0, 0 sees 40 4 a 3, 0 sees 50 7 b 1, 0 sees 60 0, 0 sees 70 8 c 1"},
		{"a token that falls", "observer", "0 sees 10 7 b 1, 0 sees 20 4 a 9"},
		{"a token that falls, with nobody in between", "observer", "0 sees 10 7 b 1, 0 sees 20 0, 0 sees 30 4 a 9"},
		{"an older value of one leader", "observer", "0 sees 10 7 b 2, 0 sees 20 7 b 1"},
		{"the same value twice", "observer", "0 sees 10 7 b 2, 0 sees 20 7 b 2"},
		{"nobody twice", "observer", "0 sees 10 0, 0 sees 20 0"},
		{"a value that nobody has proclaimed", "observer", "0 sees 10 7 b"},
		{"two leaders in one term", "two leaders", "0 sees 10 7 b 1, 0 sees 20 7 c 2"},
		{"a leader that was told of another in its term", "two leaders", "1.1 leads 7 c, 0 sees 10 7 b 1"},
	}, nil)
}
