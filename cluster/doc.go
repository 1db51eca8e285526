// Package cluster makes one Redis Cluster one member of a quorum. Each call goes to the master that
// owns its slot, and follows the slot when it moves.
//
// Package cluster is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
//	Submit -> track of the slot -> node of its master -> done -> the caller's Sink
//	                 ^                                    |
//	                 +------- detour <--- redirected -----+
//
// redirect.go decides what a redirect means, and topology.go what a topology says. Both are pure.
// cluster.go passes calls on, route.go is what it notes of each call, and detour.go carries
// redirects out. refresh.go learns the topology, and opens and closes nodes. owed.go keeps the
// releases that were not delivered. Package node reaches one master, and node/internal/guard knows what that
// master remembers.
//
// No call is executed twice, and none behind the release of its attempt. Calls of one slot are
// executed in the order of their submission. The exception is a call that a server refused while
// later calls were on their way to that server. Two rules keep this order:
//
//   - If calls are on their way to a former master of the slot, or have come back, a new call waits
//     in the detour of its slot.
//   - If the release of an attempt has begun (member.Delivery.Ended), the cluster repeats no call
//     of it that came back. Such a call would execute behind the release.
package cluster
