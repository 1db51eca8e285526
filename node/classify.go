package node

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
)

// The texts of servers that something here depends on, because there is no code for what they say.
// They were seen on Redis 6.2, 7.0, 7.2, 7.4 and 8.2, and on Valkey 8.0, 8.1, 9.0 and 9.1; a
// version that words one anew fails the tests of make test SERVER=…
//
//	a key that moved away while a script ran   phrases; interrupted in cluster/redirect.go; base.lua and refused.lua
//	a cluster that is down, a slot of nobody   phrases; unserved in cluster/redirect.go; refused.lua
//	keys of two slots in one call              worded in refused.lua of redlock/internal/script
//	an ACL's refusal inside a script           denials
//	where in a script an error arose           withoutPosition, wrappers, lineOf
//	arguments of a command that is unknown     withoutArguments
//	a server that is in no cluster, or in one  Expect in query.go; redis_mode (server_mode from Valkey 8.0) in INFO
//
// maxText bounds the text kept of an error reply, in bytes. It goes into errors, logs, metrics and
// spans, so it is made printable here.
const maxText = 300

// classify reads the text of an error reply, without its leading minus.
func classify(reply string) *member.ReplyError {
	text := printable.Text(withoutPosition(withoutArguments(reply)), maxText)
	kind := kindOf(text)
	if said, ok := deniedInScript(text); ok {
		return &member.ReplyError{Kind: kind, Text: printable.Text(insideScript+": "+said, maxText)}
	}
	return &member.ReplyError{Kind: kind, Text: strings.Clone(text)}
}

// insideScript begins what is made of an ACL's refusal inside a script. Servers call that ERR as a
// rule, and the same refusal outside NOPERM.
const insideScript = "NOPERM inside a script"

// Refusals of an ACL inside a script: what the script wrote before stays written. Until 7.0 they do
// not name the command.
var denials = []string{
	"The user executing the script can't",              // 6 and 7.0
	"ACL failure in script: ", "ACL failure in script", // 7.2
}

// deniedInScript returns what the ACL said.
func deniedInScript(text string) (string, bool) {
	rest := text
	for _, prefix := range []string{"ERR ", "-", "NOPERM "} {
		rest = strings.TrimPrefix(rest, prefix)
	}
	for _, d := range denials {
		if strings.HasPrefix(rest, d) {
			return strings.TrimPrefix(rest, "ACL failure in script: "), true
		}
	}
	return "", false
}

// naming adds the command to a refusal inside a script whose text does not name it. reply is the
// whole one: it has the line of the script, which names the command, or calls one that was passed
// to it.
func naming(e *member.ReplyError, reply, source string) *member.ReplyError {
	said, ok := strings.CutPrefix(e.Text, insideScript+": ")
	if !ok || strings.Contains(said, "' command") {
		return e
	}
	at := lineOf.FindStringSubmatch(reply)
	if at == nil {
		return e
	}
	n, _ := strconv.Atoi(at[1])
	lines := strings.Split(source, "\n")
	if n < 1 || n > len(lines) {
		return e
	}
	called := append(namesIn(calls, lines[n-1]), namesIn(asked, lines[n-1])...)
	if len(called) == 0 {
		called = namesIn(asked, source)
	}
	if len(called) == 0 {
		return e
	}
	return &member.ReplyError{Kind: e.Kind, Text: insideScript + ", " + strings.Join(called, " or ") + ": " + said}
}

// in is the script that c executes: one of ours, or one that it has in full; "" if it is no
// script.
func (s *scripts) in(c *member.Call) string {
	if source, ok := s.of(c); ok {
		return source
	}
	_, rest, ok := bytes.Cut(c.Cmd, []byte("\r\n$4\r\nEVAL\r\n$"))
	if !ok {
		return ""
	}
	size, source, _ := bytes.Cut(rest, []byte("\r\n"))
	if n, err := strconv.Atoi(string(size)); err == nil && n >= 0 && n <= len(source) {
		return string(source[:n])
	}
	return ""
}

