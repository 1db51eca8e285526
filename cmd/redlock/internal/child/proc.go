package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// Command is what to run. The files are the command's own: nothing is copied.
type Command struct {
	Path                  string // from Find
	Args                  []string
	Env                   []string
	Stdin, Stdout, Stderr *os.File
	// OwnGroup puts it into a process group of its own. Not with a terminal on stdin: the terminal stops
	// a background group that reads from it, and itself sends Ctrl-C to all of the foreground group.
	OwnGroup bool
}

// Find looks a command up as a shell does. An error matches ErrNotFound or ErrNotRunnable.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", classify(err)
	}
	return path, nil
}

// Errors of Find and Start; the system's own is in the chain.
var (
	ErrNotFound    = errors.New("command not found")
	ErrNotRunnable = errors.New("command cannot be executed")
)

func classify(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errors.Join(ErrNotFound, err)
	}
	return errors.Join(ErrNotRunnable, err)
}
