package node

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/quorum"
)

// zombies are former connections of ours to one server process. What was written to them may still be
// on its way, and would be executed when it arrives. Before a new connection carries commands the
// server is therefore told to close them.
type zombies struct {
	runID string
	ids   []int64
}

// connect opens the next command connection and publishes it. When it returns without an error, every
// earlier connection is dead at the server (or the server does not permit that, and was warned about),
// and the owed releases stand first in line. DialTimeout bounds it.
func (n *Node) connect() (*session, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.DialTimeout)
	defer cancel()
	l, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := n.newSession(l)
	runID, err := n.introduce(ctx, s)
	if err != nil {
		s.end(err)
		return nil, err
	}
	n.pay(s, true)
	n.change(func(p *published) {
		st := &p.state
		if st.Epoch > 0 && st.RunID != runID {
			st.Gen++ // another server process: it may have forgotten
		}
		st.Epoch++
		st.Up, st.RunID, st.Err = true, runID, nil
		p.session, p.err = s, nil
	})
	if n.isClosing() {
		s.refuse()
	}
	n.cfg.Logger.Info("member is up", "member", n.name)
	select {
	case n.recheck <- struct{}{}: // the inbox may stand at another process
	default:
	}
	return s, nil
}

var (
	clientID   = resp.Command("CLIENT", "ID")
	infoServer = resp.Command("INFO", "server")
)

// introduce is the handshake: it learns who both sides are, loads the scripts, and then, once that is
// known to be the same process, has the server kill our former connections.
func (n *Node) introduce(ctx context.Context, s *session) (runID string, err error) {
	cmds := append([][]byte{clientID, infoServer}, n.loads...)
	if n.cfg.ClientName != "" {
		cmds = append(cmds, resp.Command("CLIENT", "SETNAME", n.cfg.ClientName))
	}
	calls, err := n.ask(ctx, s, cmds)
	if err != nil {
		return "", fmt.Errorf("handshake: %w", err)
	}
	var id int64
	switch c := &calls[0]; {
	case c.Outcome == quorum.Answered && c.Reply.Kind != ':':
		return "", protocolError("answer to CLIENT ID")
	case !n.permitted(c, "CLIENT ID"+zombieRisk):
		return "", fmt.Errorf("CLIENT ID: %w", c.Err)
	case c.Outcome == quorum.Answered:
		id = c.Reply.Int
	}
	switch c := &calls[1]; {
	case c.Outcome == quorum.Answered && c.Reply.Kind != '$':
		return "", protocolError("answer to INFO")
	case !n.permitted(c, "INFO: restarts of the server are not seen"+zombieRisk):
		return "", fmt.Errorf("INFO: %w", c.Err)
	case c.Outcome == quorum.Answered:
		runID = field(c.Reply.Str, "run_id:")
	}
	old := n.zombies.succeed(id, runID)
	for i := range n.loads {
		if c := &calls[2+i]; !n.loaded(c) {
			return "", fmt.Errorf("SCRIPT LOAD: %w", c.Err)
		}
	}
	if len(old) > 0 {
		if err := n.kill(ctx, s, old); err != nil {
			return "", fmt.Errorf("CLIENT KILL: %w", err)
		}
		n.zombies.killed(len(old))
	}
	return runID, nil
}

// zombieRisk is what follows when former connections cannot be killed.
const zombieRisk = ": a command on a broken connection may still be executed when it arrives, its key then lives for its TTL"

// succeed makes connection id the youngest of the server process runID and returns its predecessors.
// Another process means that there are none: its ids begin again, and would hit strangers. The same
// holds for a process that does not name itself.
func (z *zombies) succeed(id int64, runID string) (old []int64) {
	if runID == "" || runID != z.runID {
		*z = zombies{runID: runID}
	}
	old = z.ids
	if id != 0 && runID != "" {
		z.ids = append(z.ids[:len(z.ids):len(z.ids)], id)
	}
	return old
}

// killed forgets the k oldest.
func (z *zombies) killed(k int) { z.ids = z.ids[k:] }

// kill has the server close old connections, and returns when it has answered for each. An error means
// that one of them may live.
func (n *Node) kill(ctx context.Context, s *session, ids []int64) error {
	var cmds [][]byte
	for _, id := range ids {
		cmds = append(cmds, resp.Command("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)))
	}
	calls, err := n.ask(ctx, s, cmds)
	if err != nil {
		return err
	}
	for i := range calls {
		c := &calls[i]
		if refused, ok := c.Err.(*quorum.ReplyError); ok && strings.Contains(refused.Text, "No such client") {
			continue
		}
		if !n.permitted(c, "CLIENT KILL"+zombieRisk) {
			return c.Err
		}
	}
	return nil
}

// permitted reports whether c was answered, or refused because the server lacks or forbids the
// command: then it warns, once for each consequence.
func (n *Node) permitted(c *quorum.Call, consequence string) bool {
	if c.Outcome == quorum.Answered {
		return true
	}
	refused, ok := c.Err.(*quorum.ReplyError)
	if !ok || !notPermitted(refused) {
		return false
	}
	if !n.warnings[consequence] {
		n.warnings[consequence] = true
		n.cfg.Logger.Warn("member does not permit "+consequence, "member", n.name, "reply", refused.Text)
	}
	return true
}

// loaded is permitted for SCRIPT LOAD, where an error other than that of the ACL is a mistake in the
// script.
func (n *Node) loaded(c *quorum.Call) bool {
	if refused, ok := c.Err.(*quorum.ReplyError); ok && strings.Contains(refused.Text, "compiling script") {
		return false
	}
	return n.permitted(c, "SCRIPT LOAD: every script is sent in full")
}

// ask submits cmds and waits until all are done; an error says that not all were answered or refused.
func (n *Node) ask(ctx context.Context, s *session, cmds [][]byte) ([]quorum.Call, error) {
	w := &waiter{done: make(chan struct{})}
	w.left.Store(int32(len(cmds)))
	calls := make([]quorum.Call, len(cmds))
	for i, cmd := range cmds {
		calls[i] = quorum.Call{Cmd: cmd, Late: true, Sink: w}
		if err := s.submit(&calls[i], true); err != nil {
			return nil, s.cause()
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for i := range calls {
		if calls[i].Outcome == quorum.Unknown || calls[i].Outcome == quorum.NotSent {
			return nil, s.cause()
		}
	}
	return calls, nil
}

// waiter is the Sink of several calls; done is closed with the last of them.
type waiter struct {
	left atomic.Int32
	done chan struct{}
}

func (w *waiter) Done(*quorum.Call) {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// field finds the line that begins with name in the answer to INFO and returns the rest of it.
func field(info []byte, name string) string {
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func scriptSHA(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

const (
	evalsha = "\r\n$7\r\nEVALSHA\r\n$40\r\n"
	shaSize = 40
)

// script finds the source that an EVALSHA command names, and what follows the SHA in it. ok is false
// if cmd is not an EVALSHA of one of our scripts.
func (n *Node) script(cmd []byte) (source string, rest []byte, ok bool) {
	end := bytes.IndexByte(cmd, '\r')
	if end < 0 || len(cmd) < end+len(evalsha)+shaSize+2 || string(cmd[end:end+len(evalsha)]) != evalsha {
		return "", nil, false
	}
	sha := cmd[end+len(evalsha):]
	source, ok = n.scripts[string(sha[:shaSize])]
	return source, sha[shaSize+2:], ok
}
