//go:build !unix

package child

import "errors"

// Start always fails on this system, because there is no way to end a command and all that it
// started in time.
func Start(Command) (Process, error) {
	return nil, errors.Join(ErrNotRunnable, errors.New("redlock run needs a Unix system"))
}
