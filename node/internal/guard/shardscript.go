package guard

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

var (
	//go:embed script/carry.lua
	carryOnlyLua string
	//go:embed script/announce.lua
	announceLua string
	//go:embed script/seal.lua
	sealLua string
	//go:embed script/stamp.lua
	stampLua string
	//go:embed script/refill.lua
	refillOnlyLua string

	carryLua  = raiseLua + carryOnlyLua
	refillLua = countLua + refillOnlyLua
)

// slotHome is that of the master id of a cluster, in one of its slots.
func slotHome(s uint16, id string) *home {
	tag := ":{" + slot.TagOf(s) + "}"
	return newHome(s, member.MarkerKey+tag+":"+id, quarantineKey+tag+":"+id, tokensOf(s))
}

// carryCommand carries m to this place. left is what is left of its quarantine. m.raised is 0 if q may have been
// raised where the marker was, after the caller had looked. word is what the carry was announced with.
func (h *home) carryCommand(m marker, left time.Duration, word string) []byte {
	raised := ""
	if m.raised >= 0 {
		raised = strconv.FormatInt(m.raised.Milliseconds(), 10)
	}
	return h.command(carryLua, m.id, m.state, millis(m.q), flag(m.clk), m.recall.repl, millis(left), raised, word)
}

// stampIn reads the id that a slot is stamped with.
func stampIn(s uint16) []byte { return resp.Command("HGET", tokensOf(s), "id") }

// stampCommand stamps a slot with the marking id. resting is how old the stamp of another master
// that forgot must be; told says that members which know have told how long leases may be. word is
// what the stamp was announced with.
func stampCommand(s uint16, id string, resting time.Duration, told bool, word string) []byte {
	return resp.Command("EVAL", stampLua, "1", tokensOf(s), id, millis(resting), flag(told), word)
}

// announceCommand announces a stamp of a slot, or a marker that is carried to it. Its reply is the
// word to do that with: word, or another client's.
func announceCommand(s uint16, word string) []byte {
	return resp.Command("EVAL", announceLua, "1", tokensOf(s), word)
}

// sealCommand stamps a slot of a master with its marking m, as announced with word.
func sealCommand(s uint16, m marker, word string) []byte {
	return resp.Command("EVAL", sealLua, "1", tokensOf(s), m.id, word, flag(m.state == forgot), flag(m.state == forgot || m.left > 0))
}

// refillCommand raises counters of a slot, each behind its field, while the slot has the stamp of
// the marking id.
func refillCommand(s uint16, id string, p *plan, fields []string) []byte {
	return resp.Command(append([]string{"EVAL", refillLua, "1", tokensOf(s), id, flag(p.byClock)}, fields...)...)
}

// homeOf chooses the slot for the marker: the last one of the longest run of slots, because
// resharding takes slots from the beginning.
func homeOf(slots []uint16) uint16 {
	best, length, run := uint16(0), 0, 0
	for i, s := range slots {
		if run++; i > 0 && slots[i-1]+1 != s {
			run = 1
		}
		if run > length {
			length = run
		}
		if run == length {
			best = s
		}
	}
	return best
}

// MarkerKeys names two keys of a master of a cluster that serves these slots (ascending) and has
// this id (CLUSTER MYID): the restart guard's marker, and the key that is there during a
// quarantine. Without slots it names those of any other member.
func MarkerKeys(slots []uint16, id string) (marker, quarantine string) {
	if len(slots) == 0 {
		return member.MarkerKey, quarantineKey
	}
	h := slotHome(homeOf(slots), id)
	return h.marker, h.quarantine
}

func tokensOf(s uint16) string { return member.TokensKey + ":{" + slot.TagOf(s) + "}" }

// tokensHead begins the name of a slot's counters as a bulk string. All tags have one length.
var tokensHead = func() string {
	name := tokensOf(0)
	head, _, _ := strings.Cut(name, slot.TagOf(0))
	return "$" + strconv.Itoa(len(name)) + "\r\n" + head
}()

// AppendTokens writes the name of a slot's counters as a bulk string.
func AppendTokens(b []byte, s uint16) []byte {
	b = append(b, tokensHead...)
	b = append(b, slot.TagOf(s)...)
	return append(b, "}\r\n"...)
}

// Scripts returns the Lua sources of the restart guard, for those who write the permissions of a
// user at the members.
func Scripts() []string {
	return []string{lookLua, markLua, liftLua, claimLua, restoreLua, carryLua, renameLua, announceLua, sealLua, stampLua, refillLua}
}
