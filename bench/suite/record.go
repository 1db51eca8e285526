package suite

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/redquorum/redquorum/bench/work"
)

// Record is one line of the raw data: the machine, an entry that is missing, or one slice.
type Record struct {
	Time    time.Time `json:"time"`
	Machine *Machine  `json:"machine,omitempty"`
	Missing *Missing  `json:"missing,omitempty"`
	Slice   *Slice    `json:"slice,omitempty"`
}

// Missing is an entry that did not take part.
type Missing struct {
	Entry   string `json:"entry"`
	Why     string `json:"why"`
	Install string `json:"install,omitempty"` // the command that helps
}

// Times are a histogram's key figures, in ns.
type Times struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   int64   `json:"p50"`
	P90   int64   `json:"p90"`
	P99   int64   `json:"p99"`
	P999  int64   `json:"p999"`
	Max   int64   `json:"max"`
}

// Slice is what one entry did in one slice of a cell.
type Slice struct {
	Cell  Cell   `json:"cell"`
	Entry string `json:"entry"`
	Rep   int    `json:"rep"`
	Floor bool   `json:"floor,omitempty"`

	Failed  string `json:"failed,omitempty"` // why it could not run; "" if it ran
	SliceMS int    `json:"slice_ms"`
	OpenMS  int64  `json:"open_ms,omitempty"` // what opening took, in the phase Start
	Version string `json:"version,omitempty"`
	Servers string `json:"servers,omitempty"`

	Ops        int64    `json:"ops"`
	Throughput float64  `json:"throughput"` // per second
	Errors     int64    `json:"errors,omitempty"`
	Samples    []string `json:"samples,omitempty"`
	Stuck      int64    `json:"stuck,omitempty"`

	Total   *Times         `json:"total,omitempty"`
	Acquire *Times         `json:"acquire,omitempty"`
	Release *Times         `json:"release,omitempty"`
	Handoff *Times         `json:"handoff,omitempty"`
	Told    *Times         `json:"told,omitempty"`   // from the next leader to the last observer that hears of it
	Counts  work.Histogram `json:"counts,omitempty"` // of Total, two digits

	Reading     *Times `json:"reading,omitempty"`      // waits of readers
	Writing     *Times `json:"writing,omitempty"`      // waits of writers
	RoundTrip   *Times `json:"round_trip,omitempty"`   // to a majority, meanwhile
	LongestRead int64  `json:"longest_read,omitempty"` // longest hold of a reader, ns

	CPU       float64 `json:"cpu_s_per_10k"`        // client, seconds per 10,000 operations
	ServerCPU float64 `json:"server_cpu_us_per_op"` // all servers; 0: unknown
	OtherCPU  float64 `json:"other_cpus"`           // processors that other programs used meanwhile
	Allocs    float64 `json:"allocs_per_op"`        // -1: the runtime does not tell
	Bytes     float64 `json:"bytes_per_op"`
	Commands  float64 `json:"commands_per_op"` // sent; -1: unknown

	// What a client's operation sets in motion, and what it executes under callgrind; 0: unknown.
	Runs         map[string]float64 `json:"runs_per_op,omitempty"` // of goroutines, by what they began with
	Switches     float64            `json:"switches_per_op,omitempty"`
	Reads        float64            `json:"reads_per_op,omitempty"`   // system calls
	Writes       float64            `json:"writes_per_op,omitempty"`  // system calls
	Futexes      float64            `json:"futexes_per_op,omitempty"` // system calls
	Timers       float64            `json:"timers_per_op,omitempty"`  // that were set, moved or stopped
	Instructions float64            `json:"instructions_per_op,omitempty"`
	MissL1i      float64            `json:"l1i_misses_per_op,omitempty"`
	MissL1d      float64            `json:"l1d_misses_per_op,omitempty"`
	MissL2       float64            `json:"l2_misses_per_op,omitempty"`

	Contended bool    `json:"contended,omitempty"`
	Jain      float64 `json:"jain,omitempty"`
	WaitRatio float64 `json:"wait_ratio,omitempty"` // longest wait to mean wait
	// longest wait to median wait
	WaitMedian float64 `json:"wait_median,omitempty"`
	SelfShare  float64 `json:"self_share,omitempty"` // hand-offs to the contender that released
	Overlaps   int64   `json:"overlaps"`
	Lost       int64   `json:"lost"`
	Left       int     `json:"left"`           // keys 150 ms after the last release
	Stay       int     `json:"stay,omitempty"` // of them after another second

	Second      float64 `json:"second_share,omitempty"`
	Renewals    float64 `json:"renewals_per_s,omitempty"`
	RenewalCPU  float64 `json:"cpu_us_per_renewal,omitempty"`
	Renewer     string  `json:"renewer,omitempty"`
	LeaseBytes  float64 `json:"lease_bytes,omitempty"`
	WaiterBytes float64 `json:"waiter_bytes,omitempty"`
	Goroutines  float64 `json:"goroutines_per_waiter,omitempty"`
	Registered  int     `json:"registered,omitempty"`

	ClientBytes int64 `json:"client_bytes,omitempty"` // W15: live heap and stacks of all processes
	MemberBytes int64 `json:"member_bytes,omitempty"` // W15: used_memory of a member
	Routines    int64 `json:"routines,omitempty"`     // W15: goroutines of all processes, when the callers have ended

	Back     int64  `json:"back,omitempty"`     // W16: from the kill until the client that tries says that all vote, ns
	BackAll  int64  `json:"back_all,omitempty"` // W16: until every client says so
	Sessions int64  `json:"sessions,omitempty"` // W16: that ended at the members that were not killed
	In       int64  `json:"in,omitempty"`       // W16: bytes that these received from the kill on
	Out      int64  `json:"out,omitempty"`      // W16: bytes that they sent
	Slow     int64  `json:"slow,omitempty"`     // W16: calls that took them more than 5 ms
	Slowest  string `json:"slowest,omitempty"`  // W16: the longest of these
}

