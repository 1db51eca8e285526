// Package quorum puts one question to N members and decides as soon as it can be decided:
//
//	won   = yes votes ≥ need
//	lost  = yes votes + votes still open < need
//
// It decides nothing else, and does no I/O. What an answer means is the Judge's; how a member is reached is the
// Member's (package member); what a won round is worth, and until when, is package redlock's.
//
// Start at Decide in tally.go: it is the whole rule. round.go asks and counts, set.go names the members asked, and
// error.go is the error in which a lost round names every member's cause.
package quorum
