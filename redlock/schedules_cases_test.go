package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// schedCase is a guard and the schedule that breaks its promise without it.
type schedCase struct {
	name   string
	rules  schedRules // the guard taken out
	bounds schedBounds
	begin  string // the search for the shortest schedule starts behind this one
	wrong  string // what goes wrong then
	found  string // the schedule that the search has found: played in every run
}

var schedCases = []schedCase{
	{
		name: "fewer than a majority decide: two holders", rules: schedRules{need: 1}, wrong: "two holders",
		bounds: schedBounds{prompt: true},
		found:  "sA xA0 sB xB1",
	},
	{
		name: "the maximum of the tokens without a second round: falling token", rules: schedRules{noRaise: true}, wrong: "not above",
		bounds: schedBounds{prompt: true, counters: [3]int64{5, 3, 4}},
		found:  "sA xA0 xA1 uA xA1 sB xB1 xB2",
	},
	{
		name: "a counter is raised for who does not hold any more: equal tokens", rules: schedRules{modelRules: modelRules{raiseAnyone: true}}, wrong: "given out twice",
		bounds: schedBounds{prompt: true, counters: [3]int64{5, 3, 5}, lapses: 1},
		found:  "sA xA0 xA1 xA0 sB xB2 v1 xB1 xA1 xB1 xB2",
	},
	{
		name: "a counter is raised at members without a vote: equal tokens", rules: schedRules{raiseAnywhere: true, modelRules: modelRules{raiseAnyone: true}}, wrong: "given out twice",
		bounds: schedBounds{prompt: true, counters: [3]int64{5, 3, 5}, lapses: 1},
		found:  "sA xA0 xA1 xA0 sB xB2 v1 xB1 xA1 xB1 xB2",
	},
	{
		// The vote that B counted ends while its heartbeats and its raise are late; A has the member then, with
		// the token to which B raises; a heartbeat gets B the member again. The script and the ballot both
		// guard against it.
		name: "a raise confirms a later vote than the one counted: equal tokens", wrong: "not above",
		rules:  schedRules{confirmAbove: true, modelRules: modelRules{raiseAnyVote: true}},
		bounds: schedBounds{prompt: true, wait: true, entry: 3, timeout: 4, ticks: 3, counters: [3]int64{5, 3, 5}},
		begin:  "sB xB1 t t xB2 t sA xA0 xA1 xA0 xA1 uA",
		found:  "sB xB1 t t xB2 t sA xA0 xA1 xA0 xA1 uA xA1 xB1 xB1 xB1 xB2 xB2 xB2",
	},
	{
		name: "a raise confirms a vote above its token: equal tokens", wrong: "given out twice",
		rules:  schedRules{confirmAbove: true, modelRules: modelRules{raiseAnyVote: true}},
		bounds: schedBounds{prompt: true, counters: [3]int64{5, 3, 4}, lapses: 1},
		found:  "sA xA0 xA2 xA0 sB xB1 v2 xB2 xB1 xB2 uB xB1 xA1 xA1",
	},
	{
		name: "push counted without token check: two holders", rules: schedRules{pushUnchecked: true}, wrong: "two holders",
		bounds: schedBounds{prompt: true, others: 2, wait: true, entry: 3, ttl: 9, ticks: 2, counters: [3]int64{5, 5, 6}},
		begin:  "sB sA xB0 xB1 xA2 xB2 t o0 xA0 xB0 xB1 xB2 t",
		found:  "sB sA xB0 xB1 xA2 xB2 t o0 xA0 xB0 xB1 xB2 t xB0 pA0 o1 pB1 pB0",
	},
	{
		name: "a pushed vote counts from its arrival: two holders", rules: schedRules{pushFromArrival: true}, wrong: "two holders",
		bounds: schedBounds{prompt: true, others: 3, wait: true, ticks: 3},
		begin:  "sA xA0 xA1 xA2 o0 o1",
		found:  "sA xA0 xA1 xA2 o0 o1 t pA0 pA1 sB t t xB0 xB1",
	},
	{
		name: "validity counts from the end of the round: two holders", rules: schedRules{endOfRound: true}, wrong: "two holders",
		bounds: schedBounds{hung: true, ticks: 3, timeout: 5},
		found:  "sB xB0 xB1 t aB0 aB1 t t sA xA0 aA0 xA1 aA1",
	},
	{
		name: "what was granted while waiting is believed for the TTL: two holders", rules: schedRules{believeTTL: true}, wrong: "two holders",
		bounds: schedBounds{hung: true, prompt: true, wait: true, ticks: 3, ttl: 6, entry: 2},
		found:  "sB xB0 xB1 t t sA xA0 xA1",
	},
	{
		name: "no yields: deadlock", rules: schedRules{noYield: true}, wrong: "no progress",
		bounds: schedBounds{hung: true, prompt: true, wait: true, entry: 6},
		found:  "sA xA0 sB xB0 pA0 xB1 xA1 pB1",
	},
	{
		name: "a split waits for a hung member: no progress", rules: schedRules{noTimeout: true}, wrong: "no progress",
		bounds: schedBounds{hung: true, prompt: true, wait: true, entry: 6},
		found:  "sA xA0 sB xB0 pA0 xB1 xA1 pB1",
	},
	{
		name: "a late renewal revives a lease: another holder within one tenure", rules: schedRules{revive: true}, wrong: "another holder",
		bounds: schedBounds{prompt: true, renew: true, ticks: 3},
		begin:  "sA xA0 xA1 t xA0 t t",
		found:  "sA xA0 xA1 t xA0 t t sB xB1 xB2 xB1 xB2 uB xB2 xA2 xA2",
	},
	{
		name: "a minority renews: two holders", rules: schedRules{renewNeed: 1}, wrong: "two holders",
		bounds: schedBounds{prompt: true, renew: true, ticks: 3},
		begin:  "sA xA0 xA1 xA2 t",
		found:  "sA xA0 xA1 xA2 t xA0 sB t t xB1 xB2",
	},
	{
		name: "a renewal counts from its end: two holders", rules: schedRules{renewEndOfRound: true}, wrong: "two holders",
		bounds: schedBounds{hung: true, renew: true, ticks: 5, timeout: 9},
		begin:  "sA xA0 aA0 xA1 aA1 t",
		found:  "sA xA0 aA0 xA1 aA1 t xA0 aA0 xA1 t aA1 sB t t xB0 aB0 xB1 aB1",
	},
	{
		name: "extend shortens: two holders", rules: schedRules{modelRules: modelRules{extendShortens: true}}, wrong: "two holders",
		bounds: schedBounds{hung: true, prompt: true, extends: 1, ticks: 1},
		found:  "sB xB0 xB1 eB xB0 xB1 t sA xA0 xA1",
	},
	{
		// One member answers the renewal, and takes the lease back, before the other has executed it.
		name: "force does not refuse re-joins: undone by a renewal", rules: schedRules{modelRules: modelRules{forceForgets: true}}, wrong: "forced to give up",
		bounds: schedBounds{renew: true, forced: 2, ticks: 1, alone: true, prompt: true},
		found:  "sA xA0 xA1 xA2 F0 F1 t xA0 xA0 xA2",
	},
	{
		name: "voting again at once: two holders", rules: schedRules{noQuarantine: true}, wrong: "two holders",
		bounds: schedBounds{prompt: true, forgets: 1, ttl: 1},
		found:  "sA xA0 xA1 f0 sB xB0 xB2 xB0 xB2",
	},
	{
		name: "voting again at once: equal tokens", rules: schedRules{noQuarantine: true, noRestore: true}, wrong: "not above",
		bounds: schedBounds{prompt: true, forgets: 1, ttl: 1},
		found:  "sA xA0 xA1 f0 sB xB0 xB2 xB0 xB2",
	},
	{
		name: "counters are not restored after the quarantine: equal tokens", rules: schedRules{noRestore: true}, wrong: "not above",
		bounds: schedBounds{prompt: true, forgets: 1, ttl: 1, ticks: 1},
		found:  "sA xA0 xA1 uA f1 t sB xB1 xB2 xB1 xB2",
	},
	{
		name: "counters are restored from one member: equal tokens", rules: schedRules{restoreFew: true}, wrong: "not above",
		bounds: schedBounds{prompt: true, forgets: 1, ttl: 1, ticks: 1},
		found:  "sA xA0 xA1 uA f1 t sB xB1 xB2",
	},
	{
		name: "a release goes only to members whose vote is known: left behind", rules: schedRules{releaseVotes: true}, wrong: "left behind",
		bounds: schedBounds{cancels: 1},
		found:  "sA cA xA0 xA1 xA2",
	},
	{
		name: "a release is not sent again: left behind", rules: schedRules{releaseOnce: true}, wrong: "left behind",
		bounds: schedBounds{prompt: true, breaks: 1},
		found:  "sA xA0 xA1 uA xA0 xA1 xA2 bA2",
	},
	{
		name: "a write on a broken connection is executed: left behind", rules: schedRules{zombies: true}, wrong: "left behind",
		bounds: schedBounds{prompt: true, breaks: 1, cancels: 1},
		found:  "sA cA xA0 xA0 xA1 xA1 bA2 xA2 zA2",
	},
	{
		name: "a failed attempt keeps what it has: left behind", rules: schedRules{noRelease: true}, wrong: "left behind",
		bounds: schedBounds{prompt: true, cancels: 1},
		found:  "sA cA xA0 xA1 xA2",
	},
}

