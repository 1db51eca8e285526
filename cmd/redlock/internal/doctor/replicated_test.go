package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

func withReplica(i int, kind node.TargetKind) Facts {
	f := good(i)
	f.Kind, f.Addr, f.Lag, f.Repl = kind, f.Member, 15*time.Second, f.Info["master_replid"]
	f.Info["master_replid2"], f.Info["connected_slaves"] = strings.Repeat("0", 40), "1"
	set := func(c map[string]string) {
		c["cluster-node-timeout"], c["cluster-require-full-coverage"], c["cluster-replica-validity-factor"] = "15000", "no", "10"
		c["min-replicas-to-write"], c["min-replicas-max-lag"] = "1", "10"
	}
	set(f.Config)
	r := Replica{Addr: fmt.Sprintf("10.0.1.%d:6379", i), Config: make(map[string]string)}
	set(r.Config)
	f.Replicas = []Replica{r}
	return f
}

// goodCluster has three masters, on the hosts 10.0.0.first and the next.
func goodCluster(first int) Facts {
	f := Facts{Member: "cluster", Kind: node.RedisCluster, Lag: 15 * time.Second, Views: []View{{Server: "a", Slots: []string{"x"}}, {Server: "b", Slots: []string{"x"}}}}
	for i := range 3 {
		m := withReplica(first+i, node.RedisCluster)
		m.Slots, m.Health = slot.Count/3, "ok"
		f.Parts = append(f.Parts, m)
	}
	f.Parts[0].Slots++
	return f
}

func goodGroup(i int) Facts {
	f := withReplica(i, node.BySentinel)
	f.Member = "mymaster@s1,s2,s3"
	for _, s := range []string{"s1", "s2", "s3"} {
		f.Sightings = append(f.Sightings, Sighting{Sentinel: s, Master: f.Addr, Flags: "master", Quorum: 2, Others: 2, Replicas: 1})
	}
	return f
}

