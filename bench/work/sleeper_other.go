//go:build !linux

package work

import "time"

// sleeper sleeps as exactly as the runtime's timers allow. The reference run is made on Linux.
type sleeper struct{}

func newSleeper() (*sleeper, error)    { return &sleeper{}, nil }
func (*sleeper) Sleep(d time.Duration) { time.Sleep(d) }
func (*sleeper) Close()                {}
func nap(d time.Duration)              { time.Sleep(d) }
