package script

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// Tell keeps what a client tells of itself.
var Tell = newScript("tell.lua")

// Hash tells owners apart without naming them. Nobody can find the name from the hash, because
// names of owners are random. It is the only hash that scripts can compute. The hash of no owner is
// "".
func Hash(owner []byte) string {
	if len(owner) == 0 {
		return ""
	}
	sum := sha1.Sum(owner)
	return hex.EncodeToString(sum[:])
}

// ClientHash is a hash of the client that an owner belongs to, or "" for an owner of another kind,
// such as Redisson's. It is 16 hexadecimal digits of a SHA-1: nobody can find the client's name from
// it, which is random, and the names of its owners begin with that.
func ClientHash(owner []byte) string {
	client, _, found := bytes.Cut(owner, []byte{':'})
	if !found || len(client) == 0 {
		return ""
	}
	return Hash(client)[:16]
}

// WhoKey is the key under which a client with this ClientHash tells who it is, in an environment with
// this prefix.
func WhoKey(prefix, client string) string { return slot.Sibling("redquorum:id", prefix+client) }

// TellWho has a member keep what a client tells of itself at key, for so long.
func TellWho(key, who string, d time.Duration) member.Command {
	f := begin(nil, &Tell, 1, 2)
	f.text(key)
	f.share(0)
	f.keysEnd()
	f.text(who)
	f.millis(d)
	return f.command(slot.Of(key), nil)
}

// AskWho asks what a client told: a bulk string, or nil.
func AskWho(key string) member.Command {
	return member.Command{Cmd: resp.Command("HGET", key, "who"), Slot: slot.Of(key)}
}

// ForgetWho has a member forget it.
func ForgetWho(key string) member.Command {
	return member.Command{Cmd: resp.Command("DEL", key), Slot: slot.Of(key)}
}
