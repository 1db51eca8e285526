package member

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
)

// Ask submits one command to one member, and waits for the answer or for the end of ctx, whichever
// comes first. It is for administration, tools and tests. The lock path submits one command to many
// members and waits once. Ask also reaches a member that may not vote.
//
// Ask copies the bytes of the command, and the Reply belongs to the caller. An error names the
// member and wraps a *ReplyError, an error of a call without an answer, or ctx's error, with the
// command and how long it was waited for. If ctx ended first, it is unknown whether the member executes the command. It does not execute it after
// a command that is submitted to it when Ask has returned.
func Ask(ctx context.Context, m Member, cmd Command) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, fmt.Errorf("%s: %w", m.Name(), err)
	}
	// The record is not used again: after ctx has ended it still belongs to the member.
	done := make(asker)
	cmd.Cmd = bytes.Clone(cmd.Cmd)
	over, began := new(atomic.Bool), time.Now()
	c := &Call{Command: cmd, Delivery: Delivery{Always: true, Late: true, Ended: over}, Sink: done}
	m.Submit(c)
	select {
	case <-done:
	case <-ctx.Done():
		over.Store(true)
		return Reply{}, fmt.Errorf("%s: %w", m.Name(), resp.Silence(ctx, cmd.Cmd, began))
	}
	switch c.Outcome {
	case Answered:
		return c.Reply, nil
	case Refused:
		return Reply{}, fmt.Errorf("%s: %w", m.Name(), c.Err)
	}
	return Reply{}, c.Err
}

// asker is the Sink of one call.
type asker chan struct{}

// Done implements Sink.
func (a asker) Done(*Call) { close(a) }
