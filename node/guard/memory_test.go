package guard

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// server is a member's server in memory, without a socket: the few commands that the guard sends,
// and its scripts by their headers. TestGuardScriptsDoWhatTheProtocolSays runs its cases on this
// server and on those that execute the Lua.
type server struct {
	mu      sync.Mutex
	run     string // run_id
	repl    string // replication id
	older   string // the one before it
	role    string
	born    time.Time
	ahead   time.Duration // of its clock
	hashes  map[string]map[string]string
	ends    map[string]time.Time // keys with a TTL
	stolen  map[uint16]bool      // slots that another master serves
	calls   int                  // scripts executed
	since   int                  // the same, when the process began
	emptied int                  // FLUSHALL since then
	follows int                  // REPLICAOF since then
	scans   int                  // pages that were read here

	refuses  bool // looks, whatever they are
	denies   bool // INFO, to scripts
	mute     bool // what it was told
	nameless bool

	before atomic.Pointer[func()] // each command

	carrying atomic.Int64 // how long a carry is on its way, in ns
}

func newServer(run string) *server {
	s := &server{}
	s.restart(run)
	return s
}

// restart is another process, with nothing in it.
func (s *server) restart(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.repl, s.older, s.role, s.born = run, "repl-"+run, strings.Repeat("0", 40), "master", time.Now()
	s.since, s.emptied, s.follows = s.calls, 0, 0
	s.hashes, s.ends = make(map[string]map[string]string), make(map[string]time.Time)
}

// flush deletes all keys.
func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emptied++
	clear(s.hashes)
	clear(s.ends)
}

// succeed is a replica that takes over, with a copy of what it had received.
func (s *server) succeed(run string, of *server) {
	s.restart(run)
	s.hashes, s.ends = of.copied()
	of.mu.Lock()
	defer of.mu.Unlock()
	s.older, s.repl = of.repl, "repl-of-"+run
}

// copied are the data, as a replica has received them.
func (s *server) copied() (hashes map[string]map[string]string, ends map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hashes = make(map[string]map[string]string)
	for key, h := range s.hashes {
		hashes[key] = maps.Clone(h)
	}
	return hashes, maps.Clone(s.ends)
}

// reload is a server that followed one with these data, and is a master again.
func (s *server) reload(hashes map[string]map[string]string, ends map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow("another")
	s.hashes, s.ends, s.repl = hashes, ends, "repl-of-another"
	s.follow("NO")
}

// edit changes what is there.
func (s *server) edit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// scanned is how many pages were read at the server.
func (s *server) scanned() (n int) {
	s.edit(func() { n = s.scans })
	return n
}

// marked is a field of the marker.
func (s *server) marked(field string) (value string) {
	s.edit(func() { value = s.hashes[member.MarkerKey][field] })
	return value
}

// executed is how many scripts the server has executed.
func (s *server) executed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *server) process() Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Process{RunID: s.name(), Uptime: time.Since(s.born), Seen: time.Now(), MasterID: "master-" + s.run}
	if s.calls > s.since {
		p.Served = Served
	}
	return p
}

// name is the run_id that it tells.
func (s *server) name() string {
	if s.nameless {
		return ""
	}
	return s.run
}

func str(s string) member.Reply           { return member.Reply{Kind: '$', Str: []byte(s)} }
func num(n int64) member.Reply            { return member.Reply{Kind: ':', Int: n} }
func list(e ...member.Reply) member.Reply { return member.Reply{Kind: '*', Elems: e} }

var null = member.Reply{Kind: '_'}

// words are the arguments of an encoded command.
func words(cmd []byte) (args []string) {
	line := func() int {
		head, rest, _ := bytes.Cut(cmd, []byte("\r\n"))
		cmd = rest
		n, err := strconv.Atoi(string(head[1:]))
		if err != nil {
			panic(err)
		}
		return n
	}
	for range line() {
		n := line()
		args = append(args, string(cmd[:n]))
		cmd = cmd[n+2:]
	}
	return args
}

// readOnly is what a write at a replica panics with. A script ends there, before it has changed
// anything.
type readOnly struct{}

