package script

import (
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// These are the scripts of a latch.
var (
	LatchArrive = newScript("latch_arrive.lua")
	LatchAwait  = newScript("latch_await.lua")
	LatchRead   = newScript("latch_read.lua")
	LatchDelete = newScript("latch_delete.lua")
)

const (
	latchPrefix   = "redquorum:l1" // hash: round, count, sum, digest, open, and the arrivals
	watchesPrefix = "redquorum:lo" // hash: a watch -> its deadline
)

// Latch is one latch at a member: the names of its keys, all in one slot, and the calls about it.
// Each call is encoded as those of a Lock.
type Latch struct {
	Name   string
	Bucket int64 // number of the slot
}

// LatchOf returns the latch of a name.
func LatchOf(name string) Latch { return Latch{Name: name, Bucket: int64(slot.Of(name))} }

// LatchTerms are what every call tells a member of a latch.
type LatchTerms struct {
	Round int64
	Count int64 // 0: not told
	Life  time.Duration
}

// Arrival is how often a name has arrived.
type Arrival struct {
	ID string
	N  int64
}

// MostArrivals is how many of them one call carries.
const MostArrivals = 128

// Slot returns the hash slot of all keys of the latch.
func (l Latch) Slot() uint16 { return uint16(l.Bucket) }

// begin encodes a call up to the bucket.
func (l Latch) begin(buf *[]byte, s *Script, args int) frame {
	f := begin(buf, s, 4, 1+args)
	var space [128]byte
	f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], latchPrefix, l.Name))
	f.share(2)
	f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], watchesPrefix, l.Name))
	f.keysEnd()
	f.number(l.Bucket)
	return f
}

func (l Latch) about(buf *[]byte, s *Script, t *LatchTerms, args int) frame {
	f := l.begin(buf, s, 3+args)
	f.number(t.Round)
	f.number(t.Count)
	f.millis(t.Life)
	return f
}

// Arrive adds at most MostArrivals arrivals, and says whether the latch is known to be open. The
// reply is a LatchState.
func (l Latch) Arrive(buf *[]byte, t LatchTerms, open bool, arrivals []Arrival) member.Command {
	f := l.about(buf, &LatchArrive, &t, 1+2*len(arrivals))
	f.text(map[bool]string{false: "0", true: "1"}[open])
	for _, a := range arrivals {
		f.text(a.ID)
		f.number(a.N)
	}
	return f.command(l.Slot(), nil)
}

// Tell says that the latch is open, where the member has one. The reply is a LatchState.
func (l Latch) Tell(buf *[]byte, t LatchTerms) member.Command {
	f := l.about(buf, &LatchArrive, &t, 1)
	f.text("2")
	return f.command(l.Slot(), nil)
}

// Await asks for the state, and registers a watch for the duration entry if the latch is not open.
// If entry is 0, it withdraws the watch. The reply is a LatchState.
func (l Latch) Await(buf *[]byte, t LatchTerms, watch string, entry time.Duration) member.Command {
	f := l.about(buf, &LatchAwait, &t, 2)
	f.text(watch)
	f.millis(entry)
	return f.command(l.Slot(), nil)
}

// Read asks for the arrivals from a cursor on, about so many: 0 begins, and 0 comes with the last.
// The reply is a LatchPage.
func (l Latch) Read(buf *[]byte, cursor string, about int) member.Command {
	f := l.begin(buf, &LatchRead, 2)
	f.text(cursor)
	f.number(int64(about))
	return f.command(l.Slot(), nil)
}

// Delete removes the latch. The reply is 1, or 0 if there was none.
func (l Latch) Delete(buf *[]byte) member.Command {
	f := l.begin(buf, &LatchDelete, 0)
	return f.command(l.Slot(), nil)
}

// LatchState is what a member knows of a latch.
type LatchState struct {
	Round  int64 // -1: the member knows of none
	Sum    int64 // of all arrivals of the round
	Count  int64 // 0: not told
	Open   bool
	Digest int64 // of all arrivals: members with the same Sum and Digest have the same ones
	Server int64 // the member's time, µs
}

// ReadLatch decodes the reply to Arrive and Await. If the reply has another shape, ok is false.
func ReadLatch(r *member.Reply) (s LatchState, ok bool) {
	e := r.Elems
	if r.Kind != '*' || len(e) < 6 {
		return LatchState{}, false
	}
	for _, one := range e[:6] {
		if one.Kind != ':' {
			return LatchState{}, false
		}
	}
	return LatchState{Round: e[0].Int, Sum: e[1].Int, Count: e[2].Int, Open: e[3].Int == 1, Digest: e[4].Int, Server: e[5].Int}, true
}

// LatchPage is a part of what a member knows of a latch.
type LatchPage struct {
	LatchState
	Life     time.Duration // what is left of the key; 0: there is none
	Watches  int
	Next     string // the cursor of the next page; "0": there is none
	Arrivals []Arrival
}

// ReadLatchPage decodes the reply to Read. If the reply has another shape, ok is false.
func ReadLatchPage(r *member.Reply) (p LatchPage, ok bool) {
	e := r.Elems
	if p.LatchState, ok = ReadLatch(r); !ok || len(e) < 9 || len(e)%2 == 0 {
		return LatchPage{}, false
	}
	p.Life = duration.FromMillis(e[6].Int)
	p.Watches, p.Next = int(e[7].Int), string(e[8].Str)
	for e = e[9:]; len(e) > 0; e = e[2:] {
		n, err := strconv.ParseInt(string(e[1].Str), 10, 64)
		if err != nil {
			return LatchPage{}, false
		}
		p.Arrivals = append(p.Arrivals, Arrival{ID: string(e[0].Str), N: n})
	}
	return p, p.Next != ""
}

// LatchHash is what one arrival of an id adds to the digest.
func LatchHash(id string) int64 {
	h, _ := strconv.ParseInt(Hash([]byte(id))[:8], 16, 64)
	return h
}

// AddDigest returns a digest with n more arrivals of an id.
func AddDigest(digest int64, id string, n int64) int64 {
	return (digest + LatchHash(id)*n) % (1 << 48)
}
