package node

import (
	"context"
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// connect opens the next command connection and publishes it. When it returns without an error, the
// earlier connection is dead at the server (or the server does not permit that, and was warned
// about), and the owed releases stand first in line. patience bounds it.
func (n *Node) connect() (*session, error) {
	addr, spent, err := n.where(n.ctx)
	if err != nil {
		return nil, err
	}
	s, err := n.greet(addr, spent)
	n.slow = slower(n.slow, err)
	if err != nil {
		return nil, err
	}
	standing, err := n.seat.Admit(s, s.process)
	if err == n.errClosed { // Close does not wait for a standing: a node without one only gives up
		standing, err = guard.Standing{}, nil
	}
	if err = n.unlessCluster(err); err != nil {
		s.end(err)
		return nil, err
	}
	runID, before := s.process.RunID, n.published.Load().standing.Marker()
	if st := n.State(); st.Epoch == 0 || st.RunID != runID || before != standing.Marker() {
		n.seat.NewEra()
	}
	// What is owed must carry the new standing, because a restored queue is not to be served.
	n.stands(standing)
	n.pay(s, true)
	n.change(func(p *published) {
		st := &p.state
		if st.Epoch > 0 && (st.RunID != runID || before != standing.Marker()) {
			st.Gen++ // another server process, or marked anew: it may have forgotten
		}
		st.Epoch = n.seat.Epoch(st.Epoch)
		st.Up, st.RunID, st.Err = true, runID, nil
		p.session, p.err = s, nil
		n.serving = true
		n.worked.Store(true)
	})
	if n.isClosing() {
		s.refuse()
	}
	n.signalRecheck()
	_ = n.attune(s) // before the Logger, which may block; after an error serve sees that s is broken
	n.cfg.Logger.Info("member is up", "member", n.name)
	return s, nil
}

// greet dials the server and shakes hands with it. spent is how much of the patience has passed.
func (n *Node) greet(addr string, spent time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(n.ctx, patience(n.slow, n.cfg.DialTimeout)-spent)
	defer cancel()
	l, err := n.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s := n.newSession(l)
	s.process, err = n.introduce(ctx, s)
	s.process.Seen = time.Now()
	if err != nil {
		err = n.unlessTLS(n.accepting, l.addr, err)
		s.end(err)
		return nil, err
	}
	return s, nil
}

// newSession starts the reader of a session over l. It ends after fail; end waits for it, and for the
// flusher.
func (n *Node) newSession(l *link) *session {
	s := &session{node: n, link: l}
	s.line.Sharded = n.cfg.Shard != nil
	s.base, s.broken = time.Now(), make(chan struct{})
	s.woken, s.kick = make(chan struct{}, 1), make(chan struct{}, 1)
	s.gone.Go(func() { l.read(s.reader) })
	return s
}

var (
	clientID    = resp.Command("CLIENT", "ID")
	clusterMyID = resp.Command("CLUSTER", "MYID")
)

// introduce is the handshake: it learns who both sides are, and then loads what the server lacks of what
// Preload says and, if that is the same process and still has our former connection, has it kill that. (To
// find a connection to kill, the server looks at all it has: with thousands of clients that come back at once
// it is half of what their handshakes cost it.)
func (n *Node) introduce(ctx context.Context, s *session) (p guard.Process, err error) {
	cmds := [][]byte{clientID, infoServer, ping, helloOf(n.apart)}
	if len(n.scripts.preload) > 0 {
		cmds = append(cmds, resp.Command(slices.Concat([]string{"SCRIPT", "EXISTS"}, n.scripts.preload, []string{servedSHA})...))
	}
	if n.cfg.ClientName != "" {
		cmds = append(cmds, resp.Command("CLIENT", "SETNAME", n.cfg.ClientName))
	}
	old, lives := n.before, len(cmds)
	if old.id != 0 {
		cmds = append(cmds, resp.Command("CLIENT", "LIST", "ID", strconv.FormatInt(old.id, 10)))
	}
	if n.cfg.Shard != nil {
		cmds = append(cmds, clusterMyID)
	}
	calls, err := s.Ask(ctx, cmds)
	if err != nil {
		return p, fmt.Errorf("handshake: %w", err)
	}
	if n.cfg.Shard != nil {
		c := &calls[len(calls)-1]
		if c.Outcome != member.Answered {
			return p, fmt.Errorf("CLUSTER MYID: %w", c.Err)
		}
		if p.MasterID = string(c.Reply.Str); p.MasterID == "" {
			return p, protocolError("answer to CLUSTER MYID")
		}
	}
	var id int64
	switch c := &calls[0]; {
	case c.Outcome == member.Answered && c.Reply.Kind != ':':
		return p, protocolError("answer to CLIENT ID")
	case !n.permitted(c, "CLIENT ID"+zombieRisk):
		return p, fmt.Errorf("CLIENT ID: %w", c.Err)
	case c.Outcome == member.Answered:
		id = c.Reply.Int
	}
	switch c := &calls[1]; {
	case c.Outcome == member.Answered && c.Reply.Kind != '$':
		return p, protocolError("answer to INFO")
	case !n.permitted(c, "INFO: restarts of the server are not seen"+zombieRisk):
		return p, fmt.Errorf("INFO: %w", c.Err)
	case c.Outcome == member.Answered:
		if err := n.ofKind(c.Reply.Str); err != nil {
			return p, err
		}
		p.RunID = resp.Field(c.Reply.Str, "run_id:")
		seconds, _ := strconv.ParseInt(resp.Field(c.Reply.Str, "uptime_in_seconds:"), 10, 64)
		p.Uptime = time.Duration(seconds) * time.Second
	}
	// A server that is loading, or busy with a script, answers the two above and nothing else.
	if c := &calls[2]; !n.permitted(c, "PING") {
		return p, fmt.Errorf("PING: %w", c.Err)
	}
	s.pushes = speaks3(&calls[3])
	// In another process the id belongs to a stranger. So it may in one that does not name itself.
	kill := old.id != 0 && p.RunID != "" && p.RunID == old.runID && id != old.id && !listsNobody(&calls[lives])
	cmds = nil
	if len(n.scripts.preload) > 0 {
		told := &calls[4]
		p.Served = served(told)
		for i, sha := range n.scripts.preload {
			if !exists(told, i) {
				cmds = append(cmds, resp.Command("SCRIPT", "LOAD", n.scripts.sources[sha]))
			}
		}
		if !exists(told, len(n.scripts.preload)) {
			cmds = append(cmds, resp.Command("SCRIPT", "LOAD", servedScript))
		}
	}
	loads := len(cmds)
	if kill {
		cmds = append(cmds, resp.Command("CLIENT", "KILL", "ID", strconv.FormatInt(old.id, 10)))
	}
	if len(cmds) > 0 {
		if calls, err = s.Ask(ctx, cmds); err != nil {
			return p, fmt.Errorf("handshake: %w", err)
		}
	}
	for i := range calls[:loads] {
		if c := &calls[i]; !n.loaded(c) {
			return p, fmt.Errorf("SCRIPT LOAD: %w", c.Err)
		}
	}
	if kill && !n.killed(&calls[loads]) {
		return p, fmt.Errorf("CLIENT KILL: %w", calls[loads].Err)
	}
	n.before = predecessor{p.RunID, id}
	return p, nil
}

// servedScript is known to every server that a client with a guard has shaken hands with, in whatever version, for as long as
// its process lives: FLUSHALL empties the data and not the scripts. Its text never changes.
const servedScript = "return 'redquorum'"

var servedSHA = fmt.Sprintf("%x", sha1.Sum([]byte(servedScript)))

// served is what a server said to SCRIPT EXISTS of its preloaded scripts and of servedScript: whether a client was here before.
func served(c *member.Call) guard.Sign {
	if c.Outcome != member.Answered {
		return guard.Unsaid
	}
	for i := range c.Reply.Elems {
		if exists(c, i) {
			return guard.Served
		}
	}
	return guard.NotServed
}

// exists reports whether a server said to SCRIPT EXISTS that it has the i-th script. One that does not
// permit that command is told all.
func exists(c *member.Call, i int) bool {
	return c.Outcome == member.Answered && i < len(c.Reply.Elems) && c.Reply.Elems[i].Int == 1
}

// listsNobody reports whether a server said to CLIENT LIST ID that it has no such connection: it has closed it, and executes
// nothing of it any more. One that does not permit that command, or does not know it, has told nothing.
func listsNobody(c *member.Call) bool {
	return c.Outcome == member.Answered && c.Reply.Kind == '$' && len(c.Reply.Str) == 0
}

// zombieRisk is what follows when a former connection cannot be killed.
const zombieRisk = ": a command on a broken connection may still be executed when it arrives, its key then lives for its TTL"

// killed reports whether the connection that CLIENT KILL named is closed, or the server does not permit
// that. Otherwise it may live.
func (n *Node) killed(c *member.Call) bool {
	if refused, ok := c.Err.(*member.ReplyError); ok && strings.Contains(refused.Text, "No such client") {
		return true
	}
	return n.permitted(c, "CLIENT KILL"+zombieRisk)
}

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

// loaded is permitted for SCRIPT LOAD, where an error other than that of the ACL is a mistake in
// the script.
func (n *Node) loaded(c *member.Call) bool {
	if refused, ok := c.Err.(*member.ReplyError); ok && strings.Contains(refused.Text, "compiling script") {
		return false
	}
	return n.permitted(c, "SCRIPT LOAD: every script is sent in full")
}
