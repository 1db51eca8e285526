package doctor

import (
	"fmt"
	"slices"
	"time"
)

// Trial is what became of a lock that was tried at the members.
type Trial struct {
	Name   string // of the lock
	Not    string // why there was none
	Step   string // that failed: open, lock, renewal, wait, push or release
	Err    error  // why
	Polled bool   // the waiter got the lock, and no member told it
	Took   time.Duration
}

// NoTrial says why a lock must not be tried, "" if it may. A client changes nothing at a set that is fit, but for what a
// lock leaves. It would mark what no client has looked at.
func (r *Report) NoTrial() string {
	if r.Severity == Critical {
		return "mend first what is critical"
	}
	var look func(all []Summary) string
	look = func(all []Summary) string {
		for _, m := range all {
			if slices.Contains([]string{"new", "joined", "replaced", "restarted"}, m.State) && len(m.Masters) == 0 {
				return m.Member + " is " + m.State + ", and a client would mark it"
			}
			if why := look(m.Masters); why != "" {
				return why
			}
		}
		return ""
	}
	return look(r.Members)
}

// Tried adds a trial to the report.
func (r *Report) Tried(t Trial) {
	switch {
	case t.Not != "":
		r.say(OK, "trial", "", "no lock was tried: "+t.Not, "it is not known whether locks work here", "")
	case t.Err != nil:
		r.say(Critical, "trial", "", fmt.Sprintf("%s of a lock named %s: %v", t.Step, t.Name, t.Err), "locks fail", "run doctor again; then the members' logs, and redlock run try -n -v -v -- true")
		r.Restart, r.RestartNo = false, "mend first what is critical"
	case t.Polled:
		r.say(Warning, "trial", "", "a waiter got the lock, and no member told it that the lock was free", "a lock that is freed stays free until a waiter asks again", "look for proxies that drop messages of subscriptions, or run doctor again")
	default:
		r.say(OK, "trial", "", fmt.Sprintf("a lock was taken, renewed, waited for, handed over by a push and released, in %v", t.Took.Round(time.Millisecond/10)), "", "")
	}
	r.sort()
}
