package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/tested"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// diagnose runs the doctor, and leaves out what it says of a busy machine: round trips and clocks, which are
// measured by them. It also leaves out that the redis-server in PATH is not tested. Its exit code is without them, too.
func diagnose(t *testing.T, args ...string) (int, doctor.Report) {
	t.Helper()
	code, stdout, stderr := command(t, append([]string{"doctor", "--json", "--sample", "50ms", "--dial-timeout", patience.String(), "--member-timeout", "5s"}, args...)...)
	var r struct {
		doctor.Report
		Severity string           `json:"severity"`
		Findings []map[string]any `json:"findings"`
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, stdout, stderr)
	}
	worst, before := doctor.OK, doctor.OK
	of := inPath(t)
	for _, f := range r.Findings {
		text := func(name string) string { s, _ := f[name].(string); return s }
		one := doctor.Finding{Check: text("check"), Member: text("member"), What: text("what"), Risk: text("risk"), Cure: text("cure")}
		one.Severity = map[string]doctor.Severity{"warning": doctor.Warning, "critical": doctor.Critical}[text("severity")]
		before = max(before, one.Severity)
		if one.Check == "rtt" || strings.HasPrefix(one.Check, "clock") || one.Check == "version" && !of.Tested() {
			continue
		}
		worst = max(worst, one.Severity)
		r.Report.Findings = append(r.Report.Findings, one)
	}
	if worst < before && code == int(before) {
		code = int(worst)
	}
	return code, r.Report
}

func inPath(t *testing.T) tested.Server {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "redis-server", "--version").Output() // Valkey server v=9.1.2 sha=…
	require.NoError(t, err)
	m := regexp.MustCompile(`^(\w+) server v=(\S+) `).FindSubmatch(said)
	require.NotNil(t, m, "%s", said)
	return tested.Server{Brand: string(m[1]), Version: string(m[2])}
}

// found looks for a finding whose "check: member: what" matches.
func found(r doctor.Report, s doctor.Severity, pattern string) bool {
	re := regexp.MustCompile(pattern)
	for _, f := range r.Findings {
		if f.Severity == s && re.MatchString(f.Check+": "+f.Member+": "+f.What) {
			return true
		}
	}
	return false
}

func want(t *testing.T, r doctor.Report, s doctor.Severity, pattern string) {
	t.Helper()
	assert.True(t, found(r, s, pattern), "no finding of severity %v matches %s:\n%+v", s, pattern, r.Findings)
}

func sees(t *testing.T, members string, s doctor.Severity, patterns ...string) doctor.Report {
	t.Helper()
	_, r := diagnose(t, "--members", members)
	for _, pattern := range patterns {
		want(t, r, s, pattern)
	}
	return r
}

func succeed(t *testing.T, says string, args ...string) string {
	t.Helper()
	return fail(t, 0, says, args...)
}

func fail(t *testing.T, code int, says string, args ...string) string {
	t.Helper()
	args = append(args, "--dial-timeout", patience.String(), "--member-timeout", patience.String())
	got, stdout, stderr := command(t, args...)
	require.False(t, got != code || !regexp.MustCompile(says).MatchString(stdout+stderr),
		"%v: code %d, want %d and %q\n%s%s", args, got, code, says, stdout, stderr)
	return stdout
}

func do(t *testing.T, servers []*redistest.Real, args ...string) {
	t.Helper()
	for _, r := range servers {
		require.NoError(t, rt.Err(r.Do(t.Context(), args...)), "%s: %v", r.Addr(), args)
	}
}

// lastsFor is how long locks last: on a busy machine several commands follow.
const lastsFor = 2 * time.Minute

