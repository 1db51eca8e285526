//go:build unix

package nodes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server that ends deletes its pid file, then writes to its log. Down waits for its process, so nothing
// is written to a folder that is being deleted.
func TestDownWaitsForTheProcessAndNotForThePidFile(t *testing.T) {
	const port = 64999 // nobody listens: it is in the title alone
	s, err := Create(t.TempDir(), 1, port)
	require.NoError(t, err)
	home := s.home(1)
	require.NoError(t, os.MkdirAll(home, 0o700))
	cmd := exec.Command("sh", "-c", `
		trap 'rm "$1/pid"; sleep 0.3; echo bye >>"$1/log" || exit 1; exit 0' TERM
		: >"$1/ready"
		while :; do sleep 0.01; done`, "server:"+strconv.Itoa(port), home)
	require.NoError(t, cmd.Start())
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, os.WriteFile(filepath.Join(home, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(home, "ready"))
		return err == nil && s.node(0).State == Running
	}, time.Minute, time.Millisecond)

	require.NoError(t, s.Down(false))
	require.NoError(t, <-gone, "the folder was deleted before the process had ended")
	require.NoDirExists(t, home)
}
