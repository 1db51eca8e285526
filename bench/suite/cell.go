// Package suite plans the cells of a run, carries them out in interleaved slices, and writes one
// record per slice.
package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
	"github.com/redquorum/redquorum/bench/work"
)

// Cell is one row of conditions. Every entry that fits takes part in it.
type Cell struct {
	Workload string `json:"workload"`
	Members  int    `json:"members"`
	Callers  int    `json:"callers"`
	HoldUS   int    `json:"hold_us,omitempty"`
	Random   bool   `json:"random,omitempty"` // the hold is uniform in 0..HoldUS
	// number of names used in turn; 0: a fresh one each time
	Warm  int    `json:"warm,omitempty"`
	Rate  int    `json:"rate,omitempty"`  // arrivals a second; 0: closed loop
	Fault string `json:"fault,omitempty"` // of member 0 of the set
	Phase string `json:"phase,omitempty"` // of a cell with a fault, see Phases
	Procs int    `json:"procs,omitempty"` // number of processes that share the callers
	Count int    `json:"count,omitempty"` // leases, waiters, arrivals; W16: token counters of a member

	Clients int    `json:"clients,omitempty"` // of the callers; 0: as the workload says
	Reads   int    `json:"reads,omitempty"`   // percent of the operations
	Writers int    `json:"writers,omitempty"` // of the callers, that only write
	Ask     string `json:"ask,omitempty"`     // W9s, W14, W20: one of the Ask constants of package work
	Names   int    `json:"names,omitempty"`   // W10: of one operation
	Limit   int    `json:"limit,omitempty"`   // W11, W12: of the semaphore

	Scale  string `json:"scale,omitempty"`  // W15: one of the Scale constants
	Length int    `json:"length,omitempty"` // W15: of names
}

// These are what grows in W15.
const (
	ScaleCallers = "callers" // of one client, each on names of its own
	ScaleClients = "clients" // with a caller each, on names of their own
	ScaleProcs   = "processes"
	ScaleMembers = "members"
	ScaleHeld    = "held leases"     // renewed by the client, beside 64 callers
	ScaleWaiters = "waiters"         // for one name, of 8 clients
	ScaleNames   = "bytes of a name" // 64 callers
)

// Scales are the Scale constants.
var Scales = []string{ScaleCallers, ScaleClients, ScaleProcs, ScaleMembers, ScaleHeld, ScaleWaiters, ScaleNames}

// X is how much there is of what grows.
func (c Cell) X() int {
	switch c.Scale {
	case ScaleClients:
		return c.Clients
	case ScaleMembers:
		return c.Members
	case ScaleHeld:
		return c.Count
	case ScaleNames:
		return c.Length
	}
	return c.Callers
}

// scaled are the cells of W15. Without members to choose from there are none of more members.
func scaled(s Scope) (cells []Cell) {
	const n = 3
	if !slices.Contains(s.Members, n) {
		return nil
	}
	add := func(scale string, xs []int, set func(*Cell, int)) {
		for _, x := range xs {
			c := Cell{Workload: "W15", Members: n, Callers: 64, Scale: scale}
			if set(&c, x); c.Members == n || s.Faults {
				cells = append(cells, c)
			}
		}
	}
	add(ScaleCallers, []int{1, 4, 16, 64, 256, 1024, 4096}, func(c *Cell, x int) { c.Callers = x })
	add(ScaleClients, []int{1, 10, 100, 1000}, func(c *Cell, x int) { c.Callers, c.Clients = x, x })
	add(ScaleProcs, []int{1, 2, 4, 8, 16}, func(c *Cell, x int) { c.Callers, c.Procs = x, x })
	add(ScaleMembers, []int{1, 3, 5, 7, 9}, func(c *Cell, x int) { c.Members = x })
	add(ScaleHeld, []int{100, 1000, 10_000, 100_000}, func(c *Cell, x int) { c.Count = x })
	add(ScaleWaiters, []int{1, 10, 100, 1000}, func(c *Cell, x int) { c.Callers, c.Clients = x, 8 })
	add(ScaleNames, []int{32, 128, 512, 1024}, func(c *Cell, x int) { c.Length = x })
	if s.Full {
		add(ScaleClients, []int{5000}, func(c *Cell, x int) { c.Callers, c.Clients = x, x })
		add(ScaleHeld, []int{1_000_000}, func(c *Cell, x int) { c.Count = x })
		add(ScaleWaiters, []int{5000}, func(c *Cell, x int) { c.Callers, c.Clients = x, 8 })
	}
	return cells
}