// do executes one command.
func (s *server) do(args ...string) (r member.Reply) {
	if f := s.before.Load(); f != nil {
		(*f)()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case readOnly:
			r = member.Reply{Kind: '-', Str: []byte("READONLY You can't write against a read only replica.")}
		default:
			panic(why)
		}
	}()
	if args[0] == "INFO" && s.mute {
		return member.Reply{Kind: '-', Str: []byte("NOPERM")}
	}
	if args[0] == "INFO" && args[1] == "commandstats" {
		return str(fmt.Sprintf("# Commandstats\r\ncmdstat_eval:calls=1,usec=1\r\ncmdstat_flushall:calls=%d,usec=1\r\ncmdstat_replicaof:calls=%d,usec=1\r\n", s.emptied, s.follows))
	}
	key := args[1]
	if args[0] == "EVAL" {
		key = args[3]
	}
	if _, tag, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(tag, "}")
		if at := slot.Of(tag); s.stolen[at] {
			return member.Reply{Kind: '-', Str: fmt.Appendf(nil, "MOVED %d other:1", at)}
		}
	}
	s.expire()
	switch args[0] {
	case "HGET":
		if v, ok := s.hashes[key][args[2]]; ok {
			return str(v)
		}
		return null
	case "HMGET":
		if s.refuses {
			return member.Reply{Kind: '-', Str: []byte("LOADING")}
		}
		values := list()
		for _, field := range args[2:] {
			if v, ok := s.hashes[key][field]; ok {
				values.Elems = append(values.Elems, str(v))
			} else {
				values.Elems = append(values.Elems, null)
			}
		}
		return values
	case "HGETALL":
		var flat []member.Reply
		for field, v := range s.hashes[key] {
			flat = append(flat, str(field), str(v))
		}
		return member.Reply{Kind: '*', Elems: flat}
	case "HSCAN": // key cursor COUNT n
		s.scans++
		return s.hscan(key, uint64(integer(args[2])), int(integer(args[4])))
	case "HSET":
		return num(s.hset(key, args[2:]...))
	case "HDEL":
		return num(s.hdel(key, args[2]))
	case "DEL":
		return num(s.del(key))
	case "EXISTS":
		return num(s.exists(key))
	case "SET": // key 1 PX ms
		s.set(key, ms(args[4]))
		return str("OK")
	case "REPLICAOF": // a master that does not answer; or NO ONE
		s.follow(key)
		return str("OK")
	case "INFO":
		return str(s.info())
	case "EVAL":
		if s.refuses {
			return member.Reply{Kind: '-', Str: []byte("LOADING")}
		}
		s.calls++
		return s.eval(args[1], args[3:], args)
	}
	panic(fmt.Sprintf("a command that the guard does not use: %q", args))
}

func (s *server) info() string {
	if s.denies {
		return ""
	}
	return fmt.Sprintf("role:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", s.role, s.repl, s.older)
}

func ms(arg string) time.Duration { return time.Duration(integer(arg)) * time.Millisecond }

func integer(arg string) int64 {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *server) expire() {
	for key, at := range s.ends {
		if !time.Now().Before(at) {
			delete(s.ends, key)
		}
	}
}

// writes comes before every write.
func (s *server) writes() {
	if s.role != "master" {
		panic(readOnly{})
	}
}

// hscan returns the fields behind a cursor in the order of their hashes, as a server does: one that is added or removed
// meanwhile moves none of the others.
func (s *server) hscan(key string, cursor uint64, count int) member.Reply {
	place := func(field string) uint64 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(field))
		return uint64(h.Sum32()) + 1
	}
	fields := slices.SortedFunc(maps.Keys(s.hashes[key]), func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	fields = slices.DeleteFunc(fields, func(f string) bool { return place(f) <= cursor })
	next := "0"
	if len(fields) > count {
		for count < len(fields) && place(fields[count]) == place(fields[count-1]) {
			count++
		}
		if count < len(fields) {
			next = strconv.FormatUint(place(fields[count-1]), 10)
		}
		fields = fields[:count]
	}
	flat := list()
	for _, f := range fields {
		flat.Elems = append(flat.Elems, str(f), str(s.hashes[key][f]))
	}
	return list(str(next), flat)
}

