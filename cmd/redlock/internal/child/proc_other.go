//go:build !unix

package child

import "errors"

// Start is not possible here: there is no way to end a command and all that it started in time.
func Start(Command) (Process, error) {
	return nil, errors.Join(ErrNotRunnable, errors.New("redlock run needs a Unix system"))
}
