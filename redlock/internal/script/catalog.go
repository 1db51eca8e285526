package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/internal/resp"
)

// Script is one Lua source and the name by which Redis calls it.
type Script struct{ Source, SHA string }

// parts are the scripts, and what they include.
//
//go:embed lua/*.lua
var parts embed.FS

// newScript reads a script as it is sent: without the lines that are comments, except the first, which says what it is.
func newScript(name string) Script {
	var sent strings.Builder
	for line := range strings.Lines(include(name, map[string]bool{})) {
		if sent.Len() == 0 || !strings.HasPrefix(strings.TrimSpace(line), "--") {
			sent.WriteString(line)
		}
	}
	source := sent.String()
	sum := sha1.Sum([]byte(source))
	return Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

// include returns a part, with others in place of its lines "--include NAME". One that is indented is for the block
// that it is in; one that is not is there from then on, and is not included twice. A line "--has NAME" says that the
// part is there already, in another form.
func include(name string, there map[string]bool) string {
	text, err := parts.ReadFile("lua/" + name)
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		wanted, found := strings.CutPrefix(strings.TrimSpace(line), "--include ")
		has, said := strings.CutPrefix(strings.TrimSpace(line), "--has ")
		switch {
		case said:
			there[has] = true
		case !found:
			out.WriteString(carries.Replace(line))
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

// These are the scripts of the exclusive lock.
var (
	Acquire = newScript("acquire.lua")
	Wait    = newScript("wait.lua")
	Release = newScript("release.lua")
	Yield   = newScript("yield.lua")
	Raise   = newScript("raise.lua")
	Extend  = newScript("extend.lua")
	Rejoin  = newScript("rejoin.lua")
	Peek    = newScript("peek.lua")
	Force   = newScript("force.lua")
	Batch   = newScript("batch.lua")
)

// These take over what was handed off.
var (
	Adopt    = newScript("adopt.lua")
	SemAdopt = newScript("sem_adopt.lua")
)

// First returns the scripts of the exclusive lock: those that every client calls.
func First() []Script {
	return []Script{Acquire, Wait, Release, Yield, Raise, Extend, Rejoin, Peek, Force, Batch}
}

// batch.lua is sent with these numbers in place of their names.
var carries = strings.NewReplacer(
	"CHAINED_KIND", strconv.Itoa(resp.AcquireItem+resp.Chained),
	"REPEATED_KIND", strconv.Itoa(resp.AcquireItem+resp.Repeated), "RELEASE_KIND", strconv.Itoa(resp.ReleaseItem),
	"SLOT_WIDTH", strconv.Itoa(resp.SlotWidth),
	"QUEUE_PREFIX", queuePrefix, "WAITERS_PREFIX", waitersPrefix,
)

// What a batch can carry.
var (
	acquireItem = resp.Item{Batch: Batch.SHA, Kind: resp.AcquireItem}
	releaseItem = resp.Item{Batch: Batch.SHA, Kind: resp.ReleaseItem}
)
