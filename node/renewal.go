package node

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// renewal authenticates the connection of the commands anew. It belongs to the goroutine that looks
// after the session. Only the question is on a goroutine of its own, so that a provider that hangs
// holds up nothing. There is one at a time, and it ends when the provider returns.
type renewal struct {
	due   <-chan time.Time // nil: never
	asked chan credentials // capacity 1
	done  chan struct{}    // capacity 1: AUTH is answered

	s        *session
	timer    *time.Timer
	call     member.Call
	failures int
}

// newRenewal begins to renew the credentials of a session that has just been authenticated.
func newRenewal(s *session) *renewal {
	r := &renewal{s: s, asked: make(chan credentials, 1), done: make(chan struct{}, 1)}
	if d := s.node.lifetime(); d > 0 {
		r.timer = time.NewTimer(d)
		r.due = r.timer.C
	}
	return r
}

func (r *renewal) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// ask asks for the next credentials: when due tells.
func (r *renewal) ask() {
	n := r.s.node
	go func() {
		ctx, cancel := context.WithTimeout(n.accepting, n.cfg.DialTimeout)
		defer cancel()
		var c credentials
		c.user, c.password, c.err = n.cfg.credentials(ctx, n.name)
		r.asked <- c
	}()
}

// use puts AUTH in line, behind the calls that are there: when asked tells. The server answers them
// as the user before, and those behind it as the new one.
func (r *renewal) use(c credentials) {
	if c.err != nil {
		r.failed(c.err)
		return
	}
	auth := []string{"AUTH", c.user, c.password}
	if c.user == "" {
		auth = []string{"AUTH", c.password}
	}
	r.call = *ownCall(resp.Command(auth...), r)
	_ = r.s.authenticate(&r.call) // an error means that it is broken, and serve ends by that
}

// authenticate puts AUTH in line, and a PING right behind it. Redis 7.2 and 7.4 do not answer an AUTH
// that they refuse while other answers wait to be sent. All answers behind it would then go to the
// wrong calls. The PING shows it before the next one does: see answers.
func (s *session) authenticate(call *member.Call) error {
	s.line.Lock()
	now := s.node.published.Load()
	pong := ownCall(ping, discard{})
	calls, inFlight := s.line.InFlight()
	size := inFlight + int64(len(call.Cmd)+len(pong.Cmd))
	if err := s.refusesLocked(call, auth, now, calls, size); err != nil {
		s.line.Unlock()
		return err
	}
	if calls == 0 {
		s.beginLocked(time.Now())
	}
	of := now.state.Brief
	s.line.Add(line.Entry{Call: call, Note: auth}, of, now.tag, false)
	s.line.Add(line.Entry{Call: pong, Note: behind}, of, now.tag, false)
	s.writeLocked(true, calls, size)
	return nil
}

// Done implements member.Sink for AUTH.
func (r *renewal) Done(*member.Call) { r.done <- struct{}{} }

// took looks at the answer to AUTH: when done tells. A server that refuses keeps the user of before.
func (r *renewal) took() {
	n := r.s.node
	switch r.call.Outcome {
	case member.Answered:
		n.cfg.Logger.Debug("connection is authenticated anew", "member", n.name)
		r.renewed()
	case member.Refused:
		r.failed(&CredentialsError{n.name, r.call.Err})
	}
}

func (r *renewal) renewed() {
	r.failures = 0
	r.timer.Reset(r.s.node.lifetime())
}

func (r *renewal) failed(err error) {
	n := r.s.node
	if n.isClosing() {
		return
	}
	wait := n.pause(r.failures, err)
	n.logFailure("connection is not authenticated anew and stays as it is", r.failures, err, wait)
	r.failures++
	r.timer.Reset(wait)
}
