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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The scripts do what the cases say, wherever they are: on a real server, and on the embedded one that the tests in fake time stand
// on and that the schedules are played on. redlock/internal/script/testdata/README.md has the words of a case.
func TestScriptsDoWhatTheProtocolSays(t *testing.T) { everyCase(t, "*", false) }

// Every case of acquire and release holds in a batch as well.
func TestBatchesDoWhatTheProtocolSays(t *testing.T) {
	everyCase(t, "acquire", true)
	everyCase(t, "release", true)
}

// everyCase plays the cases of a file on servers. joined: acquires and releases travel in a batch.
func everyCase(t *testing.T, file string, joined bool) {
	onCases(t, file, func(s *scripted, lines []cases.Line) {
		s.joined = joined
		(&scriptPlay{T: s.T, stage: &serverSite{s}}).play(lines)
	})
}

// onCases plays cases on servers that have nothing. Those that begin with "at real" are for a server that has an ACL.
func onCases(t *testing.T, file string, play func(s *scripted, lines []cases.Line)) {
	onServers(t, func(t *testing.T, server redistest.Server, acl bool) {
		for _, c := range cases.Read(t, "internal/script/testdata/"+file+".txt") {
			if c.Lines[0].Words[0] == "at" && !acl {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				play(newScripted(t, server), c.Lines)
			})
		}
	})
}

// stage is where scripts are called.
type stage interface {
	now() int64 // its clock, µs
	sleep(d time.Duration)
	call(c scriptCall) scriptReply
	edit(words []string) string // what befalls the member
	keys() keysOf
	all() map[string]string // every key, for a comparison
	pushed() []string       // since it was asked last
}

type keysOf struct {
	now              int64    // µs
	lock             []string // owner and token; both of each where a hand-over was interrupted
	end              int64    // its TTL, ms; -2: there is none
	counter          string   // "0": none
	queue            []string // owner and time of its registration, µs
	waiters          map[string]string
	queueEnd, waiEnd int64 // as end
}

type scriptPlay struct {
	*testing.T
	stage
	line   cases.Line
	tag    string
	fair   bool // the calls are those of a fair lock
	round  int
	failed bool // the answer is an error
	up     int64
	values map[string]int64  // of $t and the like
	first  map[string]int64  // when an owner was told that it waits
	told   int64             // when a call was told the time last
	began  int64             // when the last call was made
	before map[string]string // all keys, before the line that is to change nothing
}

// ownerNames are those of the cases; low, mid and high are alice, bob and carol in the order in which a yield prefers them.
var ownerNames = func() map[string]string {
	order := byHash(alice, bob, carol)
	return map[string]string{"alice": alice, "bob": bob, "carol": carol, "dave": script.OwnerOf(strings.Repeat("D", 26), 4), "low": order[0], "mid": order[1], "high": order[2],
		"java": javaOwner(1), "other": javaOwner(2)}
}()

func ownerOf(word string) string { return cmp.Or(ownerNames[word], word) }

// called is what the line calls an owner.
func (p *scriptPlay) called(owner string) string {
	if owner == "" {
		return "-"
	}
	for _, w := range append(slices.Clone(p.line.Want), slices.Sorted(maps.Keys(ownerNames))...) {
		if ownerNames[w] == owner {
			return w
		}
	}
	return owner
}

func (p *scriptPlay) play(lines []cases.Line) {
	p.Helper()
	if p.values == nil {
		p.values, p.first = map[string]int64{}, map[string]int64{}
	}
	for i := 0; i < len(lines); i++ {
		p.line = lines[i]
		switch w := p.line.Words; w[0] {
		case "at":
		case "repeat":
			i = cases.Repeat(lines, i, func(round int) bool {
				p.round = round
				return round < int(p.number(w[1])) && (round == 0 || len(w) < 3 || p.size(w[3]) > int(p.number(w[4])))
			}, p.play)
		default:
			var words []string
			for _, word := range w {
				words = append(words, strings.ReplaceAll(strings.ReplaceAll(word, ":$", fmt.Sprint(":", p.round)), "!$", fmt.Sprint("!", p.round)))
			}
			if i+1 < len(lines) && lines[i+1].Words[0] == "unchanged" {
				p.before = p.all()
			}
			p.failed = false
			got := p.event(words[0], words[1:])
			if p.line.Asked && !p.matches(strings.Fields(got), p.line.Want) {
				p.Fatalf("%v: got %q, want %q", p.line, got, strings.Join(p.line.Want, " "))
			}
		}
	}
}

