//go:build unix

// Command worker is one process that contends for locks of every kind. It is built with this version of the library and
// with an earlier one, so it uses only what both have, but for open.go and keep.go.
//
// It reads orders and writes what it believed, one JSON object a line. The end of its standard input ends it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/redlock"
)

// Order is a line of standard input. The first one begins the run.
type Order struct {
	For   time.Duration // how long to contend, in the first order
	Kinds []string      // of the locks, which take turns; "latch" alone
	Keep  bool          // no lease is handed over
	Crowd string        // the process that has eight callers
	Pause time.Duration // of the others then, at most: 40 times its own
	Lease string        // name of a lease that another process handed over,
	Give  string        // and its secret
}

// Said is a line of standard output.
type Said struct {
	Ready  bool
	Done   bool
	Error  string
	Lease  string // names the lease: the process that acquired it, and a number
	Owner  string // of a lease that was not adopted, in a version that tells it
	Slot   int    // of a permit
	Shared bool   // a reader's
	Token  uint64
	Asked  int64 // call of Lock, 0 if the lease was adopted; of CountDown
	From   int64 // return of Lock or Adopt, on the machine's monotonic clock, in nanoseconds; of Await
	To     int64 // call of Unlock or Handoff, or the end of validity if that came first; return of CountDown
	Secret string
}

// What keep.go has of a version that can keep what it unlocks.
var (
	stays   []redlock.LockOption
	ownerOf = func(*redlock.Lease) string { return "" }
)

func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

func at(t time.Time) int64 { return now() + int64(time.Until(t)) }

type process struct {
	client *redlock.Client
	name   string
	key    string

	mu  sync.Mutex // of out
	out *json.Encoder
}

func (p *process) say(s Said) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(s)
}

// hold believes in a lease for a millisecond, then hands it over or releases it.
func (p *process) hold(lease *redlock.Lease, s Said, handOver bool) {
	time.Sleep(time.Millisecond)
	s.To = min(now(), at(lease.ValidUntil()))
	if handOver {
		h, err := lease.Handoff()
		if err != nil {
			s.Error = "handoff: " + err.Error()
		}
		s.Secret = h.Secret()
	} else if err := lease.Unlock(context.Background()); err != nil {
		s.Error = "unlock: " + err.Error()
	}
	p.say(s)
}

func (p *process) adopt(o Order) {
	h, err := redlock.ParseHandoff(o.Give)
	if err != nil {
		p.say(Said{Error: "parse: " + err.Error()})
		return
	}
	lease, err := p.client.Adopt(context.Background(), h)
	if err != nil {
		p.say(Said{Error: "adopt: " + err.Error()})
		return
	}
	s := Said{Lease: o.Lease, Token: lease.Token(), From: now()}
	if h.Kind() == redlock.KindSemaphore {
		s.Slot = lease.Slot()
	}
	p.hold(lease, s, false)
}

// acquire takes the lock of a kind.
func (p *process) acquire(kind string) (*redlock.Lease, error) {
	ctx := context.Background()
	switch kind {
	case "mutex":
		return p.client.Mutex(p.key, stays...).Lock(ctx)
	case "fair":
		return p.client.Mutex(p.key, redlock.Fair()).Lock(ctx)
	case "write":
		return p.client.RWMutex(p.key).Lock(ctx)
	case "read":
		return p.client.RWMutex(p.key).RLock(ctx)
	case "leader":
		return p.client.Election(p.key).Campaign(ctx, []byte(p.name))
	case "permit":
		return p.client.Semaphore(p.key, 2).Acquire(ctx)
	}
	return nil, fmt.Errorf("kind %q", kind)
}

// contend takes the locks of some kinds in turn, as one of the callers. It hands every eighth lease over that is no reader's.
func (p *process) contend(o Order, caller int, pause time.Duration) {
	alone := 0
	for n, end := 0, time.Now().Add(o.For); time.Now().Before(end); n++ {
		kind := o.Kinds[rand.IntN(len(o.Kinds))]
		s := Said{Lease: fmt.Sprintf("%s/%d/%d", p.name, caller, n), Shared: kind == "read", Asked: now()}
		lease, err := p.acquire(kind)
		if err != nil {
			p.say(Said{Error: kind + ": " + err.Error()})
			return
		}
		s.Token, s.Owner, s.From = lease.Token(), ownerOf(lease), now()
		if kind == "permit" {
			s.Slot = lease.Slot()
		}
		if !s.Shared {
			alone++
		}
		p.hold(lease, s, !s.Shared && !o.Keep && alone%8 == 7)
		time.Sleep(rand.N(pause))
	}
}

// crowd contends as one caller, or as several.
func (p *process) crowd(o Order) {
	callers, pause := 1, 2*time.Millisecond
	switch {
	case o.Crowd == p.name:
		callers, pause = 8, o.Pause/40
	case o.Crowd != "":
		pause = o.Pause
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { p.contend(o, i, pause) })
	}
	all.Wait()
}

// rounds arrives at one latch after the other, each of which opens for four, and waits for it.
func (p *process) rounds() {
	ctx := context.Background()
	for n := range 60 {
		time.Sleep(rand.N(4 * time.Millisecond))
		latch := p.client.Latch(fmt.Sprint(p.key, ":", n), 4)
		s := Said{Lease: fmt.Sprint(n), Asked: now()}
		err := latch.CountDown(ctx)
		s.To = now()
		if err == nil {
			err = latch.Await(ctx)
		}
		if s.From = now(); err != nil {
			s.Error = "latch: " + err.Error()
		}
		p.say(s)
	}
}

// The arguments are a name, the key, the URLs of the members, separated by commas, and "interop" beside the reference system.
func main() {
	ctx, shared := context.Background(), len(os.Args) > 4
	if shared {
		stays = nil
	}
	client, err := open(ctx, strings.Split(os.Args[3], ","), shared)
	p := &process{client: client, name: os.Args[1], key: os.Args[2], out: json.NewEncoder(os.Stdout)}
	if err != nil {
		p.say(Said{Error: "open: " + err.Error()})
		return
	}
	p.say(Said{Ready: true})

	var adopting sync.WaitGroup
	contended := make(chan struct{})
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for first := true; ; first = false {
		var o Order
		if err := in.Decode(&o); err != nil {
			break
		}
		if first {
			go func() {
				defer close(contended)
				if o.Kinds[0] == "latch" {
					p.rounds()
				} else {
					p.crowd(o)
				}
				p.say(Said{Done: true})
			}()
			continue
		}
		adopting.Go(func() { p.adopt(o) })
	}
	<-contended
	adopting.Wait()
	if err := client.Close(); err != nil {
		p.say(Said{Error: "close: " + err.Error()})
	}
}
