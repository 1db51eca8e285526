package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// fakes is a Redis Cluster in this process that says what it is told to say. Its masters answer the
// handshake, the guard's looks and CLUSTER SHARDS; everything else is the test's.
type fakes struct {
	t       *testing.T
	masters []*fake

	mu     sync.Mutex
	ranges [][]uint16 // slots of each master: from, to
}

type fake struct {
	all    *fakes
	i      int
	addr   string
	down   atomic.Bool
	mute   atomic.Pointer[chan struct{}] // not nil: it takes connections, says nothing, and ends them when the channel is closed
	shards atomic.Pointer[string]        // what it answers to CLUSTER SHARDS, instead of the truth
	stamp  atomic.Pointer[string]        // what it answers to a stamp, instead of yes
	asked  atomic.Int64                  // for CLUSTER SHARDS
	ahead  atomic.Int64                  // ns, its clock of ours
	unsaid atomic.Bool                   // its marker, and the time with it, is not told

	mu    sync.Mutex
	reply func(cmd string, asking bool) string // to a command of the test; "" holds the connection until hold is closed
	got   []string                             // those commands, in order; with "ASKING " before where it was told so
	conns []net.Conn
}

// startFakes starts n masters with even shares of the slots, of which each answers ":1" to what a test asks.
func startFakes(t *testing.T, n int) *fakes {
	fs := &fakes{t: t}
	for i := range n {
		f := &fake{all: fs, i: i, reply: func(string, bool) string { return ":1\r\n" }}
		f.addr = rt.Listening(t, f.accept)
		fs.masters = append(fs.masters, f)
		fs.ranges = append(fs.ranges, []uint16{uint16(i * 16384 / n), uint16((i+1)*16384/n - 1)})
	}
	return fs
}

func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

func (f *fake) accept(c net.Conn) {
	if f.down.Load() {
		return
	}
	if mute := f.mute.Load(); mute != nil {
		<-*mute
		return
	}
	rt.Locked(&f.mu, func() { f.conns = append(f.conns, c) })
	in := bufio.NewReader(c)
	asking := false
	for {
		args, err := rt.Command(in)
		if err != nil {
			return
		}
		answer, mine := f.protocol(args)
		if !mine {
			cmd := args[len(args)-1]
			f.mu.Lock()
			if asking {
				f.got = append(f.got, "ASKING "+cmd)
			} else {
				f.got = append(f.got, cmd)
			}
			reply := f.reply
			f.mu.Unlock()
			answer = reply(cmd, asking)
		}
		asking = args[0] == "ASKING"
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func bulk(s string) string { return string(resp.AppendBulk(nil, s)) }

func (f *fake) protocol(args []string) (string, bool) {
	id := fmt.Sprintf("fake%d", f.i)
	switch strings.ToUpper(args[0]) {
	case "CLIENT":
		if args[1] == "ID" {
			return ":1\r\n", true
		}
		return "+OK\r\n", true
	case "INFO":
		return bulk("run_id:" + id + "\r\nuptime_in_seconds:1000\r\n"), true
	case "PING":
		return "+PONG\r\n", true
	case "HELLO":
		return "%1\r\n" + bulk("proto") + ":3\r\n", true
	case "ASKING":
		return "+OK\r\n", true
	case "EVAL": // a stamp, or a look at the marker, always of this process and never in quarantine
		if args[2] == "1" {
			if moved := f.stamp.Load(); moved != nil {
				return *moved, true
			}
			return ":1\r\n", true
		}
		if f.unsaid.Load() {
			return "-LOADING\r\n", true
		}
		now := time.Now().Add(time.Duration(f.ahead.Load())).UnixMicro()
		return "*10\r\n" + bulk(id+" 1") + bulk("n") + bulk("30000") + ":-2\r\n" + bulk("") + fmt.Sprintf(":%d\r\n", now) +
			bulk("") + bulk("repl") + bulk("role:master\r\nmaster_replid:repl\r\nmaster_replid2:0\r\n") + bulk(id+" 1"), true
	case "CLUSTER":
		switch args[1] {
		case "MYID":
			return bulk(id), true
		case "SHARDS":
			f.asked.Add(1)
			if lie := f.shards.Load(); lie != nil {
				return *lie, true
			}
			return f.all.shards(), true
		}
		return "-ERR unknown subcommand\r\n", true
	}
	return "", false
}

func (fs *fakes) shards() string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := fmt.Sprintf("*%d\r\n", len(fs.masters))
	for i, f := range fs.masters {
		out += "*4\r\n" + bulk("slots") + fmt.Sprintf("*%d\r\n", len(fs.ranges[i]))
		for _, s := range fs.ranges[i] {
			out += fmt.Sprintf(":%d\r\n", s)
		}
		host, port, _ := net.SplitHostPort(f.addr)
		out += bulk("nodes") + "*1\r\n*12\r\n" + bulk("id") + bulk(fmt.Sprintf("fake%d", i)) + bulk("port") + ":" + port + "\r\n" +
			bulk("ip") + bulk(host) + bulk("endpoint") + bulk(host) + bulk("role") + bulk("master") + bulk("health") + bulk("online")
	}
	return out
}

func (f *fake) says(reply func(cmd string, asking bool) string) {
	rt.Locked(&f.mu, func() { f.reply = reply })
}

func (f *fake) commands() []string {
	return rt.Under(&f.mu, func() []string { return slices.Clone(f.got) })
}

func (fs *fakes) connect(seeds ...string) *cluster {
	fs.t.Helper()
	cl := fs.open(func(*node.Config) {}, seeds...)
	fs.settle(cl)
	return cl
}

// open opens a cluster, at all masters unless seeds are named. A busy machine reaches none of the bounds that matter. What is
// asked of a master that holds a call is asked of another one after DialTimeout.
func (fs *fakes) open(edit func(*node.Config), seeds ...string) *cluster {
	fs.t.Helper()
	if seeds == nil {
		for _, f := range fs.masters {
			seeds = append(seeds, f.addr)
		}
	}
	c := node.Config{
		Guard:       node.NewGuard(node.GuardConfig{Members: 1, MaxTTL: time.Second}),
		DialTimeout: 2 * time.Second, StallTimeout: time.Minute,
	}
	edit(&c)
	cl := rt.Must(newCluster(Config{Seeds: seeds, Node: c}))(fs.t)
	fs.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = cl.Close(ctx)
	})
	return cl
}

