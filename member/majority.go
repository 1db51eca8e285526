package member

// Majority returns how many of n members any two sets of that size share one of: n/2 + 1. For even n that is one
// more than half, so a tie is lost, never won twice.
func Majority(n int) int { return n/2 + 1 }
