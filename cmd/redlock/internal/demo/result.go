package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/timeline"
)

// Result is what was seen in a run. The fields with a name in JSON are a promise to scripts.
type Result struct {
	Acquisitions int `json:"acquisitions"`
	// from a holder's unlock to the next grant, if a worker was waiting
	HandoffP50 int64 `json:"handoff_p50_us"`
	HandoffP99 int64 `json:"handoff_p99_us"`
	// grants while another worker believed that it held the lock
	Overlaps     int  `json:"overlaps"`
	Monotonic    bool `json:"tokens_monotonic"` // tokens rose strictly in the order of the grants
	StaleRefused int  `json:"stale_writes_refused"`
	Members      int  `json:"members"`
	// of the page, which has a lock with readers
	Reads         int  `json:"reads"`
	ReadersAtOnce int  `json:"readers_at_once"` // at most
	Rewrites      int  `json:"rewrites"`
	BesideWriter  int  `json:"beside_writer"`       // grants beside a writer that believed that it held the lock
	TokensBetween bool `json:"read_tokens_between"` // every reader's token lay between those of the writers around it
	// of the room, which has a desk for every second worker: a semaphore
	Permits       int  `json:"permits"`
	PermitGrants  int  `json:"permit_grants"`
	PermitsAtOnce int  `json:"permits_at_once"`  // at most
	BesidePermit  int  `json:"beside_permit"`    // grants of a desk at which another believed to sit
	SlotTokens    bool `json:"slot_tokens_rise"` // desk by desk, in the order of the grants

	Elapsed     time.Duration `json:"-"`
	Interrupted bool          `json:"-"`
	LostUpdates int           `json:"-"` // accepted writes that a later write undid
	Errors      int           `json:"-"` // calls that failed for no planned reason
	Killed      bool          `json:"-"` // a member was killed
	RestartErr  error         `json:"-"` // why the killed member did not come back
	ByWorker    []int         `json:"-"`
	Timeline    *timeline.Log `json:"-"`
}

// Broken names each broken promise, as one sentence, or "" if none was broken.
func (r Result) Broken() string {
	var all []string
	if r.Overlaps > 0 {
		all = append(all, fmt.Sprintf("%d times a worker got the lock while another still believed in it", r.Overlaps))
	}
	if !r.Monotonic && r.Acquisitions > 0 {
		all = append(all, "tokens did not rise strictly in the order of the grants")
	}
	if r.BesideWriter > 0 {
		all = append(all, fmt.Sprintf("%d times a reader or a writer got the page while another still believed in it", r.BesideWriter))
	}
	if !r.TokensBetween && r.Reads > 0 {
		all = append(all, "tokens of readers did not lie between those of the writers around them")
	}
	if r.BesidePermit > 0 {
		all = append(all, fmt.Sprintf("%d times a worker got a desk at which another still believed to sit", r.BesidePermit))
	}
	if !r.SlotTokens && r.PermitGrants > 0 {
		all = append(all, "tokens of a desk did not rise strictly in the order of its grants")
	}
	if r.LostUpdates != 0 {
		all = append(all, fmt.Sprintf("%d accepted updates are missing from the store", r.LostUpdates))
	}
	return sentence(all)
}

// Missing names what a whole run must show and this run did not, as one sentence, or "" if nothing
// is missing.
func (r Result) Missing() string {
	var all []string
	if r.Acquisitions == 0 {
		all = append(all, "nobody ever got the lock")
	}
	if r.Reads == 0 || r.Rewrites == 0 {
		all = append(all, "nobody read the page, or nobody rewrote it")
	}
	if r.PermitGrants == 0 {
		all = append(all, "nobody ever got a desk")
	}
	if r.StaleRefused == 0 {
		all = append(all, "no stale write was refused")
	}
	if r.RestartErr != nil {
		all = append(all, fmt.Sprintf("the killed member could not be restarted: %v", r.RestartErr))
	}
	return sentence(all)
}

func sentence(parts []string) string { return strings.Join(parts, ", and ") }

// Text returns the result for people.
func (r Result) Text(color bool) string {
	var b strings.Builder
	c := palette(color)
	row := func(ok bool, name, format string, args ...any) {
		mark := c.green("ok")
		if !ok {
			mark = c.red("NO")
		}
		fmt.Fprintf(&b, "  %s  %-21s %s\n", mark, name, fmt.Sprintf(format, args...))
	}
	plain := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "      %-21s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n%s\n", c.bold(fmt.Sprintf("Result after %.1f s", r.Elapsed.Seconds())))
	row(r.Acquisitions > 0, "acquisitions", "%d, %.0f a second (%s)", r.Acquisitions, rate(r.Acquisitions, r.Elapsed), r.shares())
	row(r.Overlaps == 0, "overlapping holders", "%d", r.Overlaps)
	row(r.Monotonic, "tokens rise strictly", "%s", yes(r.Monotonic))
	row(r.LostUpdates == 0, "lost updates", "%d", r.LostUpdates)
	if r.Interrupted && r.StaleRefused == 0 {
		plain("stale writes refused", "0, there was none")
	} else {
		row(r.StaleRefused > 0, "stale writes refused", "%d", r.StaleRefused)
	}
	row(r.Reads > 0 && r.Rewrites > 0, "reads of the page", "%d, up to %d at once, and %d rewrites", r.Reads, r.ReadersAtOnce, r.Rewrites)
	row(r.BesideWriter == 0, "beside a writer", "%d", r.BesideWriter)
	row(r.TokensBetween, "read tokens between", "%s", yes(r.TokensBetween))
	row(r.PermitGrants > 0, "permits", "%d grants of %d desks, up to %d at once", r.PermitGrants, r.Permits, r.PermitsAtOnce)
	row(r.BesidePermit == 0, "beside a permit", "%d", r.BesidePermit)
	row(r.SlotTokens, "slot tokens rise", "%s", yes(r.SlotTokens))
	plain("hand-off", "p50 %s, p99 %s from unlock to next grant",
		millis(time.Duration(r.HandoffP50)*time.Microsecond), millis(time.Duration(r.HandoffP99)*time.Microsecond))
	members := fmt.Sprint(r.Members)
	if r.Killed {
		members += ", one of them killed in between"
	}
	plain("members", "%s", members)
	if r.Errors > 0 {
		plain("failed calls", "%d", r.Errors)
	}
	return b.String()
}

func (r Result) shares() string {
	if len(r.ByWorker) > 8 {
		return fmt.Sprintf("%d workers", len(r.ByWorker))
	}
	var all []string
	for _, n := range r.ByWorker {
		all = append(all, fmt.Sprint(n))
	}
	return "workers: " + strings.Join(all, ", ")
}

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// millis prints a duration in milliseconds, however long it is, so that columns of them compare.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}
