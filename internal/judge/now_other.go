//go:build !unix

package judge

import "time"

// Now reads the wall clock, which is the same in all processes of the machine. If it is set during a
// test, the history is wrong.
func Now() int64 { return time.Now().UnixNano() }
