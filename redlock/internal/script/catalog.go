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
	first, rest, _ := strings.Cut(include(name, map[string]bool{}), "\n")
	var sent strings.Builder
	sent.WriteString(first + "\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			sent.WriteString(line)
		}
	}
	sum := sha1.Sum([]byte(sent.String()))
	return Script{Source: sent.String(), SHA: hex.EncodeToString(sum[:])}
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
		word, part, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "--has":
			there[part] = true
		case word != "--include":
			out.WriteString(carries.Replace(line))
		case there[part]:
		case line[0] == ' ':
			out.WriteString(include(part, maps.Clone(there)))
		default:
			there[part] = true
			out.WriteString(include(part, there))
		}
	}
	return out.String()
}

// These are the scripts by which a vote of the exclusive lock is given, taken and lengthened. kinds.go has the others.
var (
	Acquire = newScript("acquire.lua")
	Wait    = newScript("wait.lua")
	Release = newScript("release.lua")
	Yield   = newScript("yield.lua")
	Raise   = newScript("raise.lua")
	Reserve = newScript("reserve.lua")
	Extend  = newScript("extend.lua")
	Rejoin  = newScript("rejoin.lua")
	Adopt   = newScript("adopt.lua")
	Batch   = newScript("batch.lua")
)

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