// These are the phases of a cell with a fault. One client is healthy and then meets the fault.
// Another client starts while the fault is there.
const (
	Healthy = "healthy"
	After   = "after"
	Start   = "start"
)

// String names the cell. The name is its key in the file of records.
func (c Cell) String() string {
	b := []string{c.Workload, fmt.Sprintf("N=%d", c.Members)}
	add := func(on bool, format string, args ...any) {
		if on {
			b = append(b, fmt.Sprintf(format, args...))
		}
	}
	add(c.Callers > 0, "callers=%d", c.Callers)
	add(c.Clients > 0, "clients=%d", c.Clients)
	add(slices.Contains([]string{"W3", "W3d", "W3p", "W3f", "W9", "W9w", "W12"}, c.Workload), "hold=%s", c.Hold())
	add(c.Ask != "", "ask=%s", c.Ask)
	add(c.Names > 0, "names=%d", c.Names)
	add(c.Limit > 0, "limit=%d", c.Limit)
	add(c.Warm > 0, "warm=%d", c.Warm)
	add(c.Rate > 0, "rate=%d", c.Rate)
	add(c.Fault != "", "fault=%q", c.Fault)
	add(c.Phase != "", "phase=%s", c.Phase)
	add(c.Count > 0, "count=%d", c.Count)
	add(c.Scale != "", "scale=%q", c.Scale)
	add(c.Length > 0, "length=%d", c.Length)
	return strings.Join(b, " ")
}

// Hold says how long the lock is held.
func (c Cell) Hold() string {
	d := time.Duration(c.HoldUS) * time.Microsecond
	if c.Random {
		return "0–" + d.String()
	}
	return d.String()
}

