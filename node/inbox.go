package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	hashslot "github.com/redquorum/redquorum/slot"
)

// ears numbers the inboxes of all nodes: see member.State.
var ears atomic.Uint64

// inbox is one subscription: of a connection of its own, or of the commands' connection.
type inbox struct {
	link     *link    // its own, or nil
	session  *session // the commands', or nil
	ear      uint64
	node     *Node
	listener member.Listener
	base     time.Time
	heard    atomic.Int64  // ns after base: the last arrival
	count    atomic.Uint64 // arrivals; a clock may stand still between a PING and its answer
	named    bool          // the first reply is that to CLIENT SETNAME
	looked   bool          // and there is one to a look at the marker

	memory    // before confirmed is closed
	confirmed chan struct{}
	gone      chan struct{}
	err       error // before gone is closed

	channel  string
	channels ability.ChannelListener // hears the other channels; may be nil
	sent     map[string]struct{}     // those that were subscribed; its owner's

	sharded sharded // of a master of a cluster
}

// sharded is the inbox as a sharded channel (Redis 7.0), in the slot of a master where its marker
// is. What is published there is not sent to all servers of the cluster. It comes besides the other
// one, to which scripts publish while nobody hears this one: where the server has none, and while
// the slot is being moved.
type sharded struct {
	asked   string // hash tag of the slot it was asked for in, or ""; guarded by board.mu, as the others
	heard   string // likewise, where the server confirmed it
	pending bool   // an answer is to come
	never   bool   // the server does not know or permit it
}

// newInbox begins an inbox that has a connection of its own, on which hello is all that is to be sent first. The generation is
// that of before. The process and the marker are learnt from the answers.
func (n *Node) newInbox(link *link, channel string, l member.Listener) (in *inbox, hello []byte) {
	m, looked, asks := n.asks()
	in = &inbox{
		link: link, ear: ears.Add(1), node: n, listener: l, base: time.Now(), named: n.cfg.ClientName != "",
		confirmed: make(chan struct{}), gone: make(chan struct{}), memory: m,
		channel: channel, looked: looked,
	}
	in.channels, _ = l.(ability.ChannelListener)
	hello = append(asks, resp.Command("SUBSCRIBE", channel)...)
	if in.named {
		hello = append(resp.Command("CLIENT", "SETNAME", n.cfg.ClientName), hello...)
	}
	return in, hello
}

// newInbox begins an inbox on the commands' connection.
func (s *session) newInbox(m memory, channel string, l member.Listener) *inbox {
	in := &inbox{session: s, ear: ears.Add(1), node: s.node, listener: l, channel: channel, memory: m}
	in.channels, _ = l.(ability.ChannelListener)
	return in
}

