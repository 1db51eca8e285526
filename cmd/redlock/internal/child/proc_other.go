//go:build !unix

package child

import "runtime"

// Start always fails on this system, as Find does, because there is no way to end a command and all
// that it started in time.
func Start(Command) (Process, error) { return nil, supports(runtime.GOOS) }