// Violated reports whether the slice shows what a lock must never do.
func (s *Slice) Violated() bool { return s.Overlaps > 0 || s.Lost > 0 }

func histogram(pairs work.Histogram) *hdr.Histogram {
	h := work.NewHistogram()
	for _, p := range pairs {
		_ = h.RecordValues(min(max(p[0], 1), work.Highest), p[1])
	}
	return h
}

func times(h *hdr.Histogram) *Times {
	if h.TotalCount() == 0 {
		return nil
	}
	return &Times{Count: h.TotalCount(), Mean: h.Mean(), P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90),
		P99: h.ValueAtQuantile(99), P999: h.ValueAtQuantile(99.9), Max: h.Max()}
}

// coarse keeps two digits, so that the file stays small.
func coarse(h *hdr.Histogram) work.Histogram {
	c := hdr.New(1, work.Highest, 2)
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			_ = c.RecordValues(min(b.To, work.Highest), b.Count)
		}
	}
	return work.Pairs(c)
}

// File appends records, one per line.
type File struct{ f *os.File }

// OpenFile reads what a file has, and opens it for more. It drops a last line that was cut short.
func OpenFile(path string) (*File, []Record, error) {
	have, good, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err = f.Truncate(good); err == nil {
		_, err = f.Seek(good, 0)
	}
	return &File{f}, have, err
}

// Read reads a file of records.
func Read(path string) ([]Record, error) {
	have, _, err := read(path)
	return have, err
}

func read(path string) (have []Record, good int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return have, good, nil // the end, or a line that was cut short
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		have, good = append(have, r), good+int64(len(line))
	}
}

// Write appends a record.
func (f *File) Write(r Record) error {
	r.Time = time.Now().UTC().Truncate(time.Millisecond)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = f.f.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }
