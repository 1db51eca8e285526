package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
	"github.com/redquorum/redquorum/bench/work"
)

// Config says what a run does.
type Config struct {
	Cells   []Cell
	Entries []*entry.Spec
	Reps    int
	Slice   time.Duration // of a closed loop; contended slices are twice as long
	Warm    time.Duration // before the first slice of a child; a third of it before later ones
	Lease   time.Duration
	Own     []string // running members; nil: the suite starts its own
	Out     *File
	Have    []Record // what Out already has
	Show    Progress

	Profiles string // folder for processor profiles of the children; "": none
}

// Progress hears of each slice before it runs.
type Progress interface {
	Plan(slices int)
	Slice(cell Cell, entry string)
	Note(format string, args ...any)
}

// grace is how long after the last release keys may still be on their way.
const grace = 150 * time.Millisecond

// runner is one run. It uses nothing concurrently but the processes.
type runner struct {
	Config
	id      string
	dir     string
	seq     int
	sets    map[string]server.Set // by kind; all for the same number of members
	members int
	missing map[string]bool
	done    map[string]bool // round and entry
}

// Run carries out what the file does not have yet.
func Run(ctx context.Context, c Config) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{Config: c, id: strconv.FormatUint(uint64(rand.Uint32()), 36), dir: dir,
		sets: map[string]server.Set{}, missing: map[string]bool{}, done: map[string]bool{}}
	defer r.closeSets()
	for _, have := range c.Have {
		if s := have.Slice; s != nil {
			cell := s.Cell
			cell.Phase = ""
			if s.Failed != "" { // it cannot run, in no repetition
				for rep := range c.Reps {
					r.done[key(cell, rep, s.Entry)] = true
				}
			}
			r.done[key(cell, s.Rep, s.Entry)] = true
		}
	}
	if err := r.available(); err != nil {
		return err
	}
	total := 0
	for _, cell := range c.Cells {
		for rep := range c.Reps {
			if todo := r.todo(cell, rep); len(todo) > 0 {
				total += len(todo)
			}
		}
	}
	c.Show.Plan(total)
	for _, cell := range sortedCells(c.Cells) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if cell.Members != r.members {
			r.closeSets()
			r.members = cell.Members
		}
		if cell.Fault != "" {
			err = r.faultCell(ctx, cell)
		} else {
			err = r.cell(ctx, cell)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", cell, err)
		}
	}
	return nil
}

func key(cell Cell, rep int, entry string) string { return fmt.Sprintf("%s #%d %s", cell, rep, entry) }

// available records which entries cannot take part, and why.
func (r *runner) available() error {
	for _, spec := range r.Entries {
		why, install := server.Missing(spec.Kind)
		if why == "" && spec.Child != nil {
			if err := spec.Child.Ready(filepath.Join(ChildrenDir(), spec.Child.Dir)); err != nil {
				why, install = err.Error(), "make bench-setup"
			}
		}
		if why == "" {
			continue
		}
		r.missing[spec.Name] = true
		r.Show.Note("missing: %s: %s (%s)", spec.Name, why, install)
		if err := r.Out.Write(Record{Missing: &Missing{Entry: spec.Name, Why: why, Install: install}}); err != nil {
			return err
		}
	}
	return nil
}

// entries are those that take part in a cell.
func (r *runner) entries(cell Cell) (out []*entry.Spec) {
	for _, spec := range r.Entries {
		switch {
		case r.missing[spec.Name] || !spec.Fits(cell.Members, cell.shape()):
		case cell.Fault != "" && (spec.Kind != entry.Redis || cell.Rate > 0 && spec.Child != nil):
		case cell.Workload == "W8" && spec.Name != "floor" && spec.Name != "floor-scripts" && !strings.HasPrefix(spec.Name, "redquorum"):
		case spec.Name == "redquorum-new" && (r.Own != nil || cell.Callers > 64 || !slices.Contains([]string{"W1", "W2", "W8"}, cell.Workload)):
		case cell.Counts() && spec.Name != "redquorum" && spec.Name != "floor":
		case cell.Workload == "W15" && spec.Name != "redquorum" && (spec.Name != "floor" || cell.Scale == ScaleHeld):
		case r.Own != nil && spec.Kind != entry.Redis:
		case spec.Child != nil && !slices.Contains([]string{work.Uncontended, work.Contended, work.ReadWrite, work.LetIn, work.Permits, work.Latch}, cell.work()):
		default:
			out = append(out, spec)
		}
	}
	return out
}