// listen owns the inbox at a server that sends no messages on the commands' connection: one
// connection that does nothing but receive. It ends with ctx, and so with Close.
func (n *Node) listen(ctx context.Context, channel string, l member.Listener) {
	for failures := 0; ; {
		to := channel
		if n.cfg.Shard != nil {
			if to = n.inboxOf(ctx, channel); to == "" {
				return
			}
		}
		confirmed, err := n.receive(ctx, to, l)
		n.lost(err)
		if ctx.Err() != nil {
			return
		}
		if confirmed {
			failures = 0
		}
		wait := n.pause(failures, err)
		if errors.Is(err, errExpires) {
			n.cfg.Logger.Debug("inbox is opened anew", "member", n.name, "err", err)
			continue
		}
		if errors.Is(err, errMoved) { // the commands' connection tells what there is to tell
			n.cfg.Logger.Debug("inbox is opened anew", "member", n.name, "err", err)
		} else {
			n.logFailure("inbox is closed", failures, err, wait)
		}
		failures++
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// errMoved: the commands go to another process, or memory, than this inbox.
var errMoved = errors.New("the server was restarted, emptied, or marked")

// errExpires: the credentials that an inbox of its own was opened with are to be renewed. RESP2 has no
// AUTH on a connection with subscriptions.
var errExpires = errors.New("its credentials are renewed")

// hearsLocked publishes whether the inbox is one of what is published.
func (n *Node) hearsLocked(p *published) {
	p.state.Inbox, p.state.Ear, p.state.Deaf = p.state.Up && n.inbox != nil && n.inbox.same(p), 0, nil
	switch {
	case p.state.Inbox:
		p.state.Ear = n.inbox.ear
	case p.state.Up && n.inbox == nil:
		p.state.Deaf = n.deaf
	}
}

func (n *Node) setInbox(in *inbox) {
	n.change(func(*published) { n.inbox, n.deaf = in, nil })
}

// lost is the end of an inbox, or of the attempt to open one. The same failure again is no change.
func (n *Node) lost(why error) {
	n.change(func(*published) {
		n.inbox = nil
		if errors.Is(why, errMoved) || errors.Is(why, errExpires) {
			n.deaf = nil
		} else if why = fmt.Errorf("%s: inbox: %w", n.name, why); n.deaf == nil || n.deaf.Error() != why.Error() {
			n.deaf = why
		}
	})
}

// receive subscribes and delivers until the connection ends, stops answering, or turns out to lead
// to another server process than the commands do.
func (n *Node) receive(whole context.Context, channel string, l member.Listener) (confirmed bool, _ error) {
	addr, spent, err := n.where(whole)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(whole, n.cfg.DialTimeout-spent)
	defer cancel()
	link, err := n.dial(ctx, addr)
	if err != nil {
		return false, err
	}
	in, hello := n.newInbox(link, channel, l)
	var reader sync.WaitGroup
	reader.Go(func() { link.read(in.read) })
	defer reader.Wait()
	defer link.cut()
	if err := in.write(hello); err != nil {
		return false, err
	}
	select {
	case <-in.confirmed:
	case <-in.gone:
		return false, in.err
	case <-ctx.Done():
		if n.isClosing() {
			in.leave()
		}
		return false, fmt.Errorf("SUBSCRIBE: %w", ctx.Err())
	}
	n.setInbox(in)
	return true, in.watch(whole)
}

// write writes within StallTimeout, because the goroutine that would notice a stall is the one that writes.
func (in *inbox) write(cmd []byte) error {
	if err := in.link.wire.SetWriteDeadline(time.Now().Add(in.node.cfg.StallTimeout)); err != nil {
		return err
	}
	return in.link.write(cmd)
}

// leave has the server end the connection, and its subscriptions with it, and waits until it has:
// behind everything that was asked of it before. A server that does not answer is not waited for
// when Close is not, either.
func (in *inbox) leave() {
	if in.write(quit) != nil {
		return
	}
	select {
	case <-in.gone:
	case <-time.After(in.node.cfg.StallTimeout):
	case <-in.node.ctx.Done():
	}
}

// watch pings and waits for the end, with one timer.
func (in *inbox) watch(ctx context.Context) error {
	n := in.node
	timer := time.NewTimer(n.cfg.PingInterval)
	defer timer.Stop()
	vigil := n.vigil(in.link, n.cfg.PingInterval)
	var expires <-chan time.Time
	if d := n.lifetime(); d > 0 {
		expiry := time.NewTimer(d)
		defer expiry.Stop()
		expires = expiry.C
	}
	var asked time.Time // of the PING that nothing arrived after, or zero
	var before uint64   // arrivals before it
	if err := in.subscribe(true); err != nil {
		return err
	}
	if err := in.subscribeSharded(); err != nil {
		return err
	}
	for {
		select {
		case <-in.gone:
			return in.err
		case <-ctx.Done():
			if n.isClosing() {
				in.leave()
			}
			return n.errClosed
		case <-expires:
			return errExpires
		case <-n.recheck:
			if p := n.published.Load(); p.state.Up && !in.same(p) {
				return errMoved
			}
			if err := in.subscribeSharded(); err != nil {
				return err
			}
		case <-n.alter:
			if err := in.subscribe(false); err != nil {
				return err
			}
		case <-timer.C:
			now, heard := time.Now(), in.base.Add(time.Duration(in.heard.Load()))
			if in.count.Load() != before {
				asked = time.Time{}
			}
			wait := n.cfg.PingInterval - now.Sub(heard)
			switch {
			case !asked.IsZero():
				stalled, left := vigil.stalled(asked, now)
				if stalled {
					return fmt.Errorf("%w: no answer to PING for %v", member.ErrStalled, n.cfg.StallTimeout)
				}
				wait = min(left, n.cfg.PingInterval)
			case wait <= 0:
				before = in.count.Load()
				if err := in.write(ping); err != nil {
					return err
				}
				asked, wait = now, min(n.cfg.StallTimeout, n.cfg.PingInterval)
			}
			if err := in.subscribeSharded(); err != nil {
				return err
			}
			vigil.plan(time.Now(), wait)
			timer.Reset(wait)
		}
	}
}

// Subscribe implements ability.Subscriber.
func (n *Node) Subscribe(channels ...string) { n.want(1, channels) }

// Unsubscribe implements ability.Subscriber.
func (n *Node) Unsubscribe(channels ...string) { n.want(-1, channels) }

func (n *Node) want(more int, channels []string) {
	n.mu.Lock()
	if n.wanted == nil {
		n.wanted, n.altered = make(map[string]int), make(map[string]struct{})
	}
	for _, c := range channels {
		if n.wanted[c] += more; n.wanted[c] <= 0 {
			delete(n.wanted, c)
		}
		n.altered[c] = struct{}{}
	}
	n.mu.Unlock()
	wake(n.alter)
}

// subscribe makes the connection's subscriptions those that are wanted: of all channels, or of
// those that have changed.
func (in *inbox) subscribe(all bool) error {
	n := in.node
	var on, off []string
	n.mu.Lock()
	if all {
		for c := range n.wanted {
			on = append(on, c)
		}
		for c := range in.sent {
			if n.wanted[c] <= 0 {
				off = append(off, c)
			}
		}
	} else {
		for c := range n.altered {
			_, have := in.sent[c]
			switch want := n.wanted[c] > 0; {
			case want && !have:
				on = append(on, c)
			case have && !want:
				off = append(off, c)
			}
		}
	}
	clear(n.altered)
	n.mu.Unlock()
	if in.sent == nil {
		in.sent = make(map[string]struct{})
	}
	for _, c := range on {
		in.sent[c] = struct{}{}
	}
	for _, c := range off {
		delete(in.sent, c)
	}
	if err := in.say("SUBSCRIBE", on...); err != nil {
		return err
	}
	return in.say("UNSUBSCRIBE", off...)
}

// say sends one command about channels, unless there are none.
func (in *inbox) say(verb string, channels ...string) error {
	if len(channels) == 0 {
		return nil
	}
	cmd := resp.Command(append([]string{verb}, channels...)...)
	if in.link != nil {
		return in.write(cmd)
	}
	c := &confirmations{in: in, verb: strings.ToLower(verb), left: len(channels)}
	c.call = *ownCall(cmd, c)
	return in.session.submit(told, &c.call)
}

// shardedIn is the name of the channel in a slot.
func (in *inbox) shardedIn(tag string) string {
	base := in.channel[:len(in.channel)-len(in.id)-1]
	return base + ":{" + tag + "}:" + in.id
}

// subscribeSharded subscribes where the marker is now, unless that was done. Its owner calls it.
func (in *inbox) subscribeSharded() error {
	n := in.node
	home, ok := n.seat.HomeSlot()
	if !ok || !strings.HasSuffix(in.channel, ":"+in.id) {
		return nil
	}
	tag := hashslot.TagOf(home)
	n.mu.Lock()
	s := &in.sharded
	if s.never || s.pending || s.asked == tag {
		n.mu.Unlock()
		return nil
	}
	s.asked, s.pending = tag, true
	n.mu.Unlock()
	return in.say("SSUBSCRIBE", in.shardedIn(tag))
}

// shardedRefused takes an error that is the answer to SSUBSCRIBE; false: it is not.
func (in *inbox) shardedRefused(refused *member.ReplyError) bool {
	n := in.node
	n.mu.Lock()
	s := &in.sharded
	was := s.pending
	s.asked, s.pending = "", false // its owner tries again
	s.never = was && refused.Kind != member.KindCluster && refused.Kind != member.KindLoading
	n.mu.Unlock()
	return was
}

// shardedSubscribed takes the server's word that it sends, or does not any more, what is published.
func (in *inbox) shardedSubscribed(channel string, on bool) {
	n := in.node
	n.change(func(*published) {
		s := &in.sharded
		if !on && channel == in.shardedIn(s.heard) {
			s.heard = ""
		}
		if s.asked == "" || channel != in.shardedIn(s.asked) {
			return // an earlier one
		}
		if on {
			s.heard, s.pending = s.asked, false
		} else if !s.pending {
			s.asked = ""
		}
	})
	if !on {
		n.signalRecheck()
	}
}

// inboxOf is the channel at a master of a cluster, where every server hears every message: one for
// each marker. It waits until there is one; "" means that ctx has ended.
func (n *Node) inboxOf(ctx context.Context, channel string) string {
	for {
		if at := n.published.Load().standing; at.Admitted() {
			return channel + ":" + at.Marker()
		}
		select {
		case <-n.recheck:
		case <-ctx.Done():
			return ""
		}
	}
}

// read is the connection's reader.
func (in *inbox) read(br *bufio.Reader) {
	in.err = in.messages(br)
	if errors.Is(in.err, io.EOF) {
		in.err = fmt.Errorf("closed by the server: %w", io.ErrUnexpectedEOF)
	}
	close(in.gone)
}

func (in *inbox) messages(br *bufio.Reader) error {
	var r member.Reply
	if in.named {
		if err := readReply(br, &r, 0); err != nil {
			return err
		}
	}
	if err := in.learn(br, in.looked); err != nil {
		return err
	}
	for subscribed := false; ; {
		if err := readReply(br, &r, 0); err != nil {
			return err
		}
		now := time.Now()
		in.heard.Store(int64(now.Sub(in.base)))
		in.count.Add(1)
		switch {
		case r.Kind == '-':
			refused := classify(string(r.Str))
			if !in.shardedRefused(refused) {
				return fmt.Errorf("SUBSCRIBE: %w", refused)
			}
		case r.Kind == '$' && string(r.Str) == "PONG":
		case r.Kind != '*' || len(r.Elems) == 0:
			return protocolError("neither a message nor a pong")
		case string(r.Elems[0].Str) == "subscribe" && !subscribed:
			subscribed = true
			close(in.confirmed)
		case len(r.Elems) == 3:
			in.take(r.Elems, now)
		}
	}
}

// other takes what is no message for the Listener itself.
func (in *inbox) other(msg []member.Reply, now time.Time) {
	channel := string(msg[1].Str)
	switch string(msg[0].Str) {
	case "message":
		if in.channels != nil {
			in.channels.Channel(channel, msg[2].Str, now)
		}
	case "ssubscribe":
		in.shardedSubscribed(channel, true)
	case "sunsubscribe": // the slot was given away
		in.shardedSubscribed(channel, false)
	case "subscribe":
		if in.channels != nil {
			in.channels.Channel(channel, nil, now)
		}
	}
}

// confirmations is the Sink of a command about channels. RESP3 has no answer to it but one push for
// each channel, in the place of the answer; a refusal is an answer like any other.
type confirmations struct {
	call member.Call
	in   *inbox
	verb string
	left int
}

// pushed takes what the server sent beside the answers, and reports whether that is the last of what answers the first call.
func (s *session) pushed(msg []member.Reply) (last bool, _ error) {
	if len(msg) != 3 {
		return false, nil // of what we did not ask for
	}
	now := time.Now()
	switch verb := string(msg[0].Str); verb {
	case "subscribe", "unsubscribe", "ssubscribe":
		return s.confirmed(verb, msg, now)
	}
	if s.in != nil {
		s.in.take(msg, now)
	}
	return false, nil
}

// confirmed takes the server's word that one channel of the first call in line is subscribed, or is
// not any more.
func (s *session) confirmed(verb string, msg []member.Reply, now time.Time) (last bool, _ error) {
	first := s.line.First()
	if first == nil {
		return false, protocolError("a confirmation of nothing")
	}
	c, ok := first.Call.Sink.(*confirmations)
	if !ok || c.verb != verb {
		return false, protocolError("a confirmation of something else")
	}
	s.now = now
	s.touch(now)
	in := c.in
	if channel := msg[1].Str; verb == "subscribe" && string(channel) == in.channel {
		s.in = in
		in.node.change(func(p *published) {
			if p.session == s {
				in.node.inbox, in.node.deaf = in, nil
			}
		})
	} else if s.in == in || verb == "ssubscribe" {
		in.take(msg, now)
	}
	c.left--
	return c.left == 0, nil
}