func (fs *fakes) settle(cl *cluster) {
	fs.t.Helper()
	rt.Until(fs.t, "every master votes", func() bool {
		for s := uint16(0); s < 16384; s += 64 {
			if !cl.StateOf(s).Votes {
				return false
			}
		}
		return true
	})
}

// moves5 makes slot 5 the second master's in what both masters tell, and waits until the cluster has heard of it.
func (fs *fakes) moves5(cl *cluster) {
	fs.t.Helper()
	fs.grant([]uint16{6, 8191}, []uint16{0, 5, 8192, 16383})
	cl.refreshSoon()
	rt.Until(fs.t, "slot 5 has moved", func() bool { return cl.table.Load().of(5).addr == fs.masters[1].addr })
}

// holds has a master take the first call, and say what becomes of it when let is called.
func (f *fake) holds(answer string) (held <-chan struct{}, let func()) {
	release, taken := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(taken) })
	f.says(func(cmd string, _ bool) string {
		select {
		case <-taken:
			return ":1\r\n"
		default:
		}
		once()
		<-release
		return answer
	})
	let = sync.OnceFunc(func() { close(release) })
	f.all.t.Cleanup(let)
	return taken, let
}

func connected(t *testing.T, masters int) (*fakes, *cluster) {
	t.Helper()
	fs := startFakes(t, masters)
	return fs, fs.connect()
}

type call struct {
	member.Call
	done chan struct{}
}

func (c *call) Done(*member.Call) { close(c.done) }

func newCall(slot uint16, name string) *call {
	c := &call{done: make(chan struct{})}
	c.Call = member.Call{Command: member.Command{Cmd: resp.Command("TEST", name), Slot: slot}, Sink: c}
	return c
}

func submit(cl *cluster, slot uint16, name string) *call {
	c := newCall(slot, name)
	cl.Submit(&c.Call)
	return c
}

func (c *call) wait(t *testing.T) *member.Call {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	return &c.Call
}

func (c *call) answered(t *testing.T) {
	t.Helper()
	c.wait(t)
	require.Equal(t, member.Answered, c.Outcome, "%v", c.Err)
}