// hset returns how many fields are new.
func (s *server) hset(key string, pairs ...string) (added int64) {
	s.writes()
	if s.hashes[key] == nil {
		s.hashes[key] = make(map[string]string)
	}
	for i := 0; i < len(pairs); i += 2 {
		if _, there := s.hashes[key][pairs[i]]; !there {
			added++
		}
		s.hashes[key][pairs[i]] = pairs[i+1]
	}
	return added
}

// hdel returns how many fields are gone. No hash is left without a field.
func (s *server) hdel(key, field string) int64 {
	s.writes()
	if _, there := s.hashes[key][field]; !there {
		return 0
	}
	delete(s.hashes[key], field)
	if len(s.hashes[key]) == 0 {
		delete(s.hashes, key)
	}
	return 1
}

// del returns how many keys are gone.
func (s *server) del(key string) int64 {
	s.writes()
	there := s.exists(key)
	delete(s.hashes, key)
	delete(s.ends, key)
	return there
}

func (s *server) set(key string, d time.Duration) {
	s.writes()
	s.ends[key] = time.Now().Add(d)
}

func (s *server) exists(key string) int64 {
	_, hash := s.hashes[key]
	_, other := s.ends[key]
	if hash || other {
		return 1
	}
	return 0
}

// follow makes the server the replica of a master, or with "NO" a master again, which has a
// replication id of its own then.
func (s *server) follow(master string) {
	s.follows++
	switch {
	case master != "NO":
		s.role = "slave"
	case s.role == "slave":
		s.role, s.older, s.repl = "master", s.repl, "repl-after-"+s.repl
	}
}

func (s *server) clock() int64 { return time.Now().Add(s.ahead).UnixMicro() }

func (s *server) micros() string { return strconv.FormatInt(s.clock(), 10) }

// eval executes a script of the guard.
func (s *server) eval(source string, keys, whole []string) member.Reply {
	switch source {
	case announceLua:
		if s.hashes[whole[3]]["pending"] == "" {
			s.hset(whole[3], "pending", whole[4])
		}
		return str(s.hashes[whole[3]]["pending"])
	case glanceLua:
		return s.glance(s.hashes[keys[0]])
	case sealLua:
		return s.seal(whole[3], whole[4:])
	case stampLua:
		return s.stamp(whole[3], whole[4:])
	case refillLua:
		return s.refill(whole[3], whole[4:])
	}
	source, plain := strings.CutPrefix(source, lookLua)
	source, replicated := strings.CutPrefix(source, shardLua)
	if !plain {
		panic("a script that is not the guard's")
	}
	e := &execution{server: s, h: s.hashes[keys[0]], marker: keys[0], quarantine: keys[1], tokens: keys[2], replicated: replicated}
	args := whole[6:]
	switch source {
	case lookSource:
	case claimLua:
		return e.claim(args)
	case fillLua:
		return e.fill(args)
	case markLua:
		e.mark(args)
	case liftLua:
		if e.h["id"] == args[0] && e.h != nil {
			e.raise(args[1])
		}
	case baseLua:
		e.base(args)
	case restoreLua:
		e.restore(args)
	case renameLua:
		if e.h["id"] == args[0] && e.h != nil {
			e.hset(e.marker, "repl", args[1])
		}
	case carryLua:
		e.carry(args)
	default:
		panic("a script that is not the guard's")
	}
	return e.look()
}

func (s *server) glance(h map[string]string) member.Reply {
	r := list(str(h["id"]), str(h["q"]))
	if repl, noted := h["repl"]; !s.denies && (!noted || repl != s.repl || s.role != "master") {
		r.Elems = append(r.Elems, str(repl), str(s.info()))
	}
	return r
}

// execution is one script at one marker.
type execution struct {
	*server
	h                          map[string]string
	marker, quarantine, tokens string
	replicated                 bool
}

