// Package doctor judges whether a set of members is fit to lock. facts.go asks each member and
// changes nothing. judge.go says what is wrong, what that risks and what cures it, and is pure.
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

// Facts are what one member told, or one master of a Redis Cluster.
type Facts struct {
	Member string
	Kind   node.TargetKind
	Addr   string // of the server
	Err    error  // why it could not be reached; nothing else is set then
	TLSErr bool   // Err is about TLS

	RTT    time.Duration     // median of five
	Info   map[string]string // INFO
	Config map[string]string // CONFIG GET; nil if that is not permitted
	Clock  [2]Reading        // of the member's clock

	MarkerErr error // why the restart guard's keys could not be read
	Marker    string
	State     string // of the marker: n, g or w
	// the replication id that the marker was made for; "" at a plain member that no client of this version has used
	Repl string
	Left time.Duration // of the quarantine

	WriteErr error // what it says to a write that changes nothing; a context's error: nothing

	Denied  []string  // commands of the library that the user may not run, or that the server does not know
	ACLErr  error     // why that could not be found out, of all or some
	Expires time.Time // of the certificate; zero without TLS

	// Of a member whose replicas may take over.
	Lag       time.Duration // failover_lag
	Ack       int           // min_replicas_ack, of any member
	Replicas  []Replica     // of the server
	Sightings []Sighting    // what each Sentinel says; Kind is BySentinel

	// Of a Redis Cluster as a whole.
	Views []View
	Parts []Facts // its masters; nothing that servers tell is set beside them

	// Of one of them.
	Slots   int
	Health  string // cluster_state, "" if that is not permitted
	Missing bool   // it is not the server that the others name
	Stamped bool   // its slots were used under some master's marker
}

// View is what one server says of its cluster.
type View struct {
	Server string
	Err    error
	Slots  []string // for each master, which slots it serves, in some order that is always the same
}

// Replica is what a replica says of itself.
type Replica struct {
	Addr   string
	Err    error
	Config map[string]string // nil if that is not permitted
}

// servers are those whose facts f has: its own, or those of its parts.
func (f *Facts) servers() []*Facts {
	if f.Kind != node.RedisCluster || f.Slots > 0 {
		return []*Facts{f}
	}
	var all []*Facts
	for i := range f.Parts {
		all = append(all, &f.Parts[i])
	}
	return all
}

// Reading is one look at a clock: it read Server between Sent and Arrived.
type Reading struct {
	Sent, Arrived time.Time
	Server        time.Time
}

// Target is a server to ask.
type Target struct {
	Node   *node.Node
	Config node.Config       // that Node was made with
	Dial   map[string]string // announced addresses to those that are dialled
	Kind   node.TargetKind   // of the member that it belongs to
	Name   string            // of the member, or of the master of a cluster
	Slots  []uint16          // of a master of a cluster
	ID     string            // its node id as the others tell it, "" if they do not
	Lag    time.Duration     // failover_lag
}

// Terms are what the judgement depends on.
type Terms struct {
	Drift    float64
	MaxTTL   time.Duration
	GuardOff bool
	Interop  bool
	Key      string // name of a lock, for permissions
	// KeyChosen means that the user named Key. If nobody chose the name, it does not matter whether
	// locks may have it.
	KeyChosen bool
	Own       time.Time // when our own certificate expires; zero: there is none
	Dial      time.Duration
	Patience  time.Duration // of clients with a member's answer; 0: not known
	Between   time.Duration // the two readings of the clocks
}

