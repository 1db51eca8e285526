package redlock

import (
	"bytes"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// script is one Lua source and the name Redis calls it by.
type script struct{ source, sha string }

// parts are the scripts, and what they include.
//
//go:embed script/*.lua
var parts embed.FS

func newScript(name string) script {
	source := include(name, map[string]bool{})
	sum := sha1.Sum([]byte(source))
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// include returns a part, with others in place of its lines "--include NAME". One that is indented is for the block
// that it is in; one that is not is there from then on, and is not included twice.
func include(name string, there map[string]bool) string {
	text, err := parts.ReadFile("script/" + name)
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		wanted, found := strings.CutPrefix(strings.TrimSpace(line), "--include ")
		switch {
		case !found:
			out.WriteString(line)
		case there[wanted]:
		case line[0] == ' ':
			out.WriteString(include(wanted, maps.Clone(there)))
		default:
			there[wanted] = true
			out.WriteString(include(wanted, there))
		}
	}
	return out.String()
}

var (
	acquireScript = newScript("acquire.lua")
	waitScript    = newScript("wait.lua")
	releaseScript = newScript("release.lua")
	yieldScript   = newScript("yield.lua")
	raiseScript   = newScript("raise.lua")
	extendScript  = newScript("extend.lua")
	rejoinScript  = newScript("rejoin.lua")
	peekScript    = newScript("peek.lua")
	forceScript   = newScript("force.lua")
	batchScript   = newScript("batch.lua")

	acquireItem = member.Item{Batch: batchScript.sha, Letter: 'a', Keys: 1, Args: 3}
	releaseItem = member.Item{Batch: batchScript.sha, Letter: 'r', Keys: 3, Args: 3}
)

// Scripts returns the Lua sources that a member must know before it can vote, for those who build
// members themselves (Open does it). Of the options only WithInterop matters.
func Scripts(opts ...Option) []string {
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	return cfg.scripts()
}

func (c Config) scripts() []string {
	list := []script{acquireScript, waitScript, releaseScript, yieldScript, raiseScript, extendScript, rejoinScript, peekScript, forceScript, batchScript}
	if c.Interop {
		list = append(interopScripts(), extendScript, peekScript)
	}
	var all []string
	for _, s := range list {
		all = append(all, s.source)
	}
	return all
}

// Keys that all locks of a member share.
const (
	tokensKey   = "redquorum:tokens" // hash: bucket -> counter of grants
	markerKey   = "redquorum:boot"   // hash: what the restart guard knows of this member
	inboxPrefix = "redquorum:inbox:" // + client: channel of pushes to one client
)

// keys are the names of one lock at a member, all in one slot. Counters are shared by the names of a
// slot (the bucket), so that no key is left behind per name.
type keys struct {
	name   string
	bucket int64
	shared *sharedKeys // with Config.Interop only
}

func keysOf(name string) keys { return keys{name: name, bucket: int64(slot.Of(name))} }

const (
	queuePrefix   = "redquorum:q"
	waitersPrefix = "redquorum:w"
)

// queue is a zset: waiting owner -> server time of its registration.
func (k keys) queue() string { return slot.Sibling(queuePrefix, k.name) }

// waiters is a hash: waiting owner -> its deadline and TTL; and of locks taken by force, until when nobody is re-joined.
func (k keys) waiters() string { return slot.Sibling(waitersPrefix, k.name) }

// appendEval opens EVALSHA with so many keys and arguments; one more argument, the marker id, is added
// by the member (member.Command.Tagged).
func appendEval(b []byte, s script, nkeys, nargs int) []byte {
	b = resp.AppendArray(b, 3+nkeys+nargs+1)
	b = append(b, "$7\r\nEVALSHA\r\n$40\r\n"...)
	b = append(b, s.sha...)
	b = append(b, '\r', '\n')
	return resp.AppendInt(b, int64(nkeys))
}

func (k *keys) appendFive(b []byte) []byte {
	b = resp.AppendBulk(b, k.name)
	b = resp.AppendBulk(b, tokensKey)
	b = resp.AppendBulk(b, markerKey)
	var space [128]byte // names of a usual length cost no memory
	b = resp.AppendBulk(b, slot.AppendSibling(space[:0], queuePrefix, k.name))
	b = resp.AppendBulk(b, slot.AppendSibling(space[:0], waitersPrefix, k.name))
	return resp.AppendInt(b, k.bucket)
}

func (k *keys) acquire(b []byte, owner string, ttl time.Duration) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopAcquire, owner, decimal(millis(ttl)))
	}
	b = appendEval(b, acquireScript, 3, 3)
	b = resp.AppendBulk(b, k.name)
	b = resp.AppendBulk(b, tokensKey)
	b = resp.AppendBulk(b, markerKey)
	b = resp.AppendInt(b, k.bucket)
	b = resp.AppendBulk(b, owner)
	return resp.AppendInt(b, millis(ttl))
}