// Title says what the cell is, for people.
func (c Cell) Title() string {
	members := fmt.Sprintf("%d members", c.Members)
	if c.Members == 1 {
		members = "1 member"
	}
	callers := fmt.Sprintf("%d callers", c.Callers)
	if c.Callers == 1 {
		callers = "1 caller"
	}
	fresh := "fresh names"
	if c.Warm > 0 {
		fresh = fmt.Sprintf("%d warm names", c.Warm)
	}
	switch c.Workload {
	case "W1", "W2":
		return fmt.Sprintf("%s uncontended · %s · %s · %s", c.Workload, members, callers, fresh)
	case "W3":
		clients := "one client"
		if c.Clients > 0 {
			clients = fmt.Sprintf("%d clients", c.Clients)
		}
		return fmt.Sprintf("W3 hand-off, %s · %s · %d contenders · hold %s", clients, members, c.Callers, c.Hold())
	case "W3d":
		return fmt.Sprintf("W3d hand-off, a client each · %s · %d contenders · hold %s · 2 ms pause", members, c.Callers, c.Hold())
	case "W3p":
		return fmt.Sprintf("W3p hand-off, a process each · %s · %d contenders · hold %s · 2 ms pause", members, c.Callers, c.Hold())
	case "W3f":
		return fmt.Sprintf("W3f hand-off in order · %s · %d contenders · hold %s · 2 ms pause", members, c.Callers, c.Hold())
	case "W9":
		return fmt.Sprintf("W9 readers and writers · %s · %d callers of %d clients · %d %% reads · hold %s", members, c.Callers, c.Clients, c.Reads, c.Hold())
	case "W9w":
		return fmt.Sprintf("W9w a writer among readers · %s · %d callers of %d clients, one writes · hold %s", members, c.Callers, c.Clients, c.Hold())
	case "W9r":
		return fmt.Sprintf("W9r readers let in · %s · %d readers of %d clients wait for a writer", members, c.Callers, c.Clients)
	case "W9s":
		return fmt.Sprintf("W9s readers and writers, uncontended · %s · %s · %s", members, callers, asked[c.Ask])
	case "W10":
		return fmt.Sprintf("W10 sets · %s · %s · %d free names", members, callers, c.Names)
	case "W11":
		return fmt.Sprintf("W11 permits, uncontended · %s · %s · %d permits, half of them taken", members, callers, c.Limit)
	case "W12":
		permits := fmt.Sprintf("%d permits", c.Limit)
		if c.Limit == 1 {
			permits = "1 permit"
		}
		return fmt.Sprintf("W12 permits · %s · %d contenders for %s · hold %s · 2 ms pause", members, c.Callers, permits, c.Hold())
	case "W13":
		return fmt.Sprintf("W13 latch · %s · %d arrivals by %d clients, %d waiters", members, c.Count, c.Callers, c.Callers)
	case "W14":
		how := "the leader resigns"
		if c.Ask == work.AskCrash {
			how = "the leader is killed"
		}
		return fmt.Sprintf("W14 change of leader · %s · %d candidates, %d observers · %s", members, c.Callers, c.Callers, how)
	case "burst":
		return fmt.Sprintf("Burst · %s · %d at once, a client each", members, c.Callers)
	case "W4", "W5":
		loop := "closed loop"
		if c.Rate > 0 {
			loop = fmt.Sprintf("%d arrivals/s", c.Rate)
		}
		phase := map[string]string{Healthy: "before", After: "from the fault on", Start: "started with the fault", "": ""}[c.Phase]
		return fmt.Sprintf("%s one of %s: %s · %s · %s · %s", c.Workload, members, c.Fault, callers, loop, phase)
	case "W6":
		return fmt.Sprintf("W6 renewals · %s · %d leases held", members, c.Count)
	case "W7":
		return fmt.Sprintf("W7 memory · %s · %d leases, %d waiters on one name", members, c.Count, c.Count)
	case "W15":
		return fmt.Sprintf("W15 scale · %s · %d %s", members, c.X(), c.Scale)
	case "W16":
		clients := fmt.Sprintf("%d clients", c.Clients)
		if c.Clients == 1 {
			clients = "1 client"
		}
		return fmt.Sprintf("W16 a member comes back · %s · %s · %d counters", members, clients, c.Count)
	case "W17":
		return "W17 what a lock and unlock sets in motion in the client"
	case "W18":
		return "W18 what the client executes for a lock and unlock"
	case "W19":
		return "W19 what a member executes for a lock and unlock, 16 in a call"
	case "W20":
		if c.Clients > 1 {
			return fmt.Sprintf("W20 one name again and again · %s · %d clients in turns", members, c.Clients)
		}
		return fmt.Sprintf("W20 one name again and again · %s · %s", members, callers)
	case "W8":
		return fmt.Sprintf("W8 fencing · %s · %s", members, callers)
	}
	return c.String()
}

// asked says what W9s asks for, for people.
var asked = map[string]string{
	work.AskWrite:   "write lock",
	work.AskRead:    "first read lock of a name",
	work.AskFurther: "further read lock beside one of the same client",
}

// shape is what the entries have to be fit for.
func (c Cell) shape() string {
	switch c.Workload {
	case "W3":
		return entry.Shared
	case "W3d", "W3p", "burst":
		return entry.Separate
	case "W3f":
		return entry.InOrder
	case "W9r":
		return entry.Together
	case "W9", "W9w", "W9s":
		if c.Ask == work.AskFurther {
			return entry.Together
		}
		return entry.ReadWrite
	case "W10":
		return entry.Sets
	case "W11":
		return entry.Room
	case "W12":
		return entry.Permits
	case "W13":
		return entry.Arrivals
	case "W14":
		return entry.Leading
	case "W16":
		return entry.Returning
	case "W15":
		if c.Scale == ScaleWaiters {
			return entry.Separate
		}
		return entry.Uncontended
	case "W20":
		return entry.Again
	case "W6":
		return entry.Renewed
	case "W7":
		return entry.Memory
	}
	return entry.Uncontended
}

