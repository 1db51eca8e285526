package redistest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// redisVersion is what the embedded server calls itself: the commands offered are those of this one.
const redisVersion = "7.0.15"

// perform executes one command of a session, and reports whether the connection ends with it. What
// miniredis has not is answered here.
func (s *session) perform(args []string) (quit bool) {
	name := strings.ToUpper(args[0])
	if s.subscribed() && !s.cmd.Resp3 && !allowedWhileSubscribed(name) {
		s.cmd.WriteError(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", strings.ToLower(name)))
		return false
	}
	if kind, on, ok := subscribing(name); ok {
		s.subscribe(kind, on, args[1:])
		return false
	}
	switch name {
	case "PING":
		s.ping(args)
	case "HELLO":
		s.hello(args)
	case "RESET":
		s.unlistenAll()
		s.cmd.Resp3 = false
		s.cmd.ClientName = ""
		s.cmd.WriteInline("RESET")
	case "CLIENT":
		return s.client(args[1:])
	case "INFO":
		s.cmd.WriteBulk(s.server.info(args[1:]))
	case "CONFIG":
		s.config(args[1:])
	case "SCRIPT":
		s.scriptCache(args)
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		s.eval(name, args)
	case "MULTI", "EXEC", "DISCARD":
		s.server.srv.Dispatch(s.cmd, args)
		s.inMulti = name == "MULTI"
	case "ROLE":
		s.cmd.WriteLen(3)
		s.cmd.WriteBulk("master")
		s.cmd.WriteInt(0)
		s.cmd.WriteLen(0)
	case "ACL":
		if len(args) == 2 && strings.EqualFold(args[1], "WHOAMI") {
			s.cmd.WriteBulk("default")
			return false
		}
		s.cmd.WriteError(fmt.Sprintf("ERR unknown subcommand '%s'. Try ACL HELP.", strings.Join(args[1:], " ")))
	default:
		if blocks(name, args) {
			s.cmd.WriteError("ERR blocking commands are not offered by the embedded server")
			return false
		}
		s.server.srv.Dispatch(s.cmd, args)
	}
	return false
}

func allowedWhileSubscribed(name string) bool {
	return strings.HasSuffix(name, "SUBSCRIBE") || name == "PING" || name == "QUIT" || name == "RESET"
}

func blocks(name string, args []string) bool {
	switch name {
	case "BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "WAIT", "WAITAOF":
		return true
	case "XREAD", "XREADGROUP":
		return slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "BLOCK") })
	}
	return false
}

// ping answers in the form of a message where only messages are expected.
func (s *session) ping(args []string) {
	if !s.subscribed() || s.cmd.Resp3 || len(args) > 2 {
		s.server.srv.Dispatch(s.cmd, args)
		return
	}
	s.cmd.WriteStrings([]string{"pong", strings.Join(args[1:], "")})
}

// hello repairs what miniredis says of itself, and what it leaves undone.
func (s *session) hello(args []string) {
	if len(args) == 1 {
		version := "2"
		if s.cmd.Resp3 {
			version = "3"
		}
		args = append(slices.Clone(args), version)
	}
	s.server.srv.Dispatch(s.cmd, args)
	s.cmd.Flush()
	if len(s.out) == 0 || s.out[0] == '-' {
		return
	}
	for i := 2; i+1 < len(args); i++ {
		if strings.EqualFold(args[i], "SETNAME") {
			s.cmd.ClientName = args[i+1]
		}
		if strings.EqualFold(args[i], "AUTH") {
			i += 2
		}
	}
	for _, fix := range [][2]string{
		{"$2\r\nid\r\n:42\r\n", "$2\r\nid\r\n:" + strconv.FormatInt(s.id, 10) + "\r\n"},
		{"$9\r\nminiredis\r\n", "$5\r\nredis\r\n"},
		{"$5\r\n8.4.0\r\n", "$" + strconv.Itoa(len(redisVersion)) + "\r\n" + redisVersion + "\r\n"},
	} {
		s.out = bytes.Replace(s.out, []byte(fix[0]), []byte(fix[1]), 1)
	}
}

func (s *session) client(args []string) (quit bool) {
	if len(args) == 0 {
		s.cmd.WriteError("ERR wrong number of arguments for 'client' command")
		return false
	}
	switch strings.ToUpper(args[0]) {
	case "ID":
		s.cmd.WriteInt(int(s.id))
	case "SETINFO", "NO-EVICT", "NO-TOUCH":
		s.cmd.WriteOK()
	case "KILL":
		return s.kill(args[1:])
	case "LIST":
		s.cmd.WriteBulk(s.server.clientList(args[1:]))
	case "INFO":
		s.cmd.WriteBulk(s.describe())
	default:
		s.server.srv.Dispatch(s.cmd, append([]string{"CLIENT"}, args...))
	}
	return false
}

