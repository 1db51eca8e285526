package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

func good(i int) Facts {
	start := time.Now()
	id := fmt.Sprintf("run%d", i)
	f := Facts{
		Member: fmt.Sprintf("10.0.0.%d:6379", i), RTT: time.Millisecond, Marker: id + " 17", State: "n",
		Info: map[string]string{
			"run_id": id, "role": "master", "redis_version": "7.0.15", "maxmemory_policy": "noeviction", "maxmemory": "0", "aof_enabled": "1",
			"connected_clients": "10", "maxclients": "10000", "master_replid": "replid" + id, "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok",
		},
		Config: map[string]string{"appendfsync": "always", "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"},
	}
	for k := range f.Clock {
		at := start.Add(time.Duration(k) * time.Second)
		f.Clock[k] = Reading{at, at.Add(time.Millisecond), at.Round(0).Add(500 * time.Microsecond)}
	}
	return f
}

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type set = []Facts
	for name, tc := range map[string]struct {
		change func(s set, terms *Terms) set
		want   Severity
		check  string
		says   string
		stop   bool // no other member may be restarted
	}{
		"nothing":       {func(s set, _ *Terms) set { return s }, OK, "", "", false},
		"one down":      {func(s set, _ *Terms) set { s[1] = Facts{Member: s[1].Member, Err: errors.New("refused")}; return s }, Critical, "reachable", "refused", true},
		"bare majority": {func(s set, _ *Terms) set { s[1] = Facts{Member: s[1].Member, Err: errors.New("refused")}; return s }, Critical, "quorum", "bare majority", true},
		"two down":      {func(s set, _ *Terms) set { s[1].Err, s[2].Err = errors.New("x"), errors.New("x"); return s }, Critical, "quorum", "1 of 3", true},
		"wrong password": {func(s set, _ *Terms) set {
			s[1].Err = &member.ReplyError{Kind: member.KindAuth, Text: "WRONGPASS"}
			return s
		}, Critical, "auth", "WRONGPASS", true},
		"wrong certificate": {func(s set, _ *Terms) set { s[1].Err, s[1].TLSErr = errors.New("unknown authority"), true; return s }, Critical, "tls", "unknown authority", true},
		"even":              {func(s set, _ *Terms) set { return append(s, good(4)) }, Warning, "number", "even", false},
		"alone":             {func(s set, _ *Terms) set { return s[:1] }, OK, "number", "one member", true},
		"one host":          {func(s set, _ *Terms) set { s[1].Member = "10.0.0.1:6380"; return s }, Warning, "hosts", "2 members are on", false},
		"loopback":          {func(s set, _ *Terms) set { s[1].Member, s[2].Member = "127.0.0.1:1", "127.0.0.1:2"; return s }, OK, "hosts", "127.0.0.1", false},
		"twice":             {func(s set, _ *Terms) set { s[1].Info["run_id"], s[1].Marker = "run1", s[0].Marker; return s }, Critical, "identity", "10.0.0.1:6379", false},
		"replica":           {func(s set, _ *Terms) set { s[1].Info["role"] = "slave"; return s }, Critical, "replication", "replica of", false},
		"replica of a member": {func(s set, _ *Terms) set {
			s[1].Info["role"], s[1].Info["master_host"], s[1].Info["master_port"] = "slave", "10.0.0.3", "6379"
			return s
		}, Critical, "replication", "another member, 10.0.0.3", false},
		"replica by another name": {func(s set, _ *Terms) set {
			s[1].Info["role"], s[1].Info["master_replid"] = "slave", s[2].Info["master_replid"]
			return s
		}, Critical, "replication", "another member, 10.0.0.3", false},
		"old":           {func(s set, _ *Terms) set { s[1].Info["redis_version"] = "6.0.9"; return s }, Critical, "version", "6.0.9", false},
		"not tested":    {func(s set, _ *Terms) set { s[1].Info["redis_version"] = "8.0.0"; return s }, Warning, "version", "Redis 8.0.0 is not tested", false},
		"another patch": {func(s set, _ *Terms) set { s[1].Info["redis_version"] = "7.2.13"; return s }, OK, "", "", false},
		"fork": {func(s set, _ *Terms) set {
			s[1].Info["redis_version"], s[1].Info["valkey_version"] = "7.2.4", "8.1.1"
			return s
		}, OK, "", "", false},
		"fork, not tested": {func(s set, _ *Terms) set {
			s[1].Info["redis_version"], s[1].Info["valkey_version"] = "7.2.4", "7.2.7"
			return s
		}, Warning, "version", "Valkey 7.2.7 is not tested", false},
		"another server": {func(s set, _ *Terms) set {
			s[1].Info["redis_version"], s[1].Info["dragonfly_version"] = "7.4.0", "df-v1.40.1"
			return s
		}, Warning, "version", "Dragonfly df-v1.40.1 is not tested", false},
		"KeyDB": {func(s set, _ *Terms) set {
			s[1].Info["redis_version"], s[1].Info["mvcc_depth"] = "6.3.4", "0"
			return s
		}, Warning, "version", "KeyDB 6.3.4 is not tested", false},
		"version not told": {func(s set, _ *Terms) set { delete(s[1].Info, "redis_version"); return s }, OK, "version", "does not tell", false},
		"cluster":          {func(s set, _ *Terms) set { s[1].Info["redis_mode"] = "cluster"; return s }, Critical, "mode", "Cluster", false},
		"loading":          {func(s set, _ *Terms) set { s[1].Info["loading"] = "1"; return s }, Warning, "loading", "", false},
		"no info":          {func(s set, _ *Terms) set { s[1].Info = nil; return s }, Critical, "info", "", false},
		"crowded":          {func(s set, _ *Terms) set { s[1].Info["connected_clients"] = "9000"; return s }, Warning, "clients", "9000", false},
		"far":              {func(s set, _ *Terms) set { s[1].RTT = 80 * time.Millisecond; return s }, Warning, "rtt", "80ms", false},
		"evicts": {func(s set, _ *Terms) set {
			s[1].Info["maxmemory_policy"], s[1].Info["maxmemory"] = "allkeys-lru", "100"
			return s
		}, Critical, "eviction", "allkeys-lru", false},
		"would evict":         {func(s set, _ *Terms) set { s[1].Info["maxmemory_policy"] = "allkeys-lru"; return s }, Warning, "eviction", "allkeys-lru", false},
		"no file":             {func(s set, _ *Terms) set { s[1].Info["aof_enabled"] = "0"; return s }, OK, "persistence", "no append-only file", false},
		"no guard, no file":   {func(s set, x *Terms) set { x.GuardOff = true; s[1].Info["aof_enabled"] = "0"; return s }, Critical, "persistence", "guard is off", false},
		"no guard, everysec":  {func(s set, x *Terms) set { x.GuardOff = true; s[1].Config["appendfsync"] = "everysec"; return s }, Critical, "persistence", "guard is off", false},
		"no guard, not known": {func(s set, x *Terms) set { x.GuardOff = true; s[1].Config = nil; return s }, Critical, "persistence", "not known", false},
		"no guard, always":    {func(s set, x *Terms) set { x.GuardOff = true; return s }, OK, "", "", false},
		"disk full":           {func(s set, _ *Terms) set { s[1].Info["aof_last_write_status"] = "err"; return s }, Critical, "persistence", "failed", false},
		"snapshot failed":     {func(s set, _ *Terms) set { s[1].Info["rdb_last_bgsave_status"] = "err"; return s }, Critical, "persistence", "failed", false},
		"fast clock": {func(s set, _ *Terms) set {
			s[1].Clock[1].Server = s[1].Clock[1].Server.Add(10 * time.Millisecond)
			return s
		}, Critical, "clock rate", "+10000 ppm", false},
		"slow clock": {func(s set, _ *Terms) set {
			s[1].Clock[1].Server = s[1].Clock[1].Server.Add(-10 * time.Millisecond)
			return s
		}, Critical, "clock rate", "-10000 ppm", false},
		"clock that is nearly right": {func(s set, _ *Terms) set {
			s[1].Clock[1].Server = s[1].Clock[1].Server.Add(6 * time.Millisecond)
			return s
		}, OK, "", "", false},
		"clock read slowly": {func(s set, _ *Terms) set {
			s[1].Clock[1] = Reading{s[1].Clock[0].Sent.Add(50 * time.Millisecond), s[1].Clock[0].Sent.Add(60 * time.Millisecond), s[1].Clock[0].Server.Add(30 * time.Millisecond)}
			return s
		}, OK, "", "", false},
		"clock off": {func(s set, _ *Terms) set {
			for k := range s[1].Clock {
				s[1].Clock[k].Server = s[1].Clock[k].Server.Add(time.Hour)
			}
			return s
		}, Warning, "clock offset", "1h0m0", false},
		"clocks apart": {func(s set, _ *Terms) set {
			for k := range s[1].Clock {
				s[1].Clock[k].Server = s[1].Clock[k].Server.Add(600 * time.Millisecond)
			}
			return s
		}, Warning, "clock offset", "differ by 600ms", false},
		"new":                  {func(s set, _ *Terms) set { s[1].Marker, s[1].State = "", ""; return s }, Warning, "restart guard", "no client", true},
		"restarted":            {func(s set, _ *Terms) set { s[1].Marker = "other 17"; return s }, Warning, "restart guard", "no client has noticed", true},
		"quarantined":          {func(s set, _ *Terms) set { s[1].State, s[1].Left = "g", 12*time.Second; return s }, Warning, "restart guard", "12s more", true},
		"restoring":            {func(s set, _ *Terms) set { s[1].State = "g"; return s }, Warning, "restart guard", "not restored", true},
		"restored":             {func(s set, _ *Terms) set { s[1].State = "w"; return s }, OK, "", "", false},
		"marker not permitted": {func(s set, _ *Terms) set { s[1].MarkerErr = errors.New("NOPERM"); return s }, Critical, "restart guard", "NOPERM", true},
		"refuses writes": {func(s set, _ *Terms) set {
			s[1].Info["min_slaves_good_slaves"], s[1].Config["min-replicas-to-write"] = "1", "2"
			return s
		}, Critical, "replicas", "min-replicas-to-write is 2, and 1 of its replicas keep up", true},
		"refuses writes, not permitted": {func(s set, _ *Terms) set { s[1].Info["min_slaves_good_slaves"] = "0"; return s }, Critical, "replicas", "is not 0, and 0", true},
		"takes writes": {func(s set, _ *Terms) set {
			s[1].Info["min_slaves_good_slaves"], s[1].Config["min-replicas-to-write"] = "2", "2"
			return s
		}, OK, "", "", false},
		"full": {func(s set, _ *Terms) set {
			s[1].WriteErr = &member.ReplyError{Kind: member.KindOverloaded, Text: "OOM command not allowed"}
			return s
		}, Critical, "writes", "OOM", true},
		"paused": {func(s set, _ *Terms) set { s[1].WriteErr = context.DeadlineExceeded; return s }, Critical, "writes", "no write", true},
		"too far": {func(s set, x *Terms) set {
			x.Patience = 70 * time.Millisecond
			s[1].RTT = 80 * time.Millisecond
			return s
		}, Critical, "rtt", "80ms", true},
		"nobody votes": {func(s set, _ *Terms) set { s[0].Marker, s[1].Marker, s[2].Marker = "o 1", "p 1", "q 1"; return s }, Critical, "quorum", "0 of 3 members vote", true},
		"too few vote": {func(s set, _ *Terms) set { s[0].Left, s[1].WriteErr = time.Second, errors.New("x"); return s }, Critical, "quorum", "1 of 3 members vote", true},
		"twice, told by the marker": {func(s set, _ *Terms) set {
			s[0].Info, s[1].Info, s[1].Marker = nil, nil, s[0].Marker
			return s
		}, Critical, "identity", "same Redis as 10.0.0.1:6379", true},
		"key of the line": {func(s set, _ *Terms) set { s[1].Denied = []string{"ZSCORE redquorum:sq:{a}"}; return s }, Critical, "permissions", "may not: ZSCORE redquorum", true},
		"ping":            {func(s set, _ *Terms) set { s[1].Denied = []string{"PING"}; return s }, Warning, "permissions", "not: PING", false},
		"its name":        {func(s set, _ *Terms) set { s[1].Denied = []string{"CLIENT SETNAME"}; return s }, Warning, "permissions", "not: CLIENT SETNAME", false},
		"zscore":          {func(s set, _ *Terms) set { s[1].Denied = []string{"ZSCORE"}; return s }, Warning, "permissions", "not: ZSCORE", false},
		"hscan":           {func(s set, _ *Terms) set { s[1].Denied = []string{"HSCAN"}; return s }, Critical, "permissions", "not: HSCAN", false},
		"script load":     {func(s set, _ *Terms) set { s[1].Denied = []string{"SCRIPT LOAD", "PING"}; return s }, Warning, "permissions", "not: SCRIPT LOAD", false},
		"not permitted":   {func(s set, _ *Terms) set { s[1].Denied = []string{"CLIENT KILL"}; return s }, Critical, "permissions", "CLIENT KILL", false},
		"another name, Redis 6.2": {func(s set, x *Terms) set {
			x.Key, s[1].ACLErr, s[1].Denied = "a", errors.New("x"), []string{"EVALSHA a redquorum:tokens"}
			return s
		}, OK, "permissions", "not checked for locks", false},
		"another name and command, Redis 6.2": {func(s set, x *Terms) set {
			x.Key, s[1].ACLErr, s[1].Denied = "a", errors.New("x"), []string{"EVALSHA a redquorum:tokens", "CLIENT KILL"}
			return s
		}, Critical, "permissions", "may not: CLIENT KILL", false},
		"no scripts": {func(s set, x *Terms) set {
			x.Key, s[1].ACLErr, s[1].Denied = "a", errors.New("x"), []string{"EVAL a redquorum:tokens", "EVALSHA a redquorum:tokens"}
			return s
		}, Critical, "permissions", "may not: EVAL a", false},
		"permissions not known": {func(s set, _ *Terms) set { s[1].ACLErr = errors.New("x"); return s }, OK, "permissions", "not all checked: x", false},
		"small buffers":         {func(s set, _ *Terms) set { s[1].Config["client-output-buffer-limit"] = "pubsub 65536 0 0"; return s }, Warning, "buffers", "65536", false},
		"small buffers, soft": {func(s set, _ *Terms) set {
			s[1].Config["client-output-buffer-limit"] = "normal 0 0 0 pubsub 0 1000 60"
			return s
		}, Warning, "buffers", "1000", false},
		"no limit":                {func(s set, _ *Terms) set { s[1].Config["client-output-buffer-limit"] = "pubsub 0 0 0"; return s }, OK, "", "", false},
		"expired":                 {func(s set, _ *Terms) set { s[1].Expires = now.Add(-time.Hour); return s }, Critical, "tls", "expired on", false},
		"expires":                 {func(s set, _ *Terms) set { s[1].Expires = now.Add(100 * time.Hour); return s }, Warning, "tls", "in 4 days", false},
		"expires late":            {func(s set, _ *Terms) set { s[1].Expires = now.Add(100 * 24 * time.Hour); return s }, OK, "", "", false},
		"own certificate expires": {func(s set, x *Terms) set { x.Own = now.Add(time.Hour); return s }, Warning, "tls", "our own", false},
	} {
		terms := Terms{Drift: 0.01, MaxTTL: 30 * time.Second}
		r := Judge(tc.change(set{good(1), good(2), good(3)}, &terms), terms, now)
		assert.True(t, r.Severity == tc.want, "%s: %v, want %v: %+v", name, r.Severity, tc.want, r.Findings)
		assert.True(t, r.Restart != (tc.stop || tc.want == Critical), "%s: may restart: %v (%s)", name, r.Restart, r.RestartNo)
		if tc.check == "" {
			assert.Empty(t, r.Findings, "%s: %+v", name, r.Findings)
			continue
		}
		found := false
		for _, f := range r.Findings {
			found = found || f.Check == tc.check && strings.Contains(f.What, tc.says)
			assert.False(t, f.Severity > OK && (f.Risk == "" || f.Cure == ""), "%s: no risk or no cure: %+v", name, f)
		}
		assert.True(t, found, "%s: %+v lacks %s", name, r.Findings, tc.check)
	}
}