func answered(t *testing.T, cl *cluster, n int, slot func(i int) uint16) {
	t.Helper()
	var calls []*call
	for i := range n {
		calls = append(calls, submit(cl, slot(i), strconv.Itoa(i)))
	}
	for _, c := range calls {
		c.answered(t)
	}
}

func (fs *fakes) moved(slot uint16, to int) string {
	return fmt.Sprintf("-MOVED %d %s\r\n", slot, fs.masters[to].addr)
}

func (fs *fakes) grant(ranges ...[]uint16) { rt.Locked(&fs.mu, func() { fs.ranges = ranges }) }

// Whoever compares members needs them all: each connection that a slot may be answered on.
func TestProcessesOfAClusterAreThoseOfItsMasters(t *testing.T) {
	_, cl := connected(t, 3)
	ids := make(map[string]bool)
	for _, p := range cl.Processes() {
		ids[p.RunID] = true
	}
	require.Len(t, ids, 3)
	for s := uint16(0); s < 16384; s += 64 {
		st := cl.StateOf(s)
		require.Contains(t, cl.Processes(), ability.Process{Epoch: st.Epoch, RunID: st.RunID})
	}
}

// A master that does not know the slot's marker says FORGOT, and gives the slot away before the slot is stamped. The
// call goes where the slot is now.
func TestSlotThatMovesBeforeItIsStampedIsFollowed(t *testing.T) {
	fs, cl := connected(t, 2)
	gone := fs.moved(5, 1)
	fs.masters[0].stamp.Store(&gone)
	fs.masters[0].says(func(cmd string, _ bool) string {
		if len(fs.masters[0].commands()) > 1 {
			return gone
		}
		return "-FORGOT marker\r\n"
	})
	submit(cl, 5, "a").answered(t)
	require.Equal(t, []string{"a", "a"}, fs.masters[0].commands())
	require.Equal(t, []string{"a"}, fs.masters[1].commands())

	refused := "-ERR no\r\n" // not for a move: the call stays refused
	fs.masters[1].stamp.Store(&refused)
	fs.masters[1].says(func(string, bool) string { return "-FORGOT marker\r\n" })
	c := submit(cl, 5, "b").wait(t)
	require.Equal(t, member.Refused, c.Outcome)
	require.ErrorContains(t, c.Err, "FORGOT")
	require.Equal(t, []string{"a", "b"}, fs.masters[1].commands())
}

func TestAskIsOneCallsBusinessAndSaysSo(t *testing.T) {
	fs, cl := connected(t, 2)
	fs.masters[0].says(func(cmd string, _ bool) string {
		if cmd == "new" {
			return fmt.Sprintf("-ASK 5 %s\r\n", fs.masters[1].addr)
		}
		return ":1\r\n"
	})
	fs.masters[1].says(func(_ string, asking bool) string {
		if !asking {
			return fs.moved(5, 0)
		}
		return ":2\r\n"
	})
	c := submit(cl, 5, "new")
	c.answered(t)
	require.EqualValues(t, 2, c.Reply.Int)
	submit(cl, 5, "old").answered(t)
	require.Equal(t, []string{"new", "old"}, fs.masters[0].commands())
	require.Equal(t, []string{"ASKING new"}, fs.masters[1].commands())
}

func TestMastersThatSendACallRoundInCirclesAreGivenUp(t *testing.T) {
	fs, cl := connected(t, 2)
	fs.masters[0].says(func(string, bool) string { return fs.moved(5, 1) })
	fs.masters[1].says(func(string, bool) string { return fs.moved(5, 0) })
	c := submit(cl, 5, "x").wait(t)
	require.Equal(t, member.Refused, c.Outcome)
	require.ErrorContains(t, c.Err, fmt.Sprintf("redirected %d times: ", maxHops))
	require.Equal(t, member.KindCluster, rt.As[*member.ReplyError](t, c.Err).Kind)
	require.Equal(t, maxHops+1, len(fs.masters[0].commands())+len(fs.masters[1].commands()))
}

func TestSlotThatNobodyServesForAMomentCostsAPauseAndNoError(t *testing.T) {
	for _, refusal := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN The cluster is down",
		"LOADING Redis is loading the dataset in memory", "ERR Script attempted to access a non local key in a cluster node",
	} {
		fs, cl := connected(t, 1)
		var tries atomic.Int64
		fs.masters[0].says(func(string, bool) string {
			if tries.Add(1) <= 23 { // no multiple of the number of calls
				return "-" + refusal + "\r\n"
			}
			return ":1\r\n"
		})
		const calls = 10
		answered(t, cl, calls, func(i int) uint16 { return 5 })
		order := fs.masters[0].commands()[23:] // of those that were executed
		require.Len(t, order, calls)
		require.True(t, slices.IsSorted(order), "%s: %v", refusal, order)
		require.Less(t, tries.Load(), int64(45), "one call asks for all")
	}
}