func TestJudgeOfClustersAndSentinels(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type set = []Facts // a plain member, a cluster, a group
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		change func(s set) set
		want   Severity
		check  string
		member string
		says   string
		stop   bool // no other member may be restarted
	}{
		"nothing": {func(s set) set { return s }, OK, "failover", "cluster", "one of its masters", false},
		"group":   {func(s set) set { return s }, OK, "failover", "mymaster@", "from the master", false},
		"no replica": {func(s set) set {
			s[1].Parts[1].Replicas = nil
			return s
		}, OK, "replicas", "cluster", "1 of 3 masters have no replica", false},
		"coverage":    {func(s set) set { s[1].Parts[0].Config["cluster-require-full-coverage"] = "yes"; return s }, OK, "coverage", "cluster", "is yes", false},
		"slots":       {func(s set) set { s[1].Parts[0].Slots -= 10; return s }, Critical, "slots", "cluster", "10 of 16384", false},
		"no topology": {func(s set) set { s[1].Err, s[1].Parts = refused, nil; return s }, Critical, "reachable", "cluster", "refused", true},
		"a server":    {func(s set) set { s[1].Views[1] = View{Server: "b", Err: refused}; return s }, Warning, "server", "cluster", "b does not answer", false},
		"disagree":    {func(s set) set { s[1].Views[1].Slots = []string{"y"}; return s }, Warning, "slots", "cluster", "do not agree", false},
		"a master": {func(s set) set {
			s[1].Parts[2] = Facts{Member: "m", Slots: 5461, Kind: node.RedisCluster, Err: refused}
			return s
		}, Critical, "reachable", "m", "a master, of 5461 slots: refused", true},
		"a master and 1": {func(s set) set { s[1].Parts[2].Err, s[0].Err = refused, refused; return s }, Critical, "quorum", "", "1 of 3 members can be reached, and 1 in part, 2 are needed", true},
		"no master and 1": {func(s set) set {
			s[0].Err = refused
			for i := range s[1].Parts {
				s[1].Parts[i].Err = refused
			}
			return s
		}, Critical, "quorum", "", "1 of 3 members can be reached, 2 are needed", true},
		"no master takes commands, and 1": {func(s set) set {
			s[0].Err, s[1].Parts[0].Err = refused, refused
			s[1].Parts[1].MarkerErr, s[1].Parts[2].MarkerErr = refused, refused
			return s
		}, Critical, "quorum", "", "1 of 3 members can be reached, 2 are needed", true},
		"another": {func(s set) set { s[1].Parts[2].Missing = true; return s }, Critical, "mode", "10.0.0.13", "another server", false},
		"fail":    {func(s set) set { s[1].Parts[2].Health = "fail"; return s }, Critical, "cluster", "10.0.0.13", "is fail", false},
		"demoted": {func(s set) set { s[1].Parts[2].Info["role"] = "slave"; return s }, Critical, "role", "10.0.0.13", "the cluster names it", false},
		"same twice": {func(s set) set {
			s[1].Parts[2].Info["run_id"], s[1].Parts[2].Marker = s[1].Parts[1].Info["run_id"], s[1].Parts[1].Marker
			return s
		}, Critical, "identity", "10.0.0.13", "which the cluster has as another master", false},
		"one cluster twice": {func(s set) set {
			s[2] = goodCluster(11)
			s[2].Member = "again"
			return s
		}, Critical, "identity", "again", "the same Redis Cluster as cluster", false},
		"a master as a member": {func(s set) set { s[0] = good(12); return s }, Critical, "identity", "10.0.0.12", "the same Redis as 10.0.0.12", false},
		"a replica as a member": {func(s set) set {
			s[0].Info["role"], s[0].Info["master_replid"] = "slave", s[1].Parts[2].Info["master_replid"]
			return s
		}, Critical, "replication", "10.0.0.1", "another member, cluster", false},
		"long timeout":       {func(s set) set { s[1].Parts[0].Config["cluster-node-timeout"] = "15001"; return s }, Critical, "failover lag", "10.0.0.11", "15.001s, failover_lag 15s", false},
		"timeout of replica": {func(s set) set { s[1].Parts[0].Replicas[0].Config["cluster-node-timeout"] = "16000"; return s }, Critical, "failover lag", "10.0.0.11", "of its replica 10.0.1.11:6379 is 16s", false},
		"timeout, no replica": {func(s set) set {
			s[1].Parts[0].Config["cluster-node-timeout"], s[1].Parts[0].Replicas = "16000", nil
			return s
		}, Warning, "failover lag", "10.0.0.11", "16s", false},
		"timeout unknown":     {func(s set) set { s[1].Parts[0].Config = nil; return s }, OK, "failover lag", "10.0.0.11", "not known", false},
		"old replica":         {func(s set) set { s[1].Parts[0].Replicas[0].Config["cluster-replica-validity-factor"] = "0"; return s }, Warning, "failover", "10.0.0.11", "however long", false},
		"evicting replica":    {func(s set) set { s[1].Parts[0].Replicas[0].Config["maxmemory-policy"] = "allkeys-lru"; return s }, Warning, "eviction", "10.0.0.11", "its replica", false},
		"replica unreachable": {func(s set) set { s[1].Parts[0].Replicas[0].Err = refused; return s }, Warning, "replicas", "10.0.0.11", "does not answer", false},
		"acks":                {func(s set) set { s[1].Parts[0].Ack = 2; return s }, Critical, "replicas", "10.0.0.11", "min_replicas_ack is 2", false},
		"acks, plain":         {func(s set) set { s[0].Ack = 1; return s }, Critical, "replicas", "10.0.0.1:", "min_replicas_ack is 1", false},
		"took over":           {func(s set) set { s[1].Parts[0].Marker, s[1].Parts[0].Info["master_replid2"] = "", "abc"; return s }, Warning, "restart guard", "10.0.0.11", "taken over", true},
		"took over, group": {func(s set) set {
			s[2].Info["master_replid2"], s[2].Info["master_replid"] = "abc", "new"
			return s
		}, Warning, "restart guard", "mymaster@", "taken over", true},
		"took over with a marker": {func(s set) set {
			s[2].Info["master_replid2"], s[2].Info["master_replid"], s[2].Info["run_id"] = "abc", "new", "new"
			return s
		}, Warning, "restart guard", "mymaster@", "taken over", true},
		"a plain member was a replica": {func(s set) set {
			s[0].Repl, s[0].Info["master_replid2"], s[0].Info["master_replid"] = "old", "abc", "new"
			return s
		}, Warning, "restart guard", "10.0.0.1", "it was a replica, or it has restarted", true},
		"a plain member has a first replica": {func(s set) set {
			s[0].Repl, s[0].Info["master_replid"] = "old", "new"
			return s
		}, OK, "failover", "cluster", "", false},
		"took over long ago": {func(s set) set { s[1].Parts[0].Info["master_replid2"] = "abc"; return s }, OK, "failover", "cluster", "", false},
		"renamed":            {func(s set) set { s[1].Parts[0].Info["master_replid"] = "new"; return s }, OK, "failover", "cluster", "", false},
		"joined":             {func(s set) set { s[1].Parts[0].Marker, s[1].Parts[0].Stamped = "", true; return s }, Warning, "restart guard", "10.0.0.11", "slots that were used", true},
		"a new master":       {func(s set) set { s[1].Parts[0].Marker = ""; return s }, Warning, "restart guard", "10.0.0.11", "no client has used it", true},
		"quarantined master": {func(s set) set { s[1].Parts[2].State, s[1].Parts[2].Left = "g", time.Second; return s }, Warning, "restart guard", "10.0.0.13", "1s more", true},
		"quarantined part": {func(s set) set { s[1].Parts[2].State, s[1].Parts[2].Left = "g", time.Second; return s }, Warning, "part", "cluster",
			"1 of its 3 masters do not vote, for 5461 of 16384 slots: 10.0.0.13:6379 is quarantined until " + now.Add(time.Second).Format(time.TimeOnly), true},
		"two parts": {func(s set) set {
			s[1].Parts[0].Marker, s[1].Parts[2].State, s[1].Parts[2].Left = "", "g", time.Second
			return s
		}, Warning, "part", "cluster", "2 of its 3 masters do not vote, for 10923 of 16384 slots: 10.0.0.11:6379 is new, 10.0.0.13:6379 is quarantined", true},
		"sharded channels": {func(s set) set { s[1].Parts[2].Denied = []string{"SSUBSCRIBE"}; return s }, Warning, "permissions", "10.0.0.13", "SSUBSCRIBE", false},
		"asking":           {func(s set) set { s[1].Parts[2].Denied = []string{"SSUBSCRIBE", "ASKING"}; return s }, Critical, "permissions", "10.0.0.13", "not: ASKING", false},
		"clocks apart": {func(s set) set {
			for k := range s[1].Parts[2].Clock {
				s[1].Parts[2].Clock[k].Server = s[1].Parts[2].Clock[k].Server.Add(600 * time.Millisecond)
			}
			return s
		}, Warning, "clock offset", "", "differ by 6", false},
		"hosts": {func(s set) set { s[0].Member, s[0].Addr = "10.0.0.12:1", "10.0.0.12:1"; return s }, Warning, "hosts", "", "2 members are on the host 10.0.0.12", false},

		"no Sentinel": {func(s set) set {
			for i := range s[2].Sightings {
				s[2].Sightings[i] = Sighting{Sentinel: "s", Err: refused}
			}
			s[2] = Facts{Member: s[2].Member, Kind: node.BySentinel, Err: refused, Sightings: s[2].Sightings}
			return s
		}, Critical, "reachable", "mymaster@", "refused", true},
		"a Sentinel": {func(s set) set { s[2].Sightings[0] = Sighting{Sentinel: "s1", Err: refused}; return s }, Warning, "sentinel", "mymaster@", "s1 does not answer", false},
		"two Sentinels": {func(s set) set {
			s[2].Sightings[0], s[2].Sightings[1] = Sighting{Err: refused}, Sighting{Err: refused}
			return s
		}, Critical, "sentinel", "mymaster@", "1 of 3 Sentinels answer, which is no majority", false},
		"too few to agree": {func(s set) set {
			s[2].Sightings[0] = Sighting{Err: refused}
			s[2].Sightings[1].Quorum = 3
			return s
		}, Warning, "sentinel", "mymaster@", "2 Sentinels answer; 3 must", false},
		"others not named": {func(s set) set { s[2].Sightings[1].Others = 5; return s }, Warning, "sentinel", "mymaster@", "the URL names 3 of 6", false},
		"Sentinels apart":  {func(s set) set { s[2].Sightings[1].Master = "z"; return s }, Critical, "sentinel", "mymaster@", "different masters: s1 and s3: 10.0.0.21:6379; s2: z", false},
		"dead to one":      {func(s set) set { s[2].Sightings[1].Flags = "s_down,master"; return s }, Warning, "sentinel", "mymaster@", "for dead", false},
		"not the master":   {func(s set) set { s[2].Info["role"] = "slave"; return s }, Critical, "role", "mymaster@", "the Sentinels name it", false},
		"writes alone":     {func(s set) set { s[2].Config["min-replicas-to-write"] = "0"; return s }, Critical, "failover lag", "mymaster@", "min-replicas-to-write is 0", false},
		"writes for ever":  {func(s set) set { s[2].Config["min-replicas-max-lag"] = "0"; return s }, Critical, "failover lag", "mymaster@", "min-replicas-max-lag is 0", false},
		"writes alone for ever": {func(s set) set {
			s[2].Config["min-replicas-to-write"], s[2].Config["min-replicas-max-lag"] = "0", "0"
			return s
		}, Critical, "failover lag", "mymaster@", "min-replicas-to-write and min-replicas-max-lag are 0", false},
		"writes for long": {func(s set) set { s[2].Config["min-replicas-max-lag"] = "16"; return s }, Critical, "failover lag", "mymaster@", "16s, failover_lag 15s", false},
		"replica would":   {func(s set) set { s[2].Replicas[0].Config["min-replicas-to-write"] = "0"; return s }, Critical, "failover lag", "mymaster@", "its replica 10.0.1.21", false},
		"replica is away": {func(s set) set { s[2].Replicas, s[2].Config["min-replicas-to-write"] = nil, "0"; return s }, Critical, "failover lag", "mymaster@", "is 0", false},
		"nobody to promote": {func(s set) set {
			s[2].Replicas, s[2].Config["min-replicas-to-write"] = nil, "0"
			for i := range s[2].Sightings {
				s[2].Sightings[i].Replicas = 0
			}
			return s
		}, OK, "replicas", "mymaster@", "no replica", false},
		"lag unknown": {func(s set) set { delete(s[2].Config, "min-replicas-max-lag"); return s }, OK, "failover lag", "mymaster@", "not known", false},
	} {
		terms := Terms{Drift: 0.01, MaxTTL: 30 * time.Second}
		r := Judge(tc.change(set{good(1), goodCluster(11), goodGroup(21)}), terms, now)
		assert.True(t, r.Severity == tc.want, "%s: %v, want %v: %+v", name, r.Severity, tc.want, r.Findings)
		assert.True(t, r.Restart != (tc.stop || tc.want == Critical), "%s: may restart: %v (%s)", name, r.Restart, r.RestartNo)
		found := 0
		for _, f := range r.Findings {
			if f.Check == tc.check && f.Severity == tc.want && strings.HasPrefix(f.Member, tc.member) && strings.Contains(f.What, tc.says) {
				found++
			}
			assert.False(t, f.Severity > OK && (f.Risk == "" || f.Cure == ""), "%s: no risk or no cure: %+v", name, f)
		}
		assert.False(t, found == 0 || tc.check == "identity" && found > 1, "%s: %+v has %s %d times", name, r.Findings, tc.check, found)
	}
}

