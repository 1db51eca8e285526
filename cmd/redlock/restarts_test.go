package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Three cells of the table "When only short-lived programs come" in docs/restarts.md, by real processes: redlock run -n from
// cron, and nobody else. redlock/redlocktest plays all cells in fake time.
func TestLongJobsFromCronAloneHealADeployment(t *testing.T) {
	long(t)
	const maxTTL = 3 * time.Second
	for name, cell := range map[string]struct {
		data    bool
		members []int
	}{
		"a majority, with data": {true, []int{0, 2}},
		"all, with data":        {true, []int{0, 1, 2}},
		"all, without data":     {false, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, urls := real(t, 3, maxTTL)
			cluster.Kill(cell.members...)
			require.NoError(t, cluster.Restart(cell.data, cell.members...))
			restarted := time.Now()
			for n := 0; ; n++ {
				cmd := exec.Command("redlock", "run", "-n", "nightly", "--ttl", "2s", "--", "true")
				cmd.Env = append(os.Environ(), "REDLOCK_MAX_TTL="+maxTTL.String(), "REDLOCK_MEMBERS="+strings.Join(urls, ","))
				output, err := cmd.CombinedOutput()
				if err == nil {
					require.GreaterOrEqual(t, time.Since(restarted), maxTTL, "until then somebody may still hold it\n%s", output)
					require.Positive(t, n)
					return
				}
				require.Equal(t, exitUnavailable, cmd.ProcessState.ExitCode(), "%s", output)
				require.Less(t, time.Since(restarted), 20*maxTTL, "no job gets the lock\n%s", output)
				time.Sleep(500 * time.Millisecond)
			}
		})
	}
}
