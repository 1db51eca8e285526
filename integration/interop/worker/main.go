//go:build unix

// Command worker is one process that contends for a lock. It is built with this version of the library and
// with an earlier one, so it uses only what both have.
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
	Lease string        // name of a lease that another process handed over,
	Give  string        // and its secret
}

// Said is a line of standard output.
type Said struct {
	Ready  bool
	Done   bool
	Error  string
	Lease  string // names the lease: the process that acquired it, and a number
	Token  uint64
	Asked  int64 // call of Lock, 0 if the lease was adopted
	From   int64 // return of Lock or Adopt, on the machine's monotonic clock, in nanoseconds
	To     int64 // call of Unlock or Handoff, or the end of validity if that came first
	Secret string
}

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
	p.hold(lease, Said{Lease: o.Lease, Token: lease.Token(), From: now()}, false)
}

// contend takes the lock again and again. It hands every eighth lease over.
func (p *process) contend(d time.Duration) {
	for n, end := 0, time.Now().Add(d); time.Now().Before(end); n++ {
		s := Said{Lease: fmt.Sprintf("%s/%d", p.name, n), Asked: now()}
		lease, err := p.client.Mutex(p.key).Lock(context.Background())
		if err != nil {
			p.say(Said{Error: "lock: " + err.Error()})
			return
		}
		s.Token, s.From = lease.Token(), now()
		p.hold(lease, s, n%8 == 7)
		time.Sleep(rand.N(2 * time.Millisecond))
	}
}

// The arguments are a name, the key, and the URLs of the members, separated by commas.
func main() {
	ctx := context.Background()
	client, err := redlock.Open(ctx, strings.Split(os.Args[3], ","), redlock.WithFreshMembers(), func(c *redlock.Config) {
		c.MemberTimeout, c.StallTimeout = 10*time.Second, 20*time.Second // longer than a busy machine is busy
	})
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
				p.contend(o.For)
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
