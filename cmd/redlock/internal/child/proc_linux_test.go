package child

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Both ways of looking find children and grandchildren, in sessions of their own too.
func TestDescendantsAreFound(t *testing.T) {
	cmd := exec.Command("sh", "-c", "setsid sleep 60 & sh -c 'sleep 60 & echo ready; wait' & wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		for _, pid := range descendants(os.Getpid(), nil) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		quick, slow := descendants(os.Getpid(), nil), scanned(os.Getpid(), nil)
		slices.Sort(quick)
		slices.Sort(slow)
		if slices.Equal(quick, slow) && len(quick) >= 4 && slices.Contains(quick, cmd.Process.Pid) {
			return
		}
		require.False(t, time.Now().After(end), "descendants %v, by scan %v", quick, slow)
	}
}