// How our scripts call commands, and how they pass them to a function that does (ask in base.lua of
// redlock/internal/script).
var (
	lineOf = regexp.MustCompile(`@user_script:\s*([0-9]+)`)
	calls  = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?`)
	asked  = regexp.MustCompile(`\bask\('([A-Z]+)'`)
)

// namesIn lists each command once, in order.
func namesIn(pattern *regexp.Regexp, text string) (out []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		if name := strings.Join(slices.DeleteFunc(m[1:], func(s string) bool { return s == "" }), " "); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// withoutArguments drops the arguments that Redis repeats when it does not know a command: they can
// be an owner token or, from AUTH, a password.
func withoutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return strings.TrimRight(text, " \r\n")
}

// Wrappers of an error that was raised inside a script. Redis 7 puts the position behind the error,
//
//	WRONGTYPE Operation against ... value script: <sha>, on @user_script:1.
//	WRONGTYPE Operation against ... value script: on @user_script:1.           (Valkey 9.1)
//
// Redis 6 before it, once or twice and sometimes with a minus, and miniredis calls everything a
// compile error:
//
//	ERR Error running script (call to f_<sha>): @user_script:12: @user_script: 12: -OOM command not ...
//	ERR Error compiling script (new function): <string>:1: WRONGTYPE Operation against ...
var wrappers = []string{"ERR Error running script", "ERR Error compiling script"}

// withoutPosition returns the error itself, where one of the codes below is found inside a wrapper;
// a wrapped error without a code stays as it is.
func withoutPosition(text string) string {
	if i := strings.LastIndex(text, " script: "); i >= 0 && strings.Contains(text[i:], "on @user_script:") {
		text = text[:i]
	}
	for _, w := range wrappers {
		if strings.HasPrefix(text, w) {
			return unwrap(text, len(w))
		}
	}
	return text
}

func unwrap(text string, from int) string {
	for i := from; i < len(text); i++ {
		switch text[i-1] {
		case ' ', '-', ':':
			inner := text[i:]
			if _, known := codes[firstWord(inner)]; known {
				inner, _, _ = strings.Cut(inner, "\n") // a Lua stack trace
				return strings.TrimSpace(inner)
			}
			for _, p := range phrases {
				if strings.HasPrefix(inner, p.text) {
					return inner
				}
			}
		}
	}
	return text
}

// codes are the first words of error replies that mean something to us.
var codes = map[string]member.Kind{
	"WRONGTYPE":   member.KindForeign,
	"FOREIGN":     member.KindForeign,   // our scripts: a lock key without a TTL
	"FORGOT":      member.KindForgot,    // our scripts: the marker is not the one we know
	"EXHAUSTED":   member.KindExhausted, // our scripts: no token is left
	"NOSCRIPT":    member.KindNoScript,
	"READONLY":    member.KindReadOnly,
	"MISCONF":     member.KindReadOnly,
	"NOREPLICAS":  member.KindReadOnly,
	"MASTERDOWN":  member.KindReadOnly,
	"LOADING":     member.KindLoading,
	"BUSY":        member.KindBusy,
	"OOM":         member.KindOverloaded,
	"NOAUTH":      member.KindAuth,
	"WRONGPASS":   member.KindAuth,
	"NOPERM":      member.KindAuth,
	"DENIED":      member.KindAuth, // protected mode
	"MOVED":       member.KindCluster,
	"ASK":         member.KindCluster,
	"TRYAGAIN":    member.KindCluster,
	"CLUSTERDOWN": member.KindCluster,
	"CROSSSLOT":   member.KindCluster,
}

// phrases are errors whose code is a plain ERR.
var phrases = []struct {
	text string
	kind member.Kind
}{
	{"The user executing the script can't", member.KindAuth}, // see denials
	{"ACL failure in script", member.KindAuth},
	{"AUTH <password> called without any password", member.KindAuth},
	{"Client sent AUTH, but no password is set", member.KindAuth}, // 5
	{"invalid password", member.KindAuth},                         // 5
	{"max number of clients reached", member.KindOverloaded},
	// A slot that is being given away: the script was stopped at a key that is not there any more.
	{"Script attempted to access a non local key", member.KindCluster},     // 7
	{"Lua script attempted to access a non local key", member.KindCluster}, // 6
	{"Attempted to access a non local key", member.KindCluster},            // Valkey 9.1
	{"Script attempted to access a slot not served", member.KindCluster},   // 7.4
	// The state of the cluster is looked at when a script runs a command, if it declares no keys.
	{"Script attempted to execute a command while the cluster is down", member.KindCluster},
	{"Script attempted to execute a write command while the cluster is down", member.KindCluster},
	{"Lua script attempted to execute a command while the cluster is down", member.KindCluster},       // 6
	{"Lua script attempted to execute a write command while the cluster is down", member.KindCluster}, // 6
}

// withoutCluster matches what Valkey 9.1 says of a script when the cluster is down: the command stands in between.
var withoutCluster = regexp.MustCompile(`^Can not execute a (write )?command '[^']*' while the cluster is down`)

func kindOf(text string) member.Kind {
	if kind, ok := codes[firstWord(text)]; ok {
		return kind
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(text, "ERR "), "-")
	for _, p := range phrases {
		if strings.HasPrefix(rest, p.text) {
			return p.kind
		}
	}
	if withoutCluster.MatchString(rest) {
		return member.KindCluster
	}
	return member.KindOther
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// notPermitted tells an error that forbids or lacks a command from all others: what was asked for
// can be done without.
func notPermitted(e *member.ReplyError) bool {
	return e.Kind == member.KindOther || e.Kind == member.KindAuth && firstWord(e.Text) == "NOPERM" && !strings.HasPrefix(e.Text, insideScript)
}

// whyClosed is the refusal by which a server said why it was about to close the connection.
func whyClosed(calls []member.Call) error {
	for i := range calls {
		if refused, ok := calls[i].Err.(*member.ReplyError); ok && calls[i].Outcome == member.Refused && !notPermitted(refused) {
			return refused
		}
	}
	return nil
}
