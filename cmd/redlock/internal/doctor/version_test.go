package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSummaryNamesTheServerThatIsNotRedis(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]map[string]string{
		"7.0.15":       {"redis_version": "7.0.15"},
		"valkey 9.1.2": {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"},
		"keydb 6.3.4":  {"redis_version": "6.3.4", "mvcc_depth": "0"},
		"":             {},
	} {
		f := good(1)
		f.Info = info
		assert.Equal(t, want, Judge([]Facts{f}, Terms{}, time.Now()).Members[0].Version)
	}
}

// Known faults are those of a Redis Cluster. Each is told once of a member, whichever of its masters has it.
func TestKnownFaultIsToldOnceOfACluster(t *testing.T) {
	t.Parallel()
	const shards, lookup = "CLUSTER SHARDS can lack", "behind SPUBLISH"
	for name, tc := range map[string]struct {
		versions [3]map[string]string
		want     []string // in the order in which they are told
	}{
		"none":       {[3]map[string]string{redis("7.0.15"), redis("8.2.3"), valkey("8.0.1")}, nil},
		"7.2":        {[3]map[string]string{redis("7.2.4"), redis("7.2.4"), redis("7.2.4")}, []string{"Redis 7.2.4: after a failover " + shards}},
		"7.4":        {[3]map[string]string{redis("7.4.1"), redis("7.4.1"), redis("7.4.1")}, []string{"Redis 7.4.1: after a failover " + shards, "Redis 7.4.1: " + lookup}},
		"upgrade":    {[3]map[string]string{redis("7.4.1"), redis("7.2.4"), redis("8.2.3")}, []string{"Redis 7.2.4, Redis 7.4.1: after a failover " + shards, "Redis 7.4.1: " + lookup}},
		"Valkey 7.2": {[3]map[string]string{valkey("7.2.5"), valkey("8.0.1"), valkey("8.0.1")}, []string{"Valkey 7.2.5: after a failover " + shards}},
	} {
		f := goodCluster(1)
		for i, info := range tc.versions {
			for field, v := range info {
				f.Parts[i].Info[field] = v
			}
		}
		var told []string
		for _, x := range Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Findings {
			if x.Check == "known fault" {
				told = append(told, x.What)
				assert.Equal(t, OK, x.Severity, name)
				assert.NotEmpty(t, x.Cure, name)
			}
		}
		if assert.Len(t, told, len(tc.want), name) {
			for i := range told {
				assert.Contains(t, told[i], tc.want[i], name)
			}
		}
	}
	f := good(1)
	f.Info["redis_version"] = "7.4.1"
	for _, x := range Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Findings {
		assert.NotEqual(t, "known fault", x.Check, "of a server that is in no cluster")
	}
}

func redis(version string) map[string]string { return map[string]string{"redis_version": version} }

func valkey(version string) map[string]string {
	return map[string]string{"redis_version": "7.2.4", "valkey_version": version}
}

func TestClusterNeedsTheCommandThatNamesMastersAfterAFailover(t *testing.T) {
	t.Parallel()
	f := goodCluster(1)
	f.Parts[0].Denied = []string{"CLUSTER SLOTS"}
	for _, x := range Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Findings {
		if x.Check == "permissions" {
			assert.Equal(t, Warning, x.Severity)
			assert.Equal(t, "+cluster|slots", x.Cure)
			return
		}
	}
	t.Error("nothing is said of CLUSTER SLOTS, which the user may not run")
}
