//go:build !race

package redlock

import (
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// schedMember is what a member has, as its scripts left it: the keys of an embedded server. There is one of each in a search,
// and it is never changed.
type schedMember struct {
	keys []redistest.Key
	id   uint64       // in the order in which the search has met them
	next *schedMember // a tick later, once somebody has asked
}

const schedName = "k" // of every lock

// schedAt is the time of every server.
var schedAt = time.UnixMicro(schedNow)

// member is the one that has these keys.
func (s *search) member(keys []redistest.Key) *schedMember {
	var text strings.Builder
	for _, k := range keys {
		ends := int64(0)
		if !k.Expires.IsZero() {
			ends = k.Expires.UnixMicro()
		}
		fmt.Fprint(&text, k.Name, " ", ends, " ", k.Fields, k.Scores, "\n")
	}
	m := s.members[text.String()]
	if m == nil {
		m = &schedMember{keys: keys, id: uint64(len(s.members))}
		s.members[text.String()] = m
	}
	return m
}

// key is what a member has at a key, or an empty one.
func (m *schedMember) key(name string) (k redistest.Key) {
	if i := slices.IndexFunc(m.keys, func(k redistest.Key) bool { return k.Name == name }); i >= 0 {
		k = m.keys[i]
	}
	return k
}

// with is a member with other fields at a key.
func (s *search) with(m *schedMember, key redistest.Key) *schedMember {
	keys := slices.DeleteFunc(slices.Clone(m.keys), func(k redistest.Key) bool { return k.Name == key.Name })
	if len(key.Fields) > 0 {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b redistest.Key) int { return strings.Compare(a.Name, b.Name) })
	return s.member(keys)
}

// A date of a server is greater than all tokens and TTLs: in ms it has nine or ten digits, and in µs twelve or thirteen. The
// version of a stored limit, which is no date, has more.
var date = regexp.MustCompile(`\b(\d{9,10}|\d{12,13})\b`)

// earlier sets the dates in a text back by a tick.
func earlier(text string) string {
	return date.ReplaceAllStringFunc(text, func(n string) string {
		if len(n) > 10 {
			return strconv.FormatInt(toInt(n)-schedTick.Microseconds(), 10)
		}
		return strconv.FormatInt(toInt(n)-schedTick.Milliseconds(), 10)
	})
}

func (m *schedMember) later(s *search) schedSite {
	if m.next != nil {
		return m.next
	}
	var keys []redistest.Key
	for _, k := range m.keys {
		if !k.Expires.IsZero() {
			if k.Expires = k.Expires.Add(-schedTick); !k.Expires.After(schedAt) {
				continue
			}
		}
		k.Fields, k.Scores = maps.Clone(k.Fields), maps.Clone(k.Scores)
		for field, value := range k.Fields {
			k.Fields[field] = earlier(value)
		}
		for owner := range k.Scores {
			k.Scores[owner] -= float64(schedTick.Microseconds())
		}
		keys = append(keys, k)
	}
	m.next = s.member(keys)
	return m.next
}

func (m *schedMember) appendKey(b []byte, _ *search) []byte { return binary.AppendUvarint(b, m.id) }

// played is what follows when a member executes a call.
func (m *schedMember) played(s *search, c *scriptCall) schedOutcome {
	v, published, keys := s.stage.Play(m.keys, c.args)
	failed, _ := v.(error)
	out := schedOutcome{after: s.member(keys), reply: replyOf(v, failed)}
	for _, message := range published {
		p, ok := script.ParsePush(message)
		if !ok {
			panic("what is pushed: " + message)
		}
		out.pushes = append(out.pushes, p)
	}
	return out
}

// lockSite is a member at the beginning. other: a third party has the lock until an end in ms.
func (s *search) lockSite(counter int64, other bool, end int64) schedSite {
	m := s.counting(s.member(nil), counter)
	if other {
		fields := map[string]string{schedOther: text(counter)}
		m = s.with(m, redistest.Key{Name: schedName, Expires: time.UnixMilli(end), Fields: fields})
	}
	return m
}

// counting is a member whose counter is at n.
func (s *search) counting(m *schedMember, n int64) *schedMember {
	return s.with(m, redistest.Key{Name: member.TokensKey, Fields: map[string]string{BucketOf(schedName): text(n)}})
}

func (m *schedMember) counter() int64 {
	return toInt(m.key(member.TokensKey).Fields[BucketOf(schedName)])
}

func (m *schedMember) restored(s *search, a, b schedSite) schedSite {
	switch x, y := a.(*schedMember).counter(), b.(*schedMember).counter(); {
	case s.rules.noRestore:
		return s.counting(m, 1) // and not the time: a clock may be wrong
	case s.rules.restoreFew:
		return s.counting(m, min(x, y))
	default:
		return s.counting(m, max(x, y))
	}
}

