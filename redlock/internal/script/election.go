package script

import (
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// An election is the lock of its name. What its leader proclaims stands beside the vote, in two keys
// that no call of a lock looks at.
const (
	recordPrefix    = "redquorum:e1" // hash: t token, s sequence, o SHA-1 of the owner, v value
	observersPrefix = "redquorum:eo" // hash: watch -> deadline
)

// LastWord is the sequence of a leader that resigns: nothing that it has proclaimed comes after it.
const LastWord = 1<<53 - 1

// Proclaim writes what the owner of the vote says of itself, under the token of its lease. seq
// counts what it says under that token, from 1. The member keeps the record for the duration life.
// The reply is a number: 0 if the member has no vote of the owner, else the greatest sequence that
// it has of the owner.
func (l *Lock) Proclaim(buf *[]byte, owner string, token, seq int64, life time.Duration, value []byte) member.Command {
	return l.proclaim(buf, owner, token, seq, life, append([]byte{'='}, value...))
}

// Resign is the last Proclaim of an owner. It has no value.
func (l *Lock) Resign(buf *[]byte, owner string, token int64, life time.Duration) member.Command {
	return l.proclaim(buf, owner, token, LastWord, life, nil)
}

func (l *Lock) proclaim(buf *[]byte, owner string, token, seq int64, life time.Duration, value []byte) member.Command {
	f := l.beginElection(buf, &Proclaim, 5)
	f.text(owner)
	f.number(token)
	f.number(seq)
	f.millis(life)
	f.text(string(value))
	return f.command(l.Slot(), nil)
}

// Observe asks for an ElectionAnswer. If watch is not "", the member also pushes to it what is proclaimed,
// for the duration entry. If entry is 0, the member forgets the watch, and says nothing else.
func (l *Lock) Observe(buf *[]byte, watch string, entry time.Duration) member.Command {
	f := l.beginElection(buf, &Observe, 2)
	f.text(watch)
	f.millis(entry)
	return f.command(l.Slot(), nil)
}

// beginElection encodes a call with so many arguments up to the bucket.
func (l *Lock) beginElection(buf *[]byte, s *Script, args int) frame {
	f := begin(buf, s, 5, 1+args)
	f.text(l.Name)
	f.share(2)
	var space [128]byte
	f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], recordPrefix, l.Name))
	f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], observersPrefix, l.Name))
	f.keysEnd()
	f.number(l.Bucket)
	return f
}

// ElectionAnswer is what one member says of an election.
type ElectionAnswer struct {
	Server int64         // the member's time, µs
	TTL    time.Duration // of the vote; 0: there is none
	Owner  string        // Hash of the vote's owner; "": there is none, or readers have the lock
	By     string        // Hash of who proclaimed last; "": nobody
	Token  int64         // of its lease
	Seq    int64         // of what it proclaimed
	Value  []byte        // nil if it has resigned
}

// ReadElection decodes the reply to Observe. The value is a copy. If the reply has another shape, ok
// is false.
func ReadElection(r *member.Reply) (s ElectionAnswer, ok bool) {
	e := r.Elems
	if r.Kind != '*' || len(e) < 6 || len(e) > 7 {
		return ElectionAnswer{}, false
	}
	s = ElectionAnswer{
		Server: e[0].Int, TTL: duration.FromMillis(e[1].Int), Owner: string(e[2].Str),
		Token: number(e[3]), Seq: number(e[4]), By: string(e[5].Str),
	}
	if len(e) == 7 && e[6].Kind == '$' {
		s.Value = append([]byte{}, e[6].Str...)
	}
	return s, true
}