// TestSchedulesCounterExamples takes guards out, one by one, and shows the schedule that then breaks a
// promise; the same schedule, with the guard, breaks none. Schedules are searched for when there is time
// (REDQUORUM_SEEDS), and when the recorded one has ceased to show it.
func TestSchedulesCounterExamples(t *testing.T) {
	for _, c := range schedCases {
		t.Run(c.name, func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				b := c.bounds.withDefaults()
				b.maxStates = 300_000
				schedule := parseSchedule(c.found)
				broken := newSearch(t, b, c.rules)
				broken.only = c.wrong
				wrong := broken.verdict(broken.follow(schedule))
				if wrong == "" {
					t.Logf("the recorded schedule shows nothing any more:\n%s", broken.tell(schedule))
				}
				if wrong == "" || schedulesLarge() {
					broken.begin = parseSchedule(c.begin)
					f := broken.explore()
					wrong, schedule = f.wrong, f.schedule
					t.Logf("%d states, %d steps: %s", f.states, len(schedule), spell(schedule))
				}
				require.Contains(t, wrong, c.wrong, "nothing goes wrong without the guard: the search does not see what it should")
				t.Logf("without the guard: %s\n%s", wrong, broken.tell(schedule))

				whole := newSearch(t, b, schedRules{})
				require.Empty(t, whole.verdict(whole.follow(schedule)), "with the guard\n%s", whole.tell(schedule))
			})
		})
	}
}

// verdict is what is wrong at the end of a schedule, or on the way from there to everybody's end.
func (s *search) verdict(w *schedWorld) string {
	if w.wrong != "" || s.inFlight(w) {
		return w.wrong
	}
	return s.finish(w, map[[2]uint64]bool{})
}
