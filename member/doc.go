// Package member is the contract between a client and a member: one Redis master with one vote, or
// whatever behaves like one. It decides nothing and does no I/O.
//
// Package member is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
// A Call goes to a Member and comes back with a Result, exactly once:
//
//	Call = Command   what the member is asked
//	     + Delivery  how the call gets there, and what happens if it does not
//	     + Sink      who learns the Result
//	     + Hop       the member's own note while the call is on its way
//
//	Submit -> the member executes it, refuses it, or loses its connection -> Sink.Done
//
// The Outcome of a Result says whether the member executed the command, may have executed it, or
// never received a byte. Package quorum and its Judge decide what an answer counts for. The members
// decide how a call reaches a server: package node for one Redis server, package cluster for a
// Redis Cluster.
//
// Start at Member in member.go, then read Call in call.go. The causes of failures are in error.go.
// internal/ability has what only some members can do.
package member
