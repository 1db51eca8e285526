package entry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync"
)

// raw is a client of one caller for the hand-off floors: a wire for requests and a connection for pushes
// per member. Its readers book what arrives themselves, and wake the caller when something is decided.
type raw struct {
	cmd        []*wire
	sub        []net.Conn
	told       func(member int, push []byte) // called with mu held; push is valid until it returns
	op         uint64                        // the last request
	woken      chan struct{}
	confirmed  chan struct{} // of a subscription, once per member
	wg         sync.WaitGroup
	sync.Mutex // guards what the readers book
}

func openRaw(ctx context.Context, addrs []string, told func(int, []byte), scripts ...string) (*raw, error) {
	r := &raw{told: told, woken: make(chan struct{}, 1), confirmed: make(chan struct{}, len(addrs))}
	for _, addr := range addrs {
		if err := r.dial(ctx, addr, scripts); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (r *raw) dial(ctx context.Context, addr string, scripts []string) error {
	cmd, err := dialWire(ctx, addr, scripts...)
	if err != nil {
		return err
	}
	i := len(r.cmd)
	r.cmd = append(r.cmd, cmd)
	var d net.Dialer
	sub, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	r.sub = append(r.sub, sub)
	r.wg.Go(func() { r.readPushes(i, bufio.NewReader(sub)) })
	return nil
}

func (r *raw) readPushes(member int, in *bufio.Reader) {
	for {
		subscribed, push, err := readPush(in)
		switch {
		case err != nil:
			return
		case subscribed:
			r.confirmed <- struct{}{} // has room: one subscription at a time
		default:
			r.Lock()
			r.told(member, push)
			r.Unlock()
		}
	}
}

var errPush = errors.New("no push")

// readPush reads a published message or that a channel is subscribed. push is valid until the next one
// is read.
func readPush(in *bufio.Reader) (subscribed bool, push []byte, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return false, nil, err
	}
	if string(line) != "*3\r\n" {
		return false, nil, fmt.Errorf("%w: %q", errPush, line)
	}
	for i := range 3 {
		r, err := readReply(in)
		if err != nil {
			return false, nil, err
		}
		if i == 0 {
			subscribed = string(r.text) == "subscribe"
		}
		push = r.text
	}
	return subscribed, push, nil
}

// subscribe returns when all members have confirmed.
func (r *raw) subscribe(ctx context.Context, channel string) error {
	for _, s := range r.sub {
		if _, err := s.Write(command("SUBSCRIBE", channel)); err != nil {
			return err
		}
	}
	for range r.sub {
		select {
		case <-r.confirmed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask sends a request to the members of the mask; to hears their answers, with r.op. Nobody does if it is
// nil.
func (r *raw) ask(request []byte, to answerer, mask uint32) {
	r.op++
	for i, w := range r.cmd {
		if b := (booking{to: to, op: r.op, member: i}); mask>>i&1 == 1 && w.send(request, b, true) != nil {
			b.answer(reply{}, false)
		}
	}
}

// confirm sends a request to all members, and returns when a majority have answered with 1.
func (r *raw) confirm(request []byte) error {
	f := newFan(len(r.cmd), truth)
	r.ask(request, f, r.everybody())
	if !f.decided() {
		return errNotHeld
	}
	return nil
}

// wake wakes the caller. One that does not sleep looks again before it does.
func (r *raw) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

func (r *raw) everybody() uint32 { return 1<<len(r.cmd) - 1 }

func (r *raw) majority(mask uint32) bool { return bits.OnesCount32(mask) > len(r.cmd)/2 }

func (r *raw) Close() {
	for _, w := range r.cmd {
		w.Close()
		<-w.gone
	}
	for _, s := range r.sub {
		_ = s.Close()
	}
	r.wg.Wait()
}

// owners are what each of some owners has at which members. They keep their room.
type owners []ownerAt

type ownerAt struct {
	owner   []byte
	members uint32
}

func (l *owners) reset() { *l = (*l)[:0] }

func (l *owners) add(owner []byte, member int) uint32 {
	for i := range *l {
		if o := &(*l)[i]; bytes.Equal(o.owner, owner) {
			o.members |= 1 << member
			return o.members
		}
	}
	if len(*l) == cap(*l) {
		*l = append(*l, ownerAt{})
	} else {
		*l = (*l)[:len(*l)+1]
	}
	o := &(*l)[len(*l)-1]
	o.owner, o.members = append(o.owner[:0], owner...), 1<<member
	return o.members
}

func (l owners) of(owner []byte) uint32 {
	for i := range l {
		if bytes.Equal(l[i].owner, owner) {
			return l[i].members
		}
	}
	return 0
}
