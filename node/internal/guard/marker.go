package guard

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// The states of a marker.
const (
	neverForgot = "n"
	forgot      = "g" // and its counters are not restored yet
	whole       = "w" // forgot, and was restored
)

// marker is what a member knows of its own memory, as a client read it at an instant.
type marker struct {
	id      string        // "run_id µs", unique for each marking; "" if there is no marker
	state   string        // neverForgot, forgot or whole
	q       time.Duration // the greatest MaxTTL in use
	left    time.Duration // of the quarantine; 0 when it is over
	clk     bool          // its order rests on the clocks
	told    int64         // its own time of that, µs
	raised  time.Duration // since its q was raised last, on its own clock; < 0: never
	arrived time.Time     // when the answer came: left runs from here on our clock
	recall
}

// of reports whether the marker was made for the memory that the process runID has now.
func (m marker) of(runID string) bool { return m.names(runID) && m.known() }

// names reports whether the marker was made for the process runID.
func (m marker) names(runID string) bool { return strings.HasPrefix(m.id, runID+" ") }

// recall is what a server says of its replication, beside the marker.
type recall struct {
	repl  string // replication id when it was marked; "" if a client noted none
	now   string // replication id now
	older string // the one before it, if it was promoted
	role  string // "" if it may not be asked
	stamp string // what the home's slot is stamped with
}

// known reports whether the marker was made for the memory that the process has now. Whatever replaces that changes the
// replication id.
func (m recall) known() bool { return m.repl == m.now }

// renamed reports whether the replication id changed without a promotion: a first replica came, or
// the last one was gone for long. Or it was not noted.
func (m recall) renamed() bool { return !m.known() && !m.promoted() }

// own reports whether the server is a master with the memory that the marker was made for.
func (m recall) own() bool { return m.known() && !m.follows() }

// follows reports whether the server is a replica.
func (m recall) follows() bool { return m.role != "master" }

// promoted reports whether the process was a replica before, as far as it remembers.
func (m recall) promoted() bool { return strings.Trim(m.older, "0") != "" }

var errMarker = errors.New("marker: reply of an unexpected shape")

// readMarker decodes what look returns.
func readMarker(r *member.Reply, arrived time.Time) (marker, error) {
	e := r.Elems
	if r.Kind != '*' || len(e) < 10 || e[3].Kind != ':' || e[5].Kind != ':' {
		return marker{}, errMarker
	}
	q, err := strconv.ParseInt(string(e[2].Str), 10, 64)
	if err != nil {
		return marker{}, errMarker
	}
	m := marker{
		id: string(e[0].Str), state: string(e[1].Str), q: duration.FromMillis(q),
		left: duration.FromMillis(e[3].Int), clk: string(e[4].Str) == "1", told: e[5].Int, arrived: arrived,
	}
	info := e[8].Str
	m.recall = recall{repl: string(e[7].Str), now: resp.Field(info, "master_replid:"), older: resp.Field(info, "master_replid2:"),
		role: resp.Field(info, "role:"), stamp: string(e[9].Str)}
	m.raised = -1
	if at, err := strconv.ParseInt(string(e[6].Str), 10, 64); err == nil {
		m.raised = time.Duration(m.told-at) * time.Microsecond
	}
	if m.id != "" && m.state != neverForgot && m.state != forgot && m.state != whole {
		return marker{}, errMarker
	}
	return m, nil
}