// kill is CLIENT KILL with filters; ADDR, LADDR and USER match nobody here.
func (s *session) kill(args []string) (quit bool) {
	if len(args) < 2 || len(args)%2 != 0 {
		if len(args) == 1 { // the old form, by address
			s.cmd.WriteError("ERR No such client")
			return false
		}
		s.cmd.WriteError("ERR syntax error")
		return false
	}
	filters := []func(*session) bool{}
	skipMe := true
	for i := 0; i < len(args); i += 2 {
		value := args[i+1]
		switch strings.ToUpper(args[i]) {
		case "ID":
			id, err := strconv.ParseInt(value, 10, 64)
			if err != nil || id < 1 {
				s.cmd.WriteError("ERR client-id should be greater than 0")
				return false
			}
			filters = append(filters, func(o *session) bool { return o.id == id })
		case "TYPE":
			pubsub := strings.EqualFold(value, "pubsub")
			filters = append(filters, func(o *session) bool { return pubsub == o.subscribed() })
		case "SKIPME":
			skipMe = strings.EqualFold(value, "yes")
		case "ADDR", "LADDR", "USER":
			filters = append(filters, func(*session) bool { return false })
		default:
			s.cmd.WriteError("ERR syntax error")
			return false
		}
	}
	killed := 0
	for _, o := range s.server.live() {
		if slices.ContainsFunc(filters, func(f func(*session) bool) bool { return !f(o) }) {
			continue
		}
		if o == s {
			if !skipMe {
				quit = true
				killed++
			}
			continue
		}
		s.server.drop(o)
		killed++
	}
	s.cmd.WriteInt(killed)
	return quit
}

// live lists the sessions by id.
func (e *Embedded) live() []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*session, 0, len(e.sessions))
	for _, s := range e.sessions {
		if !s.gone.Load() {
			list = append(list, s)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list
}

// clientList is CLIENT LIST, of all or of those with an ID.
func (e *Embedded) clientList(filter []string) string {
	var b strings.Builder
	for _, s := range e.live() {
		if len(filter) == 0 || strings.EqualFold(filter[0], "ID") && slices.Contains(filter[1:], strconv.FormatInt(s.id, 10)) {
			b.WriteString(s.describe())
		}
	}
	return b.String()
}

func (s *session) describe() string {
	resp := 2
	if s.cmd.Resp3 {
		resp = 3
	}
	return fmt.Sprintf("id=%d addr=127.0.0.1:0 laddr=127.0.0.1:0 name=%s age=%d db=0 sub=%d psub=%d user=default resp=%d\n",
		s.id, s.cmd.ClientName, int(time.Since(s.since)/time.Second), len(s.subs[channels]), len(s.subs[patterns]), resp)
}

// info is INFO: the sections and fields that a lock client or its operator looks at.
func (e *Embedded) info(want []string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	// As in Redis: a difference of whole seconds, which can be up to a second ahead.
	uptime := e.clock.now().Unix() - e.started.Unix()
	sections := []struct{ name, text string }{
		{"Server", fmt.Sprintf("redis_version:%s\r\nredis_mode:standalone\r\nos:%s\r\nrun_id:%s\r\ntcp_port:6379\r\nserver_time_usec:%d\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			redisVersion, runtime.GOOS, e.runID, e.clock.now().UnixMicro(), uptime, uptime/86400)},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\nmaxclients:10000\r\nblocked_clients:0\r\n", len(e.sessions))},
		{"Memory", "used_memory:1048576\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"Persistence", "loading:0\r\nrdb_last_bgsave_status:ok\r\naof_enabled:0\r\naof_last_write_status:ok\r\n"},
		{"Stats", "expired_keys:0\r\nevicted_keys:0\r\n"},
		{"Replication", e.replicationLocked()},
		{"Cluster", "cluster_enabled:0\r\n"},
	}
	var b strings.Builder
	for _, sec := range sections {
		if len(want) > 0 && !slices.ContainsFunc(want, func(w string) bool {
			return strings.EqualFold(w, sec.name) || slices.Contains([]string{"all", "default", "everything"}, strings.ToLower(w))
		}) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + sec.name + "\r\n" + sec.text)
	}
	return b.String()
}

// replicationLocked is the section that scripts ask for.
func (e *Embedded) replicationLocked() string {
	return "role:master\r\nconnected_slaves:0\r\nmaster_replid:" + e.replID + "\r\nmaster_replid2:" + e.older + "\r\nmaster_repl_offset:0\r\n"
}

var configValues = map[string]string{
	"appendfsync":           "everysec",
	"appendonly":            "no",
	"cluster-enabled":       "no",
	"maxclients":            "10000",
	"maxmemory":             "0",
	"maxmemory-policy":      "noeviction",
	"min-replicas-to-write": "0",
	"save":                  "",
	"timeout":               "0",
}

// config is CONFIG GET of the settings that matter to locks.
func (s *session) config(args []string) {
	if len(args) < 2 || !strings.EqualFold(args[0], "GET") {
		s.cmd.WriteError("ERR the embedded server offers CONFIG GET only")
		return
	}
	var found []string
	for name := range configValues {
		if slices.ContainsFunc(args[1:], func(p string) bool { return globMatch(strings.ToLower(p), name) }) {
			found = append(found, name)
		}
	}
	sort.Strings(found)
	s.cmd.WriteMapLen(len(found))
	for _, name := range found {
		s.cmd.WriteBulk(name)
		s.cmd.WriteBulk(configValues[name])
	}
}
