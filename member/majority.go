package member

// Majority returns n/2 + 1, the least number of members such that any two sets of that size share
// one. For even n that is one more than half, so a tie is lost and never won twice.
func Majority(n int) int { return n/2 + 1 }