// Ask gathers the facts about one server.
func Ask(ctx context.Context, t Target, terms Terms) Facts {
	f := Facts{Member: t.Name, Kind: t.Kind, Addr: t.Config.Addr, Slots: len(t.Slots), Lag: t.Lag, Ack: t.Config.MinReplicasAck}
	if f.Err = Ready(ctx, t.Node, terms.Dial); f.Err != nil {
		return f
	}
	ask := func(args ...string) (member.Reply, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return member.Ask(ctx, t.Node, member.Command{Cmd: resp.Command(args...)})
	}
	var rtts []time.Duration
	for range 5 {
		start := time.Now()
		if _, err := ask("PING"); judged(err, false) == unclear { // what is denied is an answer, too
			f.Err = err
			return f
		}
		rtts = append(rtts, time.Since(start))
	}
	slices.Sort(rtts)
	f.RTT = rtts[2]
	f.Clock[0], _ = clock(ask)
	first := time.Now()
	if r, err := ask("INFO"); err == nil {
		f.Info = parseInfo(string(r.Str))
	}
	f.Config = config(ask, slices.Concat(settings, replicated[t.Kind]))
	f.marker(ask, t)
	f.write(ask, t, terms)
	f.permissions(ctx, ask, t, terms)
	if t.Kind == node.RedisCluster {
		if r, err := ask("CLUSTER", "INFO"); err == nil {
			f.Health = parseInfo(string(r.Str))["cluster_state"]
		}
	}
	if t.Kind != node.OneServer {
		f.Replicas = replicas(ctx, f.Info, t)
	}
	if t.Config.TLS != nil {
		f.Expires = expires(ctx, t, terms.Dial)
	}
	select {
	case <-time.After(terms.Between - time.Since(first)):
	case <-ctx.Done():
	}
	f.Clock[1], _ = clock(ask)
	return f
}

type asker func(args ...string) (member.Reply, error)

// Ready waits until the member is up, or has failed once.
func Ready(ctx context.Context, m *node.Node, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Second)
	defer cancel()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		switch st := m.State(); {
		case st.Up:
			return nil
		case st.Err != nil && !errors.Is(st.Err, member.ErrConnecting):
			return st.Err // which names the member
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", m.Name(), ctx.Err())
		}
	}
}

func clock(ask asker) (Reading, error) {
	sent := time.Now()
	r, err := ask("TIME")
	if err != nil || len(r.Elems) != 2 {
		return Reading{}, errors.Join(err, errors.New("TIME: reply of an unexpected shape"))
	}
	s, _ := strconv.ParseInt(string(r.Elems[0].Str), 10, 64)
	us, _ := strconv.ParseInt(string(r.Elems[1].Str), 10, 64)
	return Reading{sent, time.Now(), time.Unix(s, us*1000)}, nil
}

func parseInfo(text string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			out[k] = v
		}
	}
	return out
}

// The settings that are looked at, and those that matter where a replica may take over.
var (
	settings   = []string{"appendfsync", "client-output-buffer-limit", "maxmemory-policy", "min-replicas-to-write", "stop-writes-on-bgsave-error"}
	replicated = map[node.TargetKind][]string{
		node.RedisCluster: {"cluster-node-timeout", "cluster-require-full-coverage", "cluster-replica-validity-factor", "cluster-replica-no-failover"},
		node.BySentinel:   {"min-replicas-max-lag"},
	}
)

// replicas asks those of a master for the settings that will count when one of them takes over.
func replicas(ctx context.Context, info map[string]string, t Target) []Replica {
	var out []Replica
	for i := 0; ; i++ {
		fields, ok := info["slave"+strconv.Itoa(i)] // ip=10.0.0.1,port=6379,state=online,...
		if !ok {
			break
		}
		of := make(map[string]string)
		for f := range strings.SplitSeq(fields, ",") {
			k, v, _ := strings.Cut(f, "=")
			of[k] = v
		}
		out = append(out, Replica{Addr: net.JoinHostPort(of["ip"], of["port"])})
	}
	names := append([]string{"maxmemory-policy", "min-replicas-to-write"}, replicated[t.Kind]...)
	var cmds [][]byte
	for _, name := range names {
		cmds = append(cmds, resp.Command("CONFIG", "GET", name))
	}
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			r := &out[i]
			c := t.Config
			if c.Addr = r.Addr; t.Dial[r.Addr] != "" {
				c.Addr = t.Dial[r.Addr]
			}
			var replies []member.Reply
			if replies, r.Err = node.Query(ctx, c, cmds...); r.Err != nil {
				return
			}
			for k := range replies {
				if e := replies[k].Elems; len(e) == 2 {
					if r.Config == nil {
						r.Config = make(map[string]string)
					}
					r.Config[names[k]] = string(e[1].Str)
				}
			}
		})
	}
	wg.Wait()
	return out
}

