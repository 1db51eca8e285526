package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// connect opens the next command connection and publishes it. When it returns without an error, the
// earlier connection is dead at the server (or the server does not permit that, and was warned
// about), and the owed releases stand first in line.
func (n *Node) connect() (*session, error) {
	s, err := n.greet(n.introduce)
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
	})
	return s, nil
}

// introduce is the handshake: it learns which process is behind s, and has it kill our former connection if it is the same
// process and still has that. (To find a connection to kill, the server looks at all it has: with thousands of clients that
// come back at once it is half of what their handshakes cost it.)
func (n *Node) introduce(ctx context.Context, s *session) error {
	old, cmds := n.before, n.questions()
	lives := len(cmds)
	if old.id != 0 {
		cmds = append(cmds, resp.Command("CLIENT", "LIST", "ID", strconv.FormatInt(old.id, 10)))
	}
	calls, err := s.Ask(ctx, cmds)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := n.understand(s, calls[:lives]); err != nil {
		return err
	}
	p, id, info := &s.process, calls[askedID].Reply.Int, calls[askedInfo].Reply.Str
	p.RunID = resp.Field(info, "run_id:")
	// In another process the id belongs to a stranger. So it may in one that does not name itself.
	if old.id != 0 && p.RunID != "" && p.RunID == old.runID && id != old.id && !listsNobody(&calls[lives]) {
		if err := n.kill(ctx, s, old.id); err != nil {
			return err
		}
	}
	if err := n.load(ctx, s, calls); err != nil {
		return err
	}
	n.before = predecessor{p.RunID, id}
	return nil
}

// listsNobody reports whether a server said to CLIENT LIST ID that it has no such connection: it has closed it, and executes
// nothing of it any more. One that does not permit that command, or does not know it, has told nothing.
func listsNobody(c *member.Call) bool {
	return c.Outcome == member.Answered && c.Reply.Kind == '$' && len(c.Reply.Str) == 0
}

// kill closes a connection of ours, unless the server does not permit that. After an error it may live.
func (n *Node) kill(ctx context.Context, s *session, id int64) error {
	calls, err := s.Ask(ctx, [][]byte{resp.Command("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))})
	if err != nil {
		return fmt.Errorf("CLIENT KILL: %w", err)
	}
	c := &calls[0]
	refused, _ := c.Err.(*member.ReplyError)
	if refused != nil && strings.Contains(refused.Text, "No such client") || n.permitted(c, "CLIENT KILL"+zombieRisk) {
		return nil
	}
	return fmt.Errorf("CLIENT KILL: %w", c.Err)
}
