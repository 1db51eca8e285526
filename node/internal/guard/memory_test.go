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

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// server is a member's server in memory, without a socket: the few commands that the guard and its scripts
// send. TestGuardScriptsDoWhatTheProtocolSays runs its cases on this server, too.
type server struct {
	mu     sync.Mutex
	run    string // run_id
	repl   string // replication id
	older  string // the one before it
	role   string
	ahead  time.Duration // of its clock
	hashes map[string]map[string]string
	ends   map[string]time.Time // keys with a TTL
	stolen map[uint16]bool      // slots that another master serves
	calls  int                  // scripts executed
	scans  int                  // pages that were read here
	words  int                  // of the longest command

	refuses  bool // looks, whatever they are
	denies   bool // INFO, to scripts
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
	s.run, s.repl, s.older, s.role = run, "repl"+run, strings.Repeat("0", 40), "master"
	s.hashes, s.ends = make(map[string]map[string]string), make(map[string]time.Time)
}

// flush deletes all keys.
func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.hashes)
	clear(s.ends)
}

// succeed is a replica that takes over, with a copy of what it had received.
func (s *server) succeed(run string, of *server) {
	s.restart(run)
	s.hashes, s.ends = of.copied()
	of.mu.Lock()
	defer of.mu.Unlock()
	s.older, s.repl = of.repl, "replof"+run
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
	s.hashes, s.ends, s.repl = hashes, ends, "replofanother"
	s.follow("NO")
}

// edit changes what is there.
func (s *server) edit(f func()) { rt.Locked(&s.mu, f) }

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
func (s *server) executed() int { return rt.Under(&s.mu, func() int { return s.calls }) }

func (s *server) process() Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Process{RunID: s.name(), MasterID: "master-" + s.run}
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

// do executes one command.
func (s *server) do(args ...string) member.Reply {
	if f := s.before.Load(); f != nil {
		(*f)()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = max(s.words, len(args))
	key := args[1]
	if args[0] == "EVAL" {
		key = args[3]
	}
	if _, tag, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(tag, "}")
		if at := slot.Of(tag); s.stolen[at] {
			return replyOf(redistest.Error(fmt.Sprintf("MOVED %d other:1", at)))
		}
	}
	maps.DeleteFunc(s.ends, func(_ string, at time.Time) bool { return !time.Now().Before(at) })
	switch args[0] {
	case "HMGET", "EVAL":
		if s.refuses {
			return replyOf(redistest.Error("LOADING"))
		}
	}
	if args[0] == "EVAL" {
		s.calls++
		keys := int(integer(args[2]))
		return replyOf(redistest.RunScript(args[1], args[3:3+keys], args[3+keys:], func(args []string) any {
			if args[0] == "INFO" && s.denies {
				return redistest.Error("NOPERM")
			}
			return s.execute(args)
		}))
	}
	return replyOf(s.execute(args))
}

// execute executes a command of a connection or of a script.
func (s *server) execute(args []string) any {
	key := ""
	if len(args) > 1 {
		key = args[1]
	}
	h := s.hashes[key]
	if writes := []string{"HSET", "HDEL", "DEL", "SET"}; s.role != "master" && slices.Contains(writes, args[0]) {
		return redistest.Error("READONLY You can't write against a read only replica.")
	}
	switch args[0] {
	case "HGET":
		return s.field(key, args[2])
	case "HMGET":
		var values []any
		for _, field := range args[2:] {
			values = append(values, s.field(key, field))
		}
		return values
	case "HGETALL":
		var flat []any
		for _, field := range slices.Sorted(maps.Keys(h)) {
			flat = append(flat, field, h[field])
		}
		return flat
	case "HSCAN": // key cursor COUNT n
		s.scans++
		return s.hscan(key, uint64(integer(args[2])), int(integer(args[4])))
	case "HSET":
		return s.hset(key, args[2:]...)
	case "HDEL":
		was := len(h)
		for _, field := range args[2:] {
			delete(h, field)
		}
		if len(h) == 0 {
			delete(s.hashes, key)
		}
		return int64(was - len(h))
	case "DEL":
		there := s.exists(key)
		delete(s.hashes, key)
		delete(s.ends, key)
		return there
	case "EXISTS":
		return s.exists(key)
	case "SET": // key 1 PX ms
		s.ends[key] = time.Now().Add(time.Duration(integer(args[4])) * time.Millisecond)
		return "OK"
	case "PTTL":
		if at, there := s.ends[key]; there {
			return time.Until(at).Milliseconds()
		}
		return int64(-2)
	case "TIME":
		now := time.Now().Add(s.ahead).UnixMicro()
		return []any{strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10)}
	case "REPLICAOF": // a master that does not answer; or NO ONE
		s.follow(key)
		return "OK"
	case "INFO":
		return fmt.Sprintf("role:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", s.role, s.repl, s.older)
	}
	panic(fmt.Sprintf("a command that the guard does not use: %q", args))
}

// field is nil where it is not there.
func (s *server) field(key, field string) any {
	if v, ok := s.hashes[key][field]; ok {
		return v
	}
	return nil
}

func integer(arg string) int64 {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// hscan returns the fields behind a cursor in the order of their hashes, as a server does: one that is added or removed
// meanwhile moves none of the others.
func (s *server) hscan(key string, cursor uint64, count int) any {
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
	var flat []any
	for _, f := range fields {
		flat = append(flat, f, s.hashes[key][f])
	}
	return []any{next, flat}
}

// hset returns how many fields are new.
func (s *server) hset(key string, pairs ...string) (added int64) {
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
	switch {
	case master != "NO":
		s.role = "slave"
	case s.role == "slave":
		s.role, s.older, s.repl = "master", s.repl, "replafter"+s.repl
	}
}
