package redlock_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The scripts that a memory knows.
var (
	shaAcquire = script.Acquire.SHA
	shaWait    = script.Wait.SHA
	shaRelease = script.Release.SHA
	shaYield   = script.Yield.SHA
	shaRaise   = script.Raise.SHA
)

// memory is a server without Redis and without sockets. It keeps the votes and the queues of locks
// for several clients, as the scripts do. Nothing ends there by itself. After a while it allocates
// nothing.
type memory struct {
	mu      sync.Mutex
	locks   map[string]*remembered
	inboxes map[string]member.Listener // by client
	calls   *[5]atomic.Int64           // at all servers, in the order below
}

// Where memory.calls counts a script.
const (
	countAcquire = iota
	countWait
	countRelease
	countYield
	countRaise
)

// remembered is one lock at one server.
type remembered struct {
	owner []byte // empty: nobody
	tally int64  // the last token
	queue [][]byte
}

// told is a push on its way to a client.
type told struct {
	to    member.Listener
	space [256]byte
	text  []byte
}

var nobody = []byte("-")

const memoryTTL = 9000 // what a refusal tells, ms

// enqueue adds a waiter, and reports whether it was not there.
func (k *remembered) enqueue(owner []byte) bool {
	for _, w := range k.queue {
		if bytes.Equal(w, owner) {
			return false
		}
	}
	if n := len(k.queue); n < cap(k.queue) {
		k.queue = k.queue[:n+1]
		k.queue[n] = append(k.queue[n][:0], owner...)
	} else {
		k.queue = append(k.queue, append(make([]byte, 0, 64), owner...))
	}
	return true
}

func (k *remembered) drop(owner []byte) {
	for i, w := range k.queue {
		if bytes.Equal(w, owner) {
			copy(k.queue[i:], k.queue[i+1:])
			k.queue[len(k.queue)-1] = w // its memory is used again
			k.queue = k.queue[:len(k.queue)-1]
			return
		}
	}
}

func (k *remembered) head() []byte {
	if len(k.queue) == 0 {
		return nobody
	}
	return k.queue[0]
}

func (k *remembered) own(owner []byte) {
	k.tally++
	k.owner = append(k.owner[:0], owner...)
	k.drop(owner)
}

// tell prepares a push to an owner.
func (s *memory) tell(t *told, owner []byte) {
	client, _, _ := bytes.Cut(owner, []byte(":"))
	t.to, t.text = s.inboxes[string(client)], t.space[:0]
}

// give hands the lock to a waiter, and tells it.
func (s *memory) give(t *told, k *remembered, heir []byte) {
	s.tell(t, heir)
	t.text = append(append(t.text, "g "...), heir...)
	k.own(heir)
	t.text = strconv.AppendInt(append(t.text, ' '), k.tally, 10)
	t.text = strconv.AppendInt(append(t.text, ' '), time.Now().UnixMicro(), 10)
	t.text = append(append(t.text, ' '), k.head()...)
	t.text = strconv.AppendInt(append(t.text, ' '), 3000, 10)
}

// bulks splits a command into its first strings.
func bulks(cmd []byte, out *[16][]byte) {
	at := bytes.IndexByte(cmd, '\n') + 1
	for i := 0; i < len(out) && at < len(cmd); i++ {
		n := 0
		for at++; cmd[at] != '\r'; at++ {
			n = 10*n + int(cmd[at]-'0')
		}
		out[i] = cmd[at+2 : at+2+n]
		at += n + 4
	}
}

// execute does what the script does: it fills in the reply, and the push that goes with it.
func (s *memory) execute(cmd []byte, r *member.Reply, t *told) {
	var w [16][]byte
	bulks(cmd, &w)
	name, args := w[3], w[3+int(w[2][0]-'0'):]
	owner := args[1]
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.locks[string(name)]
	if k == nil {
		k = &remembered{owner: make([]byte, 0, 64)}
		s.locks[string(name)] = k
	}
	ours := bytes.Equal(k.owner, owner)
	switch sha := w[1]; {
	case string(sha) == shaAcquire:
		s.calls[countAcquire].Add(1)
		r.Kind, r.Int = ':', -memoryTTL
		if len(k.owner) == 0 {
			k.own(owner)
			ours = true
		}
		if ours {
			r.Int = k.tally
		}
	case string(sha) == shaWait:
		s.calls[countWait].Add(1)
		n, next := int64(-memoryTTL), nobody
		if len(k.owner) == 0 {
			k.own(owner)
			ours = true
		}
		if ours {
			n, next = k.tally, k.head()
		} else if k.enqueue(owner) {
			s.tell(t, k.owner)
			t.text = append(append(append(append(t.text, "w "...), k.owner...), ' '), owner...)
		}
		if cap(r.Elems) < 3 {
			r.Elems = make([]member.Reply, 3)
		}
		r.Kind, r.Elems = '*', r.Elems[:3]
		r.Elems[0].Kind, r.Elems[0].Int = ':', n
		r.Elems[1].Kind, r.Elems[1].Int = ':', time.Now().UnixMicro()
		r.Elems[2].Kind, r.Elems[2].Str = '$', append(r.Elems[2].Str[:0], next...)
	case string(sha) == shaRelease:
		s.calls[countRelease].Add(1)
		k.drop(owner)
		r.Kind, r.Int = ':', 0
		if !ours {
			break
		}
		r.Int = 1
		if len(k.queue) == 0 {
			k.owner = k.owner[:0]
			break
		}
		heir := k.queue[0]
		for _, q := range k.queue {
			if bytes.Equal(q, args[2]) {
				heir = q
			}
		}
		s.give(t, k, heir)
	case string(sha) == shaYield:
		s.calls[countYield].Add(1)
		n := int64(0)
		if ours && strconv.FormatInt(k.tally, 10) == string(args[2]) {
			heir := owner
			for _, q := range k.queue {
				if bytes.Compare(q, heir) < 0 {
					heir = q
				}
			}
			if bytes.Equal(heir, owner) {
				k.tally++
				n = k.tally
			} else {
				k.enqueue(owner)
				s.give(t, k, heir)
			}
		}
		if cap(r.Elems) < 3 {
			r.Elems = make([]member.Reply, 3)
		}
		r.Kind, r.Elems = '*', r.Elems[:2]
		r.Elems[0].Kind, r.Elems[0].Int = ':', n
		r.Elems[1].Kind, r.Elems[1].Int = ':', time.Now().UnixMicro()
	case string(sha) == shaRaise:
		s.calls[countRaise].Add(1)
		token, _ := strconv.ParseInt(string(args[2]), 10, 64)
		r.Kind, r.Int = ':', 0
		if ours && k.tally <= token {
			k.tally, r.Int = token, 1
		}
	default:
		panic("a script that is not expected: " + string(cmd))
	}
}

