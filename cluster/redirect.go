package cluster

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
)

// maxHops is how many servers may send a call elsewhere.
const maxHops = 5

// action is what to do with a call that came back.
type action uint8

const (
	deliver action = iota // to its owner: it is done
	follow                // MOVED: the slot is another master's
	ask                   // ASK: another master is about to get the slot; this call alone goes there
	backoff               // nobody can execute it now
	stamp                 // the slot is not under its master's marker
	giveUp                // too many hops: done, with the last redirect
)

func (a action) String() string {
	return [...]string{"deliver", "follow", "ask", "backoff", "stamp", "give up"}[a]
}

// step is a decision: an action, and the address that it needs.
type step struct {
	do   action
	addr string
}

// refusal is what decide looks at.
type refusal struct {
	kind   member.Kind
	text   string
	from   string // announced address of the server that refused
	slot   uint16
	hops   uint8
	waited time.Duration // since the call was first not executed
}

// decide says what becomes of a refused call. A redirect that is malformed, or speaks of another slot, is
// no redirect: the call is delivered with the refusal.
func decide(r refusal, patience time.Duration) step {
	if r.kind != member.KindCluster && r.kind != member.KindLoading && r.kind != member.KindForgot {
		return step{do: deliver}
	}
	if r.waited >= patience {
		return step{do: deliver}
	}
	code, rest, _ := strings.Cut(r.text, " ")
	switch code {
	case "MOVED", "ASK":
		addr, ok := target(rest, r.from, r.slot)
		switch {
		case !ok:
			return step{do: deliver}
		case r.hops >= maxHops:
			return step{do: giveUp, addr: addr}
		case code == "ASK":
			return step{do: ask, addr: addr}
		}
		return step{do: follow, addr: addr}
	case "TRYAGAIN", "CLUSTERDOWN", "LOADING":
		return step{do: backoff}
	case "FORGOT":
		return step{do: stamp}
	}
	if interrupted(r.text) || unserved(r.text) {
		return step{do: backoff}
	}
	return step{do: deliver}
}

// unserved tells a script that was stopped because the server serves nothing now: at its first
// command, or at its first write if the server serves reads. Nothing was written before.
func unserved(text string) bool {
	return strings.Contains(text, "while the cluster is down") || strings.Contains(text, "attempted to access a slot not served")
}

// interrupted tells a script that was stopped in the middle from one that was not executed. Ours can be
// repeated: each finds what it has done before.
func interrupted(text string) bool {
	return strings.Contains(text, "ttempted to access a non local key")
}

// target reads "3999 127.0.0.1:6381". A host that is empty or unknown ("?") is that of the server which
// said so.
func target(text, from string, slot uint16) (addr string, ok bool) {
	number, rest, _ := strings.Cut(text, " ")
	if n, err := strconv.ParseUint(number, 10, 16); err != nil || uint16(n) != slot {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, " ")
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return "", false
	}
	return join(rest[:i], rest[i+1:], from)
}

// join makes an address of what a server announces: host may be empty, "?", or a bare IPv6 address.
func join(host, port, from string) (addr string, ok bool) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", false
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || host == "?" {
		var err error
		if host, _, err = net.SplitHostPort(from); err != nil {
			return "", false
		}
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`/@[]"`, r) }) {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}
