// Package memberset is a set of members by their positions.
package memberset

import "math/bits"

// Set is a set of members by position.
type Set uint32

// All returns the set of the first n members.
func All(n int) Set { return Set(1)<<n - 1 }

// Has reports whether member i is in the set.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// With returns the set with member i in it.
func (s Set) With(i int) Set { return s | 1<<i }

// Without returns the set without member i.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len counts the members of the set.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }
