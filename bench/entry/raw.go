package entry

import (
	"bufio"
	"context"
	"errors"
	"math/bits"
	"net"
	"sync"
	"time"
)

// raw is a client of one caller for the hand-off floors: a connection for requests and one for pushes
// per member. Everything that arrives goes to one channel.
type raw struct {
	cmd, sub []net.Conn
	asked    []chan uint64 // per member: the operations that wait for an answer, in order
	events   chan event
	op       uint64
	quit     chan struct{}
	wg       sync.WaitGroup
}

// event is an answer to the operation op, or a push.
type event struct {
	node  int
	op    uint64
	reply reply
	ok    bool
	push  string
}

func openRaw(ctx context.Context, addrs []string, scripts ...string) (*raw, error) {
	r := &raw{events: make(chan event, 4096), quit: make(chan struct{})}
	for _, addr := range addrs {
		if err := r.dial(ctx, addr, scripts); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (r *raw) dial(ctx context.Context, addr string, scripts []string) error {
	var d net.Dialer
	cmd, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	i := len(r.cmd)
	r.cmd = append(r.cmd, cmd)
	r.asked = append(r.asked, make(chan uint64, backlog))
	in := bufio.NewReader(cmd)
	for _, s := range scripts {
		if _, err := cmd.Write(command("SCRIPT", "LOAD", s)); err != nil {
			return err
		}
		if _, err := readReply(in); err != nil {
			return err
		}
	}
	sub, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	r.sub = append(r.sub, sub)
	r.wg.Go(func() { r.readAnswers(i, in) })
	r.wg.Go(func() { r.readPushes(i, bufio.NewReader(sub)) })
	return nil
}

func (r *raw) readAnswers(node int, in *bufio.Reader) {
	for {
		got, err := readReply(in)
		var refused replyError
		if err != nil && !errors.As(err, &refused) {
			return
		}
		select {
		case r.events <- event{node: node, op: <-r.asked[node], reply: got, ok: err == nil}:
		case <-r.quit:
			return
		}
	}
}

func (r *raw) readPushes(node int, in *bufio.Reader) {
	for {
		items, err := readItems(in)
		if err != nil {
			return
		}
		e := event{node: node}
		switch {
		case len(items) == 3 && items[0].text == "message":
			e.push = items[2].text
		case len(items) == 3 && items[0].text == "subscribe":
			e.push = "subscribed"
		default:
			continue
		}
		select {
		case r.events <- e:
		case <-r.quit:
			return
		}
	}
}

// subscribe returns when all members have confirmed.
func (r *raw) subscribe(ctx context.Context, channel string) error {
	for _, s := range r.sub {
		if _, err := s.Write(command("SUBSCRIBE", channel)); err != nil {
			return err
		}
	}
	for n := 0; n < len(r.sub); {
		select {
		case e := <-r.events:
			if e.push == "subscribed" {
				n++
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask sends a request to the members of the mask; their answers carry r.op.
func (r *raw) ask(request []byte, mask uint32) {
	r.op++
	for i, c := range r.cmd {
		if mask>>i&1 == 1 {
			select {
			case r.asked[i] <- r.op:
				_, _ = c.Write(request)
			default: // too far behind
			}
		}
	}
}

// confirm waits until a majority have answered the last operation with 1.
func (r *raw) confirm(ctx context.Context, other func(event)) error {
	n := len(r.cmd)
	op := r.op
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	for ok, no := 0, 0; ok <= n/2; {
		select {
		case e := <-r.events:
			switch {
			case e.op != op:
				other(e)
			case e.ok && e.reply.n == 1:
				ok++
			default:
				if no++; no >= n-n/2 {
					return errNotHeld
				}
			}
		case <-limit.C:
			return errors.New("release: no answer of a majority")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *raw) everybody() uint32 { return 1<<len(r.cmd) - 1 }

func (r *raw) majority(mask uint32) bool { return bits.OnesCount32(mask) > len(r.cmd)/2 }

func (r *raw) Close() {
	close(r.quit)
	for _, c := range append(r.cmd, r.sub...) {
		_ = c.Close()
	}
	for _, a := range r.asked {
		select {
		case a <- 0: // a reader may wait for it
		default:
		}
	}
	r.wg.Wait()
}
