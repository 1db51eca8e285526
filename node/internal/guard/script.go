package guard

import (
	_ "embed"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// quarantineKey is there at a member while its quarantine lasts.
const quarantineKey = "redquorum:quarantine"

var (
	//go:embed script/look.lua
	lookLua string
	//go:embed script/raise.lua
	raiseLua string
	//go:embed script/mark.lua
	markLua string
	//go:embed script/lift.lua
	liftOnlyLua string
	//go:embed script/waits.lua
	waitsLua string
	//go:embed script/restore.lua
	restoreOnlyLua string

	//go:embed script/rename.lua
	renameLua string

	liftLua    = raiseLua + liftOnlyLua
	restoreLua = countLua + raiseLua + waitsLua + restoreOnlyLua
)

// lookSource is the script that does nothing but look.
const lookSource = "return look()"

// home is where a member's marker is: at a master of a cluster a place in one of its slots. It
// encodes the scripts for that place. They are rare, and sent in full: a member that has just
// restarted has no script cache.
type home struct {
	slot                       uint16
	marker, quarantine, tokens string
	look                       []byte // the command
}

// plainHome is that of a member which is no cluster.
var plainHome = newHome(0, member.MarkerKey, quarantineKey, member.TokensKey)

func newHome(s uint16, marker, quarantine, tokens string) *home {
	h := &home{slot: s, marker: marker, quarantine: quarantine, tokens: tokens}
	h.look = h.command(lookSource)
	return h
}

// command encodes one of the guard's scripts.
func (h *home) command(source string, args ...string) []byte {
	all := append([]string{"EVAL", lookLua + source, "3", h.marker, h.quarantine, h.tokens}, args...)
	return resp.Command(all...)
}

// markCommand marks a member. repl is its replication id.
func (h *home) markCommand(runID, repl string, q, quarantine time.Duration, state string) []byte {
	return h.command(markLua, runID, millis(q), millis(quarantine), state, repl)
}

func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
