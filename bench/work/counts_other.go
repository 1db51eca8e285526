//go:build !linux

package work

// These are unknown on other systems.
func calls() (reads, writes int64) { return 0, 0 }
func futexes() (stop func() int64) { return func() int64 { return -1 } }
