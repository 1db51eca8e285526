package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// greet dials the server and has it and s introduced to each other.
func (n *Node) greet(introduce func(context.Context, *session) error) (*session, error) {
	addr, spent, err := n.where(n.ctx)
	if err != nil {
		return nil, err
	}
	s, err := n.shake(addr, spent, introduce)
	n.slow = slower(n.slow, err)
	return s, err
}

// shake is greet at an address. spent is how much of the patience has passed.
func (n *Node) shake(addr string, spent time.Duration, introduce func(context.Context, *session) error) (*session, error) {
	ctx, cancel := resp.Within(n.ctx, patience(n.slow, n.cfg.DialTimeout)-spent, "")
	defer cancel()
	l, err := n.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s := n.newSession(l)
	if err := introduce(ctx, s); err != nil {
		if err = n.unlessTLS(n.accepting, l.addr, err); errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the server accepts connections, and did not answer in time (DialTimeout): %w", err)
		}
		s.end(err)
		return nil, err
	}
	return s, nil
}

// opened is told of a connection that is published.
func (n *Node) opened(s *session) {
	n.worked.Store(true)
	if n.isClosing() {
		s.refuse()
	}
	n.signalRecheck()
	_ = n.attune(s) // before the Logger, which may block; after an error serve sees that s is broken
	n.cfg.Logger.Info("member is up", "member", n.name)
}

// newSession starts the reader of a session over l. It ends after fail; end waits for it, and for the
// flusher.
func (n *Node) newSession(l *link) *session {
	s := &session{node: n, link: l}
	s.line.Sharded = n.cfg.Shard != nil
	s.base, s.broken = time.Now(), make(chan struct{})
	s.woken, s.kick, s.refusal = make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1)
	s.gone.Go(func() { l.read(s.reader) })
	return s
}

var (
	clientID    = resp.Command("CLIENT", "ID")
	hello       = resp.Command("HELLO", "3")
	clusterMyID = resp.Command("CLUSTER", "MYID")
)

// The first questions on a connection.
const (
	askedID = iota
	askedInfo
	askedPing
	askedHello
	askedScripts // if there are any
)

// questions are those of the handshake, with CLUSTER MYID last where that matters.
func (n *Node) questions() [][]byte {
	cmds := [][]byte{askedID: clientID, askedInfo: infoServer, askedPing: ping, askedHello: hello}
	if len(n.scripts.preload) > 0 {
		cmds = append(cmds, resp.Command(append([]string{"SCRIPT", "EXISTS"}, n.scripts.preload...)...))
	}
	if n.cfg.ClientName != "" {
		cmds = append(cmds, resp.Command("CLIENT", "SETNAME", n.cfg.ClientName))
	}
	if n.cfg.Shard != nil {
		cmds = append(cmds, clusterMyID)
	}
	return cmds
}

// understand says what is wrong with the answers to questions.
func (n *Node) understand(s *session, calls []member.Call) error {
	if n.cfg.Shard != nil {
		c := &calls[len(calls)-1]
		if c.Outcome != member.Answered {
			return fmt.Errorf("CLUSTER MYID: %w", c.Err)
		}
		if s.process.MasterID = string(c.Reply.Str); s.process.MasterID == "" {
			return protocolError("answer to CLUSTER MYID")
		}
	}
	switch c := &calls[askedID]; {
	case c.Outcome == member.Answered && c.Reply.Kind != ':':
		return protocolError("answer to CLIENT ID")
	case !n.permitted(c, "CLIENT ID"+zombieRisk):
		return fmt.Errorf("CLIENT ID: %w", c.Err)
	}
	switch c := &calls[askedInfo]; {
	case c.Outcome == member.Answered && c.Reply.Kind != '$':
		return protocolError("answer to INFO")
	case !n.permitted(c, "INFO: restarts of the server are not seen"+zombieRisk):
		return fmt.Errorf("INFO: %w", c.Err)
	case c.Outcome == member.Answered:
		if err := n.ofKind(c.Reply.Str); err != nil {
			return err
		}
	}
	// A server that is loading, or busy with a script, answers the two above and nothing else.
	if c := &calls[askedPing]; !n.permitted(c, "PING") {
		return fmt.Errorf("PING: %w", c.Err)
	}
	if c := &calls[askedHello]; c.Outcome != member.Answered { // no messages among answers
		return fmt.Errorf("HELLO 3 (the server must speak RESP3): %w", c.Err)
	}
	return nil
}

// load loads the scripts that the server does not say it has.
func (n *Node) load(ctx context.Context, s *session, calls []member.Call) error {
	var cmds [][]byte
	for i, sha := range n.scripts.preload {
		if !exists(&calls[askedScripts], i) {
			cmds = append(cmds, resp.Command("SCRIPT", "LOAD", n.scripts.sources[sha]))
		}
	}
	if len(cmds) == 0 {
		return nil
	}
	calls, err := s.Ask(ctx, cmds)
	if err != nil {
		return fmt.Errorf("SCRIPT LOAD: %w", err)
	}
	return n.loaded(calls)
}

// exists reports whether a server said to SCRIPT EXISTS that it has the i-th script. One that does not
// permit that command is told all.
func exists(c *member.Call, i int) bool {
	return c.Outcome == member.Answered && i < len(c.Reply.Elems) && c.Reply.Elems[i].Int == 1
}

// zombieRisk is what follows when a former connection cannot be killed.
const zombieRisk = ": a command on a broken connection may still be executed when it arrives, its key then lives for its TTL"

// permitted reports whether c was answered, or refused because the server lacks or forbids the
// command: then it warns, once for each consequence.
func (n *Node) permitted(c *member.Call, consequence string) bool {
	if c.Outcome == member.Answered {
		return true
	}
	refused, ok := c.Err.(*member.ReplyError)
	if !ok || !notPermitted(refused) {
		return false
	}
	if !n.warnings[consequence] {
		n.warnings[consequence] = true
		n.cfg.Logger.Warn("member does not permit "+consequence, "member", n.name, "reply", refused.Text)
	}
	return true
}

// loaded is permitted for all SCRIPT LOADs, where an error other than that of the ACL is a mistake in the script.
func (n *Node) loaded(calls []member.Call) error {
	for i := range calls {
		c := &calls[i]
		refused, ok := c.Err.(*member.ReplyError)
		if ok && strings.Contains(refused.Text, "compiling script") || !n.permitted(c, "SCRIPT LOAD: every script is sent in full") {
			return fmt.Errorf("SCRIPT LOAD: %w", c.Err)
		}
	}
	return nil
}