func (k *keys) wait(b []byte, owner string, ttl, entry time.Duration) []byte {
	if k.shared != nil {
		return k.waitShared(b, owner, ttl, entry, false)
	}
	b = k.appendFive(appendEval(b, waitScript, 5, 4))
	b = resp.AppendBulk(b, owner)
	b = resp.AppendInt(b, millis(ttl))
	return resp.AppendInt(b, millis(entry))
}

func (k *keys) release(b []byte, owner, hint string) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopRelease, owner, hint)
	}
	b = k.appendFive(appendEval(b, releaseScript, 5, 3))
	b = resp.AppendBulk(b, owner)
	return resp.AppendBulk(b, hint)
}

func (k *keys) yield(b []byte, owner string, token int64, ttl, entry time.Duration) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopYield, owner, decimal(token), decimal(millis(ttl)), decimal(millis(entry)))
	}
	b = k.appendFive(appendEval(b, yieldScript, 5, 5))
	b = resp.AppendBulk(b, owner)
	b = resp.AppendInt(b, token)
	b = resp.AppendInt(b, millis(ttl))
	return resp.AppendInt(b, millis(entry))
}

func (k *keys) raise(b []byte, owner string, token int64) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopRaise, owner, decimal(token))
	}
	b = appendEval(b, raiseScript, 2, 3)
	b = resp.AppendBulk(b, k.name)
	b = resp.AppendBulk(b, tokensKey)
	b = resp.AppendInt(b, k.bucket)
	b = resp.AppendBulk(b, owner)
	return resp.AppendInt(b, token)
}

func (k *keys) rejoin(b []byte, owner string, ttl time.Duration, token int64) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopRejoin, owner, decimal(millis(ttl)), decimal(token))
	}
	b = k.appendFive(appendEval(b, rejoinScript, 5, 4))
	b = resp.AppendBulk(b, owner)
	b = resp.AppendInt(b, millis(ttl))
	return resp.AppendInt(b, token)
}

func (k *keys) peek(b []byte) []byte { return k.appendFive(appendEval(b, peekScript, 5, 1)) }

// force: owner is the SHA-1 of an owner's name, or "" for whoever it is. longest is the longest lease that may be held.
func (k *keys) force(b []byte, owner string, longest time.Duration) []byte {
	if k.shared != nil {
		return k.evalShared(b, interopForce, owner, decimal(millis(longest)))
	}
	b = resp.AppendBulk(k.appendFive(appendEval(b, forceScript, 5, 3)), owner)
	return resp.AppendInt(b, millis(longest))
}

// sharedAt is where the shared keys begin in a command about this lock: behind the lock's own name, which
// is the first key of every script.
func (k *keys) sharedAt(cmd []byte) int32 {
	const head = len("$7\r\nEVALSHA\r\n$40\r\n") + 2*sha1.Size + len("\r\n$1\r\n5\r\n")
	at := bytes.IndexByte(cmd, '\n') + 1 + head
	at += len("$\r\n\r\n") + len(k.name)
	for n := len(k.name); ; n /= 10 { // digits of the length
		if at++; n < 10 {
			return int32(at)
		}
	}
}

// item is how a command about this lock may travel with others: those of Config.Interop have scripts of their own.
func (k *keys) item(i member.Item) member.Item {
	if k.shared != nil {
		return member.Item{}
	}
	return i
}

// slot is that of all keys of the lock.
func (k *keys) slot() uint16 { return uint16(k.bucket) }

// millis rounds up: a member's key must never end before what the client believes of it.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func ownerOf(client string, n uint64) string {
	var space [64]byte
	b := append(space[:0], client...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, n, 10))
}