// lock is the hash of the lock; in a read phase it has the field r.
func (m *schedMember) lock() map[string]string { return m.key(schedName).Fields }

func (m *schedMember) has(owner string) bool {
	lock := m.lock()
	return lock[owner] != "" && lock["r"] == ""
}

func (m *schedMember) owners() (out []string) {
	lock := m.lock()
	for owner, value := range lock {
		if owner != "r" && (lock["r"] == "" || toInt(value) > schedNow/1000) {
			out = append(out, owner)
		}
	}
	for owner := range m.key(QueueOf(schedName)).Scores {
		out = append(out, owner)
	}
	for owner, entry := range m.key(WaitersOf(schedName)).Fields {
		if strings.HasSuffix(entry, " r") {
			out = append(out, owner)
		}
	}
	slices.Sort(out)
	return out
}

// luaEdit changes a script. The old text is there once.
type luaEdit struct {
	script   *script.Script
	old, new string
}

// scriptGuards are those of the scripts that a case takes out, by the words of "without".
var scriptGuards = map[string][]luaEdit{
	// A raise does not ask whose the vote is.
	"raiseAnyone": {{&script.Raise, "if not vote or tonumber(vote) > tonumber(ARGV[3]) then return 0 end", ""}},
	// A raise does not ask which vote the owner has.
	"raiseAnyVote":   {{&script.Raise, " or tonumber(vote) > tonumber(ARGV[3])", ""}},
	"extendShortens": {{&script.Extend, "redis.call('PTTL', key), ARGV[2 * i]", "0, ARGV[2 * i]"}},
	// Who lost the lock by force is re-joined.
	"forceForgets": {{&script.Rejoin, "if buried(owner) then return 0 end", ""}},
	// Who yields a fair lock goes to the end.
	"newPlace": {{&script.FairYield, "stand(owner, ARGV[6], ttl, entry)", "stand(owner, '0', ttl, entry)"}},
	// A yield of a fair lock gives it to the lowest hash.
	"lowestHash": {{&script.FairYield, "if mixed then", "if true then"}},
	// Who asks a member that is free has its vote, whoever waits there.
	"barges": {
		{&script.FairAcquire, "if first() then return -1 end", ""},
		{&script.FairWait, "if heir == owner then", "if true then"},
	},
	// A ticket follows the last in the queue, and not all that were given out.
	"lastInQueue": {{&script.FairWait, lastTicket, lastPlace}, {&script.FairYield, lastTicket, lastPlace}},
}

const (
	lastTicket = "tonumber(redis.call('HGET', KEYS[5], '#') or 0)"
	lastPlace  = "math.floor(tonumber(redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2] or 0))"
)

// scriptStage makes a server that has the scripts without some guards.
func scriptStage(without []string) *redistest.Stage {
	scripts := map[string]string{}
	for _, sc := range script.Own() {
		scripts[sc.SHA] = sc.Source
	}
	for _, name := range without {
		for _, e := range scriptGuards[name] {
			if n := strings.Count(scripts[e.script.SHA], e.old); n != 1 {
				panic(fmt.Sprintf("%s: a script has %q %d times", name, e.old, n))
			}
			scripts[e.script.SHA] = strings.Replace(scripts[e.script.SHA], e.old, e.new, 1)
		}
	}
	return redistest.NewStage(schedAt, scripts)
}