func TestInfoIsRead(t *testing.T) {
	t.Parallel()
	got := parseInfo("# Server\r\nredis_version:7.0.15\r\nexecutable:/a:b\r\n\r\n")
	assert.Equal(t, map[string]string{"redis_version": "7.0.15", "executable": "/a:b"}, got)
}

// The cure is for what the server said, and the member is named once.
func TestCureIsForWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	noperm := func(text string) error { return &member.ReplyError{Kind: member.KindAuth, Text: "NOPERM " + text} }
	at := func(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }
	unread := func(err error) func(f *Facts) {
		return func(f *Facts) {
			f.MarkerErr = fmt.Errorf("the restart guard's marker cannot be read: %w", at(f.Member, err))
		}
	}
	down := func(err error) func(f *Facts) {
		return func(f *Facts) { *f = Facts{Member: f.Member, Addr: f.Addr, Err: at(f.Member, at(f.Member, err))} }
	}
	refused := errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")
	for name, tc := range map[string]struct {
		change            func(f *Facts)
		check, what, cure string
	}{
		"loading":         {down(&member.ReplyError{Kind: member.KindLoading, Text: "LOADING Redis is loading"}), "reachable", "LOADING", "run doctor again"},
		"new":             {func(f *Facts) { f.Marker = "" }, "restart guard", "no client has used it", notice},
		"restarted":       {func(f *Facts) { f.Marker = "other 17" }, "restart guard", "it has restarted", notice},
		"command":         {unread(noperm("this user has no permissions to run the 'hmget' command")), "restart guard", "the restart guard's marker cannot be read: NOPERM this user", "+hmget"},
		"subcommand":      {unread(noperm("User x has no permissions to run the 'cluster|myid' command")), "restart guard", "", "+cluster|myid"},
		"6":               {unread(noperm("this user has no permissions to run the 'hmget' command or its subcommand")), "restart guard", "", "+hmget"},
		"key":             {unread(noperm("No permissions to access a key")), "restart guard", "", "permit ~redquorum:*"},
		"key, 6":          {unread(noperm("this user has no permissions to access one of the keys used as arguments")), "restart guard", "", "permit ~redquorum:*"},
		"cluster is down": {unread(&member.ReplyError{Kind: member.KindCluster, Text: "CLUSTERDOWN The cluster is down"}), "restart guard", "", "CLUSTER INFO and CLUSTER NODES say why"},
		"loads":           {unread(&member.ReplyError{Kind: member.KindLoading, Text: "LOADING"}), "restart guard", "", "run doctor again when it takes commands"},
		"silent":          {unread(errors.New("timeout")), "restart guard", "marker cannot be read: timeout", "run doctor again"},
		"away":            {down(refused), "reachable", refused.Error(), "start it, or check the network"},
		"stopped":         {down(context.DeadlineExceeded), "reachable", "deadline", "a process that is stopped"},
		"wrong scheme":    {down(&node.SchemeError{Scheme: "redis-sentinel://"}), "scheme", "wrong scheme", "write redis-sentinel://"},
		"TLS 1.2": {func(f *Facts) {
			down(errors.New("remote error: tls: handshake failure: the server asks for a client certificate and the URL has none (tls_cert, tls_key)"))(f)
			f.TLSErr = true
		}, "tls", "remote error", "tls_cert and tls_key in the URL, or --tls-cert"},
		"TLS 1.3": {func(f *Facts) { down(errors.New("remote error: tls: certificate required"))(f); f.TLSErr = true }, "tls", "remote error", "tls_cert and tls_key in the URL"},
		"TLS":     {func(f *Facts) { down(errors.New("remote error: tls: bad certificate"))(f); f.TLSErr = true }, "tls", "remote error", "on both sides"},
	} {
		f := good(1)
		f.Addr = f.Member
		tc.change(&f)
		found := false
		for _, x := range Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Findings {
			if x.Check != tc.check {
				continue
			}
			found = true
			assert.False(t, !strings.HasPrefix(x.What, tc.what) && !strings.Contains(x.What, tc.what) || strings.HasPrefix(x.What, f.Member) || strings.Contains(x.What, ": "+f.Member+": ") || strings.Contains(x.What, "\n"), "%s: %q, want %q", name, x.What, tc.what)
			assert.False(t, tc.cure == "" || !strings.HasPrefix(x.Cure, tc.cure) && !strings.Contains(x.Cure, tc.cure),
				"%s: cure %q, want %q", name, x.Cure, tc.cure)
			assert.NotContains(t, x.Cure, "addr_map", "%s: its address is that of the URL, and the cure is %q", name, x.Cure)
		}
		assert.True(t, found, "%s: nothing of %s", name, tc.check)
	}
}

