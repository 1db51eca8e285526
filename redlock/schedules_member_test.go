//go:build !race

package redlock

import (
	"cmp"
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
	"github.com/redquorum/redquorum/slot"
)

// schedMember is what a member has, as its scripts left it: the keys of an embedded server. There is one of each in a search,
// and it is never changed.
type schedMember struct {
	keys []redistest.Key
	id   uint64       // in the order in which the search has met them
	next *schedMember // a tick later, once somebody has asked
	view *memberView  // once somebody has asked
}

const schedName = "k" // of every lock

// Where a member has the permits of a semaphore, its line, what owners wish for, and, among the counters, the stored limit.
var (
	schedPermits = slot.Sibling("redquorum:s1", schedName)
	schedLine    = slot.Sibling("redquorum:sq", schedName)
	schedWishes  = slot.Sibling("redquorum:sw", schedName)
	schedLimit   = "limit:" + schedPermits
)

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

// A date of a server is greater than all tokens and TTLs: in ms it has nine or ten digits, and in µs twelve or thirteen.
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

func (m *schedMember) later(s *search) *schedMember {
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
		keys = append(keys, k)
		if k.Name == member.TokensKey { // a stored limit has as many digits, and is no date
			continue
		}
		for field, value := range k.Fields {
			k.Fields[field] = earlier(value)
		}
		for owner, at := range k.Scores {
			if at >= 1 { // below is who wishes to be re-joined
				k.Scores[owner] -= float64(schedTick.Microseconds())
			}
		}
	}
	m.next = s.member(keys)
	return m.next
}

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

// firstMember is a member at the beginning. other: a third party has the lock, or slot 0, until an end in ms.
func (s *search) firstMember(n int64, other bool, end int64) *schedMember {
	m := s.counting(s.member(nil), map[string]string{}, func(string) int64 { return n })
	switch {
	case !other:
		return m
	case s.bounds.slots > 0:
		has := map[string]string{schedOther: fmt.Sprint(end, " 0:", n), "0": schedOther, ".": text(end), "-": text(end)}
		return s.with(m, redistest.Key{Name: schedPermits, Expires: time.UnixMilli(end + 1), Fields: has})
	}
	return s.with(m, redistest.Key{Name: schedName, Expires: time.UnixMilli(end), Fields: map[string]string{schedOther: text(n)}})
}

// counting is a member with counters, beside what else it has with them.
func (s *search) counting(m *schedMember, beside map[string]string, counter func(name string) int64) *schedMember {
	bucket := BucketOf(schedName)
	if s.bounds.slots == 0 {
		beside[bucket] = text(counter(bucket))
	}
	for k := range s.bounds.slots {
		name := fmt.Sprint(bucket, ".", k)
		beside[name] = text(counter(name))
	}
	return s.with(m, redistest.Key{Name: member.TokensKey, Fields: beside})
}

// restored is a member that has back what two others have.
func (s *search) restored(m, a, b *schedMember) *schedMember {
	x, y, beside := a.key(member.TokensKey).Fields, b.key(member.TokensKey).Fields, map[string]string{}
	if limit := max(toInt(x[schedLimit]), toInt(y[schedLimit])); limit > 0 && !s.rules.noLimit {
		beside[schedLimit] = text(limit)
	}
	return s.counting(m, beside, func(name string) int64 {
		switch {
		case s.rules.noRestore:
			return 1 // and not the time: a clock may be wrong
		case s.rules.restoreFew:
			return min(toInt(x[name]), toInt(y[name]))
		}
		return max(toInt(x[name]), toInt(y[name]))
	})
}

func (m *schedMember) storedLimit() int64 { return toInt(m.key(member.TokensKey).Fields[schedLimit]) }

// memberView is what the search reads of a member.
type memberView struct {
	lock    map[string]string      // owner and token; in a read phase with the field r
	permits map[string]permit.List // by owner
	used    int                    // slots
	owners  []string               // all that the member knows, and that have not ended
	wrong   string                 // what must never be
}

func (m *schedMember) read() *memberView {
	if m.view != nil {
		return m.view
	}
	v := &memberView{lock: m.key(schedName).Fields, permits: map[string]permit.List{}}
	for owner, value := range v.lock {
		if owner != "r" && (v.lock["r"] == "" || toInt(value) > schedNow/1000) {
			v.owners = append(v.owners, owner)
		}
	}
	for _, line := range []string{QueueOf(schedName), schedLine} {
		v.owners = slices.AppendSeq(v.owners, maps.Keys(m.key(line).Scores))
	}
	for owner, entry := range m.key(WaitersOf(schedName)).Fields {
		if strings.HasSuffix(entry, " r") {
			v.owners = append(v.owners, owner)
		}
	}
	for field := range m.key(schedWishes).Fields {
		if owner, wishes := strings.CutPrefix(field, "<"); wishes {
			v.owners = append(v.owners, owner)
		}
	}
	v.readPermits(m.key(schedPermits))
	slices.Sort(v.owners)
	m.view = v
	return v
}

