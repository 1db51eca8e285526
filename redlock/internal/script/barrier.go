package script

import (
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// BarrierWait is the script of a barrier.
var BarrierWait = newScript("barrier_wait.lua")

const barrierPrefix = "redquorum:b1" // hash: round, parties, open, and the arrivals

// Barrier is one barrier at a member, as Latch is.
type Barrier struct {
	Name   string
	Bucket int64 // number of the slot
}

// BarrierOf returns the barrier of a name.
func BarrierOf(name string) Barrier { return Barrier{Name: name, Bucket: int64(slot.Of(name))} }

// Slot returns the hash slot of the key of the barrier.
func (b Barrier) Slot() uint16 { return uint16(b.Bucket) }

// BarrierTerms are what every call tells a member of a barrier.
type BarrierTerms struct {
	Round   int64
	Parties int64
	Before  int64 // the round before, if it is known to have opened; 0: it is not
	Digest  int64 // of the parties of Before; 0: none
	Life    time.Duration
	Party   string
	Watch   string
}

// Wait arrives for the duration entry, and asks how the barrier stands. If entry is 0, it withdraws the
// arrival of the watch. The reply is a BarrierState.
func (b Barrier) Wait(buf *[]byte, t *BarrierTerms, entry time.Duration) member.Command {
	f := begin(buf, &BarrierWait, 3, 9)
	f.key(barrierPrefix, b.Name)
	f.share(2)
	f.keysEnd()
	f.number(b.Bucket)
	f.number(t.Round)
	f.number(t.Parties)
	f.millis(t.Life)
	f.number(t.Before)
	f.number(t.Digest)
	f.text(t.Party)
	f.text(t.Watch)
	f.millis(entry)
	return f.command(b.Slot(), nil)
}

// Read asks for what a member has, as Latch.Read does: Sum is the number of arrivals, which may have
// ended, and Watches counts fields.
func (b Barrier) Read(buf *[]byte, cursor string, about int) member.Command {
	var space [128]byte
	name := slot.AppendSibling(space[:0], barrierPrefix, b.Name)
	f := begin(buf, &LatchRead, 4, 3)
	f.b = resp.AppendBulk(f.b, name)
	f.share(2)
	f.b = resp.AppendBulk(f.b, name)
	f.keysEnd()
	f.number(b.Bucket)
	f.text(cursor)
	f.number(int64(about))
	return f.command(b.Slot(), nil)
}

// BarrierState is what a member says of a barrier.
type BarrierState struct {
	Round   int64 // -1: the member knows of none
	Parties int64
	Open    bool  // this member has counted all parties
	Digest  int64 // of those that it counted
	Before  int64 // the round before, if that is known to have opened; 0: it is not
	Mine    int64 // how the member has the party that asks, 0 to 3: see lua/barrier_wait.lua
	Server  int64 // the member's time, µs
	Proof   int64 // the digest of the parties of Before; 0: none
}

// ReadBarrier decodes the reply to Wait. If the reply has another shape, ok is false.
func ReadBarrier(r *member.Reply) (s BarrierState, ok bool) {
	e := r.Elems
	l, ok := ReadLatch(r)
	if !ok || len(e) < 9 || e[6].Kind != ':' || e[7].Kind != ':' || e[8].Kind != ':' {
		return BarrierState{}, false
	}
	return BarrierState{
		Round: l.Round, Parties: l.Count, Open: l.Open, Digest: l.Digest, Before: e[6].Int, Mine: e[7].Int, Server: l.Server, Proof: e[8].Int,
	}, true
}
