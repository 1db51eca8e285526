package redistest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/redquorum/internal/resp"
)

// The embedded server does pub/sub itself. Miniredis has a goroutine per subscriber, so a message
// could arrive after things that happened later; Redis has it in the subscriber's output before the
// publisher gets its reply. Everything here runs with Embedded.exec held.

// subKind: messages of different kinds do not meet.
type subKind uint8

const (
	channels subKind = iota
	patterns
	shards
	subKinds
)

var subPrefix = [subKinds]string{"", "p", "s"}

// subscribing tells the commands of this file, and what they are about.
func subscribing(name string) (kind subKind, on, ok bool) {
	base := strings.TrimSuffix(name, "SUBSCRIBE")
	if base == name {
		return 0, false, false
	}
	un := strings.HasSuffix(base, "UN")
	switch strings.TrimSuffix(base, "UN") {
	case "":
		kind = channels
	case "P":
		kind = patterns
	case "S":
		kind = shards
	default:
		return 0, false, false
	}
	return kind, !un, true
}

func (s *session) subscribed() bool {
	return len(s.subs[channels])+len(s.subs[patterns])+len(s.subs[shards]) > 0
}

// subscribe is [P|S][UN]SUBSCRIBE.
func (s *session) subscribe(kind subKind, on bool, args []string) {
	verb := subPrefix[kind] + "subscribe"
	if !on {
		verb = subPrefix[kind] + "unsubscribe"
	}
	if len(args) == 0 {
		if on {
			s.cmd.WriteError(fmt.Sprintf("ERR wrong number of arguments for '%s' command", verb))
			return
		}
		for name := range s.subs[kind] {
			args = append(args, name)
		}
		slices.Sort(args)
	}
	for _, name := range args {
		if on {
			s.listen(kind, name)
		} else {
			s.unlisten(kind, name)
		}
		s.confirm(verb, kind, &name)
	}
	if len(args) == 0 {
		s.confirm(verb, kind, nil)
	}
}

func (s *session) confirm(verb string, kind subKind, name *string) {
	n := len(s.subs[shards])
	if kind != shards {
		n = len(s.subs[channels]) + len(s.subs[patterns])
	}
	s.cmd.Block(func(w *server.Writer) {
		w.WritePushLen(3)
		w.WriteBulk(verb)
		if name == nil {
			w.WriteNull()
		} else {
			w.WriteBulk(*name)
		}
		w.WriteInt(n)
	})
}

func (s *session) listen(kind subKind, name string) {
	if s.subs[kind] == nil {
		s.subs[kind] = map[string]struct{}{}
	}
	s.subs[kind][name] = struct{}{}
	all := s.server.listeners[kind]
	if all[name] == nil {
		all[name] = map[*session]struct{}{}
	}
	all[name][s] = struct{}{}
}

func (s *session) unlisten(kind subKind, name string) {
	delete(s.subs[kind], name)
	all := s.server.listeners[kind]
	if delete(all[name], s); len(all[name]) == 0 {
		delete(all, name)
	}
}

func (s *session) unlistenAll() {
	for kind := range subKinds {
		for name := range s.subs[kind] {
			s.unlisten(kind, name)
		}
	}
}

// hook sees every command before miniredis does, also those inside scripts.
func (e *Embedded) hook(c *server.Peer, name string, args ...string) bool {
	kind := channels
	switch name {
	case "PUBLISH":
	case "SPUBLISH":
		kind = shards
	case "PUBSUB":
		e.pubsub(c, args)
		return true
	default:
		return false
	}
	if len(args) != 2 {
		c.WriteError(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(name)))
		return true
	}
	c.WriteInt(e.publish(kind, args[0], args[1]))
	return true
}

// publish returns how many subscriptions got the message.
func (e *Embedded) publish(kind subKind, channel, msg string) int {
	n := e.push(e.listeners[kind][channel], subPrefix[kind]+"message", channel, msg)
	if kind == channels {
		for _, p := range sortedKeys(e.listeners[patterns]) {
			if globMatch(p, channel) {
				n += e.push(e.listeners[patterns][p], "pmessage", p, channel, msg)
			}
		}
	}
	return n
}

// push sends one message to sessions, in the order of their ids.
func (e *Embedded) push(to map[*session]struct{}, parts ...string) int {
	list := make([]*session, 0, len(to))
	for s := range to {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *session) int { return int(a.id - b.id) })
	frame := resp.Command(parts...)
	for _, s := range list {
		out := frame
		if s.cmd.Resp3 {
			out = append([]byte{'>'}, frame[1:]...)
		}
		if !s.gone.Load() {
			s.sink.fromServer(out)
		}
	}
	return len(list)
}

// pubsub is PUBSUB CHANNELS, NUMSUB, NUMPAT and their sharded forms.
func (e *Embedded) pubsub(c *server.Peer, args []string) {
	if len(args) == 0 {
		c.WriteError("ERR wrong number of arguments for 'pubsub' command")
		return
	}
	kind := channels
	sub := strings.ToUpper(args[0])
	if rest, ok := strings.CutPrefix(sub, "SHARD"); ok {
		kind, sub = shards, rest
	}
	switch sub {
	case "CHANNELS":
		var found []string
		for _, name := range sortedKeys(e.listeners[kind]) {
			if len(args) < 2 || globMatch(args[1], name) {
				found = append(found, name)
			}
		}
		c.WriteStrings(found)
	case "NUMSUB":
		c.WriteLen(2 * (len(args) - 1))
		for _, name := range args[1:] {
			c.WriteBulk(name)
			c.WriteInt(len(e.listeners[kind][name]))
		}
	case "NUMPAT":
		c.WriteInt(len(e.listeners[patterns]))
	default:
		c.WriteError(fmt.Sprintf("ERR unknown subcommand '%s'. Try PUBSUB HELP.", args[0]))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// globMatch is Redis' matching of keys and channels: * ? [a-z] [^a] and \ before a plain character.
func globMatch(pattern, s string) bool {
	for len(pattern) > 0 {
		switch c := pattern[0]; {
		case c == '*':
			for pattern = strings.TrimLeft(pattern, "*"); ; s = s[1:] {
				if globMatch(pattern, s) {
					return true
				}
				if s == "" {
					return false
				}
			}
		case s == "":
			return false
		case c == '?':
			pattern, s = pattern[1:], s[1:]
		case c == '[':
			ok, rest := globClass(pattern[1:], s[0])
			if !ok {
				return false
			}
			pattern, s = rest, s[1:]
		default:
			if c == '\\' && len(pattern) > 1 {
				pattern = pattern[1:]
			}
			if pattern[0] != s[0] {
				return false
			}
			pattern, s = pattern[1:], s[1:]
		}
	}
	return s == ""
}

// globClass matches c against the class that p begins with, and returns what follows the class.
func globClass(p string, c byte) (ok bool, rest string) {
	not := strings.HasPrefix(p, "^")
	if not {
		p = p[1:]
	}
	for len(p) > 0 && p[0] != ']' {
		if p[0] == '\\' && len(p) > 1 {
			p = p[1:]
		}
		low, high := p[0], p[0]
		p = p[1:]
		if len(p) > 1 && p[0] == '-' && p[1] != ']' {
			high = p[1]
			p = p[2:]
		}
		if low > high {
			low, high = high, low
		}
		ok = ok || low <= c && c <= high
	}
	return ok != not, strings.TrimPrefix(p, "]")
}