// readPermits reads those of a semaphore, and requires what holds of them after each script. Every slot has two fields, and the
// bounds of the deadlines have two more.
func (v *memberView) readPermits(k redistest.Key) {
	holders := map[int]bool{}
	for owner, record := range k.Fields {
		if !strings.Contains(owner, ":") {
			continue
		}
		deadline, list, _ := strings.Cut(record, " ")
		v.permits[owner], _ = permit.Parse(list)
		for _, p := range v.permits[owner] {
			if holders[p.Slot] {
				v.wrong = fmt.Sprintf("has given slot %d twice", p.Slot)
			}
			holders[p.Slot] = true
			v.used++
		}
		if ends := toInt(deadline); ends < toInt(k.Fields["."]) || ends > k.Expires.UnixMilli() {
			v.wrong = cmp.Or(v.wrong, "does not keep the bounds of its deadlines")
		} else if ends > schedNow/1000+1 {
			v.owners = append(v.owners, owner)
		}
	}
	if fields := 2*v.used + 2; len(k.Fields) > 0 && len(k.Fields) != fields && k.Fields["."] != "0" { // see sem_adopt.lua
		v.wrong = cmp.Or(v.wrong, fmt.Sprintf("has %d fields of %d slots", len(k.Fields), v.used))
	}
}

// has reports whether the member has given an owner something, other than as a reader.
func (m *schedMember) has(owner string) bool {
	v := m.read()
	return v.lock[owner] != "" && v.lock["r"] == "" || v.permits[owner] != nil
}

// luaEdit changes a script, or without one all that have the old text. It is there once.
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
	"reserveAnyVote": {{&script.Reserve, " or tonumber(vote) > tonumber(ARGV[3])", ""}},
	"reserveAnyone":  {{&script.Reserve, "if not vote then return 0 end", "vote = vote or '0'"}},
	"extendShortens": {{&script.Extend, "redis.call('PTTL', key), ARGV[2 * i]", "0, ARGV[2 * i]"}},
	// Who lost the lock by force is re-joined.
	"forceForgets": {{&script.Rejoin, "if buried(owner) then return 0 end", ""}},
	// A downgrade makes a reader of a writer that wishes for the vote.
	"wishReads": {{&script.RWDowngrade, "'0.25', '0.25', 'BYSCORE'", "'0.25', '0.5', 'BYSCORE'"}},
	// An adoption ends between the new owner and the former, and both have the vote.
	"adoptTwice":   {{&script.Adopt, ", former, '0')", ")"}},
	"permitsTwice": {{&script.SemAdopt, "former, '0', '.', '0', unpack(set))", "'.', '0', unpack(set))"}},
	// A member that has given its vote to a waiter forgets that the holder wants it.
	"wishForgets": {{nil, "  register(owner, ttl, ttl + 0)\n  redis.call('ZADD', KEYS[4], place, owner)", ""}},
	// Who yields gives the vote to the lowest hash, and not to the holder.
	"wishLast": {{&script.Yield, "local heir, heirTTL = wisher()", "local heir, heirTTL"}},
	// Who yields a fair lock goes to the end.
	"newPlace": {{&script.FairYield, "stand(owner, ARGV[6], ttl, entry)", "stand(owner, '0', ttl, entry)"}},
	// A yield of a fair lock gives it to the lowest hash.
	"lowestHash": {{&script.FairYield, "if mixed and heir ~= wisher() then", "if true then"}},
	// Who asks a member that is free has its vote, whoever waits there.
	"barges": {
		{&script.FairAcquire, "if first() then return -1 end", ""},
		{&script.FairWait, "if heir == owner then", "if true then"},
	},
	// A ticket follows the last in the queue, and not all that were given out.
	"lastInQueue": {{nil, "tonumber(redis.call('HGET', KEYS[5], '#') or 0)",
		"math.floor(tonumber(redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')[2] or 0))"}},

	// A member gives an owner that asks again the slot that it asks for, in place of the one that it has.
	"movesVote": {{&script.SemWait, "  drop(owner)\n  return {permits", `  drop(owner)
  if not taken then
    local slot = string.match(permits(record), '^%d+')
    redis.call('HDEL', KEYS[1], owner, slot)
    used = used - 1
    local has = give(owner, {want}, ttl)
    hands({slot}, '')
    return {has, now, successor(cap or limit, has), 0, told}
  end
  return {permits`}},
	// A sweep drops the living as well.
	"sweepsAll": {{nil, "local ended = deadline < ms", "local ended = true"}},
	// A record ends two ticks before its deadline.
	"endsEarly": {{nil, "local ended = deadline < ms", "local ended = deadline - 2000 < ms"}, {nil, "if earliest < ms then", "if true then"}},
	// A renewal does not ask which slots the owner has.
	"extendAny": {{&script.SemExtend, "if not string.find(slots, ' ' .. slot .. ':', 1, true) then out[i] = 0 end", ""}},
	// A release serves each of its slots, whether it is free or not.
	"releaseAny": {{nil, "if not earliest or not redis.call('HGET', KEYS[1], slot) then", "if true then"}},
	// The limit bounds the slots that one is given, and not how many are taken.
	"limitAtFirst": {{nil, "if used + n > limit then return nil end", ""}},
	// A member does not keep the stored limit.
	"noLimitKept": {{nil, "if not stored or stored + 0 < most then redis.call('HSET', KEYS[2], 'limit:' .. KEYS[1], text(most)) end", ""}},
	// A release leaves the wishes of its owner.
	"wishesStay": {{&script.SemRelease, "record = read(owner, '.')\nleave(owner)", "record = read(owner, '.')\ndrop(owner)"}},
}

