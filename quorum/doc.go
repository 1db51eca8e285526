// Package quorum puts one question to N members and decides as soon as it can be decided:
//
//	won   = yes votes ≥ need
//	lost  = yes votes + votes still open < need
//
// Package quorum is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
// It decides nothing else, and does no I/O. The Judge decides what an answer means. The Member
// decides how it is reached (package member). Package redlock decides what a won round is worth,
// and until when.
//
// Start at Decide in tally.go, which is the whole rule. round.go asks and counts, alarm.go
// ends the waits whose time is over. error.go is the error in which a lost round names every member's cause.
package quorum