func (c Cell) work() string {
	switch c.Workload {
	case "W3", "W3d", "W3p", "W3f":
		return work.Contended
	case "W9", "W9w":
		return work.ReadWrite
	case "W9r":
		return work.LetIn
	case "W12":
		return work.Permits
	case "W13":
		return work.Latch
	case "W14":
		return work.Leader
	case "W16":
		return work.Back
	case "W15":
		if c.Scale == ScaleWaiters {
			return work.Contended
		}
		return work.Uncontended
	case "burst":
		return work.Burst
	case "W6":
		return work.Renew
	case "W7":
		return work.Memory
	}
	return work.Uncontended
}

// contended tells whether callers want the same name, and so share a Storage.
func (c Cell) contended() bool {
	return slices.Contains([]string{work.Contended, work.Burst, work.ReadWrite, work.LetIn, work.Permits}, c.work())
}

// Scope says how much a run covers.
type Scope struct {
	Full      bool
	Workloads []string // empty: those of the scope
	Members   []int
	Faults    bool // servers can be broken
}

// Plan lists the cells in the order in which they run. The order follows the number of members,
// because each number has a set of servers of its own.
func Plan(s Scope) (cells []Cell) {
	want := func(w string) bool {
		if len(s.Workloads) > 0 {
			return slices.ContainsFunc(s.Workloads, func(x string) bool { return strings.EqualFold(x, w) })
		}
		return s.Full || slices.Contains(Short, w)
	}
	add := func(c Cell) {
		if want(c.Workload) {
			cells = append(cells, c)
		}
	}
	asked := s.Full || len(s.Workloads) > 0 // and not the short run, whose long cells are of three members
	for _, n := range s.Members {
		add(Cell{Workload: "W1", Members: n, Callers: 1})
		add(Cell{Workload: "W2", Members: n, Callers: 64})
		add(Cell{Workload: "W2", Members: n, Callers: 512})
		if s.Full {
			add(Cell{Workload: "W2", Members: n, Callers: 64, Warm: 1000})
		}
		for _, w := range []string{"W3", "W3d"} {
			if w != "W3" || asked {
				add(Cell{Workload: w, Members: n, Callers: 8, HoldUS: 1000, Random: true})
			}
			if s.Full {
				for _, callers := range []int{8, 64} {
					add(Cell{Workload: w, Members: n, Callers: callers})
					add(Cell{Workload: w, Members: n, Callers: callers, HoldUS: 1000})
				}
			}
		}
		if asked || n == 3 {
			add(Cell{Workload: "W3", Members: n, Callers: 2})
			if !s.Full { // or it is there
				add(Cell{Workload: "W3", Members: n, Callers: 64})
			}
		}
		if asked {
			for _, us := range []int{0, 200, 5000} {
				add(Cell{Workload: "W3", Members: n, Callers: 64, Clients: 8, HoldUS: us})
			}
		}
		add(Cell{Workload: "W3f", Members: n, Callers: 8, HoldUS: 1000, Random: true})
		if s.Full {
			add(Cell{Workload: "W3f", Members: n, Callers: 8})
		}
		add(Cell{Workload: "W3p", Members: n, Callers: 8, Procs: 8, HoldUS: 1000, Random: true})
		add(Cell{Workload: "burst", Members: n, Callers: 64})
		add(Cell{Workload: "W6", Members: n, Count: 10_000})
		add(Cell{Workload: "W7", Members: n, Count: 10_000})
		add(Cell{Workload: "W8", Members: n, Callers: 1})
		add(Cell{Workload: "W8", Members: n, Callers: 64})
		add(Cell{Workload: "W9", Members: n, Callers: 64, Clients: 8, Reads: 95, HoldUS: 1000})
		add(Cell{Workload: "W9w", Members: n, Callers: 64, Clients: 8, Reads: 100, Writers: 1, HoldUS: 1000})
		add(Cell{Workload: "W9r", Members: n, Callers: 100, Clients: 100})
		add(Cell{Workload: "W9r", Members: n, Callers: 100, Clients: 8})
		for _, ask := range []string{work.AskWrite, work.AskRead, work.AskFurther} {
			add(Cell{Workload: "W9s", Members: n, Callers: 1, Ask: ask})
		}
		for _, names := range []int{2, 4, 16} {
			add(Cell{Workload: "W10", Members: n, Callers: 1, Names: names})
		}
		for _, limit := range []int{2, 16, 1000} {
			add(Cell{Workload: "W11", Members: n, Callers: 1, Limit: limit})
		}
		for _, limit := range []int{1, 8} {
			add(Cell{Workload: "W12", Members: n, Callers: 64, Limit: limit, HoldUS: 1000})
		}
		add(Cell{Workload: "W13", Members: n, Callers: 100, Count: 10_000})
		for _, ask := range []string{work.AskResign, work.AskCrash} {
			add(Cell{Workload: "W14", Members: n, Callers: 8, Ask: ask})
		}
		for _, callers := range []int{1, 8, 64, 512} {
			if s.Full || callers == 1 || callers == 64 {
				add(Cell{Workload: "W17", Members: n, Callers: callers})
			}
			if s.Full || callers == 64 && (asked || n == 3) {
				add(Cell{Workload: "W18", Members: n, Callers: callers})
			}
		}
		if asked || n == 3 {
			for _, clients := range []int{1, 2} {
				add(Cell{Workload: "W20", Members: n, Callers: 1, Clients: clients, Ask: work.AskAgain})
			}
		}
		if n == 1 {
			add(Cell{Workload: "W19", Members: n, Count: 16})
		}
		if s.Faults && n >= 3 {
			add(Cell{Workload: "W16", Members: n, Clients: 300, Count: 16_384, Fault: server.Forget})
			if s.Full && n == 3 {
				add(Cell{Workload: "W16", Members: n, Clients: 1, Count: 1_000_000, Fault: server.Forget})
			}
		}
	}
	for _, c := range scaled(s) {
		add(c)
	}
	if n := slices.Max(s.Members); s.Faults && n >= 3 {
		for _, load := range []Cell{{Callers: 1}, {Callers: 64}, {Callers: 64, Rate: 500}} {
			for _, fault := range []string{server.BlackHole, server.Refuse, server.Freeze, server.Kill} {
				add(Cell{Workload: "W4", Members: n, Callers: load.Callers, Rate: load.Rate, Fault: fault})
			}
			add(Cell{Workload: "W5", Members: n, Callers: load.Callers, Rate: load.Rate, Fault: server.Slow})
		}
	}
	return cells
}

// Counts reports whether a cell counts what one lock and unlock costs: once, and beside the floor alone.
func (c Cell) Counts() bool { return slices.Contains([]string{"W17", "W18", "W19"}, c.Workload) }

// Short are the workloads of a run that is not full.
var Short = []string{"W1", "W2", "W3", "W3d", "W17", "W18", "W19", "W20"}

// Workloads are the names that Scope.Workloads accepts.
var Workloads = []string{"W1", "W2", "W3", "W3d", "W3f", "W3p", "burst", "W4", "W5", "W6", "W7", "W8", "W9", "W9w", "W9r", "W9s", "W10", "W11", "W12", "W13", "W14", "W15", "W16", "W17", "W18", "W19", "W20"}

// order puts entries in the order of one round: the first one moves on from round to round, so that none
// always runs behind the same neighbour.
func order[T any](all []T, round int) []T {
	if len(all) == 0 {
		return nil
	}
	k := round % len(all)
	return append(slices.Clone(all[k:]), all[:k]...)
}

func sortedCells(cells []Cell) []Cell {
	out := slices.Clone(cells)
	slices.SortStableFunc(out, func(a, b Cell) int { return cmp.Compare(a.Members, b.Members) })
	return out
}
