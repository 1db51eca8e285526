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
//	w holder waiter                       a waiter announces itself; with a blank behind it, one that holds the lock elsewhere
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
	var room [6]string
	f, rest := room[:0], msg // the words, and from the sixth on what is left
	for len(f) < len(room)-1 && rest != "" {
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		f = append(f, word)
	}
	if rest != "" {
		f = append(f, rest)
	}
	switch {
	case len(f) == 6 && f[0] == "s":
		p = Push{Grant: true, Owner: f[1], Other: f[3]}
		var err1 error
		p.Server, err1 = strconv.ParseInt(f[2], 10, 64)
		ttl, err2 := strconv.ParseUint(f[4], 10, 40) // 40 bits: no overflow below
		var all bool
		if p.Permits, all = permit.Parse(f[5]); err1 != nil || err2 != nil || !all {
			return Push{}, false
		}
		p.Token, p.TTL = p.Permits[0].Token, time.Duration(ttl)*time.Millisecond
	case len(f) == 6 && f[0] == "g":
		p = Push{Grant: true, Owner: f[1], Other: f[4]}
		var err1, err2 error
		p.Token, err1 = strconv.ParseInt(f[2], 10, 64)
		p.Server, err2 = strconv.ParseInt(f[3], 10, 64)
		ttl, err3 := strconv.ParseUint(f[5], 10, 40) // 40 bits: no overflow below
		if err1 != nil || err2 != nil || err3 != nil || p.Token <= 0 {
			return Push{}, false
		}
		p.TTL = time.Duration(ttl) * time.Millisecond
	case len(f) == 3 && (f[0] == "w" || f[0] == "x"):
		p = Push{Owner: f[1], Other: f[2], Gone: f[0] == "x", Wish: f[0] == "w" && strings.HasSuffix(msg, " ")}
	case len(f) == 2 && f[0] == "r":
		p = Push{Owner: f[1], Readers: true}
	default:
		return Push{}, false
	}
	_, number, found := strings.Cut(p.Owner, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil {
		return Push{}, false
	}
	p.N = n
	return p, true
}