// A call that was not executed where it was sent travels by itself from then on: a server tells only such a call where
// it belongs.
func TestCallThatComesBackTravelsAlone(t *testing.T) {
	fs, cl := connected(t, 1)
	var tries atomic.Int64
	fs.masters[0].says(func(string, bool) string {
		if tries.Add(1) == 1 {
			return "-TRYAGAIN the slot is not served here\r\n"
		}
		return ":1\r\n"
	})
	for _, again := range []bool{true, false} {
		c := newCall(5, "name")
		c.Item = &resp.Item{Batch: "a script", Kind: resp.AcquireItem}
		cl.Submit(&c.Call)
		c.answered(t)
		require.Equal(t, again, c.Item == nil)
	}
}

// The lock has gone and the counters of its slot have too, and the slot is not yet given: the owner says ASK, and who gets
// the slot TRYAGAIN, because the lock that it was asked for is not there.
func TestSlotWhoseLastStepIsLateCostsAPauseAndNoError(t *testing.T) {
	fs, cl := connected(t, 2)
	moving := func(string, bool) string { return fmt.Sprintf("-ASK 5 %s\r\n", fs.masters[1].addr) }
	var tries atomic.Int64
	const late = 3 * maxHops
	fs.masters[0].says(moving)
	fs.masters[1].says(func(_ string, asking bool) string {
		switch {
		case tries.Add(1) > late:
			return ":1\r\n"
		case asking:
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		}
		return fs.moved(5, 0)
	})
	a, b := submit(cl, 5, "a"), submit(cl, 5, "b")
	a.answered(t)
	b.answered(t)
	require.Equal(t, []string{"ASKING a", "ASKING b"}, fs.masters[1].commands()[late:])

}

func TestSlotThatNobodyServesForLongIsARefusalInTime(t *testing.T) {
	fs, cl := connected(t, 1)
	cl.patience = 300 * time.Millisecond
	fs.masters[0].says(func(string, bool) string { return "-CLUSTERDOWN Hash slot not served\r\n" })
	began := time.Now()
	first, second := submit(cl, 5, "a"), submit(cl, 5, "b")
	c := first.wait(t)
	require.Equal(t, member.Refused, c.Outcome)
	require.ErrorContains(t, c.Err, "CLUSTERDOWN")
	require.Contains(t, []member.Outcome{member.Refused, member.NotSent}, second.wait(t).Outcome)
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	fs.masters[0].says(func(string, bool) string { return ":1\r\n" })
	submit(cl, 5, "c").answered(t)
}

// The order of one slot's calls. A master that has got a slot must not execute a call before the former one has answered all that
// came before: those may come back, or have been executed there. What waits for them is sent before Close ends.
func TestCallIsNotPassedOnWhileEarlierOnesAreAtTheFormerMaster(t *testing.T) {
	for _, closes := range []bool{false, true} {
		fs, cl := connected(t, 2)
		held, answer := fs.masters[0].holds(fs.moved(5, 1))
		first := submit(cl, 5, "acquire")
		<-held
		fs.moves5(cl) // and every topology says so
		second := owedRelease(5, "release")
		cl.Submit(&second.Call)
		require.EqualValues(t, 1, cl.queued.Load())
		submit(cl, 9000, "other").answered(t) // was submitted later, on the same connection
		require.Equal(t, []string{"other"}, fs.masters[1].commands(), "nothing of the slot yet")
		var closed <-chan error
		if closes {
			closed = shut(t, cl)
		}
		answer()
		first.answered(t)
		second.answered(t)
		require.Equal(t, []string{"other", "acquire", "release"}, fs.masters[1].commands())
		if closes {
			require.NoError(t, <-closed)
		}
	}
}