// todo are the entries of a round, or none if the file has all of it. A round that was begun is done
// again: its ratios are to the floor of the same minute.
func (r *runner) todo(cell Cell, rep int) []*entry.Spec {
	if rep > 0 && cell.Counts() {
		return nil
	}
	all := r.entries(cell)
	for _, spec := range all {
		if !r.done[key(cell, rep, spec.Name)] {
			return slices.DeleteFunc(all, func(s *entry.Spec) bool {
				return s.Name != "floor" && r.done[key(cell, rep, s.Name)] && r.failedBefore(cell, s)
			})
		}
	}
	return nil
}

func (r *runner) failedBefore(cell Cell, spec *entry.Spec) bool {
	for _, have := range r.Have {
		if s := have.Slice; s != nil && s.Failed != "" && s.Cell == cell && s.Entry == spec.Name {
			return true
		}
	}
	return false
}

func (r *runner) closeSets() {
	for _, s := range r.sets {
		s.Close()
	}
	clear(r.sets)
}

// set returns the servers of a kind, started when they are first needed.
func (r *runner) set(ctx context.Context, kind entry.Kind, n int) (server.Set, error) {
	if s := r.sets[string(kind)]; s != nil {
		return s, nil
	}
	var s server.Set
	var err error
	switch {
	case kind != entry.Redis:
		s, err = server.Start(ctx, kind, n, r.dir)
	case r.Own != nil:
		if len(r.Own) < n {
			return nil, fmt.Errorf("%d members are wanted, %d are given", n, len(r.Own))
		}
		s, err = server.UseRedis(ctx, r.Own[:n])
	default:
		s, err = server.StartRedis(ctx, n, false)
	}
	if err != nil {
		return nil, err
	}
	r.sets[string(kind)] = s
	return s, nil
}

// renewed tells whether an entry gets new servers for each slice, as a new deployment has them: what they
// learn with use would otherwise come from the slices before. An entry in another language keeps its
// servers, because its process has to live through all slices: its compiler learns, too.
func (r *runner) renewed(spec *entry.Spec) bool {
	return spec.Kind == entry.Redis && spec.Child == nil && r.Own == nil
}