func (e *execution) left() time.Duration { return max(0, time.Until(e.ends[e.quarantine])) }

func (e *execution) look() member.Reply {
	h := e.hashes[e.marker]
	left := int64(-2)
	if _, there := e.ends[e.quarantine]; there {
		left = e.left().Milliseconds()
	}
	q := h["q"]
	if q == "" {
		q = "0"
	}
	r := list(str(h["id"]), str(h["state"]), str(q), num(left), str(h["clk"]), num(e.clock()), str(h["lifted"]), str(e.hashes[e.tokens][baseField]))
	if e.replicated {
		r.Elems = append(r.Elems, str(h["repl"]), str(e.info()), str(e.hashes[e.tokens]["id"]))
	}
	return r
}

func (e *execution) rests(d time.Duration) { e.set(e.quarantine, d) }

func (e *execution) raise(q string) bool {
	old := "0"
	if e.h["q"] != "" {
		old = e.h["q"]
	}
	if integer(q) <= integer(old) {
		return false
	}
	e.hset(e.marker, "q", q, "lifted", e.micros())
	if left := e.left(); left > 0 || e.h["state"] == forgot {
		e.rests(left + ms(q) - ms(old))
	}
	return true
}

func (e *execution) mark(args []string) {
	repl, noted := e.h["repl"]
	if strings.HasPrefix(e.h["id"], args[0]+" ") && (len(args) < 6 || noted && repl == args[5]) {
		return
	}
	e.del(e.marker)
	e.hset(e.marker, "id", args[0]+" "+e.micros(), "q", args[1], "state", args[4])
	if len(args) > 5 {
		e.hset(e.marker, "repl", args[5])
	}
	if ms(args[2]) > 0 {
		e.rests(ms(args[2]))
	} else {
		e.del(e.quarantine)
	}
	if args[4] == forgot {
		e.del(e.tokens)
	} else {
		e.lift(e.tokens, baseField, args[3])
	}
}

func (e *execution) base(args []string) {
	if e.h["id"] != args[0] || e.h["state"] == forgot || e.role != "master" {
		return
	}
	if _, there := e.hashes[e.tokens][baseField]; !there || args[2] == "1" {
		e.lift(e.tokens, baseField, e.micros())
	}
	e.lift(e.tokens, baseField, args[1])
}

func (e *execution) waits(id string) bool {
	own := !e.replicated || e.denies || e.h["repl"] == e.repl && e.role == "master"
	return e.h["id"] == id && e.h["state"] == forgot && e.left() == 0 && own
}

func (e *execution) claim(args []string) member.Reply {
	if !e.waits(args[0]) {
		return e.look()
	}
	if args[2] == "0" {
		if e.h["by"] == args[1] {
			e.hdel(e.marker, "by")
			e.hdel(e.marker, "till")
		}
		return e.look()
	}
	now, why, left := e.clock(), "claimed", int64(0)
	if by := e.h["by"]; by != "" && by != args[1] {
		left = integer(e.h["till"]) - now
	}
	if left > 60e6 {
		left = 0
	}
	if left <= 0 {
		why = "few"
		if args[3] == "0" {
			e.hdel(e.marker, "few")
		} else {
			if e.h["few"] == "" || integer(e.h["few"]) > now {
				e.hset(e.marker, "few", e.micros())
			}
			left = integer(e.h["few"]) + integer(args[3])*1000 - now
		}
	}
	if left <= 0 {
		why, left = "", 0
		e.hset(e.marker, "by", args[1], "till", strconv.FormatInt(now+integer(args[2])*1000, 10))
	}
	told := list(str(why), num((left+999)/1000))
	for field, v := range e.h {
		if strings.HasPrefix(field, "from ") {
			told.Elems = append(told.Elems, str(field), str(v))
		}
	}
	r := e.look()
	r.Elems = append(r.Elems, told)
	return r
}

