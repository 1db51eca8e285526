package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Inbox returns the channel of pushes to one client.
func Inbox(client string) string { return "redquorum:inbox:" + client }

// Push is a message in the inbox, in one of these forms:
//
//	g owner token now next ttl            a grant, with its TTL in ms
//	s owner now next ttl slot:token …     a grant of a semaphore: all permits that the owner has now
//	w holder waiter                       a waiter announces itself; with a blank behind it, it holds the lock elsewhere
//	x holder waiter                       a waiter has given up
//	r holder                              readers wait
type Push struct {
	Grant   bool
	Gone    bool
	Readers bool
	Wish    bool   // the waiter holds the lock at other members
	Owner   string // the attempt that the message is for
	N       uint64 // the number in Owner: see OwnerOf
	Token   int64
	Server  int64  // the member's time of the grant, µs
	Other   string // the next in line, or the waiter
	TTL     time.Duration

	Permits permit.List // of a semaphore: all that the owner has at the member. Token is that of the first.
}

// ParsePush reads a message. ok is false if it has none of these forms.
func ParsePush(msg string) (p Push, ok bool) {
	kind, rest, _ := strings.Cut(msg, " ")
	word := func() (word string) {
		word, rest, _ = strings.Cut(rest, " ")
		return word
	}
	ok = true
	number := func() uint64 {
		n, err := strconv.ParseUint(word(), 10, 63)
		ok = ok && err == nil
		return n
	}
	p.Owner = word()
	switch kind {
	case "g":
		p.Grant, p.Token, p.Server, p.Other = true, int64(number()), int64(number()), word()
		ok = ok && p.Token > 0
	case "s":
		p.Grant, p.Server, p.Other = true, int64(number()), word()
	case "w", "x":
		p.Other, p.Gone, p.Wish = word(), kind == "x", kind == "w" && strings.HasSuffix(msg, " ")
		ok = p.Other != ""
	case "r":
		p.Readers = true
	default:
		return Push{}, false
	}
	if p.Grant {
		ms := number()
		ok = ok && ms < 1<<40 // no overflow below
		p.TTL = time.Duration(ms) * time.Millisecond
	}
	if kind == "s" && ok {
		if p.Permits, ok = permit.Parse(rest); ok {
			p.Token, rest = p.Permits[0].Token, ""
		}
	}
	_, digits, _ := strings.Cut(p.Owner, ":")
	n, err := strconv.ParseUint(digits, 10, 64)
	if p.N = n; !ok || err != nil || rest != "" {
		return Push{}, false
	}
	return p, true
}
