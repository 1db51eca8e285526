package node

import (
	"bytes"
	"context"
	"fmt"

	"github.com/redquorum/redquorum/quorum"
)

// Do submits one command to any member and waits for the answer or for the end of ctx, whichever
// comes first. It is for tools and tests; the lock path submits one command to many members and waits
// once.
//
// cmd is copied. tagged is Call.Tagged. The Reply belongs to the caller. An error names the member and
// wraps a *quorum.ReplyError, one of the errors of quorum.Call, or that of ctx; in the last case it is
// not known whether the command was executed, or will be.
func Do(ctx context.Context, m quorum.Member, cmd []byte, tagged bool) (quorum.Reply, error) {
	if err := ctx.Err(); err != nil {
		return quorum.Reply{}, fmt.Errorf("%s: %w", m.Name(), err)
	}
	// The record is not used again: after ctx has ended it still belongs to the member.
	w := &waiter{done: make(chan struct{})}
	w.left.Store(1)
	c := &quorum.Call{Cmd: bytes.Clone(cmd), Tagged: tagged, Late: true, Sink: w}
	m.Submit(c)
	select {
	case <-w.done:
	case <-ctx.Done():
		return quorum.Reply{}, fmt.Errorf("%s: %w", m.Name(), ctx.Err())
	}
	switch c.Outcome {
	case quorum.Answered:
		return c.Reply, nil
	case quorum.Refused:
		return quorum.Reply{}, fmt.Errorf("%s: %w", m.Name(), c.Err)
	}
	return quorum.Reply{}, c.Err
}
