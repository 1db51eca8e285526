package wait

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// TestDesk plays the cases of testdata/*.txt. testdata/README.md has their words.
func TestDesk(t *testing.T) {
	for _, c := range cases.Read(t, "testdata/*.txt") {
		t.Run(c.Name, func(t *testing.T) { (&clerk{T: t}).play(c.Lines) })
	}
}

// desk plays events into a ballot by hand: no members, no clock but its own.
type desk struct {
	Ballot
	start  time.Time
	states []member.State
}

// Next and the books of answers, as values.
func (d *desk) Next(now time.Time, states []member.State) (s Step) {
	s = Step{ // an attempt uses one Step again and again: nothing of the last one is left
		Lose, true, ByGrant, true, StoodBack, true, memberset.All(len(d.m)), 1, now, time.Second, 1, 1, []Offer{{}},
		core.ProbeGrant(1, now, memberset.All(len(d.m)), true),
	}
	d.Ballot.Next(&s, now, states)
	return s
}

func (d *desk) Answered(i int, a Answer, lease time.Duration) quorum.Vote {
	a.TTL = lease
	return d.Ballot.Answered(i, &a)
}
func (d *desk) ClaimAnswered(i int, a Answer, lease time.Duration) quorum.Vote {
	a.TTL = lease
	return d.Ballot.ClaimAnswered(i, &a)
}
func (d *desk) RaiseAnswered(i int, a Answer) quorum.Vote {
	a.Raise = true
	return d.Ballot.RaiseAnswered(i, &a)
}
func (d *desk) YieldAnswered(i int, a Answer) quorum.Vote {
	a.TTL = d.part
	return d.Ballot.YieldAnswered(i, &a)
}

// usual are the terms of a lock without options.
var usual = Terms{Terms: core.Terms{TTL: 10 * time.Second, Entry: 3 * time.Second, Drift: clock.DefaultDrift}, Timeout: 200 * time.Millisecond, GiveUp: 2 * time.Second}

// newDesk is one at which a waiting attempt lies.
func newDesk(n int) *desk {
	d := &desk{Ballot: New("me:1", NewRoom(n), usual, Past{Start: WaitFirst}), start: time.Now()}
	d.Next(d.start, nil) // Listen
	for range n {
		d.states = append(d.states, member.State{Brief: member.Brief{Gen: 1, Epoch: 1, Votes: true}, Up: true, Inbox: true})
	}
	return d
}

// at is an instant, in milliseconds after the start.
func (d *desk) at(ms float64) time.Time { return d.start.Add(spanOf(ms)) }