// A cluster of which a part does not vote says how large it is, and until when.
func TestNewestConfigurationOfASentinelIsBelieved(t *testing.T) {
	all := []Sighting{{Master: "a", Epoch: 7}, {Master: "b", Epoch: 9}, {Master: "c", Epoch: 8}, {Err: context.Canceled, Epoch: 10}}
	require.Equal(t, "b", newest(all))
	require.Empty(t, newest(all[3:]))
}

func TestSilentPartOfAClusterIsInItsSummary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	judged := func(change func(f *Facts)) Report {
		f := goodCluster(11)
		change(&f)
		return Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, now)
	}
	s := judged(func(*Facts) {}).Members[0]
	assert.False(t, s.State != "voting" || s.SilentSlots != 0 || s.SilentUntil != nil, "all vote: %+v", s)
	r := judged(func(f *Facts) {
		f.Parts[0].State, f.Parts[0].Left = "g", 20*time.Second
		f.Parts[1].State, f.Parts[1].Left = "g", 10*time.Second
	})
	s = r.Members[0]
	assert.False(t, s.State != "quarantined" || s.SilentSlots != 2*(slot.Count/3)+1 || s.SilentUntil == nil || s.SilentUntil.Sub(now.Add(20*time.Second)).Abs() > time.Second, "two do not vote: %+v", s)
	assert.False(t, s.Masters[0].SilentSlots != slot.Count/3+1 || s.Masters[2].SilentSlots != 0 || s.Masters[2].SilentUntil != nil,
		"masters: %+v", s.Masters)
	for _, f := range r.Findings {
		if f.Check == "part" && strings.Contains(f.Risk, "nobody can take") {
			return
		}
	}
	t.Errorf("the only member, and no word of what that means: %+v", r.Findings)
}

