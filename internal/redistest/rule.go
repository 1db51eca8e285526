package redistest

import (
	"slices"
	"strings"
	"time"
)

// Match reports whether a rule is meant for a command. cmd[0] is the command's name as the client
// wrote it. A Match must not block and must not call the Link.
type Match func(cmd []string) bool

// Any matches every command.
func Any() Match { return func([]string) bool { return true } }

// Named matches commands by their names, in any case of letters: Named("EVALSHA"), or with a sub
// command, Named("CLIENT KILL").
func Named(names ...string) Match {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			words := strings.Fields(name)
			return len(words) <= len(cmd) && slices.EqualFunc(words, cmd[:len(words)], strings.EqualFold)
		})
	}
}

// WithArg matches commands with an argument that equals arg: a script by its SHA1, a lock by its
// key. It does not match SCRIPT, which asks for scripts and runs none.
func WithArg(arg string) Match {
	return func(cmd []string) bool {
		return len(cmd) > 1 && !strings.EqualFold(cmd[0], "SCRIPT") && slices.Contains(cmd[1:], arg)
	}
}

// Both matches what all of the given ones match.
func Both(all ...Match) Match {
	return func(cmd []string) bool {
		return !slices.ContainsFunc(all, func(m Match) bool { return !m(cmd) })
	}
}

type action uint8

const (
	forward     action = iota
	callBack           // run a function, then go on with the other rules
	answer             // answer here instead of forwarding
	loseReply          // forward; the reply and all behind it are lost
	cutBefore          // cut the connection instead of forwarding
	cutAfter           // forward; cut the connection instead of replying
	zombie             // break the client's side now, forward later
	delayArrive        // forward later, with all behind it
	delayReply         // reply later, with all behind it
)

// Rule is a fault for single commands. It is in force until it has hit as often as it was made for,
// until Remove, or until Heal.
type Rule struct {
	link  *Link
	match Match
	act   action
	text  []byte
	d     time.Duration
	call  func([]string)
	fired chan struct{}

	// Guarded by link.mu.
	left int // hits still to come; negative: without end
	hits int
}

// Hits returns how many commands the rule has been applied to.
func (r *Rule) Hits() int {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	return r.hits
}

// Fired is closed when the rule hits for the first time.
func (r *Rule) Fired() <-chan struct{} { return r.fired }

// Remove ends the rule.
func (r *Rule) Remove() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.left = 0
	r.link.sweepRulesLocked()
}

// hitLocked counts a hit.
func (r *Rule) hitLocked() {
	if r.hits++; r.hits == 1 {
		close(r.fired)
	}
	if r.left > 0 {
		r.left--
	}
}

func (l *Link) addRule(r *Rule) *Rule {
	r.link, r.fired = l, make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.left != 0 {
		l.rules = append(l.rules, r)
	}
	return r
}

func (l *Link) sweepRulesLocked() {
	l.rules = slices.DeleteFunc(l.rules, func(r *Rule) bool { return r.left == 0 })
}

// Fail answers the next n matching commands with an error reply, such as "LOADING Redis is loading
// the dataset in memory". The reply takes their place among the replies of the connection. They do
// not reach the server. Here and below, n < 0 means all. If several rules match, the oldest is
// applied.
func (l *Link) Fail(m Match, n int, text string) *Rule {
	return l.Answer(m, n, "-"+strings.NewReplacer("\r", " ", "\n", " ").Replace(text)+"\r\n")
}

// Answer is Fail with any reply, given as RESP: ":1\r\n".
func (l *Link) Answer(m Match, n int, reply string) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: answer, text: []byte(reply)})
}

// LoseReply lets the server execute the next n matching commands and loses their replies. It also
// loses everything that the server sends after that, as on a real connection, where nothing behind
// a lost segment is delivered. The client hears nothing more and sees no error. Requests still
// arrive.
func (l *Link) LoseReply(m Match, n int) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: loseReply})
}

// CutBefore cuts the connection when one of the next n matching commands is about to reach the
// server. The command is not executed.
func (l *Link) CutBefore(m Match, n int) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: cutBefore})
}

// CutAfter lets the server execute the next n matching commands, and cuts the connection in place
// of the reply.
func (l *Link) CutAfter(m Match, n int) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: cutAfter})
}

// ZombieOn applies Zombie to the connection of each of the next n matching commands. The client
// sees the connection break. The command and what followed it reach the server after d.
func (l *Link) ZombieOn(m Match, n int, d time.Duration) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: zombie, d: d})
}

// DelayCommand lets the next n matching commands, and all behind them, arrive d later.
func (l *Link) DelayCommand(m Match, n int, d time.Duration) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: delayArrive, d: d})
}

// DelayReply lets the replies of the next n matching commands, and all behind them, arrive d later.
func (l *Link) DelayReply(m Match, n int, d time.Duration) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: delayReply, d: d})
}

// Call runs f for each of the next n matching commands, when the command has come to the server and
// has not been forwarded yet. f may use faults and the server (Cut, Kill, …), but must not close
// the Link. Other rules still apply to the command. Call is good for counting, and for a fault at
// an exact place.
func (l *Link) Call(m Match, n int, f func(cmd []string)) *Rule {
	return l.addRule(&Rule{match: m, left: n, act: callBack, call: f})
}

// LosePush loses the next n pub/sub messages, as Redis may. The connection goes on.
func (l *Link) LosePush(n int) { l.set(func() { l.losePush = n }) }

// LosePushRate loses each pub/sub message with probability p.
func (l *Link) LosePushRate(p float64) { l.set(func() { l.losePushRate = p }) }

// DelayPush lets pub/sub messages, and all behind them on their connection, arrive d later.
func (l *Link) DelayPush(d Delay) { l.set(func() { l.delayPush = d }) }