// A rate of a clock is told only where the readings were short beside the time between them.
func TestRateIsToldOnlyWhereItIsKnown(t *testing.T) {
	t.Parallel()
	f := good(1)
	told := func() *float64 {
		return Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now()).Members[0].Rate
	}
	if r := told(); r == nil || *r != 0 {
		t.Errorf("%v", r)
	}
	f.Clock[1].Arrived = f.Clock[1].Sent.Add(4 * time.Millisecond) // 5000 ppm, with the other
	if r := told(); r != nil {
		t.Errorf("%v", *r)
	}
}

// A lock is tried where nothing is critical and a client would mark nothing, and what became of it is in the report.
func TestTrialIsTold(t *testing.T) {
	t.Parallel()
	judged := func(state func(f *Facts)) Report {
		all := []Facts{good(1), good(2), good(3)}
		state(&all[1])
		return Judge(all, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now())
	}
	well := judged(func(*Facts) {})
	assert.Empty(t, well.NoTrial())
	resting := judged(func(f *Facts) { f.Left = time.Second })
	assert.Empty(t, resting.NoTrial())
	unseen := judged(func(f *Facts) { f.Marker = "" })
	assert.Contains(t, unseen.NoTrial(), "10.0.0.2:6379 is new, and a client would mark it")
	evicts := judged(func(f *Facts) { f.Info["maxmemory_policy"], f.Info["maxmemory"] = "allkeys-lru", "1" })
	assert.Contains(t, evicts.NoTrial(), "critical")
	for says, tried := range map[string]Trial{
		"ok: handed over by a push":                              {},
		"warning: no member told it":                             {Polled: true},
		"critical: renewal of a lock named x: no answer":         {Name: "x", Step: "renewal", Err: errors.New("no answer")},
		"ok: no lock was tried: the user may not use the name x": {Not: "the user may not use the name x", Step: "lock", Err: errors.New("NOPERM")},
	} {
		r := judged(func(*Facts) {})
		r.Tried(tried)
		severity, text, _ := strings.Cut(says, ": ")
		assert.Equal(t, severity, r.Severity.String(), says)
		assert.Contains(t, r.Findings[0].What, text)
		assert.Equal(t, severity != "critical", r.Restart, says)
	}
}