// number reads a number, or a value like $t+1.
func (p *scriptPlay) number(word string) int64 {
	p.Helper()
	n, err := strconv.ParseInt(word, 10, 64)
	switch {
	case err == nil:
		return n
	case word == "same":
		return p.up
	}
	if d, err := time.ParseDuration(word); err == nil {
		return d.Milliseconds()
	}
	name, plus := word, ""
	if i := strings.IndexAny(word, "+-"); i > 0 {
		name, plus = word[:i], word[i:]
	}
	n, ok := p.values[name]
	if !ok {
		p.Fatalf("%v: %q is no number", p.line, word)
	}
	if plus != "" {
		more, err := strconv.ParseInt(plus, 10, 64)
		require.NoError(p, err, "%v", p.line)
		n += more
	}
	return n
}

func (p *scriptPlay) matches(got, want []string) bool {
	if p.failed && len(got) > len(want) {
		got = got[:len(want)]
	}
	return slices.EqualFunc(got, want, p.is)
}

// is compares one word of an answer: "$t" is a value, which the first use sets; "$t=now" sets one that is the member's
// time; "~1m" is a TTL, or less by what a busy machine takes; "-~1m" the same of another's; "3..8" what lies between.
func (p *scriptPlay) is(got, want string) bool {
	p.Helper()
	n, err := strconv.ParseInt(got, 10, 64)
	numeric := err == nil
	low, high, ranged := strings.Cut(want, "..")
	name, now := strings.CutSuffix(want, "=now")
	about, negative := strings.CutPrefix(want, "-~")
	if !negative {
		about = strings.TrimPrefix(want, "~")
	} else {
		n = -n
	}
	switch {
	case ranged:
		return numeric && n >= p.number(low) && n <= p.number(high)
	case want[0] == '~' || negative:
		most := p.number(about)
		return numeric && n <= most && n > most-min(most, 20_000) && n > 0
	case want == "same":
		return numeric && n == p.up
	case want == "up":
		last := p.up
		p.up = n
		return numeric && n > last
	case want[0] != '$':
		return got == want
	case numeric && strings.Contains(want, ">"):
		name, least, _ := strings.Cut(want, ">")
		p.values[name] = n
		return n > p.number(least)
	case now && !between(p.began, n, p.now()):
		return false
	}
	if _, known := p.values[name]; !known && numeric && !strings.ContainsAny(name, "+-") {
		p.values[name] = n
		return n > 0
	}
	return numeric && n == p.number(name)
}

func (p *scriptPlay) size(what string) int {
	if k := p.keys(); what == "queue" {
		return len(k.queue) / 2
	} else {
		return len(k.waiters)
	}
}

func (p *scriptPlay) event(word string, args []string) string {
	p.Helper()
	if c, ok := callOf(word, args, p.number); ok {
		c.tag, c.fair = p.tag, p.fair && slices.Contains([]string{opAcquire, opWait, opRelease, opYield}, c.op)
		return p.calls(c)
	}
	switch word {
	case "fair", "plain":
		p.fair = word == "fair"
	case "tag":
		p.tag = strings.TrimPrefix(args[0], "none")
	case "sleep":
		p.sleep(time.Duration(p.number(args[0])) * time.Millisecond)
	case "unchanged":
		require.Equal(p, p.before, p.all(), "%v", p.line)
	case "reader", "mutex": // who asks, for one call
		rw := p.stage.(interface{ as(whose string) })
		defer func(fair bool) { p.fair = fair; rw.as("writer") }(p.fair)
		p.fair = false
		rw.as(word)
		return p.event(args[0], args[1:])
	default:
		return p.asks(word, args)
	}
	return ""
}