// wire is one client's connection to a memory. If it has calls, a goroutine reads and answers them,
// as for a socket. Otherwise Submit answers.
type wire struct {
	s     *memory
	calls chan *member.Call
	told  sync.Pool
}

func (w *wire) Name() string { return "memory" }
func (w *wire) Close(context.Context) error {
	if w.calls != nil {
		close(w.calls)
	}
	return nil
}
func (w *wire) Brief() member.Brief { return member.Brief{Gen: 1, Epoch: 1, Ear: 1, Votes: true} }
func (w *wire) State() member.State {
	return member.State{Gen: 1, Epoch: 1, Ear: 1, Up: true, Votes: true, Inbox: true}
}

func (w *wire) Listen(channel string, l member.Listener) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.inboxes[channel[strings.LastIndexByte(channel, ':')+1:]] = l
}

func (w *wire) Submit(c *member.Call) {
	if w.calls != nil {
		w.calls <- c
		return
	}
	w.answer(c)
}

func (w *wire) read() {
	for c := range w.calls {
		w.answer(c)
	}
}

func (w *wire) answer(c *member.Call) {
	t, _ := w.told.Get().(*told)
	if t == nil {
		t = new(told)
	}
	t.to = nil
	c.Outcome, c.Err, c.State = member.Answered, nil, w.Brief()
	w.s.execute(c.Cmd, &c.Reply, t)
	if t.to != nil {
		t.to.Push(t.text, w.State(), time.Now())
	}
	w.told.Put(t)
	c.At = time.Now()
	c.Sink.Done(c)
}

// inMemory makes clients of the same n members. readers says that each connection has a goroutine
// that answers.
func inMemory(b *testing.B, n, clients int, readers bool) ([]*redlock.Client, *[5]atomic.Int64) {
	b.Helper()
	calls := new([5]atomic.Int64)
	servers := make([]*memory, n)
	for i := range servers {
		servers[i] = &memory{locks: make(map[string]*remembered), inboxes: make(map[string]member.Listener), calls: calls}
	}
	var all []*redlock.Client
	for range clients {
		var members []member.Member
		for _, s := range servers {
			w := &wire{s: s}
			if readers {
				w.calls = make(chan *member.Call, 1024)
				go w.read()
			}
			members = append(members, w)
		}
		c, err := redlock.New(members, redlock.WithFreshMembers())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all, calls
}

// What the library itself costs, without servers and without sockets, for counting instructions:
// see bench/README.md.
//
//   - alone: one caller, names that nobody else wants
//   - one: 64 callers of one client, one name
//   - handoff: 8 clients, one name
//
// readers says that a goroutine per connection answers, as with sockets. Otherwise Submit answers.
func BenchmarkInMemory(b *testing.B) {
	for _, readers := range []bool{false, true} {
		for _, n := range []int{1, 3, 5} {
			for _, how := range []struct {
				name                    string
				clients, callers, names int
			}{{"alone", 1, 1, 50}, {"one", 1, 64, 1}, {"handoff", 8, 8, 1}} {
				b.Run(fmt.Sprintf("readers=%v/members=%d/%s", readers, n, how.name), func(b *testing.B) {
					names := make([]string, how.names)
					for i := range names {
						names[i] = fmt.Sprintf("warm:%d", i)
					}
					clients, calls := inMemory(b, n, how.clients, readers)
					cycle := func(c *redlock.Client, i int) {
						l, err := c.Mutex(names[i%len(names)]).Lock(b.Context())
						if err == nil {
							if how.names == 1 {
								runtime.Gosched() // all others come to wait
							}
							err = l.Unlock(b.Context())
						}
						if err != nil {
							b.Error(err)
						}
					}
					run := func(ops int) {
						var next atomic.Int64
						var all sync.WaitGroup
						for i := range how.callers {
							all.Go(func() {
								for k := int(next.Add(1)); k <= ops; k = int(next.Add(1)) {
									cycle(clients[i%len(clients)], k)
								}
							})
						}
						all.Wait()
					}
					run(200)
					for i := range calls {
						calls[i].Store(0)
					}
					b.ReportAllocs()
					b.ResetTimer()
					run(b.N)
					b.StopTimer()
					for i, unit := range [...]string{"acquire/op", "wait/op", "release/op", "yield/op", "raise/op"} {
						b.ReportMetric(float64(calls[i].Load())/float64(b.N), unit)
					}
				})
			}
		}
	}
}