func TestCallThatComesBackAfterItsReleaseHasBegunIsNotRepeated(t *testing.T) {
	for _, refusal := range []string{"MOVED", "TRYAGAIN later", "CLUSTERDOWN The cluster is down"} {
		fs, cl := connected(t, 2)
		answer := "-" + refusal + "\r\n"
		if refusal == "MOVED" {
			answer = fs.moved(5, 1)
		}
		held, release := fs.masters[0].holds(answer)
		var ended atomic.Bool
		first := newCall(5, "acquire")
		first.Ended = &ended
		cl.Submit(&first.Call)
		<-held
		ended.Store(true)
		second := submit(cl, 5, "release") // behind it on the same connection, and executed there
		release()
		require.Equal(t, member.NotSent, first.wait(t).Outcome, refusal)
		require.ErrorIs(t, first.Err, ability.ErrEnded)
		second.answered(t)
		require.Equal(t, []string{"acquire", "release"}, fs.masters[0].commands())
		require.Empty(t, fs.masters[1].commands())
	}
}

func TestReleaseThatWasNotDeliveredGoesToWhoeverOwnsTheSlotThen(t *testing.T) {
	fs, cl := connected(t, 2)
	fs.masters[0].says(func(string, bool) string { // dies with the call
		fs.masters[0].down.Store(true)
		go fs.masters[0].cut()
		return ""
	})
	c := owedRelease(5, "release")
	c.OweUntil = time.Now() // its time passes while nobody has the slot
	cl.Submit(&c.Call)
	require.Equal(t, member.Unknown, c.wait(t).Outcome)
	rt.Until(t, "it waits", func() bool { return slices.Max(append(pauses(cl), 0)) > 2*owedMin })
	out, _ := cl.owed.due(time.Now().Add(time.Second), func(uint16) bool { return false })
	require.Empty(t, out, "nobody serves the slot")
	fs.grant(nil, []uint16{0, 16383})
	rt.Until(t, "it is delivered", func() bool { return slices.Contains(fs.masters[1].commands(), "release") })
	rt.Until(t, "nothing is owed", func() bool { return len(pauses(cl)) == 0 })

	fs.masters[1].says(func(string, bool) string { return "-OOM\r\n" })
	c = owedRelease(5, "late")
	c.OweUntil = time.Now()
	cl.Submit(&c.Call)
	require.Equal(t, member.Refused, c.wait(t).Outcome)
	rt.Until(t, "it is tried once more", func() bool { return len(pauses(cl)) == 0 })
	require.Equal(t, []string{"release", "late", "late"}, fs.masters[1].commands())
}

// pauses are those of the debts.
func pauses(cl *cluster) (of []time.Duration) {
	cl.owed.mu.Lock()
	defer cl.owed.mu.Unlock()
	for d := range cl.owed.debts {
		of = append(of, d.pause)
	}
	return of
}

func TestSeedThatLiesOrIsDeadDoesNoHarm(t *testing.T) {
	fs := startFakes(t, 3)
	dead := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_ = dead.Close()
	_, port, _ := net.SplitHostPort(fs.masters[0].addr)
	for name, lie := range map[string]string{
		"not a topology": "+OK\r\n",
		"no slots":       "*0\r\n",
		"nobody there": "*1\r\n*4\r\n" + bulk("slots") + "*2\r\n:0\r\n:16383\r\n" + bulk("nodes") + "*1\r\n*10\r\n" + bulk("id") + bulk("x") + bulk("port") + ":1\r\n" +
			bulk("ip") + bulk("127.0.0.1") + bulk("role") + bulk("master") + bulk("health") + bulk("online"),
		"everything is mine": "*1\r\n*4\r\n" + bulk("slots") + "*2\r\n:0\r\n:16383\r\n" + bulk("nodes") + "*1\r\n*10\r\n" + bulk("id") + bulk("fake0") + bulk("port") +
			":" + port + "\r\n" + bulk("ip") + bulk("127.0.0.1") + bulk("role") + bulk("master") + bulk("health") + bulk("online"),
	} {
		t.Run(name, func(t *testing.T) {
			fs.masters[0].shards.Store(&lie)
			fs.masters[0].says(func(cmd string, _ bool) string {
				if slot, _ := strconv.Atoi(cmd); slot > 5460 {
					return fs.moved(uint16(slot), slot*3/16384)
				}
				return ":1\r\n"
			})
			cl := fs.open(func(*node.Config) {}, dead.Addr().String(), fs.masters[0].addr, fs.masters[1].addr)
			for _, slot := range []uint16{5, 6000, 12000} {
				rt.Until(t, "it answers", func() bool { return submit(cl, slot, strconv.Itoa(int(slot))).wait(t).Outcome == member.Answered })
			}
		})
	}
}