func config(ask asker, names []string) map[string]string {
	var out map[string]string
	for _, name := range names {
		r, err := ask("CONFIG", "GET", name)
		if err != nil || len(r.Elems) != 2 {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[name] = string(r.Elems[1].Str)
	}
	return out
}

// marker reads the restart guard's keys.
func (f *Facts) marker(ask asker, t Target) {
	id := ""
	if t.Kind == node.RedisCluster {
		r, err := ask("CLUSTER", "MYID")
		if err != nil {
			f.MarkerErr = fmt.Errorf("the restart guard's marker cannot be found: CLUSTER MYID: %w", err)
			return
		}
		id = string(r.Str)
		f.Missing = t.ID != "" && t.ID != id
	}
	boot, quarantine := node.MarkerKeys(t.Slots, id)
	r, err := ask("HMGET", boot, "id", "state", "repl")
	if err == nil && len(r.Elems) != 3 {
		err = errors.New("HMGET: reply of an unexpected shape")
	}
	if err != nil {
		f.MarkerErr = fmt.Errorf("the restart guard's marker cannot be read: %w", err)
		return
	}
	f.Marker, f.State, f.Repl = string(r.Elems[0].Str), string(r.Elems[1].Str), string(r.Elems[2].Str)
	if t.Kind == node.RedisCluster {
		r, err := ask("HEXISTS", "redquorum:tokens:{"+slot.TagOf(t.Slots[0])+"}", "id")
		f.Stamped = err == nil && r.Int == 1
	}
	if r, err = ask("PTTL", quarantine); err == nil {
		f.Left = time.Duration(max(0, r.Int)) * time.Millisecond
	}
}

// Commands returns the commands that the library uses at a server, with the arguments that it uses
// for a lock named key.
func Commands(t Target, key string, interop bool) [][]string {
	tokens, inbox := "redquorum:tokens", "redquorum:inbox:doctor"
	boot, quarantine := node.MarkerKeys(t.Slots, strings.Repeat("0", 40))
	if t.Kind == node.RedisCluster {
		tag := ":{" + slot.TagOf(slot.Of(key)) + "}"
		tokens, inbox = tokens+tag, inbox+tag
	}
	queue, waiters := "redquorum:q:{"+key+"}", "redquorum:w:{"+key+"}"
	out := [][]string{
		{"EVAL", "return 1", "2", key, tokens}, {"EVALSHA", strings.Repeat("0", 40), "2", key, tokens}, {"SCRIPT", "LOAD", "return 1"},
		{"SCRIPT", "EXISTS", strings.Repeat("0", 40)},
		{"SUBSCRIBE", inbox}, {"PUBLISH", inbox, "x"}, {"PING"}, {"INFO"}, {"TIME"},
		{"CLIENT", "ID"}, {"CLIENT", "LIST", "ID", "1"}, {"CLIENT", "KILL", "ID", "1"}, {"CLIENT", "SETNAME", "x"},
		{"PTTL", key}, {"PEXPIRE", key, "1"}, {"EXISTS", key}, {"DEL", key},
		{"HGET", key, "f"}, {"HSET", key, "f", "v"}, {"HDEL", key, "f"}, {"HEXISTS", key, "f"}, {"HKEYS", key},
		{"HMGET", waiters, "f"}, {"HGETALL", key}, {"HLEN", key}, {"HINCRBY", tokens, "f", "1"},
		{"ZADD", queue, "1", "m"}, {"ZREM", queue, "m"}, {"ZRANGE", queue, "0", "-1"},
		{"ZSCORE", slot.Sibling("redquorum:sq", key), "m"}, {"HSCAN", slot.Sibling("redquorum:l1", key), "0"},
		{"HSET", boot, "id", "x"}, {"SET", quarantine, "1", "PX", "1"},
	}
	if t.Kind == node.RedisCluster {
		out = append(out, []string{"CLUSTER", "MYID"}, []string{"CLUSTER", "SLOTS"}, []string{"ASKING"}, []string{"SSUBSCRIBE", inbox}, []string{"SPUBLISH", inbox, "x"})
	}
	if t.Config.MinReplicasAck > 0 {
		out = append(out, []string{"WAIT", "1", "100"})
	}
	if interop {
		channel, counter := "redisson_lock__channel:{"+key+"}", "redisson_lock_token:{"+key+"}"
		out = append(out, []string{"INCR", counter}, []string{"GET", counter}, []string{"PUBSUB", "NUMSUB", channel},
			[]string{"SUBSCRIBE", channel}, []string{"UNSUBSCRIBE", channel}, []string{"PUBLISH", channel, "0"})
	}
	return out
}

// write asks for a write that changes nothing: XX adds no member to the line of waiters. A server answers it as it would
// answer any write, for which it may lack memory, replicas or a disk, or which CLIENT PAUSE holds up.
func (f *Facts) write(ask asker, t Target, terms Terms) {
	key := terms.Key
	if t.Kind == node.RedisCluster {
		key = slot.TagOf(t.Slots[0])
	}
	_, f.WriteErr = ask("ZADD", "redquorum:q:{"+key+"}", "XX", "1", "redquorum-doctor")
	if refused := (*member.ReplyError)(nil); errors.As(f.WriteErr, &refused) && (refused.Kind == member.KindForeign || judged(f.WriteErr, false) == denied) {
		f.WriteErr = nil // it is executed, or of the permissions
	}
}

// silent reports whether it did not answer the write.
func (f *Facts) silent() bool {
	return f.WriteErr != nil && !errors.As(f.WriteErr, new(*member.ReplyError))
}

// answer is what a reply says of a permission.
type answer uint8

const (
	unclear answer = iota
	permitted
	denied
)

// judged reads the answer to a command that was tried. expected: the error is the one that shows that it was looked at. No
// other error does: a server may lack the command, or be in no state to say.
func judged(err error, expected bool) answer {
	var refused *member.ReplyError
	switch {
	case err == nil, expected:
		return permitted
	case !errors.As(err, &refused):
		return unclear
	case refused.Kind == member.KindAuth:
		return denied
	case refused.Kind != member.KindOther:
		return unclear
	}
	for _, word := range []string{"unknown", "not allowed", "not permitted", "not supported", "unsupported", "disabled", "forbidden"} {
		if strings.Contains(strings.ToLower(refused.Text), word) {
			return denied
		}
	}
	return unclear
}

// says reports whether the server refused with a text.
func says(err error, text string) bool {
	var refused *member.ReplyError
	return errors.As(err, &refused) && strings.Contains(refused.Text, text)
}

// permissions asks the member what our user may do, without doing it: by ACL DRYRUN, or by trying where that is not
// permitted.
func (f *Facts) permissions(ctx context.Context, ask asker, t Target, terms Terms) {
	all := Commands(t, terms.Key, terms.Interop)
	who, err := ask("ACL", "WHOAMI")
	for i := 0; err == nil && i < len(all); i++ {
		var r member.Reply
		if r, err = ask(append([]string{"ACL", "DRYRUN", string(who.Str)}, all[i]...)...); err == nil && string(r.Str) != "OK" {
			f.deny(all[i], string(r.Str))
		}
	}
	if err == nil {
		return
	}
	f.Denied, f.ACLErr = nil, nil
	if f.silent() {
		f.ACLErr = errors.New("it does not answer writes")
		return
	}
	f.try(ctx, ask, t, all)
}

// deny notes a command. What can be done without is named with its key where the key is what is denied.
func (f *Facts) deny(c []string, text string) {
	n := name(c)
	if (c[0] == "ZSCORE" || c[0] == "HSCAN") && strings.Contains(text, "key") {
		n = c[:2]
	}
	f.Denied = append(f.Denied, strings.Join(n, " "))
}

// tryScript calls each command, in a script that must not write: of one that the user may not run the server says so,
// and of one that would write, that this script may not. Redis checks in this order, since 7.0.
//
//	ARGV: for each command, the number of its words, and they. Returns per command the error, or ''.
const tryScript = `#!lua flags=no-writes
local out, i = {}, 1
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  local r = redis.pcall(unpack(ARGV, i + 1, i + n))
  out[#out + 1] = type(r) == 'table' and r.err or ''
  i = i + n + 1
end
return out`

// knownScript calls each command without arguments, of which a server knows at least that they are too few. For servers
// whose scripts cannot be kept from writing, before 7.0.
const knownScript = `local out = {}
for i, c in ipairs(ARGV) do
  local r = redis.pcall(c)
  out[i] = type(r) == 'table' and r.err or ''
end
return out`

// try finds out what the user may not do by trying all of it, so that nothing happens: what is sent here is refused
// for another reason, or has no effect.
func (f *Facts) try(ctx context.Context, ask asker, t Target, all [][]string) {
	var inScript [][]string
	args, names := []string{"EVAL", tryScript, "0"}, []string{"EVAL", knownScript, "0"}
	tell := func(c []string, err error, expected bool) {
		switch judged(err, expected) {
		case denied:
			f.deny(c, err.Error())
		case unclear:
			f.ACLErr = fmt.Errorf("%s: %w", strings.Join(name(c), " "), err)
		}
	}
	for _, c := range all {
		said, expected := error(nil), false
		switch c[0] {
		case "EVAL": // with the script below
		case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE": // on a connection of its own
			said = once(ctx, t, c)
		case "SCRIPT":
			sent := c
			if c[1] == "LOAD" {
				sent = []string{"SCRIPT", "LOAD", "no script"}
			}
			_, said = ask(sent...)
			expected = c[1] == "LOAD" && says(said, "compiling script")
		case "WAIT":
			_, said = ask("WAIT", "0", "1")
		case "CLIENT":
			sent := c
			if c[1] == "KILL" {
				sent = []string{"CLIENT", "KILL", "ID", "9223372036854775807"} // there is none (0 is every one, on Redis 6.2)
			} else if c[1] == "SETNAME" {
				sent = []string{"CLIENT", "SETNAME", t.Config.ClientName}
			}
			_, said = ask(sent...)
		case "PUBLISH", "SPUBLISH": // where nobody listens
			_, said = ask(c[0], c[1]+":redquorum-doctor", "x")
		case "EVALSHA":
			_, said = ask(c...)
			expected = says(said, "NOSCRIPT")
		case "PING", "INFO", "TIME", "ASKING", "CLUSTER", "PUBSUB":
			_, said = ask(c...)
		default:
			inScript = append(inScript, c)
			args = append(append(args, strconv.Itoa(len(c))), c...)
			names = append(names, c[0])
		}
		tell(c, said, expected || elsewhere(said, t))
	}
	r, err := ask(args...)
	reads := err == nil && len(r.Elems) == len(inScript)
	if !reads && judged(err, false) != denied {
		r, err = ask(names...)
	}
	switch {
	case judged(err, false) == denied:
		f.deny(all[0], err.Error())
		f.ACLErr = errors.New("what scripts may call is not known, because EVAL is not permitted")
		return
	case err != nil || len(r.Elems) != len(inScript):
		f.ACLErr = errors.Join(errors.New("the server has neither ACL DRYRUN nor scripts that only read, as Redis 7 has, or does not permit them"), err)
		return
	case !reads:
		f.ACLErr = errors.New("the server knows the commands, and has neither ACL DRYRUN nor scripts that only read, as Redis 7 has, to tell whether the user may run them")
	}
	for i, c := range inScript {
		said := error(nil)
		if text := r.Elems[i].Str; len(text) > 0 {
			said = node.Refusal(&member.Reply{Kind: '-', Str: text})
		}
		expected := says(said, "Write commands are not allowed") || says(said, "WRONGTYPE") || elsewhere(said, t) || !reads && says(said, "umber of args")
		tell(c, said, expected)
	}
}

// elsewhere reports whether another server of its cluster has the key: what is not permitted is refused before.
func elsewhere(err error, t Target) bool {
	var refused *member.ReplyError
	return t.Kind == node.RedisCluster && errors.As(err, &refused) && (refused.Kind == member.KindCluster || strings.Contains(refused.Text, "non local key"))
}

// once asks on a connection that is closed then.
func once(ctx context.Context, t Target, c []string) error {
	replies, err := node.Query(ctx, t.Config, resp.Command(c...))
	if err == nil {
		if refused := node.Refusal(&replies[0]); refused != nil {
			err = refused
		}
	}
	return err
}

// name is the command without arguments, with the key that it is denied for.
func name(c []string) []string {
	switch c[0] {
	case "PING", "INFO", "TIME", "ASKING", "WAIT", "SSUBSCRIBE", "SPUBLISH", "ZSCORE", "HSCAN":
		return c[:1]
	case "EVAL", "EVALSHA":
		return []string{c[0], c[3], c[4]}
	}
	return c[:2]
}

// expires is when the first certificate of the member's chain ends.
func expires(ctx context.Context, t Target, patience time.Duration) time.Time {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg := t.Config.TLS.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(t.Config.Addr)
	}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", t.Config.Addr)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = conn.Close() }()
	var first time.Time
	for _, c := range conn.(*tls.Conn).ConnectionState().PeerCertificates {
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
