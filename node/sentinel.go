package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// sighting is what one Sentinel says of the master.
type sighting struct {
	addr  string
	epoch int64 // of the configuration: a failover raises it
	known map[string]string
}

// Sighting is what one Sentinel says of the master, for tools that look at a group.
type Sighting struct {
	Sentinel string // host:port
	Err      error  // the Sentinel does not answer, or does not know the name; nothing else is set then
	Master   string // host:port, as announced
	Epoch    int64  // of the configuration: a failover raises it
	Flags    string // "master", with ",s_down" or ",o_down" behind it if the Sentinel takes it for dead
	Quorum   int    // Sentinels that must find the master dead
	Others   int    // other Sentinels that it knows
	Replicas int
}

// Look asks all Sentinels at once, each for at most Config.DialTimeout. master is the address to
// dial of the newest configuration that any Sentinel tells, and "" if none does.
func (s *Sentinels) Look(ctx context.Context) (all []Sighting, master string) {
	all = make([]Sighting, len(s.Addrs))
	command := resp.Command("SENTINEL", "MASTER", s.Master)
	var asking sync.WaitGroup
	for i, addr := range s.Addrs {
		asking.Go(func() {
			seen, err := s.ask(ctx, addr, command)
			number := func(name string) int { n, _ := strconv.Atoi(seen.known[name]); return n }
			all[i] = Sighting{Sentinel: addr, Err: err, Master: seen.addr, Epoch: seen.epoch, Flags: seen.known["flags"],
				Quorum: number("quorum"), Others: number("num-other-sentinels"), Replicas: number("num-slaves")}
		})
	}
	asking.Wait()
	newest := int64(-1)
	for _, a := range all {
		if a.Err == nil && a.Epoch > newest {
			newest, master = a.Epoch, s.dial(a.Master)
		}
	}
	return all, master
}

// ask puts SENTINEL MASTER to one of them.
func (s *Sentinels) ask(ctx context.Context, addr string, command []byte) (sighting, error) {
	replies, err := Query(ctx, s.at(addr), command)
	if err != nil {
		return sighting{}, err
	}
	seen, err := readSighting(&replies[0])
	if err != nil {
		err = Expect(ctx, s.at(addr), BySentinel, err)
	}
	return seen, err
}

// errNoMaster: the Sentinel does not know the name.
var errNoMaster = errors.New("it watches no master of this name")

// readSighting reads the answer to SENTINEL MASTER.
func readSighting(r *member.Reply) (sighting, error) {
	switch {
	case r.Kind == '-' && strings.Contains(string(r.Str), "No such master"):
		return sighting{}, errNoMaster
	case r.Kind == '-':
		return sighting{}, Refusal(r)
	case r.Kind != '*' || len(r.Elems)%2 != 0:
		return sighting{}, protocolError("answer to SENTINEL MASTER")
	}
	var host, port string
	out := sighting{known: make(map[string]string)}
	for i := 0; i < len(r.Elems); i += 2 {
		value := string(r.Elems[i+1].Str)
		switch string(r.Elems[i].Str) {
		case "ip":
			host = value
		case "port":
			port = value
		case "config-epoch":
			out.epoch, _ = strconv.ParseInt(value, 10, 64)
		default:
			out.known[string(r.Elems[i].Str)] = value
		}
	}
	var ok bool
	if out.addr, ok = announced(host, port); !ok {
		return sighting{}, protocolError("answer to SENTINEL MASTER")
	}
	return out, nil
}

