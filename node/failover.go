package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

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
		select {
		case <-time.After(wait):
		case <-n.accepting.Done():
			return
		}
	}
}

// hear subscribes to a Sentinel, and has the supervisor look again whenever there may be another
// master: at each switch, and when the subscription is confirmed, because what was said before is
// lost.
func (n *Node) hear(addr string) (heard bool, _ error) {
	c := n.cfg.Sentinels.at(addr).withDefaults()
	var d dialer
	d.to(c, addr)
	ctx, cancel := context.WithTimeout(n.accepting, c.DialTimeout)
	defer cancel()
	l, err := d.dial(ctx, addr)
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
	if err := l.write(resp.Command("SUBSCRIBE", switches)); err != nil {
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
			} else if before, asked = count, now; l.write(ping) != nil {
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
		wake(n.seek)
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