// callOf reads a call; ok is false if the word names none.
func callOf(word string, args []string, number func(word string) int64) (c scriptCall, ok bool) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	ticket := func(i int) int64 { // 0 if it is left out
		if i < len(args) {
			return number(args[i])
		}
		return 0
	}
	c = scriptCall{op: word, owner: ownerOf(arg(0))}
	switch word {
	case opAcquire, opExtend:
		c.ttl = number(arg(1))
	case opWait:
		c.ttl, c.entry, c.ticket = number(arg(1)), number(arg(2)), ticket(3)
	case opRelease:
		c.hint = ownerOf(arg(1))
		if writer, wrote := strings.CutPrefix(arg(1), "+"); wrote {
			c.hint = script.ReadersFirst(ownerOf(writer))
		}
	case opYield:
		c.token, c.ttl, c.entry, c.ticket = number(arg(1)), number(arg(2)), number(arg(3)), ticket(4)
	case opRaise:
		c.token = number(arg(1))
	case opReserve:
		c.token, c.most = number(arg(1)), number(arg(2))
	case opRejoin:
		c.ttl, c.token = number(arg(1)), number(arg(2))
		c.most = max(c.token, ticket(3))
	case opForce:
		if c.owner = ""; arg(0) == "of" {
			c.owner, args = ownerOf(arg(1)), args[2:]
		}
		c.ttl = number(arg(0))
	default:
		return c, false
	}
	return c, true
}

func (p *scriptPlay) calls(c scriptCall) string {
	p.Helper()
	p.began = p.now()
	r := p.call(c)
	if c.op == opWait || c.op == opYield {
		require.True(p, r.err != "" || r.server != 0, "%v: no time is told", p.line)
	}
	if after := p.now(); r.server != 0 {
		require.True(p, between(p.began, r.server, after), "%v: the time %d is not in %d..%d", p.line, r.server, p.began, after)
		if p.told = r.server; p.first[c.owner] == 0 {
			p.first[c.owner] = r.server
		}
	}
	switch {
	case r.err != "":
		p.failed = true
		return r.err
	case c.op == opWait && c.fair:
		return fmt.Sprint(r.n, " ", p.called(r.next), " ", r.place)
	case c.op == opWait:
		return fmt.Sprint(r.n, " ", p.called(r.next))
	}
	return text(r.n)
}

// asks answers what the member has, or else has something befall it.
func (p *scriptPlay) asks(word string, args []string) string {
	p.Helper()
	switch word {
	case "lock":
		k := p.keys()
		if len(k.lock) == 0 {
			return "free"
		}
		require.Len(p, k.lock, 2, "%v: two owners", p.line)
		return fmt.Sprint(p.called(k.lock[0]), " ", k.lock[1], " ", k.end)
	case "counter":
		if len(args) == 0 {
			if n := p.keys().counter; n != "0" {
				return n
			}
			return "none"
		}
	case "keys":
		var names []string
		for name := range p.all() {
			names = append(names, name)
		}
		slices.Sort(names)
		return cmp.Or(strings.Join(names, " "), "nothing")
	case "queue":
		return cmp.Or(strings.Join(p.queued(), " "), "empty")
	case "waits":
		for _, who := range args {
			require.Contains(p, p.queued(), who, "%v", p.line)
		}
		return ""
	case "size":
		return strconv.Itoa(p.size(args[0]))
	case "place", "entry":
		k, owner := p.keys(), ownerOf(args[0])
		if i := slices.Index(k.queue, owner); i >= 0 && word == "place" {
			return text(toInt(strings.TrimSuffix(k.queue[i+1], ".5")) - p.told)
		}
		deadline, ttl, _ := strings.Cut(k.waiters[owner], " ")
		return fmt.Sprint(toInt(deadline)-p.told/1000, " ", ttl)
	case "ticket":
		k := p.keys()
		if len(args) == 0 {
			return cmp.Or(k.waiters["#"], "none")
		}
		i := slices.Index(k.queue, ownerOf(args[0]))
		if i < 0 {
			return "none"
		}
		ticket, fair := strings.CutSuffix(k.queue[i+1], ".5")
		require.True(p, fair, "%v: no ticket", p.line)
		return ticket
	case "lives":
		k := p.keys()
		switch args[0] {
		case "lock":
			return text(k.end)
		case "queue":
			return text(k.queueEnd)
		case "waiters":
			return text(k.waiEnd)
		case "tokens":
			return map[bool]string{true: "forever"}[strings.HasSuffix(p.all()["tokens"], " for ever")]
		}
	case "end":
		k := p.keys()
		return text(k.now/1000 + k.end - p.told/1000)
	case "buried":
		field := "!"
		if len(args) > 0 {
			field += script.Hash([]byte(ownerOf(args[0])))
		}
		k := p.keys()
		return text(toInt(k.waiters[field]) - k.now/1000)
	case "pushed":
		var all []string
		for _, message := range p.pushed() {
			all = append(all, p.message(message))
		}
		return cmp.Or(strings.Join(all, " , "), "nothing")
	case "peek":
		return p.peek(strings.Fields(p.edit([]string{"peek"})))
	}
	for i, w := range args {
		if name, _, _ := strings.Cut(w, "+"); p.values[name] != 0 {
			args[i] = text(p.number(w))
		}
	}
	return p.edit(append([]string{word}, args...))
}

