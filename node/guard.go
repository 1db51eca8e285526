package node

import "github.com/redquorum/redquorum/node/internal/guard"

// The restart guard's types have their names here, too, for those who make a Config.
type (
	// Guard is the restart guard of one client. Every Node of the client has the same Guard in
	// Config.Guard.
	Guard = guard.Guard
	// GuardConfig is what all members of a client share.
	GuardConfig = guard.Config
	// GuardEvent is one step of the restart guard at one member.
	GuardEvent = guard.Event
	// Shard makes a Node one master of a Redis Cluster.
	Shard = guard.Shard
	// Group is what the masters of one Redis Cluster share.
	Group = guard.Group
)

// The modes of GuardConfig.Mode, besides the default: see guard.Mode.
const (
	GuardStrict = guard.Strict
	GuardOff    = guard.Off
)

// NewGuard makes the guard for cfg.Members nodes.
func NewGuard(cfg GuardConfig) *Guard { return guard.New(cfg) }

// GuardScripts returns the Lua sources of the restart guard, for those who write the permissions of
// a user at the members.
func GuardScripts() []string { return guard.Scripts() }

// MarkerKeys names two keys of a master of a cluster that serves these slots (ascending) and has
// this id (CLUSTER MYID): the restart guard's marker, and the key that is there during a
// quarantine. Without slots it names those of any other member.
func MarkerKeys(slots []uint16, id string) (marker, quarantine string) {
	return guard.MarkerKeys(slots, id)
}
