package guard

import (
	"bytes"
	"fmt"
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
	case tableLua:
		var flat []member.Reply
		for bucket, token := range s.hashes[e.tokens] {
			flat = append(flat, str(bucket), str(token))
		}
		r := e.look()
		r.Elems = append(r.Elems, list(flat...))
		return r
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

func (e *execution) restore(args []string) {
	if e.h["id"] != args[0] || e.h["state"] != forgot || e.left() > 0 || e.raise(args[2]) {
		return
	}
	for i := 4; i < len(args); i += 2 {
		e.lift(e.tokens, args[i], args[i+1])
	}
	if args[3] != "" {
		e.lift(e.tokens, baseField, args[3])
		if args[1] == "1" {
			e.lift(e.tokens, baseField, e.micros())
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
	for pair := range slices.Chunk(args[1:], 2) {
		s.lift(key, pair[0], pair[1])
	}
	return num(1)
}