func TestTopologyIsAskedForOnceForManyRedirects(t *testing.T) {
	fs, cl := connected(t, 2)
	fs.masters[0].says(func(cmd string, _ bool) string { s, _ := strconv.Atoi(cmd); return fs.moved(uint16(s), 1) })
	before, began := fs.masters[0].asked.Load()+fs.masters[1].asked.Load(), time.Now()
	answered(t, cl, 500, func(i int) uint16 { return uint16(i) })
	asked := fs.masters[0].asked.Load() + fs.masters[1].asked.Load() - before
	require.LessOrEqual(t, asked, 2+int64(time.Since(began)/refreshMin))
}

func TestMastersComeAndGo(t *testing.T) {
	fs := startFakes(t, 3)
	all := [][]uint16{{0, 5460}, {5461, 10922}, {10923, 16383}}
	fs.grant([]uint16{0, 16383}, nil, nil)
	cl := fs.connect(fs.masters[0].addr)
	for range 3 {
		fs.grant(all...)
		cl.refreshSoon()
		rt.Until(t, "they have come", func() bool { return len(cl.table.Load().masters) == 4 })
		fs.settle(cl)
		submit(cl, 6000, "x").answered(t)
		fs.grant(nil, []uint16{0, 16383}, nil)
		cl.refreshSoon()
		rt.Until(t, "they have gone", func() bool { return len(cl.table.Load().masters) == 2 })
		fs.settle(cl)
		submit(cl, 6000, "y").answered(t)
		rt.Locked(&cl.mu, func() { require.Len(t, cl.masters, 1) })
	}
}

func TestMastersVoteAsSoonAsTheLastOneIsFoundToBeDown(t *testing.T) {
	fs := startFakes(t, 3)
	ends := make(chan struct{})
	fs.masters[2].mute.Store(&ends)
	end := sync.OnceFunc(func() { close(ends) })
	t.Cleanup(end)
	cl := fs.open(func(c *node.Config) { c.PingInterval, c.StallTimeout = 10*time.Minute, 10*time.Minute }, fs.masters[0].addr)
	// Mostly they do not vote yet: the third may have to be told of our leases first. They do if both were told before the
	// client had made out the third.
	both := func(is func(member.State) bool) func() bool {
		return func() bool { return is(cl.StateOf(0)) && is(cl.StateOf(8000)) }
	}
	rt.Until(t, "both are up", both(func(s member.State) bool { return s.Up }))
	end()
	rt.Until(t, "both vote", both(func(s member.State) bool { return s.Votes }))
	submit(cl, 0, "x").answered(t)
}

