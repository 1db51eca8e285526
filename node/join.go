package node

import (
	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// Calls that wait in line one behind the other can be one command: a script that executes them in
// their order and returns an array of their answers (batch.lua of redlock/internal/script). That
// costs the server less than one command for each, and more where they are few.

// joins reports whether c may be part of a command. A vote that replicas must acknowledge has its
// own WAIT.
func (n *Node) joins(c *member.Call) bool {
	return c.Item != nil && c.Tagged && n.waits == nil && !ability.Asking(c)
}

// groupsLocked reports whether the calls of a group may be one command.
func (s *session) groupsLocked(calls []*member.Call) bool {
	for _, c := range calls {
		if !s.node.joins(c) || c.Item.Batch != calls[0].Item.Batch {
			return false
		}
	}
	return !s.apart && len(calls) <= line.Most
}
