// Package work is what a measuring process does. It opens one entry, runs slices of a workload when
// told to, and reports what it saw. The suite runs it as a child process, so that processor time,
// memory and connections belong to one entry. Children in other languages (children/) do the same.
//
// The protocol is one JSON object per line, answered by one: an Order on standard input, a Result
// on standard output. Times are in nanoseconds unless their name says otherwise.
package work

// Order tells a child what to do.
//
//	open    open the entry: Clients times
//	slice   work for WarmMS and then, measured, for SliceMS
//	lead    campaign for Prefix + "leader", and answer when this process leads; it is killed then
//	close   close everything and end
type Order struct {
	Op      string   `json:"op"`
	Entry   string   `json:"entry,omitempty"`
	Members []string `json:"members,omitempty"`
	LeaseMS int      `json:"lease_ms,omitempty"`

	// Of open: what comes.
	Work    string `json:"work,omitempty"`     // one of the Work constants
	Shape   string `json:"shape,omitempty"`    // one of the shapes of package entry
	Callers int    `json:"callers,omitempty"`  // goroutines, or their like
	Clients int    `json:"clients,omitempty"`  // caller i uses client i modulo Clients
	HoldUS  int    `json:"hold_us,omitempty"`  // contended, read-write, permits: longest hold
	Random  bool   `json:"random,omitempty"`   // contended: the hold is uniform in 0..HoldUS
	PauseUS int    `json:"pause_us,omitempty"` // contended, permits: after a release; read-write: writers
	Reads   int    `json:"reads,omitempty"`    // read-write: percent of the operations
	Writers int    `json:"writers,omitempty"`  // read-write: the first callers, which only write
	Ask     string `json:"ask,omitempty"`      // uncontended, leader: one of the Ask constants
	Names   int    `json:"names,omitempty"`    // uncontended: of a set; 0: no sets
	Limit   int    `json:"limit,omitempty"`    // permits: of the semaphore; uncontended: half of them are taken; 0: no semaphore
	// uncontended: number of names used in turn; 0: a fresh one each time
	Warm    int    `json:"warm,omitempty"`
	Rate    int    `json:"rate,omitempty"`    // uncontended: arrivals per second on a schedule; 0: closed loop
	Count   int    `json:"count,omitempty"`   // renewed and memory: leases, waiters; latch: arrivals of a round
	Held    bool   `json:"held,omitempty"`    // uncontended: Count leases are held meanwhile, and renewed
	Length  int    `json:"length,omitempty"`  // uncontended: least length of names
	Sizes   bool   `json:"sizes,omitempty"`   // memory of this process and of the members is wanted
	Ops     int    `json:"ops,omitempty"`     // uncontended: of each caller, in place of SliceMS: the processor is slow
	Runs    bool   `json:"runs,omitempty"`    // uncontended: Result.Runs and Futexes are wanted
	Profile string `json:"profile,omitempty"` // file for a processor profile of what comes; children of other languages take none

	// Of slice.
	Prefix  string `json:"prefix,omitempty"`  // of all names
	Storage string `json:"storage,omitempty"` // a file of 64 bytes that all contenders share, see Storage
	Who     int    `json:"who,omitempty"`     // the first caller's number among the contenders of all processes
	WarmMS  int    `json:"warm_ms,omitempty"`
	SliceMS int    `json:"slice_ms,omitempty"`
}

// These are the kinds of work.
const (
	Uncontended = "uncontended"
	Contended   = "contended"
	ReadWrite   = "readwrite"
	LetIn       = "letin"
	Burst       = "burst"
	Renew       = "renew"
	Memory      = "memory"
	Permits     = "permits"
	Latch       = "latch"
	Leader      = "leader"
	Back        = "back"
)

// What an uncontended workload asks for; "" is a lock as of a mutex. And how a leader ends.
const (
	AskWrite   = "write"   // a write lock
	AskRead    = "read"    // a read lock of a name that nobody reads
	AskFurther = "further" // a read lock of a name that the same client reads already
	AskAgain   = "again"   // a lock of one name, again and again, by the clients in turns
	AskResign  = "resign"  // the leader resigns
	AskCrash   = "crash"   // the process of the leader is killed
)

