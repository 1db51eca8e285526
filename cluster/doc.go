// Package cluster makes one Redis Cluster one member of a quorum: each call goes to the master that owns
// its slot, and follows the slot when it moves.
//
//	Submit -> track of the slot -> node of its master -> done -> the caller's Sink
//	                 ^                                    |
//	                 +------- detour <--- redirected -----+
//
// What a redirect means is decided in redirect.go, and what a topology says in topology.go, both pure.
// cluster.go passes calls on, route.go is what it notes of each, detour.go carries redirects out, refresh.go learns the topology and opens
// and closes nodes, owed.go keeps the releases that were not delivered. How one master is reached, and
// what it remembers, is package node's (node/shard.go).
//
// Nothing is executed twice, nothing behind the release of its attempt, and calls of one slot in the order of
// their submission, but for those that a server refused while later ones were on their way to it already.
// Two rules see to it. A new call waits in the detour of its slot while calls are on their way to another
// master than the slot's present one, or have come back. And a call that came back is not repeated once the
// release of its attempt has begun (member.Delivery.Ended): it would execute behind it.
package cluster