// newSet starts new servers for one slice, or for the phases of a fault.
func newSet(ctx context.Context, spec *entry.Spec, n int, faults bool) (*server.RedisSet, error) {
	s, err := server.StartRedis(ctx, n, faults)
	if err != nil {
		return nil, err
	}
	if spec.Level {
		if err := prime(ctx, s.Members()); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (r *runner) openOrder(cell Cell, members []string) work.Order {
	o := work.Order{Members: members, LeaseMS: int(r.Lease.Milliseconds()), Work: cell.work(), Shape: cell.shape(), Callers: max(cell.Callers, 1),
		HoldUS: cell.HoldUS, Random: cell.Random, Warm: cell.Warm, Rate: cell.Rate, Count: cell.Count,
		Clients: cell.Clients, Reads: cell.Reads, Writers: cell.Writers, Ask: cell.Ask, Names: cell.Names, Limit: cell.Limit}
	switch cell.Workload {
	case "W3d", "W3p", "W3f", "W12":
		o.PauseUS = 2000
	case "W9w":
		o.PauseUS = 5000 // so that the readers are at full speed again
	case "W9r":
		o.Callers, o.Clients = o.Callers+1, o.Clients+1 // the writer is the first
	case "W13", "W14":
		// As many wait, or observe. A client arrives and waits; an observer has one of its own.
		o.Callers *= 2
		if o.Clients = o.Callers; cell.Workload == "W13" {
			o.Clients = cell.Callers
		}
		if cell.Ask == work.AskCrash {
			o.LeaseMS = int(CrashLease.Milliseconds())
		}
	case "W17":
		o.Runs = true
	case "W7":
		o.LeaseMS = 30_000 // no lease may end while memory is measured
	case "W15":
		o.Sizes, o.Length = true, cell.Length
		if cell.Scale == ScaleHeld {
			o.LeaseMS, o.Held = 30_000, true
		}
	case "W16":
		o.LeaseMS = int(Quarantine.Milliseconds())
	}
	if cell.Procs > 0 {
		o.Callers = cell.Callers / cell.Procs
	}
	if o.Clients == 0 {
		o.Clients = 1
		if o.Shape == entry.Separate || o.Shape == entry.InOrder || o.Shape == entry.Permits {
			o.Clients = o.Callers
		}
	}
	return o
}

// CrashLease is the lease of a leader that is killed: the least that all entries take.
const CrashLease = 2 * time.Second

// team is the processes of one entry in one cell.
type team []*child

func (t team) close() {
	for _, c := range t {
		c.close()
	}
}

func (t team) bad() error {
	for _, c := range t {
		if c.bad != nil {
			return c.bad
		}
	}
	return nil
}

func (r *runner) team(spec *entry.Spec, cell Cell, members []string) (t team, err error) {
	for i := range max(cell.Procs, 1) {
		o := r.openOrder(cell, members)
		if r.Profiles != "" {
			o.Profile = profileName(r.Profiles, cell, spec.Name, i)
		}
		c, err := startChild(spec, o, nil, nil)
		if err != nil {
			t.close()
			return nil, err
		}
		t = append(t, c)
	}
	return t, nil
}

// profileName is the file of a child's profile: the cell without what a shell would need quotes for. A cell whose
// children are started anew keeps the last one.
func profileName(dir string, cell Cell, entry string, process int) string {
	name := strings.Map(func(c rune) rune {
		if c < 0x7f && strings.ContainsRune("\"'+ ", c) || c >= 0x7f {
			return '-'
		}
		return c
	}, cell.String())
	if process > 0 {
		entry += fmt.Sprintf("-%d", process)
	}
	abs, err := filepath.Abs(dir) // children have folders of their own
	if err != nil {
		abs = dir
	}
	return filepath.Join(abs, name+"-"+entry+".pprof")
}

// cell runs all rounds of a cell without a fault. The children of entries that keep their servers live
// through all of them; while one works the others are idle.
func (r *runner) cell(ctx context.Context, cell Cell) error {
	teams := map[string]team{}
	defer func() {
		for _, t := range teams {
			t.close()
		}
	}()
	for rep := range r.Reps {
		for _, spec := range order(r.todo(cell, rep), rep) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Show.Slice(cell, spec.Name)
			if err := r.once(ctx, cell, rep, spec, teams); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) once(ctx context.Context, cell Cell, rep int, spec *entry.Spec, teams map[string]team) error {
	if r.done["failed "+key(cell, 0, spec.Name)] {
		return nil
	}
	switch cell.Workload {
	case "W18":
		return r.write(r.clientInstructions(ctx, cell, rep, spec))
	case "W19":
		return r.write(r.memberInstructions(ctx, cell, rep, spec))
	}
	if r.renewed(spec) {
		set, err := newSet(ctx, spec, cell.Members, false)
		if err != nil {
			return err
		}
		defer set.Close()
		t, err := r.team(spec, cell, set.Members())
		if err != nil {
			return r.cannot(cell, rep, spec, set, err)
		}
		defer t.close()
		return r.write(r.slice(ctx, cell, rep, spec, t, set, r.Warm, nil))
	}
	set, err := r.set(ctx, spec.Kind, cell.Members)
	if err != nil {
		return err
	}
	t := teams[spec.Name]
	warm := r.Warm / 3
	// A client that spent time on one cell is new for the next; those of memory are new each time.
	if t == nil || t.bad() != nil || cell.Workload == "W7" {
		if t != nil {
			t.close()
		}
		delete(teams, spec.Name)
		if t, err = r.team(spec, cell, set.Members()); err != nil {
			return r.cannot(cell, rep, spec, set, err)
		}
		teams[spec.Name] = t
		warm = r.Warm
		if spec.Child != nil {
			warm *= 10 // their compilers need it
		}
	}
	return r.write(r.slice(ctx, cell, rep, spec, t, set, warm, nil))
}

// cannot records that an entry cannot run in a cell, in no repetition.
func (r *runner) cannot(cell Cell, rep int, spec *entry.Spec, set server.Set, why error) error {
	r.done["failed "+key(cell, 0, spec.Name)] = true
	return r.write(&Slice{Cell: cell, Entry: spec.Name, Rep: rep, Floor: spec.Floor, Failed: why.Error(), Servers: set.Version()}, nil)
}

func (r *runner) write(s *Slice, err error) error {
	if err != nil {
		return err
	}
	return r.Out.Write(Record{Slice: s})
}

// length of a slice.
func (r *runner) length(cell Cell) time.Duration {
	switch cell.work() {
	case work.Contended, work.Burst, work.ReadWrite, work.LetIn, work.Permits, work.Leader:
		return 2 * r.Slice
	case work.Renew:
		return r.Lease // three periods
	case work.Back:
		return 3 * Quarantine // what comes after the return is in
	case work.Memory:
		return 1500 * time.Millisecond // until all are asleep, and their heartbeats have begun
	}
	if cell.Workload == "W17" {
		return 2 * r.Slice // the keeper looks every 100 ms
	}
	if cell.Scale == ScaleHeld {
		return 4 * r.Slice // a part of the period of renewals that says something
	}
	return r.Slice
}

// slice lets one team work once, and looks at the servers before and after.
func (r *runner) slice(ctx context.Context, cell Cell, rep int, spec *entry.Spec, t team, set server.Set, warm time.Duration, during func() error) (*Slice, error) {
	r.seq++
	length := r.length(cell)
	prefix := fmt.Sprintf("b%s.%d:", r.id, r.seq)
	storage := filepath.Join(r.dir, strconv.Itoa(r.seq))
	s := &Slice{Cell: cell, Entry: spec.Name, Rep: rep, Floor: spec.Floor, SliceMS: int(length.Milliseconds()), Version: t[0].version, Servers: set.Version(),
		Commands: -1, Contended: cell.contended()}
	var store *work.Storage
	if s.Contended {
		var err error
		if store, err = work.OpenStorage(storage); err != nil {
			return nil, err
		}
		defer func() { store.Close(); _ = os.Remove(storage) }()
	}
	before, err := set.Commands(ctx)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, c := range t {
		pids = append(pids, c.cmd.Process.Pid)
	}
	servers := set.Pids()
	began := usageOf(servers, pids)

	limit := length + warm + 20*time.Second
	switch cell.work() {
	case work.Renew, work.Memory, work.Back:
		limit += 5 * time.Minute
	}
	if cell.Scale == ScaleHeld {
		limit += 5 * time.Minute
	}
	type answer struct {
		r   work.Result
		err error
	}
	answers := make(chan answer, len(t))
	for i, c := range t {
		go func() { // ends with the order
			res, err := c.order(work.Order{Op: "slice", Prefix: prefix, Storage: storage, Who: i * max(1, cell.Callers/len(t)),
				WarmMS: int(warm.Milliseconds()), SliceMS: int(length.Milliseconds())}, limit)
			answers <- answer{res, err}
		}()
	}
	var broke error
	if during != nil {
		time.Sleep(length / 10)
		broke = during()
	}
	var results []work.Result
	for range t {
		a := <-answers
		if a.err != nil {
			s.Failed = a.err.Error()
			err = errors.Join(err, a.err)
			continue
		}
		results = append(results, a.r)
	}
	if broke != nil {
		return nil, broke
	}
	ended := usageOf(servers, pids)
	if s.Failed != "" {
		return s, nil
	}
	time.Sleep(grace)
	res := merge(results)
	if cell.Fault == "" {
		after, err := set.Commands(ctx)
		if err != nil {
			return nil, err
		}
		if res.AllOps > 0 {
			s.Commands = float64(server.Sent(before, after, spec.Inner)) / float64(res.AllOps)
		}
		if spec.Kind != entry.Redis {
			s.Commands = -1
		}
	}
	if s.Left, err = set.Left(ctx, prefix); err != nil {
		return nil, err
	}
	if s.Left > 0 { // late, or there until the lease ends?
		time.Sleep(time.Second)
		if s.Stay, err = set.Left(ctx, prefix); err != nil {
			return nil, err
		}
	}
	if store != nil {
		s.Lost = max(0, res.Writes-store.Count()) // stuck callers do not tell what they wrote
	}
	s.fill(&res, cell)
	if began.known && len(servers) > 0 {
		wall := (ended.clock - began.clock) / float64(runtime.NumCPU())
		if wall > 0 {
			s.OtherCPU = max(0, (ended.busy-began.busy)-(ended.ours-began.ours)) / wall
		}
		if res.AllOps > 0 {
			s.ServerCPU = (ended.server - began.server) * 1e6 / float64(res.AllOps)
		}
	}
	return s, nil
}

// merge adds up what several processes of one entry saw.
func merge(all []work.Result) work.Result {
	sum := all[0]
	for _, r := range all[1:] {
		sum.Ops += r.Ops
		sum.Done += r.Done
		sum.AllOps += r.AllOps
		sum.Errors += r.Errors
		sum.Stuck += r.Stuck
		sum.CPU += r.CPU
		sum.Switches += r.Switches
		sum.ReadCalls += r.ReadCalls
		sum.WriteCalls += r.WriteCalls
		sum.Allocs += r.Allocs
		sum.Bytes += r.Bytes
		sum.Elapsed = max(sum.Elapsed, r.Elapsed)
		sum.Total = append(sum.Total, r.Total...)
		sum.Acquire = append(sum.Acquire, r.Acquire...)
		sum.Release = append(sum.Release, r.Release...)
		sum.Handoff = append(sum.Handoff, r.Handoff...)
		sum.Told = append(sum.Told, r.Told...)
		sum.Reading = append(sum.Reading, r.Reading...)
		sum.Writing = append(sum.Writing, r.Writing...)
		sum.RoundTrip = append(sum.RoundTrip, r.RoundTrip...)
		sum.LongestRead = max(sum.LongestRead, r.LongestRead)
		sum.PerCaller = append(sum.PerCaller, r.PerCaller...)
		sum.Samples = append(sum.Samples, r.Samples...)
		sum.ClientBytes, sum.Routines = sum.ClientBytes+r.ClientBytes, sum.Routines+r.Routines
		sum.MemberBytes = max(sum.MemberBytes, r.MemberBytes)
		sum.Self += r.Self
		sum.WaitSum += r.WaitSum
		sum.WaitMax = max(sum.WaitMax, r.WaitMax)
		sum.Overlaps += r.Overlaps
		sum.Writes += r.Writes
	}
	return sum
}

// fill computes the figures of a slice from what the processes saw.
func (s *Slice) fill(r *work.Result, cell Cell) {
	s.Ops, s.Errors, s.Samples, s.Stuck, s.Overlaps = r.Ops, r.Errors, r.Samples, r.Stuck, r.Overlaps
	seconds := float64(r.Elapsed) / 1e9
	if seconds > 0 {
		s.Throughput = float64(r.Ops) / seconds
	}
	total := histogram(r.Total)
	s.Total, s.Counts = times(total), coarse(total)
	s.Acquire, s.Release, s.Handoff = times(histogram(r.Acquire)), times(histogram(r.Release)), times(histogram(r.Handoff))
	s.Told = times(histogram(r.Told))
	s.Reading, s.Writing, s.RoundTrip, s.LongestRead = times(histogram(r.Reading)), times(histogram(r.Writing)), times(histogram(r.RoundTrip)), r.LongestRead
	if n := float64(r.Done); n > 0 {
		s.CPU = float64(r.CPU) / 1e9 / n * 1e4
		s.Allocs, s.Bytes = float64(r.Allocs)/n, float64(r.Bytes)/n
		s.Switches, s.Reads, s.Writes = float64(r.Switches)/n, float64(r.ReadCalls)/n, float64(r.WriteCalls)/n
		if s.Runs = r.Runs; r.Futexes > 0 {
			s.Futexes = float64(r.Futexes) / n
		}
		if r.Allocs < 0 {
			s.Allocs, s.Bytes = -1, -1
		}
		if s.Contended {
			s.SelfShare = float64(r.Self) / n
			if r.WaitSum > 0 {
				s.WaitRatio = float64(r.WaitMax) / (float64(r.WaitSum) / n)
			}
			if s.Acquire != nil && s.Acquire.P50 > 0 {
				s.WaitMedian = float64(r.WaitMax) / float64(s.Acquire.P50)
			}
		}
	}
	if s.Contended {
		s.Jain = Jain(shares(r.PerCaller, cell.Clients))
	}
	if r.Acquired > 0 {
		s.Second = float64(r.Second) / float64(r.Acquired)
	}
	if cell.work() == work.Renew && seconds > 0 {
		n := float64(r.Renewals)
		s.Renewer = r.Renewer
		s.Renewals = n / seconds
		if n > 0 {
			s.RenewalCPU = float64(r.CPU) / 1e3 / n
		}
	}
	s.ClientBytes, s.MemberBytes, s.Routines = r.ClientBytes, r.MemberBytes, r.Routines
	s.Back, s.BackAll, s.Sessions = r.Back, r.BackAll, r.Sessions
	s.LeaseBytes, s.WaiterBytes, s.Goroutines, s.Registered = r.LeaseBytes, r.WaiterBytes, r.Goroutines, r.Registered
}

// shares adds up what the callers of each client got: caller i uses client i modulo clients. 0: each is one of its own.
func shares(callers []int64, clients int) []int64 {
	if clients == 0 || len(callers)%clients != 0 {
		return callers
	}
	sums := make([]int64, clients)
	for i, n := range callers {
		sums[i%clients] += n
	}
	return sums
}

// Jain is Jain's index: 1 if all got the same share, 1/n if one got everything.
func Jain(x []int64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(x)) * squares)
}
