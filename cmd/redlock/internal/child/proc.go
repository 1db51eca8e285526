package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Command is what to run. The files are the command's own: nothing is copied.
type Command struct {
	Path                  string // from Find
	Args                  []string
	Env                   []string
	Stdin, Stdout, Stderr *os.File
}

// Find looks a command up as a shell does. An error matches ErrNotFound or ErrNotRunnable. On a system
// where Start always fails, so does Find: then nobody takes a lock for nothing.
func Find(name string) (string, error) {
	if err := supports(runtime.GOOS); err != nil {
		return "", err
	}
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", classify(err)
	}
	return path, nil
}

// supports reports why no command can be run on a system, if so.
func supports(system string) error {
	switch system {
	case "windows", "plan9", "js", "wasip1":
		return fmt.Errorf("%w on %s: a command, and all that it started, can be ended in time on Linux, macOS and other"+
			" Unix systems only; here use redlock hold, or redlock acquire, extend and release", ErrNotRunnable, system)
	}
	return nil
}

// These are the errors of Find and Start. The system's own error is in the chain.
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