// Every slot changes hands and states all the time, each server sends calls away as it likes. A call is
// executed at most once, an answer is the truth, nothing follows the release of its attempt, and everything
// ends.
func TestStormOfRedirectsExecutesEachCallOnceAndNoneBehindItsRelease(t *testing.T) {
	fs, cl := connected(t, 3)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	executed := make(map[string]int)
	released := make(map[string]bool)
	var behind []string
	calm := false
	for i, f := range fs.masters {
		f.says(func(cmd string, _ bool) string {
			mu.Lock()
			defer mu.Unlock()
			slot, rest, _ := strings.Cut(cmd, " ")
			s, _ := strconv.Atoi(slot)
			attempt, what, _ := strings.Cut(rest, " ")
			to := random.IntN(3)
			if !calm {
				switch random.IntN(12) {
				case 0, 1:
					return fs.moved(uint16(s), to)
				case 2, 3:
					return fmt.Sprintf("-ASK %d %s\r\n", s, fs.masters[to].addr)
				case 4:
					return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
				case 5:
					return "-CLUSTERDOWN Hash slot not served\r\n"
				case 6:
					return "-LOADING Redis is loading the dataset in memory\r\n"
				}
			}
			if executed[cmd]++; released[attempt] && what != "release" {
				behind = append(behind, cmd)
			}
			released[attempt] = released[attempt] || what == "release"
			return fmt.Sprintf(":%d\r\n", i+1)
		})
	}
	var wg sync.WaitGroup
	var answered, given atomic.Int64
	for w := range 64 {
		wg.Go(func() {
			for n := range 8 {
				slot := uint16(w % 40 * 401)
				attempt := fmt.Sprintf("%d.%d", w, n)
				var ended atomic.Bool
				acquire := newCall(slot, fmt.Sprintf("%d %s acquire", slot, attempt))
				acquire.Ended = &ended
				cl.Submit(&acquire.Call)
				if n%2 == 0 {
					acquire.wait(t)
				}
				ended.Store(true)
				release := submit(cl, slot, fmt.Sprintf("%d %s release", slot, attempt))
				for _, c := range []*call{acquire, release} {
					cmd := fmt.Sprintf("%d %s acquire", slot, attempt)
					if c == release {
						cmd = fmt.Sprintf("%d %s release", slot, attempt)
					}
					c.wait(t)
					mu.Lock()
					times := executed[cmd]
					mu.Unlock()
					if want := map[bool]int{true: 1}[c.Outcome == member.Answered]; times != want {
						t.Errorf("%s: executed %d times, and %v %v", cmd, times, c.Outcome, c.Err)
					}
					if answered.Add(1); c.Outcome != member.Answered {
						given.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	calm = true
	require.Empty(t, behind, "executed behind their release")
	mu.Unlock()
	t.Logf("%d calls, %d of them given up", answered.Load(), given.Load())
	require.Less(t, given.Load(), answered.Load()/2)
	for s := range 40 {
		submit(cl, uint16(s*401), fmt.Sprintf("%d after it", s*401)).answered(t)
	}
	require.Zero(t, cl.queued.Load())
}

func TestCloseEndsWhatWaits(t *testing.T) {
	fs, cl := connected(t, 1)
	cl.patience = time.Minute
	fs.masters[0].says(func(string, bool) string { return "-TRYAGAIN later\r\n" })
	var calls []*call
	for range 5 {
		calls = append(calls, submit(cl, 5, "x"))
	}
	require.ErrorIs(t, cl.Close(rt.Within(t, 100*time.Millisecond)), context.DeadlineExceeded)
	for _, c := range calls {
		require.NotEqual(t, member.Answered, c.wait(t).Outcome)
	}
	last := submit(cl, 5, "late").wait(t)
	require.Equal(t, member.NotSent, last.Outcome)
	require.ErrorIs(t, last.Err, member.ErrClosed)
}

func owedRelease(slot uint16, name string) *call {
	c := newCall(slot, name)
	c.OweUntil = time.Now().Add(time.Minute)
	return c
}

func shut(t *testing.T, cl *cluster) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	closed := make(chan error, 1)
	defer rt.Until(t, "it is being closed", cl.closing.Load)
	go func() {
		defer cancel()
		closed <- cl.Close(ctx)
	}()
	return closed
}

// Whatever a server says to a release while Close goes on, what was submitted before is executed, once, wherever the
// slot is by then.
func TestEveryCallBeforeCloseIsExecutedWhereverItsSlotGoes(t *testing.T) {
	for name, refusal := range map[string]func(fs *fakes, cmd string, asking bool) string{
		"moved": func(fs *fakes, _ string, _ bool) string { return fs.moved(5, 1) },
		"asked elsewhere": func(fs *fakes, _ string, _ bool) string {
			return fmt.Sprintf("-ASK 5 %s\r\n", fs.masters[1].addr)
		},
		"not served": func(*fakes, string, bool) string { return "-TRYAGAIN later\r\n" },
		"not now":    func(*fakes, string, bool) string { return "-BUSY Redis is busy running a script\r\n" },
	} {
		t.Run(name, func(t *testing.T) {
			fs, cl := connected(t, 2)
			closing, held := make(chan struct{}), make(chan struct{}, 1)
			begun := sync.OnceFunc(func() { close(closing) })
			defer begun()
			var refused atomic.Int64
			fs.masters[0].says(func(cmd string, asking bool) string {
				select {
				case held <- struct{}{}:
				default:
				}
				<-closing // the first answer comes when Close has begun
				if refused.Add(1) <= 12 {
					return refusal(fs, cmd, asking)
				}
				return ":1\r\n"
			})
			var calls []*call
			for i := range 4 { // three wait behind the first, and come back as well
				c := owedRelease(5, fmt.Sprint("release", i))
				cl.Submit(&c.Call)
				calls = append(calls, c)
			}
			<-held
			closed := shut(t, cl)
			late := submit(cl, 5, "late").wait(t)
			require.Equal(t, member.NotSent, late.Outcome)
			require.ErrorIs(t, late.Err, member.ErrClosed)
			begun()
			require.NoError(t, <-closed)
			executed := make(map[string]int)
			if name == "moved" || name == "asked elsewhere" {
				for _, cmd := range fs.masters[1].commands() {
					executed[strings.TrimPrefix(cmd, "ASKING ")]++
				}
			} else {
				for i, cmd := range fs.masters[0].commands() {
					if i >= 12 {
						executed[cmd]++
					}
				}
			}
			for i, c := range calls {
				c.wait(t)
				require.Equal(t, 1, executed[fmt.Sprint("release", i)], "%v %v: %v", c.Outcome, c.Err, executed)
				if name != "not now" { // then it is refused, and owed
					require.Equal(t, member.Answered, c.Outcome, "it follows its slot: %v", c.Err)
				}
			}
		})
	}
}

// A refusal that passes leaves the release owed, with a pause that grows; one that does not is the end of it.
func TestReleaseThatIsRefusedForAPassingReasonIsOwedInACluster(t *testing.T) {
	for refusal, owed := range map[string]bool{
		"NOREPLICAS Not enough good replicas to write.": true, "BUSY Redis is busy running a script.": true,
		"MISCONF Redis is configured to save": true, "OOM command not allowed": true, "READONLY You can't write": true,
		"NOPERM this user has no permissions": false, "ERR something else": false, "WRONGTYPE Operation against": false,
	} {
		t.Run(refusal[:4], func(t *testing.T) {
			fs, cl := connected(t, 1)
			var tries atomic.Int64
			fs.masters[0].says(func(string, bool) string {
				if tries.Add(1) <= 3 {
					return "-" + refusal + "\r\n"
				}
				return ":1\r\n"
			})
			c := owedRelease(5, "release")
			cl.Submit(&c.Call)
			require.Equal(t, member.Refused, c.wait(t).Outcome)
			require.NoError(t, <-shut(t, cl)) // waits for what is owed
			require.Len(t, fs.masters[0].commands(), map[bool]int{true: 4, false: 1}[owed])
		})
	}
}

// The clock of a cluster is that of its master which is farthest from ours, in either direction, of those that tell it.
func TestClockOfAClusterIsTheFarthestOfItsMasters(t *testing.T) {
	fs := startFakes(t, 3)
	set := func(ahead ...time.Duration) {
		for i, d := range ahead {
			fs.masters[i].ahead.Store(int64(d))
		}
	}
	set(2*time.Hour, -5*time.Hour, time.Minute)
	fs.masters[1].unsaid.Store(true)
	cl := fs.open(func(c *node.Config) { c.PingInterval = 10 * time.Millisecond })
	// A server reads its clock at some moment of the round trip, half of which is what the answer may be wrong by.
	tells := func(want time.Duration, why string) {
		t.Helper()
		rt.Until(t, why, func() bool {
			ahead, within, ok := cl.ClockOffset()
			return ok && within > 0 && (ahead-want).Abs() <= within+2*time.Microsecond
		})
	}
	tells(2*time.Hour, "the farthest of those that tell it")
	fs.masters[1].unsaid.Store(false)
	tells(-5*time.Hour, "one that is behind is as far off as one that is ahead")
	set(time.Minute, -time.Second, -2*time.Minute)
	tells(-2*time.Minute, "of another master, after clocks were set")
	set(time.Hour, time.Hour+time.Minute, -time.Hour)
	tells(time.Hour+time.Minute, "none is farther")
}

func TestSecondListenPanicsAndTheClusterGoesOn(t *testing.T) {
	cl, err := newCluster(Config{Seeds: []string{"127.0.0.1:1"}, Node: node.Config{
		Guard: node.NewGuard(node.GuardConfig{Members: 1, MaxTTL: time.Second}), DialTimeout: 10 * time.Millisecond,
	}})
	require.NoError(t, err)
	cl.Listen("c", nobody{})
	require.Panics(t, func() { cl.Listen("c", nobody{}) })
	_ = cl.State()
	require.NoError(t, cl.Close(t.Context()))
}

type nobody struct{}

func (nobody) Push([]byte, member.State, time.Time) {}
func (nobody) Changed(member.State)                 {}
