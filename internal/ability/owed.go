package ability

import (
	"bytes"
	"errors"

	"github.com/redquorum/redquorum/member"
)

// Undelivered reports whether sending the call again may still execute it for the first time. That
// is so if no answer came, or if the server refused the call for a reason that passes.
func Undelivered(r *member.Result) bool {
	switch r.Outcome {
	case member.NotSent, member.Unknown:
		return true
	case member.Refused:
		var reply *member.ReplyError
		return errors.As(r.Err, &reply) && Passes(reply.Kind)
	}
	return false
}

// Passes reports whether the same call may well succeed a little later. That is so if the server
// refused it for a passing state, or because a slot had moved. If the server forbids the call or
// does not know it, that does not pass.
func Passes(k member.Kind) bool {
	switch k {
	case member.KindNoScript, member.KindReadOnly, member.KindLoading, member.KindBusy, member.KindOverloaded, member.KindCluster:
		return true
	}
	return false
}

// Again returns a copy of a release that is owed. The original remains its owner's. The copy
// travels alone and reports to sink.
func Again(c *member.Call, sink member.Sink) member.Call {
	again := member.Call{Command: c.Command, Delivery: member.Delivery{Always: c.Always, Late: true}, Sink: sink}
	again.Cmd, again.Item = bytes.Clone(c.Cmd), nil
	return again
}