// queued are the owners in the queue, in order. It and waiters name the same ones, and waiters does not outlive it.
func (p *scriptPlay) queued() (out []string) {
	p.Helper()
	k := p.keys()
	for i := 0; i < len(k.queue); i += 2 {
		require.Contains(p, k.waiters, k.queue[i], "%v: without an entry", p.line)
		out = append(out, p.called(k.queue[i]))
	}
	for owner, entry := range k.waiters {
		placeless := owner[0] == '!' || owner == "#" || strings.HasSuffix(entry, " r")
		require.True(p, placeless != slices.Contains(k.queue, owner), "%v: %s has no place, or should have none", p.line, owner)
	}
	if len(out) > 0 {
		require.LessOrEqual(p, k.waiEnd, k.queueEnd+1, "%v: waiters outlives the queue", p.line)
	}
	return out
}

// message writes what was pushed. The time of a grant is not before its call, and its key has the TTL that the waiter is told.
func (p *scriptPlay) message(message string) string {
	p.Helper()
	f := strings.Fields(message)
	switch f[0] {
	case "g":
	case "e": // what is proclaimed
		return message
	case "o", "b":
		n, ok := script.ParseNews(message)
		require.True(p, ok, message)
		return fmt.Sprint(f[0], " ", p.called(n.Watch), " ", n.Values[0])
	case "r":
		return "r " + p.called(f[1])
	default:
		if told, _ := script.ParsePush(message); told.Wish {
			f[0] = "wish"
		}
		return fmt.Sprint(f[0], " ", p.called(f[1]), " ", p.called(f[2]))
	}
	push, ok := script.ParsePush(message)
	require.True(p, ok, message)
	require.Equal(p, fmt.Sprintf("g %s %d %d %s %d", push.Owner, push.Token, push.Server, push.Other, push.TTL.Milliseconds()), message)
	require.True(p, between(p.began, push.Server, p.now()), "%v: dated outside of its call", p.line)
	if k := p.keys(); len(k.lock) > 0 && k.lock[0] == push.Owner && !slices.Contains(k.lock, "r") { // readers have ends of their own
		require.True(p, p.is(text(k.end), fmt.Sprint("~", push.TTL)), "%v: told %v, and its key has %d ms", p.line, push.TTL, k.end)
	}
	return fmt.Sprint("g ", p.called(push.Owner), " ", push.Token, " ", p.called(push.Other), " ", push.TTL.Milliseconds())
}

// peek writes the reply of a peek, waiters by what they were told: where an entry began, and its length.
func (p *scriptPlay) peek(f []string) string {
	p.Helper()
	require.LessOrEqual(p, toInt(f[0]), p.now())
	out := []string{f[1], f[2], f[3], p.called(f[4]), f[5]}
	for w := range slices.Chunk(f[6:], 4) {
		out = append(out, p.called(w[0]), text(toInt(w[1])-p.first[w[0]]), text(toInt(w[2])-toInt(w[1])/1000), w[3])
	}
	return strings.Join(out, " ")
}