// scriptStage makes a server that has the scripts without some guards.
func scriptStage(without []string) *redistest.Stage {
	scripts := map[string]string{}
	for _, sc := range script.Own() {
		scripts[sc.SHA] = sc.Source
	}
	for _, name := range without {
		for _, e := range scriptGuards[name] {
			edited := 0
			for sha, source := range scripts {
				if n := strings.Count(source, e.old); n == 1 && (e.script == nil || e.script.SHA == sha) {
					scripts[sha] = strings.Replace(source, e.old, e.new, 1)
					edited++
				}
			}
			if edited == 0 {
				panic(fmt.Sprintf("%s: no script has this once: %s", name, e.old))
			}
		}
	}
	for _, sc := range []*script.Script{&script.Adopt, &script.RWAdopt, &script.SemAdopt} {
		for n := range stopsMost {
			scripts[stoppedName(sc.SHA, n)] = fmt.Sprintf(stoppedWrite, n) + scripts[sc.SHA]
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
	script.Reserve.SHA:     {scriptCall{op: opReserve}, 5, "owner token most"},
	script.Rejoin.SHA:      {scriptCall{op: opRejoin}, 7, "owner ttl token most"},
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
	script.Adopt.SHA:       {scriptCall{op: opAdopt}, 8, "owner ttl former"},
	script.RWAdopt.SHA:     {scriptCall{op: opAdopt}, 8, "owner ttl former"},
	script.SemAdopt.SHA:    {scriptCall{op: opAdopt}, 7, "owner ttl former lease"},
	script.FairAcquire.SHA: {scriptCall{op: opAcquire, fair: true}, 7, "owner ttl"},
	script.FairWait.SHA:    {scriptCall{op: opWait, fair: true}, 7, "owner ttl entry ticket"},
	script.FairRelease.SHA: {scriptCall{op: opRelease, fair: true}, 7, "owner hint"},
	script.FairYield.SHA:   {scriptCall{op: opYield, fair: true}, 7, "owner token ttl entry ticket"},
	script.SemLimit.SHA:    {scriptCall{op: opLimit}, 7, "stored"},
	script.SemAcquire.SHA:  {scriptCall{op: opAcquire}, 7, "owner ttl want limit known n"},
	script.SemWait.SHA:     {scriptCall{op: opWait}, 7, "owner ttl entry want limit known n"},
	script.SemRelease.SHA:  {scriptCall{op: opRelease}, 7, "owner hint lease"},
	script.SemClaim.SHA:    {scriptCall{op: opClaim}, 7, "owner had slots ttl entry limit known n"},
	script.SemRaise.SHA:    {scriptCall{op: opRaise}, 4, "owner had"},
	script.SemRejoin.SHA:   {scriptCall{op: opRejoin}, 7, "owner ttl had wish"},
	script.SemExtend.SHA:   {scriptCall{op: opExtend}, 2, "owner ttl lease"},
}

// leased are slots as a lease names them, without their tokens.
func leased(slots ...int) (out permit.List) {
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
		case "former":
			c.former = arg
		case "had":
			c.had, _ = permit.Parse(arg)
		case "lease":
			c.had = leased(slots(arg)...)
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
				"ttl": &c.ttl, "entry": &c.entry, "token": &c.token, "most": &c.most, "ticket": &c.ticket, "known": &c.known, "wish": &c.wish, "stored": &c.stored,
			}[name] = n
		}
	}
	return &c
}
