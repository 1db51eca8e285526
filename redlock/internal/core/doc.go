// Package core has what exclusion rests on: votes, give-ups, the count of votes, the confirmation of a token, and the
// term of a lease. Two clients never hold one lock as long as this package, the members, and the order of the calls to one member do
// what they say. The package is pure, and knows nothing of waiting: when to ask, to yield or to stand back is decided
// elsewhere, and whatever is decided there calls the verbs of this package.
//
// Each file keeps one rule:
//
//   - validity.go: the validity of a vote counts from before the submission of the call that got it.
//   - giveup.go: a vote stops counting before its give-up is submitted.
//   - confirm.go: a token is confirmed where the vote still stands.
//   - term.go: a lease that has ended never revives. Its term begins with votes that were counted, and only what has ended is
//     given back.
//   - renewal.go: a majority renews a lease.
//
// votes.go has the votes. A vote is for a subject, and has a token. Votes count together only if their subjects are equal.
// The subject of most locks is the lock as a whole. That of a semaphore is a list of slots, each with a token of its own.
package core