// holdsLocks takes a lock of each name, and makes sure that the commands that look at locks see them.
func holdsLocks(t *testing.T, url string, names []string) {
	t.Helper()
	members := []string{"--members", url}
	with := func(args ...string) []string { return append(args, members...) }
	for _, name := range names {
		succeed(t, "REDLOCK_VOTES=1/1", with("acquire", name, "--ttl", lastsFor.String(), "--max-ttl", lastsFor.String())...)
	}
	listed := succeed(t, "", with("ls")...)
	for _, name := range names {
		assert.Equal(t, 1, strings.Count(listed, fmt.Sprintf("%q", name)), "%v, %v", name, listed)
		token := strings.TrimSpace(succeed(t, `^\d+\s`, with("token", name)...))
		succeed(t, "^$", with("token", name, "--verify", token)...)
		fail(t, 1, "^$", with("token", name, "--verify", "1")...)
	}
	assert.Equal(t, 1, strings.Count(succeed(t, "", with("ls", names[0])...), "\n"), "locks begin with %s", names[0])
	succeed(t, "held by .* at 1 of 1 members", with("inspect", names[0])...)
	fail(t, 0, "members_freed=1", with("release", names[0], "--force", "--yes")...)
	succeed(t, "not held, 0 waiting", with("watch", names[0], "--until-free")...)
	assert.NotContains(t, succeed(t, "", with("ls")...), fmt.Sprintf("%q", names[0]), "a lock that was forced open is listed")
}