// A master at an address that only the servers announce may be one that cannot be dialled from here.
func TestAnnouncedAddressThatCannotBeDialledLeadsToAddrMap(t *testing.T) {
	t.Parallel()
	refused := errors.New("10.0.0.11:6379: dial tcp 10.0.0.11:6379: i/o timeout")
	for name, tc := range map[string]struct {
		change func(cluster, group *Facts)
		maps   bool
	}{
		"announced":        {func(c, _ *Facts) { c.Parts[0].Err = refused }, true},
		"in the URL":       {func(c, _ *Facts) { c.Parts[0].Err, c.Views[1].Server = refused, c.Parts[0].Addr }, false},
		"mapped":           {func(c, _ *Facts) { c.Parts[0].Err, c.Parts[0].Addr = refused, "127.0.0.1:7000" }, false},
		"by Sentinels":     {func(_, g *Facts) { g.Err = refused }, true},
		"mapped, of them":  {func(_, g *Facts) { g.Err, g.Addr = refused, "127.0.0.1:7000" }, false},
		"no Sentinel":      {func(_, g *Facts) { g.Err, g.Addr = refused, "" }, false},
		"no server at all": {func(c, _ *Facts) { c.Err, c.Parts = refused, nil }, false},
	} {
		c, g := goodCluster(11), goodGroup(21)
		tc.change(&c, &g)
		found := 0
		for _, f := range Judge([]Facts{c, g}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Findings {
			if f.Check != "reachable" {
				continue
			}
			if found++; strings.Contains(f.Cure, "if the servers announce addresses that cannot be dialled from here, map them with addr_map") != tc.maps {
				t.Errorf("%s: %q", name, f.Cure)
			}
		}
		assert.True(t, found == 1, "%s: found %d times", name, found)
	}
}
