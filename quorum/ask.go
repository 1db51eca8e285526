package quorum

import (
	"bytes"
	"context"
	"fmt"
)

// Ask submits one command to one member and waits for the answer or for the end of ctx, whichever comes
// first. It is for administration, tools and tests; the lock path submits one command to many members
// and waits once. The call also goes to a member that may not vote.
//
// cmd is copied. tagged is Call.Tagged. The Reply belongs to the caller. An error names the member and
// wraps a *ReplyError, one of the errors of Call, or that of ctx; in the last case it is not known
// whether the command was executed, or will be.
func Ask(ctx context.Context, m Member, cmd []byte, tagged bool) (Reply, error) {
	return AskSlot(ctx, m, cmd, tagged, 0, 0)
}

// AskSlot is Ask for a command whose keys are in a slot; shared is Call.Shared.
func AskSlot(ctx context.Context, m Member, cmd []byte, tagged bool, slot uint16, shared int32) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, fmt.Errorf("%s: %w", m.Name(), err)
	}
	// The record is not used again: after ctx has ended it still belongs to the member.
	done := make(asker)
	c := &Call{Cmd: bytes.Clone(cmd), Tagged: tagged, Always: true, Late: true, Slot: slot, Shared: shared, Sink: done}
	m.Submit(c)
	select {
	case <-done:
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("%s: %w", m.Name(), ctx.Err())
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
