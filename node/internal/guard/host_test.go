package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// fakeHost is a member in memory: it publishes what its Seat finds, and looks after one session as
// a node does. mend connects it to its server, and cut ends the session.
type fakeHost struct {
	name   string
	seat   *Seat
	server *server
	ctx    context.Context // ends with closing
	cancel context.CancelFunc
	recur  int         // how often the inbox was compared
	idle   atomic.Bool // it makes no calls, each of which takes a look along

	mu       sync.Mutex
	closing  bool
	state    member.State
	standing Standing
	verdict  Verdict
	session  *fakeSession
	gave     Standing // by the last Admit
	admitErr error
	err      error // of the last connection

	suspect chan struct{}
	work    sync.WaitGroup
}

func (h *fakeHost) Name() string             { return h.name }
func (h *fakeHost) Context() context.Context { return h.ctx }

func (h *fakeHost) Closing() bool { return rt.Under(&h.mu, func() bool { return h.closing }) }

func (h *fakeHost) Recheck() { rt.Locked(&h.mu, func() { h.recur++ }) }

func (h *fakeHost) Suspect() {
	select {
	case h.suspect <- struct{}{}:
	default:
	}
}

func (h *fakeHost) Now() Present {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := Present{State: h.state, Standing: h.standing}
	if h.session != nil {
		now.Session = h.session
	}
	return now
}

func (h *fakeHost) Publish(edit func(gen *uint64, s *Standing)) {
	h.change(func() { edit(&h.state.Gen, &h.standing) })
}

// change edits what is published, unless the host is closing.
func (h *fakeHost) change(edit func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return
	}
	edit()
	h.judgeLocked()
}

func (h *fakeHost) judgeLocked() {
	h.verdict = h.seat.Verdict(h.standing, h.state.Up)
	h.state.Votes, h.state.Quarantine = h.verdict.Votes, h.verdict.Quarantine
}

func (h *fakeHost) Ask(ctx context.Context, cmd []byte) (member.Reply, error) {
	on := h.Now().Session
	if on == nil {
		return member.Reply{}, member.ErrDown
	}
	calls, err := on.Ask(ctx, [][]byte{cmd})
	if err != nil {
		return member.Reply{}, err
	}
	return calls[0].Reply, calls[0].Err
}

// fakeSession carries commands to a server.
type fakeSession struct {
	server *server
	run    string // the process that it leads to
	host   context.Context
	broken chan struct{}
	once   sync.Once
	looks  atomic.Int64 // that were queued
	seat   *Seat
	lines  atomic.Pointer[func()] // is called once, before a look is in line
}

// slow is how long a carry of a marker takes, for tests of what happens meanwhile.
func (s *fakeSession) slow(c *member.Call) {
	if d := s.server.carrying.Load(); d > 0 && strings.Contains(string(c.Cmd), carryOnlyLua) {
		time.Sleep(time.Duration(d))
	}
}

var (
	errCut    = errors.New("the connection has ended")
	errClosed = fmt.Errorf("fake: %w", member.ErrClosed)
)

func (s *fakeSession) end() { s.once.Do(func() { close(s.broken) }) }

func (s *fakeSession) do(c *member.Call) error {
	select {
	case <-s.broken:
		return errCut
	default:
	}
	if s.server.process().RunID != s.run {
		s.end()
		return errCut
	}
	s.slow(c)
	c.Reply, c.At = s.server.do(words(c.Cmd)...), time.Now()
	c.Outcome, c.Err = member.Answered, nil
	if c.Reply.Kind == '-' {
		e := &member.ReplyError{Kind: member.KindCluster, Text: string(c.Reply.Str)}
		if strings.HasPrefix(e.Text, "READONLY") {
			e.Kind = member.KindReadOnly
		}
		c.Outcome, c.Err = member.Refused, e
	}
	return nil
}

func (s *fakeSession) Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	calls := make([]member.Call, len(cmds))
	for i, cmd := range cmds {
		calls[i].Cmd = cmd
		if err := s.do(&calls[i]); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func (s *fakeSession) Queue(c *member.Call) error {
	s.looks.Add(1)
	if f := s.lines.Swap(nil); f != nil {
		(*f)()
	}
	if err := s.do(c); err != nil {
		return err
	}
	c.Sink.Done(c)
	return nil
}

// outside is what a call from outside does.
func (s *fakeSession) outside() (looked bool) {
	c := s.seat.Overdue()
	if c != nil {
		_ = s.Queue(c)
	}
	return c != nil
}

func (s *fakeSession) Pause(news <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-s.broken:
		return errCut
	case <-s.host.Done():
		return errClosed
	}
	return nil
}