// Cost: 7 s, of the servers of a cluster and of a process for each command.
func TestCommandsKnowAClusterAsAMember(t *testing.T) {
	t.Parallel()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	s := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 2, Replicas: 1, NodeTimeout: 20 * time.Second}))(t)
	t.Cleanup(func() { _ = s.Close() })
	masters, replicas := s.Servers[:2], s.Servers[2:]
	const options = unhurried + "&failover_lag=20s"
	at := func(servers ...*redistest.Real) string {
		var addrs []string
		for _, r := range servers {
			addrs = append(addrs, r.Addr())
		}
		return "redis-cluster://" + strings.Join(addrs, ",")
	}
	url := at(s.Servers...) + options

	code, r := diagnose(t, "--members", url)
	assert.True(t, code == 2, "a new cluster: %d", code)
	for i, m := range masters {
		want(t, r, doctor.Warning, "^restart guard: "+m.Addr()+": no client has used it")
		want(t, r, doctor.Warning, "^failover: "+m.Addr()+": cluster-replica-validity-factor of its replica "+replicas[i].Addr()+" is 0")
	}
	want(t, r, doctor.OK, "^coverage: ")
	t.Run("version", func(t *testing.T) { serverOfTheTests(t, r) })
	want(t, r, doctor.OK, "^failover: .*a replica may take over")
	do(t, replicas, "CONFIG", "SET", "cluster-replica-validity-factor", "10")

	// One master refuses to be marked for a while, when the other one votes already.
	do(t, masters[1:], "CONFIG", "SET", "min-replicas-to-write", "5")
	fail(t, exitUsage, "use --yes", "init", "--fresh", "--members", at(masters[0])+options)
	done := make(chan int, 1)
	go func() {
		code, _, _ := command(t, "init", "--fresh", "--yes", "--dial-timeout", patience.String(), "--max-ttl", lastsFor.String(),
			"--members", at(masters[0])+options)
		done <- code
	}()
	eventually(t, "the marker of the other master", func() bool {
		v, _ := masters[0].Do(ctx, "KEYS", "redquorum:boot:*")
		all, _ := v.([]any)
		return len(all) == 1
	})
	select {
	case code := <-done:
		t.Errorf("a cluster of which one master does not vote is told to vote: %d", code)
	case <-time.After(300 * time.Millisecond):
		do(t, masters[1:], "CONFIG", "SET", "min-replicas-to-write", "0")
		if code := <-done; code != 0 && code != exitUnavailable { // on a machine that is too busy it may be the quarantine's
			t.Error(code)
		}
	}
	eventually(t, "a cluster that is fit", func() bool {
		code, r = diagnose(t, "--members", url)
		return code == 0 && len(r.Members[0].Masters) == 2 && r.Members[0].State == "voting"
	})
	fail(t, 1, "not a new set", "init", "--fresh", "--yes", "--members", url)

	var names []string
	for i := range 4 {
		names = append(names, fmt.Sprintf("{%s}lock%d", slot.TagOf(uint16(i*slot.Count/4)), i)) // two at each master
	}
	holdsLocks(t, url, names)

	_, r = diagnose(t, "--members", at(s.Servers...)+"?failover_lag=19s")
	for i, m := range masters {
		want(t, r, doctor.Critical, "^failover lag: "+m.Addr()+": cluster-node-timeout is 20s, failover_lag 19s")
		want(t, r, doctor.Critical, "^failover lag: "+m.Addr()+": cluster-node-timeout of its replica "+replicas[i].Addr()+" is 20s")
	}
	r = sees(t, at(masters...)+options+","+at(replicas...)+options, doctor.Critical,
		"^identity: "+replicas[0].Addr()+".*: it is the same Redis Cluster as "+masters[0].Addr())
	code, r = diagnose(t, "--members", "redis-cluster://127.0.0.1:1,"+s.Servers[0].Addr()+options)
	assert.True(t, code == 1, "one address is wrong: %d", code)
	want(t, r, doctor.Warning, "^server: .*: 127.0.0.1:1 does not answer")
	r = sees(t, at(masters...)+options+"&min_replicas_ack=2", doctor.Critical,
		"^replicas: "+masters[0].Addr()+": min_replicas_ack is 2, and it has 1")
	r = sees(t, url+"&addr_map="+masters[0].Addr()+"/"+masters[1].Addr(), doctor.Critical,
		"^mode: "+masters[0].Addr()+": another server answers",
		"^identity: .*which the cluster has as another master")
	r = sees(t, url+"&addr_map="+replicas[1].Addr()+"/127.0.0.1:1", doctor.Warning,
		"^replicas: "+masters[1].Addr()+": its replica "+replicas[1].Addr()+" does not answer")
	for _, args := range [][]string{{"doctor"}, {"ls"}, {"init", "--fresh", "--yes"}, {"inspect", "x"}} {
		fail(t, exitUsage, "plain masters only", append(args, "--interop", "--members", url)...)
	}

	do(t, masters[1:2], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	do(t, replicas[:1], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	r = sees(t, url, doctor.Warning,
		"^eviction: "+masters[1].Addr()+": maxmemory-policy is",
		"^eviction: "+masters[0].Addr()+": maxmemory-policy of its replica "+replicas[0].Addr())
	do(t, s.Servers, "CONFIG", "SET", "maxmemory-policy", "noeviction")

	// One of three members.
	_, plain := real(t, 2, lastsFor)
	two := url + "," + plain[0] // both votes are needed
	succeed(t, "REDLOCK_VOTES=2/2", "acquire", "mixed", "--ttl", lastsFor.String(), "--max-ttl", lastsFor.String(), "--members", two)
	succeed(t, `^"mixed" +token [0-9]+ +2/2 `, "ls", "mixed", "--members", two)
	code, r = diagnose(t, "--members", two+","+plain[1])
	assert.False(t, code != 0 || !r.Restart || len(r.Members) != 3, "one of three members: %d, %+v", code, r)

	t.Run("permissions", func(t *testing.T) { clusterUser(t, s) })

	// One master gives a slot away that nobody takes.
	do(t, masters[:1], "CLUSTER", "DELSLOTS", "17")
	r = sees(t, url, doctor.Warning, "^slots: .*do not agree")
	assert.False(t, found(r, doctor.Critical, "no master serves"), "one server of four is believed")
	want(t, r, doctor.Critical, "^cluster: "+masters[0].Addr()+": cluster_state is fail")
	r = sees(t, at(masters[0])+options, doctor.Critical, "^slots: .*no master serves 1 of 16384 slots")
	fail(t, exitUnavailable, "no master serves", "ls", "--members", at(masters[0])+options)
	do(t, masters[:1], "CLUSTER", "ADDSLOTS", "17")

	// A replica takes over, and then a client sees it.
	require.NoError(t, s.Promote(ctx, 2, "TAKEOVER"))
	eventually(t, "what a replica that took over is known as", func() bool {
		code, r = diagnose(t, "--members", url)
		return code == 1 && found(r, doctor.Warning, "^restart guard: "+replicas[0].Addr()+": a replica has taken over, or it has restarted, and no client")
	})
	assert.False(t, r.Restart || r.Members[0].State != "replaced", "%+v", r)
	client, err := redlock.Open(ctx, []string{url}, redlock.Config{MemberTimeout: patience, DialTimeout: patience, MaxTTL: lastsFor})
	require.NoError(t, err) // it stays until it has marked all: a command has its answer before
	eventually(t, "the quarantine of the master that took over", func() bool {
		_, r = diagnose(t, "--members", url)
		return found(r, doctor.Warning, "^restart guard: "+replicas[0].Addr()+": it may have forgotten")
	})
	require.NoError(t, client.Close())
	want(t, r, doctor.Warning, "^part: .*: 1 of its 2 masters do not vote, for 819[0-9] of 16384 slots: "+replicas[0].Addr()+" is quarantined until ")
	if m := r.Members[0]; m.SilentSlots < slot.Count/2-1 || m.SilentSlots > slot.Count/2+1 || m.SilentUntil == nil {
		t.Errorf("%+v", m)
	}

	v, err := masters[1].Do(ctx, "KEYS", "redquorum:boot:*")
	if all, _ := v.([]any); len(all) != 1 {
		t.Fatalf("markers of a master: %v, %v", v, err)
	}
	do(t, masters[1:2], "DEL", v.([]any)[0].(string))
	r = sees(t, url, doctor.Warning, "^restart guard: "+masters[1].Addr()+": it has no marker, and slots that were used")

	masters[1].Kill()
	code, r = diagnose(t, "--members", url)
	assert.False(t, code != 2 || r.Members[0].State != "down", "a master is dead: %d, %+v", code, r.Members)
	want(t, r, doctor.Critical, "^reachable: "+masters[1].Addr()+": a master, of 819[0-9] slots: ")
	want(t, r, doctor.Critical, "^quorum: : 0 of 1 members")
	fail(t, exitUnavailable, "no quorum", "ls", "--members", url)
	fail(t, exitUnavailable, "init needs all members", "init", "--fresh", "--yes", "--members", url)
	fail(t, exitUnavailable, "127.0.0.1:1", "ls", "--members", "redis-cluster://127.0.0.1:1")
	r = sees(t, "redis-cluster://127.0.0.1:1,127.0.0.1:2", doctor.Critical, "^reachable: 127.0.0.1:1,127.0.0.1:2: ")
}

// clusterUser looks at a cluster as the user that the shipped rules have for it.
func clusterUser(t *testing.T, s *redistest.Sharded) {
	rt.Needs(t, redistest.DryRun)
	text := rt.Must(os.ReadFile(filepath.Join(repository, "acl", rt.Installed(t).Rules())))(t)
	words := strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), ">CHANGE-ME", ">pw-canary"))
	do(t, s.Servers, append(append([]string{"ACL", "SETUSER"}, words[1:]...), "+acl|whoami", "+acl|dryrun", "+config|get")...)
	file := filepath.Join(t.TempDir(), "redlock.json")
	config := fmt.Sprintf(`{"members": "redis-cluster://locker:pw-canary@%s?failover_lag=20s&min_replicas_ack=1"}`, strings.Join(s.Addrs(), ","))
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	ask := func() doctor.Report {
		_, r := diagnose(t, "--config", file, "--key", "app:x")
		if text := fmt.Sprint(r); strings.Contains(text, "canary") {
			t.Errorf("a password is shown: %s", text)
		}
		return r
	}
	if r := ask(); r.Severity > doctor.OK || found(r, doctor.OK, "permissions|not known") || found(r, doctor.Warning, "") || found(r, doctor.Critical, "") {
		t.Errorf("%+v", r.Findings)
	}
	do(t, s.Servers[:1], "ACL", "SETUSER", "locker", "-asking", "-spublish", "-wait")
	r := ask()
	want(t, r, doctor.Critical, "^permissions: "+s.Servers[0].Addr()+": the user may not: ASKING, WAIT$")
	want(t, r, doctor.Warning, "^permissions: "+s.Servers[0].Addr()+": the user may not: SPUBLISH$")
	do(t, s.Servers[:1], "ACL", "SETUSER", "locker", "-config|get")
	want(t, ask(), doctor.OK, "^failover lag: "+s.Servers[0].Addr()+": cluster-node-timeout is not known")
	do(t, s.Servers[:1], "ACL", "SETUSER", "locker", "-cluster|myid")
	want(t, ask(), doctor.Critical, "^restart guard: "+s.Servers[0].Addr()+": .*NOPERM")
	do(t, s.Servers, "ACL", "SETUSER", "locker", "reset")
	want(t, ask(), doctor.Critical, "^auth: ")
	fail(t, exitAuth, "WRONGPASS", "ls", "--config", file)
}