// Histogram is a list of [value, count] pairs.
type Histogram [][2]int64

// Result is what a child answers.
type Result struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
	Version string `json:"version,omitempty"` // of open: library and runtime

	Ops     int64    `json:"ops,omitempty"`     // completed within the slice
	Done    int64    `json:"done,omitempty"`    // of the slice, with those that came late: what CPU and Allocs are for
	AllOps  int64    `json:"all_ops,omitempty"` // with warm-up and what came late: what the servers saw
	Errors  int64    `json:"errors,omitempty"`  // of acquisitions and releases
	Samples []string `json:"samples,omitempty"` // texts of the first errors
	Stuck   int64    `json:"stuck,omitempty"`   // callers that did not come back in time
	Elapsed int64    `json:"elapsed,omitempty"` // of the measured part
	CPU     int64    `json:"cpu,omitempty"`     // user and system time of this process in it
	Allocs  int64    `json:"allocs,omitempty"`  // in it; -1: the runtime does not tell
	Bytes   int64    `json:"bytes,omitempty"`   // allocated

	Switches              int64              `json:"switches,omitempty"` // of threads, in the measured part
	ReadCalls, WriteCalls int64              // system calls in it
	Futexes               int64              `json:"futexes,omitempty"` // system calls in it; -1: unknown
	Runs                  map[string]float64 `json:"runs,omitempty"`    // of goroutines per operation, by what they began with

	Second   int64  `json:"second,omitempty"`   // acquisitions with a second round
	Acquired int64  `json:"acquired,omitempty"` // of how many, where the entry knows
	Renewals int64  `json:"renewals,omitempty"` // leases renewed
	Renewer  string `json:"renewer,omitempty"`  // renewed by "own" or "suite"

	Total   Histogram `json:"total,omitempty"`   // acquire and release
	Acquire Histogram `json:"acquire,omitempty"` // the wait, where contended
	Release Histogram `json:"release,omitempty"`
	Handoff Histogram `json:"handoff,omitempty"` // from the start of a release to the next holder, another caller
	Told    Histogram `json:"told,omitempty"`    // leader: from then on to the last observer that hears of it

	Reading     Histogram `json:"reading,omitempty"`      // read-write: waits of readers
	Writing     Histogram `json:"writing,omitempty"`      // waits of writers, also if cut short
	RoundTrip   Histogram `json:"round_trip,omitempty"`   // to a majority of the members, meanwhile; leader: while nothing happens
	LongestRead int64     `json:"longest_read,omitempty"` // longest hold of a reader

	PerCaller []int64 `json:"per_caller,omitempty"` // acquisitions of each contender
	Self      int64   `json:"self,omitempty"`       // hand-offs to the caller that released
	WaitSum   int64   `json:"wait_sum,omitempty"`
	WaitMax   int64   `json:"wait_max,omitempty"` // also of waits that the end of the slice cut short
	Overlaps  int64   `json:"overlaps,omitempty"` // two holders at once; more than there are permits; a latch that opened early; two leaders
	Writes    int64   `json:"writes,omitempty"`   // to the storage, for lost updates

	ClientBytes int64 `json:"client_bytes,omitempty"` // Sizes: live heap and stacks at the end of the slice
	MemberBytes int64 `json:"member_bytes,omitempty"` // Sizes: used_memory of a member
	Routines    int64 `json:"routines,omitempty"`     // Sizes: goroutines of this process

	Back     int64 `json:"back,omitempty"`     // back: when the client that tries said that all members vote again, unix ns
	BackAll  int64 `json:"back_all,omitempty"` // back: when every client had said so
	Sessions int64 `json:"sessions,omitempty"` // back: that ended at other members than the first

	LeaseBytes  float64 `json:"lease_bytes,omitempty"`  // memory: per held lease
	WaiterBytes float64 `json:"waiter_bytes,omitempty"` // per waiter, less its goroutine
	Goroutines  float64 `json:"goroutines,omitempty"`   // per waiter, besides the caller's
	Registered  int     `json:"registered,omitempty"`   // waiters that the servers know of; -1: unknown
}