// sit makes a host with a seat. Nothing looks after it before mend.
func sit(t *testing.T, g *Guard, s *server, name string, terms Terms) *fakeHost {
	if terms.Logger == nil {
		terms.Logger = slog.New(slog.DiscardHandler)
	}
	if terms.Ping == 0 {
		terms.Ping, terms.Patience = time.Second, time.Second
	}
	h := &fakeHost{name: name, server: s, suspect: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(t.Context())
	h.state = member.State{Brief: member.Brief{Gen: 1}, Err: member.ErrConnecting}
	h.seat = NewSeat(g, h, terms)
	h.seat.Join()
	return h
}

// mend connects to the server and looks after the session until it ends, as a node's supervisor
// does.
func (h *fakeHost) mend() {
	process := h.server.process()
	on := h.dial()
	h.work.Go(func() {
		err := h.connect(on, process)
		switch {
		case err == nil && h.Closing():
			err = errClosed
		case err == nil:
			err = h.serve(on, process)
		}
		on.end()
		rt.Locked(&h.mu, func() { h.err = err })
		h.change(func() {
			h.state.Up, h.session = false, nil
			h.state.Err = fmt.Errorf("%s: %w", h.name, err)
		})
		h.seat.Fell()
	})
}

// dial is a session with the process that is there.
func (h *fakeHost) dial() *fakeSession {
	return &fakeSession{server: h.server, run: h.server.process().RunID, host: h.ctx, seat: h.seat, broken: make(chan struct{})}
}

// connect admits the member and publishes it, as a node's connect does.
func (h *fakeHost) connect(on *fakeSession, p Process) error {
	a, err := h.seat.Admit(on, p)
	h.mu.Lock()
	h.gave, h.admitErr = a, err
	st, before := h.state, h.standing.Marker()
	h.mu.Unlock()
	if err == errClosed { // who closes does not wait for a standing
		a, err = Standing{}, nil
	}
	if err != nil {
		return err
	}
	anew := st.RunID != p.RunID || before != a.Marker()
	if st.Epoch == 0 || anew {
		h.seat.NewEra()
	}
	h.mu.Lock()
	h.standing = a // what is owed is paid under it, also while the host is closing
	h.mu.Unlock()
	h.change(func() {
		h.session = on
		if h.state.Epoch > 0 && anew {
			h.state.Gen++
		}
		h.state.Epoch = h.seat.Epoch(h.state.Epoch)
		h.state.Up, h.state.RunID, h.state.Err = true, p.RunID, nil
	})
	return nil
}

func (h *fakeHost) serve(on *fakeSession, p Process) error {
	w := h.seat.Watch(on, p)
	defer w.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-on.broken:
			return errCut
		case <-h.ctx.Done():
			return errClosed
		case <-timer.C:
			if !h.idle.Load() {
				on.outside()
			}
			timer.Reset(w.Tick(time.Now()))
			if on.server.process().RunID != on.run {
				on.end()
			}
		case <-w.Results:
			if err := w.Take(); err != nil {
				return err
			}
			timer.Reset(0)
		case <-h.suspect:
			if err := w.Suspected(); err != nil {
				return err
			}
			timer.Reset(0)
		}
	}
}

// cut ends the session, and returns when nothing looks after it any more.
func (h *fakeHost) cut() {
	if on, _ := h.Now().Session.(*fakeSession); on != nil {
		on.end()
	}
	h.work.Wait()
}

// leave closes the host. What it publishes is final.
func (h *fakeHost) leave() {
	h.mu.Lock()
	h.closing = true
	h.state.Up, h.state.Err, h.session = false, errClosed, nil
	h.judgeLocked()
	h.mu.Unlock()
	h.cancel()
	h.work.Wait()
	h.seat.Leave()
}

func (h *fakeHost) votes() bool { return h.Now().State.Votes }

// admitted is the host of a member that is up and was admitted with m, and whose client has met a
// majority.
func admitted(t *testing.T, m marker) *fakeHost {
	h := sit(t, New(Config{Members: 1, MaxTTL: time.Second}), nil, "member", Terms{})
	h.seat.guard.met.Store(true)
	h.state.Up = true
	a := Standing{admitted: true}.reads(m)
	h.Publish(func(_ *uint64, s *Standing) { *s = a })
	require.False(t, h.votes())
	return h
}
