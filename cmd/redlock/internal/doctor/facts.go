// Package doctor judges whether a set of members is fit to lock: facts.go asks each member, changing
// nothing, and judge.go says what is wrong, what that risks and what cures it (pure).
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// Facts are what one member told.
type Facts struct {
	Member string
	Err    error // it could not be reached; nothing else is set then
	TLSErr bool  // Err is about TLS

	RTT    time.Duration     // median of five
	Info   map[string]string // INFO
	Config map[string]string // CONFIG GET; nil where that is not permitted
	Clock  [2]Reading        // of the member's clock

	MarkerErr error // the restart guard's keys could not be read
	Marker    string
	State     string        // of the marker: n, g or w
	Left      time.Duration // of the quarantine

	Denied  []string  // commands of ours that the user may not run
	ACLErr  error     // that could not be found out
	Expires time.Time // of the certificate; zero without TLS
}

// Reading is one look at a clock: it read Server between Sent and Arrived.
type Reading struct {
	Sent, Arrived time.Time
	Server        time.Time
}

// Target is a member to ask.
type Target struct {
	Node *node.Node
	Addr string
	TLS  *tls.Config // nil: none
}

// Terms are what the judgement depends on.
type Terms struct {
	Drift    float64
	MaxTTL   time.Duration
	GuardOff bool
	Interop  bool
	Key      string    // a lock's name, for permissions
	Own      time.Time // when our own certificate expires; zero: none
	Dial     time.Duration
	Between  time.Duration // the two readings of the clocks
}

// Ask gathers the facts about one member.
func Ask(ctx context.Context, t Target, terms Terms) Facts {
	f := Facts{Member: t.Node.Name()}
	if f.Err = up(ctx, t.Node, terms.Dial); f.Err != nil {
		return f
	}
	ask := func(args ...string) (quorum.Reply, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return quorum.Ask(ctx, t.Node, resp.Command(args...), false)
	}
	var rtts []time.Duration
	for range 5 {
		start := time.Now()
		if _, err := ask("PING"); err != nil {
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
	f.Config = config(ask)
	f.marker(ask)
	f.permissions(ask, terms)
	if t.TLS != nil {
		f.Expires = expires(ctx, t, terms.Dial)
	}
	select {
	case <-time.After(terms.Between - time.Since(first)):
	case <-ctx.Done():
	}
	f.Clock[1], _ = clock(ask)
	return f
}

type asker func(args ...string) (quorum.Reply, error)

// up waits for the connection.
func up(ctx context.Context, m *node.Node, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Second)
	defer cancel()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		switch st := m.State(); {
		case st.Up:
			return nil
		case st.Err != nil && !errors.Is(st.Err, quorum.ErrConnecting):
			return st.Err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
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

func config(ask asker) map[string]string {
	var out map[string]string
	for _, name := range []string{"appendfsync", "client-output-buffer-limit", "maxmemory-policy", "stop-writes-on-bgsave-error"} {
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
func (f *Facts) marker(ask asker) {
	r, err := ask("HMGET", "redquorum:boot", "id", "state")
	if err != nil || len(r.Elems) != 2 {
		f.MarkerErr = errors.Join(err, errors.New("the restart guard's marker cannot be read"))
		return
	}
	f.Marker, f.State = string(r.Elems[0].Str), string(r.Elems[1].Str)
	if r, err = ask("PTTL", "redquorum:quarantine"); err == nil {
		f.Left = time.Duration(max(0, r.Int)) * time.Millisecond
	}
}

// Commands are those that the library uses, with arguments as it uses them for a lock named key.
func Commands(key string, interop bool) [][]string {
	const tokens, inbox = "redquorum:tokens", "redquorum:inbox:doctor"
	queue, waiters := "redquorum:q:{"+key+"}", "redquorum:w:{"+key+"}"
	out := [][]string{
		{"EVAL", "return 1", "2", key, tokens}, {"EVALSHA", strings.Repeat("0", 40), "2", key, tokens}, {"SCRIPT", "LOAD", "return 1"},
		{"SUBSCRIBE", inbox}, {"PUBLISH", inbox, "x"}, {"PING"}, {"INFO"}, {"TIME"},
		{"CLIENT", "ID"}, {"CLIENT", "KILL", "ID", "1"}, {"CLIENT", "SETNAME", "x"},
		{"PTTL", key}, {"PEXPIRE", key, "1"}, {"EXISTS", key}, {"DEL", key},
		{"HGET", key, "f"}, {"HSET", key, "f", "v"}, {"HDEL", key, "f"}, {"HEXISTS", key, "f"}, {"HKEYS", key},
		{"HMGET", waiters, "f"}, {"HGETALL", key}, {"HLEN", key}, {"HINCRBY", tokens, "f", "1"},
		{"ZADD", queue, "1", "m"}, {"ZREM", queue, "m"}, {"ZRANGE", queue, "0", "-1"}, {"ZSCORE", queue, "m"},
		{"HSET", "redquorum:boot", "id", "x"}, {"SET", "redquorum:quarantine", "1", "PX", "1"},
	}
	if interop {
		channel, counter := "redisson_lock__channel:{"+key+"}", "redisson_lock_token:{"+key+"}"
		out = append(out, []string{"INCR", counter}, []string{"GET", counter}, []string{"PUBSUB", "NUMSUB", channel},
			[]string{"SUBSCRIBE", channel}, []string{"UNSUBSCRIBE", channel}, []string{"PUBLISH", channel, "0"})
	}
	return out
}

// permissions asks the member what our user may do, without doing it.
func (f *Facts) permissions(ask asker, terms Terms) {
	who, err := ask("ACL", "WHOAMI")
	if err != nil {
		f.ACLErr = err
		return
	}
	for _, c := range Commands(terms.Key, terms.Interop) {
		r, err := ask(append([]string{"ACL", "DRYRUN", string(who.Str)}, c...)...)
		if err != nil {
			f.ACLErr = err
			return
		}
		if string(r.Str) != "OK" {
			f.Denied = append(f.Denied, strings.Join(name(c), " "))
		}
	}
}

// name is the command without arguments, with the key that it is denied for.
func name(c []string) []string {
	switch c[0] {
	case "SCRIPT", "PUBSUB":
		return c[:2]
	case "CLIENT":
		return c[:2]
	case "PING", "INFO", "TIME":
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
	cfg := t.TLS.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(t.Addr)
	}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", t.Addr)
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