// announced makes an address of what a Sentinel says.
func announced(host, port string) (string, bool) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`/@[]"`, r) }) {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// find asks all Sentinels at once, and believes the newest configuration that it hears of from a
// majority, or from those that answer at all before ctx ends.
func (s *Sentinels) find(ctx context.Context) (string, error) {
	type answer struct {
		at string
		sighting
		err error
	}
	// What is left of ctx is for the connection to the master.
	ask, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		ask, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	answers := make(chan answer, len(s.Addrs))
	command := resp.Command("SENTINEL", "MASTER", s.Master)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for _, addr := range s.Addrs {
		asking.Go(func() {
			a := answer{at: addr}
			a.sighting, a.err = s.ask(ask, addr, command)
			answers <- a
		})
	}
	best, heard := sighting{epoch: -1}, 0
	var errs []error
	for range s.Addrs {
		a := <-answers
		if a.err != nil {
			errs = append(errs, ofSentinel(a.at, a.err))
			continue
		}
		if heard++; a.epoch > best.epoch {
			best = a.sighting
		}
		if heard > len(s.Addrs)/2 {
			break
		}
	}
	if heard == 0 {
		slices.SortFunc(errs, func(x, y error) int { return cmp.Compare(x.Error(), y.Error()) })
		return "", errors.Join(errs...)
	}
	return s.dial(best.addr), nil
}

// where is the address of the server, or of the one that the Sentinels name, and how long it took to
// learn that.
func (n *Node) where(ctx context.Context) (addr string, spent time.Duration, _ error) {
	if n.cfg.Sentinels == nil {
		return n.cfg.Addr, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout)
	defer cancel()
	began := time.Now()
	addr, err := n.cfg.Sentinels.find(ctx)
	return addr, time.Since(began), err
}

// ofSentinel says which Sentinel an error is of, once: most name the address already.
func ofSentinel(addr string, err error) error {
	if strings.HasPrefix(err.Error(), addr+": ") {
		return fmt.Errorf("sentinel %w", err)
	}
	return fmt.Errorf("sentinel %s: %w", addr, err)
}

func (s *Sentinels) dial(addr string) string {
	if to, ok := s.Dial[addr]; ok {
		return to
	}
	return addr
}

// switches is the channel on which Sentinels tell of failovers.
const switches = "+switch-master"

// attend listens to one Sentinel until the node closes.
func (n *Node) attend(addr string) {
	for failures := 0; ; failures++ {
		heard, err := n.hear(addr)
		if n.isClosing() {
			return
		}
		if heard {
			failures = 0
		}
		wait := n.pause(failures, err)
		n.logFailure("sentinel is not heard", failures, fmt.Errorf("sentinel %s: %w", addr, err), wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-n.accepting.Done():
			timer.Stop()
			return
		}
	}
}

// hear subscribes to a Sentinel, and has the supervisor look again whenever there may be another
// master: at each switch, and when the subscription is confirmed, because what was said before is
// lost.
func (n *Node) hear(addr string) (heard bool, _ error) {
	c := n.cfg.Sentinels.at(addr).withDefaults()
	s := &Node{cfg: c, name: addr}
	if c.TLS != nil {
		s.tls = tlsConfig(c)
	}
	ctx, cancel := context.WithTimeout(n.accepting, c.DialTimeout)
	defer cancel()
	l, err := s.dial(ctx, addr)
	if err != nil {
		return false, err
	}
	var arrived atomic.Int64
	gone := make(chan error, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		l.read(func(br *bufio.Reader) { gone <- n.switched(br, &arrived) })
	})
	defer reader.Wait()
	defer l.cut()
	write := func(cmd []byte) error {
		if err := l.wire.SetWriteDeadline(time.Now().Add(c.WriteTimeout)); err != nil {
			return err
		}
		_, err := l.wire.Write(cmd)
		return err
	}
	if err := write(resp.Command("SUBSCRIBE", switches)); err != nil {
		return false, err
	}
	again := time.NewTimer(n.cfg.StallTimeout)
	defer again.Stop()
	vigil := n.vigil(l, n.cfg.StallTimeout)
	var asked time.Time // of the PING
	for before := int64(-1); ; {
		select {
		case err := <-gone:
			return arrived.Load() > 0, err
		case <-n.accepting.Done():
			return true, n.errClosed
		case <-again.C: // it has had a PING's time to say anything
			now, count, wait := time.Now(), arrived.Load(), n.cfg.StallTimeout
			if count == before {
				stalled, left := vigil.stalled(asked, now)
				if stalled {
					return count > 0, fmt.Errorf("%w: no answer to PING for %v", member.ErrStalled, n.cfg.StallTimeout)
				}
				wait = left
			} else if before, asked = count, now; write(ping) != nil {
				return count > 0, member.ErrBroken
			}
			vigil.plan(time.Now(), wait)
			again.Reset(wait)
		}
	}
}

// switched reads what a Sentinel publishes.
func (n *Node) switched(br *bufio.Reader, arrived *atomic.Int64) error {
	var r member.Reply
	for {
		if err := readReply(br, &r, 0); err != nil {
			return err
		}
		if arrived.Add(1); r.Kind == '-' {
			return classify(string(r.Str))
		}
		if len(r.Elems) != 3 {
			continue
		}
		switch string(r.Elems[0].Str) {
		case "subscribe":
		case "message": // name old-ip old-port ip port
			if name, _, _ := strings.Cut(string(r.Elems[2].Str), " "); name != n.cfg.Sentinels.Master {
				continue
			}
		default:
			continue
		}
		select {
		case n.seek <- struct{}{}:
		default:
		}
	}
}

// errSwitched: the connection leads to a server that is the master no longer.
var errSwitched = errors.New("another server is the master now")

// seeker asks the Sentinels, for one session, whether its server is still the master. It belongs to
// the supervisor. The only other goroutine is that of a question, and stop waits for it.
type seeker struct {
	s      *session
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	asking, again bool
	sought        chan bool // capacity 1: whether this is still the master
}

func newSeeker(s *session) *seeker {
	k := &seeker{s: s, sought: make(chan bool, 1)}
	k.ctx, k.cancel = context.WithCancel(s.node.ctx)
	return k
}

func (k *seeker) stop() {
	k.cancel()
	k.work.Wait()
}

// seek asks one question at a time. If the Sentinels have something new to say meanwhile, found
// asks once more.
func (k *seeker) seek() {
	if k.asking {
		k.again = true
		return
	}
	k.asking = true
	k.work.Go(func() {
		ctx, cancel := context.WithTimeout(k.ctx, k.s.node.cfg.DialTimeout)
		defer cancel()
		k.sought <- k.stillMaster(ctx)
	})
}

// found takes the answer. An error ends the session.
func (k *seeker) found(still bool) error {
	k.asking = false
	if !still {
		return errSwitched
	}
	if k.again {
		k.again = false
		k.seek()
	}
	return nil
}

// stillMaster reports whether the session leads to the master that the Sentinels name. If no
// Sentinel answers, it does.
func (k *seeker) stillMaster(ctx context.Context) bool {
	addr, err := k.s.node.cfg.Sentinels.find(ctx)
	return err != nil || addr == k.s.link.addr
}