func TestCommandsKnowAMasterOfSentinels(t *testing.T) {
	t.Parallel()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	g, err := redistest.StartGroup(t.Context(), redistest.GroupConfig{DownAfter: time.Hour, Server: redistest.RealConfig{Args: []string{"--repl-diskless-sync-delay", "0"}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	url := "redis-sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name + unhurried
	master, replica := g.Servers[0], g.Servers[1]

	code, r := diagnose(t, "--members", url)
	assert.True(t, code == 2, "a former master goes on for ever: %d", code)
	want(t, r, doctor.Critical, "^failover lag: mymaster@.*: min-replicas-to-write is 0")
	want(t, r, doctor.Critical, "^failover lag: mymaster@.*: min-replicas-to-write of its replica "+replica.Addr()+" is 0")
	do(t, g.Servers, "CONFIG", "SET", "min-replicas-to-write", "1")
	do(t, g.Servers, "CONFIG", "SET", "min-replicas-max-lag", "10")
	code, r = diagnose(t, "--members", url)
	assert.False(t, code != 2, "a new master: %d, %+v", code, r.Findings)
	want(t, r, doctor.Warning, "^restart guard: mymaster@.*: no client has used it")
	fail(t, exitUsage, "use --yes", "init", "--fresh", "--members", url)
	succeed(t, "1 member votes", "init", "--fresh", "--yes", "--max-ttl", lastsFor.String(), "--members", url)
	code, r = diagnose(t, "--members", url)
	assert.False(t, code != 0 || r.Members[0].State != "voting" || r.Members[0].Master != master.Addr(),
		"a master that is fit: %d, %+v", code, r)
	want(t, r, doctor.OK, "^failover: mymaster@.*a replica may take over from the master")
	fail(t, 1, "not a new set", "init", "--fresh", "--yes", "--members", url)
	holdsLocks(t, url, []string{"a", "b", "c"})
	do(t, g.Servers[:1], "CONFIG", "SET", "min-replicas-to-write", "2")
	code, r = diagnose(t, "--members", url)
	assert.False(t, code != 2 || r.Restart, "a master that refuses writes: %d, %+v", code, r)
	want(t, r, doctor.Critical, `^replicas: mymaster@.*: it refuses writes \(NOREPLICAS\): min-replicas-to-write is 2, and 1 of its replicas keep up`)
	do(t, g.Servers[:1], "CONFIG", "SET", "min-replicas-to-write", "1")

	r = sees(t, url+"&failover_lag=9s", doctor.Critical, "^failover lag: mymaster@.*: min-replicas-max-lag is 10s, failover_lag 9s")
	r = sees(t, url+"&addr_map="+replica.Addr()+"/127.0.0.1:1", doctor.Warning,
		"^replicas: mymaster@.*: its replica "+replica.Addr()+" does not answer")
	r = sees(t, url+"&addr_map="+master.Addr()+"/127.0.0.1:1", doctor.Critical, "^reachable: mymaster@.*dial tcp 127.0.0.1:1")
	r = sees(t, url+",redis://"+master.Addr()+",redis://"+replica.Addr(), doctor.Critical,
		"^identity: "+master.Addr()+": it is the same Redis as mymaster@",
		"^replication: "+replica.Addr()+": it replicates another member")
	r = sees(t, "redis-sentinel://"+g.Addrs()[0]+"/"+g.Name, doctor.Warning, "^sentinel: .*: the URL names 1 of 3 Sentinels")
	r = sees(t, "redis-sentinel://"+strings.Join(g.Addrs(), ",")+"/other", doctor.Critical,
		"^reachable: other@.*it watches no master of this name")

	// One Sentinel is told of another master; then two are dead, of which one was right.
	do(t, g.Sentinels[2:], "SENTINEL", "REMOVE", g.Name)
	host, port, _ := net.SplitHostPort(replica.Addr())
	do(t, g.Sentinels[2:], "SENTINEL", "MONITOR", g.Name, host, port, "2")
	r = sees(t, url, doctor.Critical, "^sentinel: .*different masters: .*: "+replica.Addr())
	do(t, g.Sentinels[2:], "SENTINEL", "REMOVE", g.Name)
	code, r = diagnose(t, "--members", url)
	assert.True(t, code == 1, "two of three Sentinels: %d, %+v", code, r.Findings)
	want(t, r, doctor.Warning, "^sentinel: .*: "+g.Sentinels[2].Addr()+" does not answer")
	g.Sentinels[1].Kill()
	r = sees(t, url, doctor.Critical, "^sentinel: .*: 1 of 3 Sentinels answer, which is no majority")
	want(t, r, doctor.Warning, "^sentinel: .*: 1 Sentinels answer; 2 must find the master dead, and a majority of 3")

	// The master is no master any more, which the last Sentinel has not seen.
	do(t, []*redistest.Real{replica}, "REPLICAOF", "NO", "ONE")
	do(t, []*redistest.Real{master}, "REPLICAOF", host, port)
	r = sees(t, url, doctor.Critical, "^role: mymaster@.*: it is a replica of "+replica.Addr())
	fail(t, exitUnavailable, "it is a replica now", "ls", "--members", url)
	fail(t, exitUnavailable, "it is a replica now", "init", "--fresh", "--yes", "--members", url)
	g.Sentinels[0].Kill()
	r = sees(t, url, doctor.Critical, "^reachable: mymaster@.*: sentinel 127")
	fail(t, exitUnavailable, "sentinel 127", "ls", "--members", url)
	fail(t, exitUnavailable, "init needs all members", "init", "--fresh", "--yes", "--members", url)
}

// A master and its replica over TLS, with a certificate that ends soon.
func TestCommandsKnowAClusterOverTLS(t *testing.T) {
	t.Parallel()
	rt.Needs(t, redistest.TLS)
	ca := newAuthority(t, "ca")
	ca.issue(t, "server", 100*time.Hour)
	s, err := redistest.StartSharded(t.Context(), redistest.ShardedConfig{Masters: 1, Replicas: 1,
		TLS: &redistest.Certificate{Cert: ca.path("server.crt"), Key: ca.path("server.key")}, Authority: ca.path("ca.crt")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	addrs := s.TLSAddrs()
	files := []string{"--members", "rediss-cluster://" + strings.Join(addrs, ","), "--tls-ca", ca.path("ca.crt")}
	_, r := diagnose(t, files...)
	want(t, r, doctor.Critical, "^tls: "+strings.Join(addrs, ","))
	_, r = diagnose(t, append(files, "--tls-cert", ca.path("server.crt"), "--tls-key", ca.path("server.key"))...)
	want(t, r, doctor.Warning, "^tls: "+addrs[0]+": the member's certificate expires on ")
	want(t, r, doctor.Warning, "^failover: "+addrs[0]+": cluster-replica-validity-factor of its replica "+addrs[1]+" is 0")
	assert.False(t, found(r, doctor.Critical, "^(tls|reachable|slots)") || found(r, doctor.Warning, "does not answer"), "%+v", r.Findings)
}

// serverOfTheTests makes sure that the doctor names the server, whatever it is, and says which known faults it has in a cluster.
func serverOfTheTests(t *testing.T, r doctor.Report) {
	is := inPath(t)
	for _, m := range r.Members[0].Masters {
		version := m.Version
		if is.Brand == "Redis" {
			version = "Redis " + version
		}
		assert.Equal(t, strings.ToLower(is.String()), strings.ToLower(version))
	}
	assert.False(t, found(r, doctor.Warning, "^version: "), "%+v", r.Findings)
	faulty := map[string][2]bool{"redis-7.2": {true, false}, "redis-7.4": {true, true}, "valkey-7.2": {true, false}}[is.Name()]
	assert.Equal(t, faulty, [2]bool{
		found(r, doctor.OK, "^known fault: .*CLUSTER SHARDS"), found(r, doctor.OK, "^known fault: .*SPUBLISH"),
	}, "%+v", r.Findings)
}