func toInt(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

type serverSite struct{ *scripted }

func (s *serverSite) sleep(d time.Duration) { s.past(s.scripted.now() + d.Microseconds()) }

func (s *serverSite) call(c scriptCall) scriptReply {
	s.Helper()
	s.scripted.tag = c.tag
	cmd := c.command(s.Lock)
	r := replyOf(s.run(cmd))
	if r.err == "denied" && s.joined && cmd.Item != nil { // a batch does not know: its calls travel alone from then on
		r.err = "denied at a line"
	}
	return r
}

var (
	deniedReply = regexp.MustCompile(denied)
	plainReply  = regexp.MustCompile("WRONGTYPE|value is not an integer")
	atALine     = regexp.MustCompile("on @user_script:[0-9]+|@user_script: [0-9]+") // that names the command
)

func replyOf(v any, err error) (r scriptReply) {
	if err != nil {
		if r.err = strings.TrimPrefix(err.Error(), "ERR "); deniedReply.MatchString(r.err) {
			r.err = "denied" + map[bool]string{true: " at a line"}[atALine.MatchString(r.err)]
		}
		if at := plainReply.FindStringIndex(r.err); at != nil { // the embedded server names the line as well
			r.err = r.err[at[0]:]
		}
		return r
	}
	switch v := v.(type) {
	case int64:
		r.n = v
	case string:
		r.permits = v
	case []any:
		switch first := v[0].(type) {
		case int64:
			r.n = first
		case string:
			r.permits = first
		}
		if len(v) > 1 {
			r.server = v[1].(int64)
		}
		if len(v) > 2 {
			r.next = v[2].(string)
		}
		if len(v) > 3 {
			r.place = v[3].(int64)
		}
		if len(v) > 4 {
			r.limit, _ = v[4].(int64)
		}
	}
	return r
}

func (s *serverSite) names() map[string]string {
	return map[string]string{
		"lock": s.Name, "tokens": member.TokensKey, "marker": member.MarkerKey, "queue": QueueOf(s.Name), "waiters": WaitersOf(s.Name),
		"drawn": theirs("redisson_lock_token", s.Name), "turn": s.turn(),
	}
}

func (s *serverSite) all() map[string]string { return renamed(s.state(), s.names()) }

func renamed(state, names map[string]string) map[string]string {
	for name, key := range names {
		if value, ok := state[key]; ok {
			delete(state, key)
			state[name] = value
		}
	}
	return state
}

const dumpLua = `local t = redis.call('TIME')
return {t[1] * 1000000 + t[2], redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1]),
  redis.call('HGET', KEYS[2], ARGV[1]) or '0', redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[5]), redis.call('PTTL', KEYS[4]), redis.call('PTTL', KEYS[5])}`

func (s *scripted) dump() []string {
	return []string{"EVAL", dumpLua, "5", s.Name, member.TokensKey, member.MarkerKey, QueueOf(s.Name), WaitersOf(s.Name), text(s.Bucket)}
}

func (s *serverSite) keys() keysOf { s.Helper(); return keysIn(s.ask(s.dump()...)) }

func keysIn(v any) keysOf {
	d := v.([]any)
	strs := func(v any) (out []string) {
		list, _ := v.([]any)
		for _, s := range list {
			out = append(out, s.(string))
		}
		return out
	}
	k := keysOf{
		now: d[0].(int64), lock: strs(d[1]), end: d[2].(int64), counter: d[3].(string), queue: strs(d[4]),
		waiters: map[string]string{}, queueEnd: d[6].(int64), waiEnd: d[7].(int64),
	}
	for i := 1; i < len(k.queue); i += 2 {
		f, err := strconv.ParseFloat(k.queue[i], 64)
		if err == nil {
			k.queue[i] = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	for flat := strs(d[5]); len(flat) > 1; flat = flat[2:] {
		k.waiters[flat[0]] = flat[1]
	}
	return k
}

func (s *serverSite) pushed() (out []string) {
	s.Helper()
	s.ask("PUBLISH", script.Inbox("end"), "end")
	for {
		v := rt.Must(s.inbox.ReceiveFor(time.Minute))(s)
		got := v.([]any)
		if got[3] == "end" {
			return out
		}
		message := got[3].(string)
		client, _, _ := strings.Cut(message[2:], ":") // "g AAAA:1 …", "w AAAA:1 …"
		require.Equal(s, script.Inbox(client), got[2], "in its client's inbox")
		out = append(out, message)
	}
}

func (s *serverSite) edit(words []string) string {
	s.Helper()
	ms := func(word string) string { d, _ := time.ParseDuration(word); return text(d.Milliseconds()) }
	bucket, waiters := text(s.Bucket), WaitersOf(s.Name)
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "lapse lock":
		s.ask("DEL", s.Name)
		return ""
	case "lapse burials":
		for field := range s.hash(waiters) {
			if field[0] == '!' {
				s.ask("HSET", waiters, field, "1")
			}
		}
		return ""
	case "forget counters":
		s.ask("DEL", member.TokensKey)
		return ""
	case "ends lock":
		s.ask("PEXPIRE", s.Name, ms(words[2]))
		return ""
	case "ends queue":
		s.ask("PEXPIRE", QueueOf(s.Name), ms(words[2]))
		s.ask("PEXPIRE", waiters, ms(words[2]))
		return ""
	}
	switch words[0] {
	case "marker":
		s.ask("HSET", member.MarkerKey, "id", words[1])
	case "counter":
		s.ask("HSET", member.TokensKey, bucket, words[1])
	case "elsewhere":
		s.ask("HSET", member.TokensKey, "other", words[1])
	case "renewed":
		s.ask("HSET", waiters, ownerOf(words[1]), text(s.scripted.now()/1000+60_000)+" 60000")
	case "name":
		s.Lock = script.Exclusive(words[1])
	case "lives":
		return text(s.left(cmp.Or(s.names()[words[1]], words[1])).Milliseconds())
	case "peek":
		var out []string
		for _, v := range s.list(s.Peek(nil)) {
			out = append(out, cmp.Or(fmt.Sprint(v), "-"))
		}
		require.Len(s, s.list(s.PeekHolders(nil)), 6, "who waits is left out")
		return strings.Join(out, " ")
	case "renew":
		ttl := rt.Must(time.ParseDuration(words[2]))(s)
		renewal := s.Renew(nil, len(words)-3)
		for _, name := range words[3:] {
			renewal.Lock(name)
		}
		for range words[3:] {
			renewal.Lease(ownerOf(words[1]), ttl, nil)
		}
		return strings.Trim(fmt.Sprint(s.list(renewal.Command(s.Slot()))), "[]")
	case "redis":
		for i, w := range words {
			if key, ok := s.names()[strings.TrimPrefix(w, "$")]; ok && w[0] == '$' {
				words[i] = key
			}
			words[i] = ownerOf(words[i])
		}
		return fmt.Sprint(s.ask(words[1:]...))
	default:
		s.Fatalf("no such word: %s", words[0])
	}
	return ""
}

type sharedSite struct {
	serverSite
	with   *shares
	listen map[string]*redistest.Client
}

func (s *sharedSite) edit(words []string) string {
	s.Helper()
	span := func(i int) time.Duration { d, _ := time.ParseDuration(words[i]); return d }
	switch words[0] {
	case "java", "other":
		java := map[string]*Reference{"java": s.with.java, "other": s.with.other}[words[0]]
		switch java.Plain = words[1] == "plain"; words[1] {
		case "renew":
			return fmt.Sprint(java.renew(span(2)))
		case "release":
			return strings.Trim(fmt.Sprint(java.Release()), "<>")
		case "force":
			return fmt.Sprint(java.eval(theirForce, "2", s.Name, java.Channel()))
		}
		token, left, ok := java.try(span(2))
		if !ok {
			return fmt.Sprint("refused ", left)
		}
		return text(token)
	case "theirs", "ours":
		if words[1] == "leave" {
			require.NoError(s, s.listen[words[0]].Close())
			rt.Until(s, "who was subscribed has left", func() bool { return Numsub(s.T, s.server, s.with.java.Channel()) == 1 })
			break
		}
		c := map[string]func() *redistest.Client{"theirs": s.with.waiter, "ours": s.with.ours}[words[0]]()
		s.Cleanup(func() { _ = c.Close() })
		s.listen[words[0]] = c
	case "told":
		return cmp.Or(strings.Join(s.with.told(), " , "), "nothing")
	case "drawn":
		return s.with.count()
	case "draws":
		s.ask("SET", s.with.java.counter(), words[1])
	case "kept":
		s.behind = []string{"PEXPIRE", s.turn(), "60000"}
	case "waitfreed":
		return text(replyOf(s.run(s.WaitFreed(nil, ownerOf(words[1]), span(2), span(3), 0))).n)
	default:
		return s.serverSite.edit(words)
	}
	return ""
}

// scriptCall is a call of a script: times in ms.
type scriptCall struct {
	op         string
	owner      string
	former     string // of an adoption
	hint       string
	ttl, entry int64
	token      int64
	most       int64 // of a reservation and a rejoin
	tag        string
	fair       bool // of a fair lock
	ticket     int64

	// Of a semaphore.
	want     int // the slot to try first
	limit, n int
	known    int64
	had      permit.List // that a claim gives up; that the lease of a release, raise, rejoin, extend has
	slots    []int       // that a claim asks for; nil: none
	wish     int64       // of a rejoin
	stored   int64       // of a limit

	args []string // the command as it is sent, where a client's bytes were read
}

const opForce = "force"

func (c scriptCall) String() string {
	s := c.op + " " + c.owner
	add := func(is bool, format string, args ...any) {
		if is {
			s += fmt.Sprintf(format, args...)
		}
	}
	add(c.hint != "", " hint %s", c.hint)
	add(c.token != 0, " token %d", c.token)
	add(c.most > 0, " up to %d", c.most)
	add(c.n > 0, " %d of %d, slot %d first", c.n, c.limit, c.want)
	add(c.had != nil, " (%v)", c.had)
	add(c.slots != nil, " for %v", c.slots)
	add(c.wish > 0, " wish %d", c.wish)
	add(c.stored > 0, " store %d", c.stored)
	add(c.ttl > 0, " ttl %d", c.ttl)
	add(c.fair, " fair, ticket %d", c.ticket)
	add(c.tag != "", " tag %s", c.tag)
	return s
}

// scriptReply is a reply: n, or the permits as the script writes them, and, where the script tells them, the server's time,
// the head of the queue or the successor, the place, and the stored limit.
type scriptReply struct {
	err     string
	n       int64
	permits string
	server  int64
	next    string
	place   int64
	limit   int64
}

func (r scriptReply) String() string {
	switch {
	case r.err != "":
		return r.err
	case r.permits != "":
		return strings.TrimSpace(r.permits + " " + r.next)
	}
	return strings.TrimSpace(fmt.Sprint(r.n, " ", r.next))
}

func (c scriptCall) command(k script.Lock) member.Command {
	if c.fair {
		k = script.Fair(k.Name)
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch c.op {
	case opAcquire:
		return k.Acquire(nil, c.owner, ms(c.ttl))
	case opWait:
		return k.Wait(nil, c.owner, ms(c.ttl), ms(c.entry), c.ticket)
	case opRelease:
		return k.Release(nil, c.owner, c.hint)
	case opYield:
		return k.Yield(nil, c.owner, c.token, ms(c.ttl), ms(c.entry), c.ticket)
	case opRaise:
		return k.Raise(nil, c.owner, c.token)
	case opReserve:
		return k.Reserve(nil, c.owner, c.token, c.most)
	case opRejoin:
		return k.Rejoin(nil, c.owner, ms(c.ttl), c.token, c.most)
	case opForce:
		return k.Force(nil, script.Hash([]byte(c.owner)), ms(c.ttl)) // of nobody: ""
	case opExtend:
		return k.Extend(nil, c.owner, ms(c.ttl))
	}
	panic("no such script: " + c.op)
}

// between reports whether a server that told first and then later, in µs, may have told now meanwhile. If it told less
// later, the machine's clock was set back: by a few microseconds, now and then.
func between(first, now, then int64) bool {
	if then < first {
		const setBack = 100
		return then-setBack <= now && now <= first+setBack
	}
	return first <= now && now <= then
}

// shareable are names of every shape that the prefix rule knows.
var shareable = []string{"orders", "{orders}", "{orders}:1", "x{orders}y", "a{b", "a}b", "a{}b", "{}", "{{a}}", "with space", "ключ", "\x00\xff"}

// shares is a lock with Config.Interop at one server, asked as a member would ask; the reference's
// clients are beside it.
type shares struct {
	*scripted
	java, other *Reference
	theirs      *redistest.Client // hears both channels
}

func newShares(t *testing.T, server redistest.Server, name string) *shares {
	cfg := Config{Interop: true}
	s := &shares{scripted: &scripted{T: t, server: server, Lock: cfg.lockOf(name)}}
	s.c, s.inbox = s.dial(), s.dial()
	for _, source := range Scripts(WithInterop()) {
		s.ask("SCRIPT", "LOAD", source)
	}
	require.NoError(t, rt.Err(s.inbox.Do(t.Context(), "PSUBSCRIBE", script.Inbox("*"))))
	s.java, s.other = JavaOf(t, server, name, 1), JavaOf(t, server, name, 2)
	s.theirs = s.dial()
	// By pattern: no subscriber of the channel, as far as NUMSUB knows.
	require.NoError(t, rt.Err(s.theirs.Do(t.Context(), "PSUBSCRIBE", "redisson_lock__channel:*", "redquorum:ours:*", "end")))
	for range 2 { // confirmations
		require.NoError(t, rt.Err(s.theirs.ReceiveFor(10*time.Second)))
	}
	return s
}

// told returns what was heard in the two channels, "t" in ours and "0" in theirs.
func (s *shares) told() (out []string) {
	s.Helper()
	s.ask("PUBLISH", "end", "end")
	for {
		v := rt.Must(s.theirs.ReceiveFor(10 * time.Second))(s)
		got := v.([]any)
		if got[3] == "end" {
			return out
		}
		require.Equal(s, map[any]string{"t": theirs("redquorum:ours", s.Name), "0": s.java.Channel()}[got[3]], got[2])
		out = append(out, got[3].(string))
	}
}

func (s *shares) count() string {
	s.Helper()
	v, _ := s.ask("GET", s.java.counter()).(string)
	return v
}

// waiter subscribes as one of theirs, and ours as one of our clients.
func (s *shares) waiter() *redistest.Client { s.Helper(); return s.java.Listen() }

// turn is there while the lock is left to their waiters.
func (s *scripted) turn() string { return slot.Sibling("redquorum:turn", s.Name) }

func (s *shares) ours() *redistest.Client {
	s.Helper()
	c := s.dial()
	theirs, ours, _ := s.Channels()
	require.NoError(s, rt.Err(c.Do(s.Context(), "SUBSCRIBE", theirs, ours)))
	return c
}

func TestScriptsBesideTheReferenceSystem(t *testing.T) {
	onServers(t, func(t *testing.T, server redistest.Server, _ bool) {
		for _, c := range cases.Read(t, "internal/script/testdata/redisson/*.txt") {
			t.Run(c.Name, func(t *testing.T) {
				require.NoError(t, server.Flush())
				s := newShares(t, server, "invoice:42")
				rt.Until(s, "who was subscribed has left", func() bool { return Numsub(t, server, s.java.Channel()) == 0 }) // of the case before
				(&scriptPlay{T: t, stage: &sharedSite{serverSite{s.scripted}, s, map[string]*redistest.Client{}}}).play(c.Lines)
			})
		}
		for _, name := range shareable {
			t.Run(fmt.Sprintf("names %q", name), func(t *testing.T) {
				require.NoError(t, server.Flush())
				sharedName(newShares(t, server, name))
			})
		}
	})
}

// sharedName: what both sides mean by a name is the same lock, counter and channel.
func sharedName(s *shares) {
	first := s.take(alice, minute)
	_, left, ok := s.java.try(minute)
	require.False(s, ok)
	require.Positive(s, left)
	require.EqualValues(s, 1, s.number(s.Release(nil, alice, "")))
	require.Equal(s, []string{"0"}, s.told())
	second := s.java.Take(minute)
	require.Equal(s, first+1, second)
	require.Negative(s, s.take(alice, minute))
	require.EqualValues(s, 1, s.java.Release())
	require.Equal(s, []string{"0"}, s.told())
	require.Equal(s, second+1, s.take(alice, minute))
	s.number(s.Release(nil, alice, ""))
	require.Equal(s, []string{"0"}, s.told())
	require.ElementsMatch(s, []any{member.TokensKey, s.java.counter()}, s.ask("KEYS", "*"), "the counters stay, nothing else")
}
