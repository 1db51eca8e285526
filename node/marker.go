package node

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// quarantineKey is there at a member while its quarantine lasts.
const quarantineKey = "redquorum:quarantine"

// The states of a marker.
const (
	neverForgot = "n"
	forgot      = "g" // and its counters are not restored yet
	whole       = "w" // forgot, and was restored
)

// marker is what a member knows of its own memory, as it was read at an instant.
type marker struct {
	id      string        // "run_id µs", unique for each marking; "" where there is none
	state   string        // neverForgot, forgot or whole
	q       time.Duration // the greatest MaxTTL in use
	left    time.Duration // of the quarantine; 0 when it is over
	clk     bool          // its order rests on the clocks
	age     time.Duration // since it was marked, on its own clock
	raised  time.Duration // since its q was raised last, on its own clock; < 0: never
	arrived time.Time     // when the answer came: left runs from here on our clock
	recall                // of a master that a replica may replace; else empty
}

// of reports whether the marker was made for the process runID. Who may not ask which process it is believes
// whatever marker is there: one of its own would not be believed by those who may, nor theirs by it.
func (m marker) of(runID string) bool {
	return m.id != "" && (runID == unknownRun || strings.HasPrefix(m.id, runID+" ")) && m.known()
}

var (
	//go:embed script/look.lua
	lookLua string
	//go:embed script/raise.lua
	raiseLua string
	//go:embed script/mark.lua
	markLua string
	//go:embed script/lift.lua
	liftOnlyLua string
	//go:embed script/table.lua
	tableLua string
	//go:embed script/restore.lua
	restoreOnlyLua string

	liftLua    = raiseLua + liftOnlyLua
	restoreLua = raiseLua + restoreOnlyLua

	lookCommand  = guardCommand("return look()")
	tableCommand = guardCommand(tableLua)
)

// GuardScripts returns the Lua sources of the restart guard, for those who write the permissions of a
// user at the members.
func GuardScripts() []string {
	return append([]string{lookLua, markLua, liftLua, tableLua, restoreLua}, shardScripts()...)
}

// guardCommand encodes one of the guard's scripts. They are rare, and sent in full: a member that has
// just restarted has no script cache.
func guardCommand(source string, args ...string) []byte {
	all := append([]string{"EVAL", lookLua + source, "3", member.MarkerKey, quarantineKey, member.TokensKey}, args...)
	return resp.Command(all...)
}

func markCommand(runID string, q, quarantine time.Duration, state string) []byte {
	return guardCommand(markLua, runID, millis(q), millis(quarantine), state)
}

// markCommand is markCommand for this node; repl is the replication id of a master of a cluster.
func (n *Node) markCommand(runID, repl string, q, quarantine time.Duration, state string) []byte {
	if !n.replicated() {
		return markCommand(runID, q, quarantine, state)
	}
	return n.guardCommand(markLua, runID, millis(q), millis(quarantine), state, repl)
}

func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

var errMarker = errors.New("marker: reply of an unexpected shape")

// readMarker decodes what look returns.
func readMarker(r *member.Reply, arrived time.Time) (marker, error) {
	e := r.Elems
	if r.Kind != '*' || len(e) < 7 || e[3].Kind != ':' || e[5].Kind != ':' {
		return marker{}, errMarker
	}
	q, err := strconv.ParseInt(string(e[2].Str), 10, 64)
	if err != nil {
		return marker{}, errMarker
	}
	m := marker{
		id: string(e[0].Str), state: string(e[1].Str), q: time.Duration(q) * time.Millisecond,
		left: time.Duration(max(0, e[3].Int)) * time.Millisecond, clk: string(e[4].Str) == "1", arrived: arrived,
	}
	m.recall = readMemory(e)
	m.raised = -1
	if at, err := strconv.ParseInt(string(e[6].Str), 10, 64); err == nil {
		m.raised = time.Duration(e[5].Int-at) * time.Microsecond
	}
	if _, micros, ok := strings.Cut(m.id, " "); ok {
		if made, err := strconv.ParseInt(micros, 10, 64); err == nil {
			m.age = time.Duration(e[5].Int-made) * time.Microsecond
		}
	}
	if m.id != "" && m.state != neverForgot && m.state != forgot && m.state != whole {
		return marker{}, errMarker
	}
	return m, nil
}

// askMarker sends one of the guard's commands on s and reads the marker it returns.
func (n *Node) askMarker(ctx context.Context, s *session, cmd []byte) (marker, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout)
	defer cancel()
	calls, err := n.ask(ctx, s, [][]byte{cmd})
	if err != nil {
		return marker{}, fmt.Errorf("marker: %w", err)
	}
	if c := &calls[0]; c.Outcome != member.Answered {
		return marker{}, fmt.Errorf("marker: %w", c.Err)
	}
	return readMarker(&calls[0].Reply, calls[0].At)
}