func spanOf(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// micros is a server's time: its clock shows another date than ours.
func micros(ms float64) int64 { return 1_000_000_000 + int64(ms*1000) }

// clerk reads the lines of a case to a desk.
type clerk struct {
	*testing.T
	*desk
	line  cases.Line
	now   time.Time
	last  Step
	sent  []time.Time // of the last question to each member, a yield among them
	asks  []bool      // and whether it was an acquire
	round int         // of a repetition
	args  []string    // of the line
}

func (c *clerk) play(lines []cases.Line) {
	for i := 0; i < len(lines); i++ {
		c.line = lines[i]
		switch lastAnswers := c.line.Words; lastAnswers[0] {
		case "members":
			c.sit(lastAnswers[1:])
		case "repeat":
			i = cases.Repeat(lines, i, func(round int) bool {
				c.round = round
				if lastAnswers[1] == "until" {
					return c.now.Before(c.at(number(lastAnswers[2])))
				}
				return round < int(number(lastAnswers[1]))
			}, c.play)
		default:
			c.args = nil
			for _, w := range lastAnswers[2:] {
				c.args = append(c.args, strings.ReplaceAll(w, "$", strconv.Itoa(c.round)))
			}
			c.now = c.time(lastAnswers[0])
			if got := c.event(lastAnswers[1]); !matches(strings.Fields(got), c.line.Want) {
				c.Fatalf("%v: got %q, want %q", c.line, got, strings.Join(c.line.Want, " "))
			}
		}
	}
}

// matches reports whether the answer begins with what is wanted, word by word. A..b is any number between.
func matches(got, want []string) bool {
	for i, w := range want {
		if i == len(got) {
			return false
		}
		if low, high, ranged := strings.Cut(w, ".."); ranged {
			if n := number(got[i]); n < number(low) || n > number(high) {
				return false
			}
		} else if got[i] != w {
			return false
		}
	}
	return true
}

func number(lastAnswer string) float64 {
	n, err := strconv.ParseFloat(lastAnswer, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (c *clerk) time(lastAnswer string) time.Time {
	switch {
	case lastAnswer == ".":
		return c.now
	case lastAnswer == "wake":
		return c.last.Wake
	case lastAnswer[0] == '+':
		return c.now.Add(spanOf(number(lastAnswer[1:])))
	}
	return c.at(number(lastAnswer))
}

// option is the value of the word "name=value", or "".
func (c *clerk) option(name string) string {
	for _, w := range c.args {
		if value, ok := strings.CutPrefix(w, name+"="); ok {
			return value
		}
	}
	return ""
}

// who reads "0,2", "all" or "none".
func (c *clerk) who() (s memberset.Set) {
	switch c.args[0] {
	case "none":
	case "all":
		s = memberset.All(len(c.m))
	default:
		for w := range strings.SplitSeq(c.args[0], ",") {
			s = s.With(int(number(w)))
		}
	}
	return s
}

// each does something with each member of the first word, and returns the votes that this counts for.
func (c *clerk) each(do func(i int) quorum.Vote) string {
	var out []string
	for i := range c.m {
		if c.who().Has(i) {
			out = append(out, map[quorum.Vote]string{quorum.Yes: "yes", quorum.No: "no", quorum.Unsure: "unsure", quorum.NotAsked: "passed"}[do(i)])
		}
	}
	return strings.Join(out, " ")
}

// sit begins a case.
func (c *clerk) sit(lastAnswers []string) {
	n := int(number(lastAnswers[0]))
	c.args, c.desk, c.sent, c.asks = lastAnswers, newDesk(n), make([]time.Time, n), make([]bool, n)
	c.now, c.terms = c.start, usual
	if s := c.option("giveup"); s != "" {
		c.terms.GiveUp = -1
		if s != "never" {
			c.terms.GiveUp = spanOf(number(s))
		}
	}
	c.terms.Shared = slices.Contains(lastAnswers, "redisson")
	switch {
	case slices.Contains(lastAnswers, "reads"):
		c.terms.Rules = &Reading
	case slices.Contains(lastAnswers, "writes"):
		rules := Writing(func(hint string) string { return "readers," + hint })
		c.terms.Rules = &rules
	case slices.Contains(lastAnswers, "fair"):
		c.terms.Rules = &Fair
	case c.option("permits") != "":
		c.terms.Rules, c.terms.Slots = &Permits, int(number(c.option("permits")))
		c.terms.Gate = uint8(number(cmp.Or(c.option("gate"), "0")))
	case slices.Contains(lastAnswers, "beside"):
		rules := Beside(Exclusive, func(hint string) string { return "readers," + hint })
		c.terms.Rules = &rules
	}
	c.begin("me:1", Past{Start: WaitFirst})
	if part := c.option("part"); part != "" {
		Probe{&c.Ballot}.SetPart(spanOf(number(part)))
	}
	if slices.Contains(lastAnswers, "refuse") { // a heartbeat at 1000, and nothing else to do before it
		c.next()
		c.now = c.at(1)
		for i := range n {
			c.Answered(i, c.answer(i, "-100000"), c.part)
		}
	}
}

func (c *clerk) begin(owner string, past Past) {
	if start, ok := map[string]Start{"ask": AskFirst, "try": TryOnce}[c.option("start")]; ok {
		past.Start = start
	}
	c.Ballot = New(owner, NewRoom(len(c.states)), c.terms, past)
	if past.Start == WaitFirst {
		c.Next(c.now, nil) // Listen
	}
}

func (c *clerk) next() (said string) {
	defer func() {
		if recover() != nil {
			said = "panics"
		}
	}()
	c.last = c.Next(c.now, c.states)
	for i := range c.m {
		if c.last.To.Has(i) && c.last.Do != Win {
			c.sent[i], c.asks[i] = c.now, c.last.Do == Acquire
		}
	}
	for _, o := range c.last.Offers {
		c.sent[o.Given.Member()], c.asks[o.Given.Member()] = c.now, false
	}
	return c.step(c.last)
}

var (
	outcomes = map[string]member.Outcome{"notsent": member.NotSent, "unknown": member.Unknown, "refused": member.Refused}
	causes   = map[string]error{
		"down": member.ErrDown, "broken": member.ErrBroken, "overflow": member.ErrOverflow,
		"foreign": &member.ReplyError{Kind: member.KindForeign}, "denied": &member.ReplyError{Kind: member.KindAuth},
		"exhausted": &member.ReplyError{Kind: member.KindExhausted}, "busy": &member.ReplyError{Kind: member.KindBusy},
		"other": errors.New("a reply of another shape"),
	}
)

// answer is that of a member to its last question: a number, or an outcome and its cause.
func (c *clerk) answer(i int, lastAnswers ...string) Answer {
	from := c.from(i)
	a := Answer{Answer: core.Answer{Sent: c.sent[i], At: c.now, From: from.Brief, Now: c.states[i].Brief}, Next: c.option("next")}
	if place := c.option("place"); place != "" {
		a.Place = int64(number(place))
	}
	if sent := c.option("sent"); sent != "" {
		a.Sent = c.at(number(sent))
	}
	var failed bool
	if a.Outcome, failed = outcomes[lastAnswers[0]]; failed {
		if a.Err = causes[lastAnswers[1]]; a.Err == nil {
			c.Fatalf("%v: no such cause", c.line)
		}
		return a
	}
	a.Outcome = member.Answered
	if a.Permits = list(lastAnswers[0]); a.Permits != nil {
		a.N = a.Permits[0].Token
	} else {
		a.N = int64(number(lastAnswers[0]))
	}
	if !c.asks[i] {
		a.Server = micros(float64(a.Sent.Sub(c.start)+a.At.Sub(c.start)) / 2 / float64(time.Millisecond))
		if server := c.option("server"); server != "" {
			a.Server = micros(number(server))
		}
		if lives := c.option("lives"); lives != "" {
			a.Lives = time.Duration(number(lives)) * time.Millisecond
		}
	}
	return a
}

// list reads "3:17,5:20", nil for anything else.
func list(lastAnswer string) permit.List {
	l, _ := permit.Parse(strings.ReplaceAll(lastAnswer, ",", " "))
	return l
}

// from is a member's state when it was asked, or granted what it pushes: now, unless the line says another generation, and
// another connection behind a /.
func (c *clerk) from(i int) member.State {
	st := c.states[i]
	if gen, epoch, _ := strings.Cut(c.option("from"), "/"); gen != "" {
		st.Gen, st.Epoch = uint64(number(gen)), uint64(number(cmp.Or(epoch, strconv.FormatUint(st.Epoch, 10))))
	}
	if c.option("votes") == "no" {
		st.Votes = false
	}
	return st
}

// event plays one event and returns the answer in words.
func (c *clerk) event(lastAnswer string) string {
	one := 0
	if len(c.args) > 0 && c.args[0] != "" && c.args[0][0] >= '0' && c.args[0][0] <= '9' {
		one = int(c.args[0][0] - '0')
	}
	switch lastAnswer {
	// What the attempt does.
	case "next":
		return c.next()
	case "follow":
		for range 1000 {
			if said := c.next(); c.last.Do != Sleep && (c.last.Do != Register || len(c.args) == 0) {
				return c.ms(c.now) + " " + said
			}
			if c.last.Do == Sleep {
				c.now = c.last.Wake
			}
		}
		return "spins"
	case "wait":
		return c.each(func(i int) quorum.Vote {
			c.registers(i, c.states[i].Gen, c.now)
			c.sent[i], c.asks[i] = c.now, false
			return 0
		})
	case "asked":
		c.Ballot.asked, c.heartbeat, c.heartbeatEvery = c.now, c.at(number(c.option("heartbeat"))), c.pace()
	case "yield":
		return offers(c.yield(c.now))
	case "back":
		var s Step
		c.standBack(&s, c.who(), c.now)
		return c.step(s)
	case "succeeds":
		past := c.Past()
		c.begin(c.args[0], past)
		return fmt.Sprintf("%s notyet %s doubts %s", [...]string{"ask", "wait", "try"}[past.Start], c.ms(past.left.notBefore), members(past.left.silentBefore))
	case "decided":
		c.core.Adopt(int64(number(c.args[0])))

	// What it hears.
	case "answers", "fails":
		return c.each(func(i int) quorum.Vote {
			lease := c.part
			if c.asks[i] {
				lease = c.terms.TTL
			}
			return c.Answered(i, c.answer(i, c.args[1:]...), lease)
		})
	case "yielded":
		return c.each(func(i int) quorum.Vote { return c.YieldAnswered(i, c.answer(i, c.args[1:]...)) })
	case "claimed":
		return c.each(func(i int) quorum.Vote {
			lease := c.part
			if c.phase == followingGate {
				lease = c.terms.TTL
			}
			return c.ClaimAnswered(i, c.answer(i, c.args[1:]...), lease)
		})
	case "renewed":
		return c.each(func(i int) quorum.Vote {
			c.Renewed(i, 0, c.args[1] == "yes", c.now.Add(c.terms.TTL))
			return 0
		})
	case "raised":
		return c.each(func(i int) quorum.Vote { return c.RaiseAnswered(i, c.answer(i, c.args[1:]...)) })
	case "pushes":
		l := list(c.args[1])
		if l != nil {
			c.args[1] = strconv.FormatInt(l[0].Token, 10)
		}
		p := Push{Next: cmp.Or(c.option("next"), "-"), Push: core.Push{
			Permits: l, Token: int64(number(c.args[1])), Server: micros(number(c.option("server"))), TTL: c.part,
		}}
		if ttl := c.option("ttl"); ttl != "" {
			p.TTL = spanOf(number(ttl))
		}
		return fmt.Sprint(c.Pushed(one, p, c.from(one), c.now))
	case "member":
		return c.each(func(i int) quorum.Vote { c.change(&c.states[i]); return 0 })
	case "announces":
		return c.each(func(i int) quorum.Vote { c.Announced(i, c.args[1], c.now); return 0 })
	case "wishes":
		return c.each(func(i int) quorum.Vote { c.Wished(i, c.args[1]); return 0 })
	case "refused":
		return c.each(func(i int) quorum.Vote { c.Wishes(i, c.states[i].Gen, c.now); return 0 })
	case "readers":
		c.ReadersWait()
	case "names":
		return c.each(func(i int) quorum.Vote { c.namesNext(c.args[1], i); return 0 })
	case "withdraws":
		c.Withdrawn(c.args[0])
	case "overhears":
		c.Overhears(one, map[string]Overheard{"confirmed": Confirmed, "turn": Turn, "freed": Freed}[c.args[1]])

	// What it knows.
	case "votes":
		if in, token, exact, until := c.core.Tally(c.now, c.states); in != 0 {
			return fmt.Sprintf("%s token %d exact %d until %s", members(in), token, exact, c.ms(until))
		}
		return "none"
	case "slots":
		if c.core.Token(one) == 0 {
			return "none"
		}
		return c.core.List(one).String()
	case "lease":
		return cmp.Or(c.Permits().String(), "none")
	case "lacking":
		return members(c.Lacking())
	case "vote":
		return fmt.Sprintf("%d until %s", c.core.Token(one), c.ms(c.core.End(one)))
	case "confirmed":
		in, until := c.core.Confirmed(c.now, c.states)
		return members(in) + " until " + c.ms(until)
	case "standing":
		standing, err := c.Status(one, c.now, c.states)
		said := map[Status]string{Votes: "votes", Refuses: "refuses", Fails: "fails", Undecided: "undecided", Silent: "silent", Unasked: "unasked"}[standing]
		if err != nil {
			said += " " + fmt.Sprint(KindOf(err))
		}
		return said
	case "late":
		token, late := c.Late(one)
		return fmt.Sprint(late, " ", token)
	case "dating":
		return [...]string{"undated", "dated", "stepped"}[core.Probe{Votes: &c.core}.Dating(one)]
	case "heard", "named":
		list := map[string][]named{"heard": c.heard, "named": c.Ballot.next}[lastAnswer]
		return fmt.Sprint(len(list), " ", list[0].owner, " ", list[len(list)-1].owner)
	case "hint":
		return cmp.Or(c.Hint(), "none")
	case "owed":
		return members(c.Owed())
	case "waited":
		return fmt.Sprint(c.Waited())
	case "dark":
		return c.ms(c.noQuorumSince)
	case "pause":
		return decimal(clock.Until(c.last.Wake, c.now))
	case "asks":
		to, freed := c.shared.ask()
		return fmt.Sprint(members(to), " freed ", freed)
	default:
		c.Fatalf("%v: no such word", c.line)
	}
	return ""
}

func (c *clerk) change(st *member.State) {
	for _, w := range c.args[1:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "votes", "mute":
			st.Votes = name == "votes"
		case "listens", "deaf":
			st.Inbox = name == "listens"
		case "gen":
			st.Gen = uint64(number(value))
		case "epoch":
			st.Epoch = uint64(number(value))
		case "ear":
			st.Ear = uint64(number(value))
		default:
			c.Fatalf("%v: no such state", c.line)
		}
	}
}

func (c *clerk) step(s Step) string {
	said := [...]string{"sleep", "acquire", "room", "listen", "register", "yield", "claim", "raise", "win", "again", "lose"}[s.Do]
	switch s.Do {
	case BackOff:
		said += " " + decimal(s.Pause)
	case Register:
		said += " " + members(s.To) + " by " + [...]string{"nothing", "poll", "expiry", "member", "grant"}[s.Why]
		if s.Ticket > 0 {
			said += fmt.Sprint(" ticket ", s.Ticket)
		}
	case Acquire:
		said += " " + members(s.To)
	case Yield:
		said += " " + offers(s.Offers)
	case Claim:
		said += claims(s.Offers) + " register " + members(s.To)
		if s.Ticket > 0 {
			said += fmt.Sprint(" ticket ", s.Ticket)
		}
	case Raise:
		said += fmt.Sprintf(" %d at %s", s.Token, members(s.To))
	case Win:
		said += fmt.Sprintf(" %d by %s raised %v lifts %s until %s", s.Grant.Token(), members(s.Grant.In), s.Grant.Raised, members(s.To), c.ms(s.Grant.Until()))
	case Again, Lose:
		said += fmt.Sprintf(" %s early %v", [...]string{"refused", "foreign", "tooslow", "unconfirmed", "noquorum", "stoodback", "stuck"}[s.Cause], s.Early)
	}
	if !s.Wake.IsZero() {
		said += fmt.Sprintf(" until %s decided %v", c.ms(s.Wake), s.Poll)
	}
	return said
}

// ms writes an instant, in milliseconds after the start.
func (c *clerk) ms(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return decimal(t.Sub(c.start))
}

func decimal(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Round(time.Microsecond))/float64(time.Millisecond), 'f', -1, 64)
}

func members(s memberset.Set) string {
	var out []string
	for i := range quorum.MaxMembers {
		if s.Has(i) {
			out = append(out, strconv.Itoa(i))
		}
	}
	return cmp.Or(strings.Join(out, ","), "none")
}

func claims(all []Offer) (said string) {
	for _, o := range all {
		slots := strings.Trim(fmt.Sprint(o.Slots), "[]")
		said += fmt.Sprintf(" %d:(%s)>%s", o.Given.Member(), strings.ReplaceAll(o.Given.List().String(), " ", ","), cmp.Or(strings.ReplaceAll(slots, " ", ","), "-"))
	}
	return said
}

func offers(all []Offer) string {
	var out []string
	for _, o := range all {
		said := fmt.Sprintf("%d:%d", o.Given.Member(), o.Given.Token())
		if o.Ticket > 0 {
			said += fmt.Sprint("@", o.Ticket)
		}
		out = append(out, said)
	}
	return strings.Join(out, " ")
}
