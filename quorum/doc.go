// Package quorum puts one question to N members and decides as soon as it can be decided:
//
//	need  = N/2 + 1
//	won   = yes votes ≥ need
//	lost  = yes votes + votes still open < need
//
// It decides nothing else. What an answer means is the Judge's; how a member is reached is the
// Member's (package node); what a won round is worth, and until when, is package redlock's.
//
// call.go is the contract with a member, tally.go the decision (pure), round.go the round, and
// error.go the error in which a lost round names every member's cause.
package quorum