func (e *execution) fill(args []string) member.Reply {
	now, by := e.clock(), e.h["by"]
	if !e.waits(args[0]) || e.h["q"] != args[3] || by != "" && by != args[1] && integer(e.h["till"]) > now {
		return e.look()
	}
	e.raiseTo(e.tokens, args[4], args[5], args[8:])
	r := e.look()
	e.hset(e.marker, "by", args[1], "till", strconv.FormatInt(now+integer(args[2])*1000, 10), args[6], args[7])
	r.Elems = append(r.Elems, num(1))
	return r
}

func (e *execution) restore(args []string) {
	if !e.waits(args[0]) || e.raise(args[2]) || e.h["q"] != args[2] {
		return
	}
	if args[3] != "" {
		if args[1] == "1" {
			e.lift(e.tokens, baseField, e.micros())
		}
		e.lift(e.tokens, baseField, args[3])
	}
	for field := range e.h {
		if strings.HasPrefix(field, "from ") || slices.Contains([]string{"by", "till", "few"}, field) {
			e.hdel(e.marker, field)
		}
	}
	e.hset(e.marker, "state", whole, "clk", args[1])
}

func (e *execution) carry(args []string) {
	made := func(id string) int64 {
		_, at, ok := strings.Cut(id, " ")
		if !ok {
			return 0
		}
		return integer(at)
	}
	same := e.h["id"] == args[0]
	if e.repl != args[4] || !same && made(e.h["id"]) > made(args[0]) {
		return
	}
	switch {
	case same:
		e.raise(args[2])
	case e.hashes[e.tokens]["pending"] != args[7]:
		return
	default:
		e.hdel(e.tokens, "pending")
		e.del(e.marker)
		e.hset(e.marker, "id", args[0], "state", args[1], "q", args[2], "clk", args[3], "repl", args[4])
		if args[6] != "" {
			e.hset(e.marker, "lifted", strconv.FormatInt(time.Now().Add(-ms(args[6])).UnixMicro(), 10))
		}
	}
	if left := ms(args[5]); left > e.left() {
		e.rests(left)
	}
}

// lift raises a counter. One that is not there is 0.
func (s *server) lift(key, bucket, token string) {
	old, there := s.hashes[key][bucket]
	if !there {
		old = "0"
	}
	if integer(old) < integer(token) {
		s.hset(key, bucket, token)
	}
}

func (s *server) stamp(key string, args []string) member.Reply {
	h := s.hashes[key]
	switch {
	case h["id"] == args[0]:
		return num(1)
	case h["pending"] != args[3]:
		return num(-2)
	}
	if id := h["id"]; id != "" && h["forgot"] != "" {
		_, made, _ := strings.Cut(id, " ")
		if time.Now().UnixMicro()-integer(made) < integer(args[1])*1000 {
			return num(0)
		}
		if args[2] != "1" {
			return num(-1)
		}
	}
	s.hset(key, "id", args[0])
	for _, field := range []string{"forgot", "pending", baseField} {
		s.hdel(key, field)
	}
	return num(1)
}

func (s *server) seal(key string, args []string) member.Reply {
	h := s.hashes[key]
	if h["pending"] != args[1] {
		return null
	}
	if before := h["id"]; before != args[0] {
		if args[2] == "1" {
			s.del(key)
		}
		s.hdel(key, baseField)
		s.hset(key, "id", args[0])
		if before == "" && args[4] != "0" {
			s.hset(key, baseField, args[4])
		}
		if args[3] == "1" {
			s.hset(key, "forgot", "1")
		}
	}
	s.hdel(key, "pending")
	return null
}

func (s *server) refill(key string, args []string) member.Reply {
	if s.hashes[key]["id"] != args[0] {
		return num(0)
	}
	s.raiseTo(key, args[1], args[2], args[3:])
	return num(1)
}

// raiseTo is script/count.lua.
func (s *server) raiseTo(key, least, byClock string, fields []string) {
	floor := integer(least)
	if byClock == "1" {
		floor = max(floor, s.clock())
	}
	for pair := range slices.Chunk(fields, 2) {
		n := integer(pair[1])
		if !isLimit(pair[0]) {
			n = max(n, floor)
		}
		s.lift(key, pair[0], strconv.FormatInt(n, 10))
	}
}
