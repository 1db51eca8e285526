package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// CredentialsError says that there was nothing to authenticate a connection with: Config.Credentials
// failed, was late or returned no password, or Config.PasswordFile could not be read. It wraps the
// cause.
type CredentialsError struct {
	Member string
	Err    error
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("no credentials for %s: %v", e.Member, e.Err)
}

func (e *CredentialsError) Unwrap() error { return e.Err }

// rotates reports whether the next dial may have other credentials than the last one.
func (c *Config) rotates() bool { return c.Credentials != nil || c.PasswordFile != "" }

// credentials are those of one dial, which ctx bounds.
func (c *Config) credentials(ctx context.Context, member string) (user, password string, err error) {
	switch {
	case c.Credentials != nil:
		user, password, err = c.provided(ctx)
	case c.PasswordFile != "":
		user = c.Username
		password, err = readPassword(c.PasswordFile)
	default:
		return c.Username, string(c.Password), nil
	}
	if err != nil {
		return "", "", &CredentialsError{member, err}
	}
	return user, password, nil
}

// readPassword reads a password file. Its errors do not have the path.
func readPassword(path string) (string, error) {
	b, err := os.ReadFile(path)
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return "", fmt.Errorf("the password file cannot be read: %w", p.Err)
	}
	if err != nil {
		return "", errors.New("the password file cannot be read")
	}
	text := firstLine(b)
	if text == "" {
		return "", errors.New("the password file is empty")
	}
	return text, nil
}

// firstLine is the password in a file.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r")
}

// lifetime is how long the next connection, or one that was authenticated anew, keeps its
// credentials. 0: for ever. The connections of many clients do not ask in the same moment.
func (n *Node) lifetime() time.Duration {
	every := n.cfg.CredentialsEvery
	if !n.cfg.rotates() || every <= 0 {
		return 0
	}
	return max(every-n.cfg.jitter(every/10), 1)
}

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

type credentials struct {
	user, password string
	err            error
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
	if err := s.refusesLocked(call, true, now, calls, size); err != nil {
		s.line.Unlock()
		return err
	}
	if calls == 0 {
		s.beginLocked(time.Now())
	}
	of := now.state.Brief()
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