// parsed says how the bytes of a call are read: what they ask for, and the names of its arguments behind the keys and the
// bucket, of which the first has that number.
var parsed = map[string]struct {
	scriptCall
	first int
	args  string
}{
	script.Acquire.SHA:     {scriptCall{op: opAcquire}, 5, "owner ttl"},
	script.Wait.SHA:        {scriptCall{op: opWait}, 7, "owner ttl entry"},
	script.Release.SHA:     {scriptCall{op: opRelease}, 7, "owner hint"},
	script.Yield.SHA:       {scriptCall{op: opYield}, 7, "owner token ttl entry"},
	script.Raise.SHA:       {scriptCall{op: opRaise}, 4, "owner token"},
	script.Rejoin.SHA:      {scriptCall{op: opRejoin}, 7, "owner ttl token"},
	script.Extend.SHA:      {scriptCall{op: opExtend}, 2, "owner ttl"},
	script.Force.SHA:       {scriptCall{op: opForce}, 8, "ttl"},
	script.RWRead.SHA:      {scriptCall{op: opAcquire}, 7, "owner ttl"},
	script.RWAwait.SHA:     {scriptCall{op: opWait}, 7, "owner ttl entry"},
	script.RWWait.SHA:      {scriptCall{op: opWait}, 7, "owner ttl entry"},
	script.RWRelease.SHA:   {scriptCall{op: opRelease}, 7, "owner hint"},
	script.RWRaise.SHA:     {scriptCall{op: opRaise}, 4, "owner token"},
	script.RWExtend.SHA:    {scriptCall{op: opExtend}, 3, "owner ttl"},
	script.RWRejoin.SHA:    {scriptCall{op: opRejoin}, 7, "owner ttl token"},
	script.RWDowngrade.SHA: {scriptCall{op: opDowngrade}, 7, "owner ttl"},
	script.FairAcquire.SHA: {scriptCall{op: opAcquire, fair: true}, 7, "owner ttl"},
	script.FairWait.SHA:    {scriptCall{op: opWait, fair: true}, 7, "owner ttl entry ticket"},
	script.FairRelease.SHA: {scriptCall{op: opRelease, fair: true}, 7, "owner hint"},
	script.FairYield.SHA:   {scriptCall{op: opYield, fair: true}, 7, "owner token ttl entry ticket"},
	script.SemAcquire.SHA:  {scriptCall{op: opAcquire}, 7, "owner ttl want limit known n"},
	script.SemWait.SHA:     {scriptCall{op: opWait}, 7, "owner ttl entry want limit known n"},
	script.SemRelease.SHA:  {scriptCall{op: opRelease}, 7, "owner hint lease"},
	script.SemClaim.SHA:    {scriptCall{op: opClaim}, 7, "owner had slots ttl entry limit known n"},
	script.SemRaise.SHA:    {scriptCall{op: opRaise}, 4, "owner had"},
	script.SemRejoin.SHA:   {scriptCall{op: opRejoin}, 7, "owner ttl had wish"},
	script.SemExtend.SHA:   {scriptCall{op: opExtend}, 2, "owner ttl lease"},
}

// lease are slots as a lease names them, without their tokens.
func lease(slots ...int) (out permit.List) {
	for _, n := range slots {
		out = append(out, permit.Permit{Slot: n, Token: 1})
	}
	return out
}

// call is the one of a client's bytes, without the tag that its member adds.
func (s *search) call(cmd []byte) *scriptCall {
	c := s.calls[string(cmd)]
	if c == nil {
		var args []string
		for i, f := range strings.Split(string(cmd), "\r\n") { // *n $7 EVALSHA $40 sha $… …
			if i > 0 && i%2 == 0 {
				args = append(args, f)
			}
		}
		c = s.asked(append(args[:len(args):len(args)], ""))
		s.calls[string(cmd)] = c
	}
	return c
}

// asked is the one call with these arguments.
func (s *search) asked(args []string) *scriptCall {
	whole := string(resp.Command(args...))
	c := s.calls[whole]
	if c == nil {
		c = readCall(args)
		s.calls[whole] = c
	}
	return c
}

// edited is a call with another argument of a name.
func (s *search) edited(c *scriptCall, name, value string) *scriptCall {
	args := slices.Clone(c.args)
	at := len(args) - 1
	if how := parsed[args[1]]; name != "tag" {
		at = 2 + how.first + slices.Index(strings.Fields(how.args), name)
	}
	args[at] = value
	return s.asked(args)
}

// readCall reads the arguments of a call, with the tag that the member adds as the last.
func readCall(args []string) *scriptCall {
	how, known := parsed[args[1]]
	if !known {
		panic("unknown script " + args[1])
	}
	c := how.scriptCall
	c.args, c.tag = args, args[len(args)-1]
	for i, name := range strings.Fields(how.args) {
		arg := args[2+how.first+i]
		slots := func(text string) (out []int) {
			for _, n := range strings.Fields(text) {
				out = append(out, int(toInt(n)))
			}
			return out
		}
		switch name {
		case "owner":
			c.owner = arg
		case "hint":
			c.hint = arg
		case "had":
			c.had, _ = permit.Parse(arg)
		case "lease":
			c.had = lease(slots(arg)...)
		case "slots":
			if back, none := strings.CutPrefix(arg, "-"); none {
				c.want = int(toInt(back))
			} else {
				c.slots = slots(arg)
			}
		case "want", "limit", "n":
			*map[string]*int{"want": &c.want, "limit": &c.limit, "n": &c.n}[name] = int(toInt(arg))
		default:
			n, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				panic(err)
			}
			*map[string]*int64{
				"ttl": &c.ttl, "entry": &c.entry, "token": &c.token, "ticket": &c.ticket, "known": &c.known, "wish": &c.wish, "stored": &c.stored,
			}[name] = n
		}
	}
	return &c
}
