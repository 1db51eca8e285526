package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/doctor"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// without starts a server that does not know some commands, as a managed service does not.
func without(commands ...string) (args []string) {
	for _, c := range commands {
		args = append(args, "--rename-command", c, "gone-"+c)
	}
	return args
}

func init() { trialTTL, trialLasts = 30*time.Second, patience } // on a busy machine

// Of a set at which no lock can be taken something is critical, and names why. Of a set that is odd and fit nothing is, and a
// lock was taken there, or it says why none was tried.
func TestDoctorFindsTheSetsThatCannotLockAndNoOthers(t *testing.T) {
	t.Parallel()
	rt.Needs(t, redistest.ScriptFlags)
	managed := []string{"ACL", "CONFIG", "INFO"}
	type do = [][]string
	words := func(lines ...string) (all do) {
		for _, l := range lines {
			all = append(all, strings.Fields(l))
		}
		return all
	}
	const locker = "ACL SETUSER default resetkeys resetchannels ~* &redquorum:inbox:* -@all +auth"
	shipped := strings.Fields("evalsha eval script|load script|exists subscribe ping info client|id client|list client|kill client|setname select time pttl pexpire exists hincrby hget hset hdel hexists hkeys hmget hgetall hlen hscan zadd zrem zrange zscore set del publish")
	user := func(rules string, not ...string) string {
		line := locker
		for _, c := range shipped {
			if !slices.Contains(not, c) {
				line += " +" + c
			}
		}
		return line + " " + rules
	}
	for name, tc := range map[string]struct {
		args  []string // of the server
		new   bool     // no client has looked at it
		then  do       // after a client has
		flags string   // of doctor
		says  string   // of what is critical; "": nothing is
		tried string   // what becomes of the trial of a set that is fit
	}{
		"full":                    {then: words("CONFIG SET maxmemory 1"), says: "^writes: .*OOM"},
		"paused":                  {then: words("CLIENT PAUSE 100000 WRITE"), says: "^writes: .*no write"},
		"a replica":               {then: words("REPLICAOF 127.0.0.1 1"), says: "^replication: "},
		"too few replicas":        {then: words("CONFIG SET min-replicas-to-write 1"), says: "^replicas: .*NOREPLICAS"},
		"evicts":                  {then: words("CONFIG SET maxmemory 1gb", "CONFIG SET maxmemory-policy allkeys-lru"), says: "^eviction: "},
		"nobody knows it":         {new: true, says: "^quorum: : 0 of 1 members vote"},
		"twice":                   {flags: "twice", says: "^identity: "},
		"no INFO":                 {args: without("INFO", "ACL"), says: "^info: "},
		"no EVALSHA":              {args: without(append(managed, "EVALSHA")...), says: "^permissions: .*EVALSHA"},
		"no SUBSCRIBE":            {args: without("SUBSCRIBE", "ACL", "CONFIG"), says: "^permissions: .*SUBSCRIBE"},
		"no ZADD":                 {args: without(append(managed, "ZADD")...), says: "^permissions: .*ZADD"},
		"no EVAL":                 {args: without("EVAL", "SCRIPT"), says: "^permissions: .*EVAL"},
		"no HSCAN":                {args: without("HSCAN"), says: "^permissions: .*HSCAN"}, // no member would be restored
		"no HDEL, and ACL":        {args: without("HDEL"), says: "^permissions: .*HDEL"},
		"a user without HSET":     {then: words(user("", "hset")), says: "^permissions: .*HSET"},
		"a user without channels": {then: words(user("resetchannels")), says: "^permissions: .*SUBSCRIBE"},
		"a user without our keys": {then: words(user("resetkeys ~redquorum:boot ~redquorum:quarantine")), says: "^permissions: .*(ZSCORE redquorum|HSCAN redquorum)"},

		"as it comes":                   {tried: "handed over"},
		"the user of the rules":         {then: words(user("")), tried: "handed over"},
		"no ACL, no CONFIG":             {args: without("ACL", "CONFIG"), tried: "handed over"},
		"no SCRIPT":                     {args: without("SCRIPT", "ACL"), tried: "handed over"},
		"no CLIENT LIST":                {then: words(user("", "client|list", "client|setname")), tried: "handed over"},
		"a limit that it is far from":   {then: words("CONFIG SET maxmemory 1gb"), tried: "handed over"},
		"evicts once it has a limit":    {then: words("CONFIG SET maxmemory-policy allkeys-lru"), tried: "handed over"},
		"persistence":                   {args: []string{"--appendonly", "yes"}, tried: "handed over"},
		"another database":              {flags: "/3", tried: "handed over"},
		"a user of other names":         {then: words(user("resetkeys ~redquorum:* ~app:*")), tried: "the user may not use the name"},
		"a user of other names, chosen": {then: words(user("resetkeys ~redquorum:* ~app:*")), flags: "--key app:x", tried: "handed over"},
		"no trial":                      {flags: "--trial=false", tried: "--trial=false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Persist: redistest.Volatile, Args: tc.args}))(t)
			defer func() { _ = s.Close() }()
			url, flags := "redis://"+s.Addr(), strings.Fields(tc.flags)
			switch tc.flags {
			case "twice":
				url, flags = url+","+strings.Replace(url, "127.0.0.1", "localhost", 1), nil
			case "/3":
				url, flags = url+"/3", nil
			}
			if !tc.new { // what it lacks may be what this needs
				command(t, "init", "--fresh", "--yes", "-q", "--members", url, "--dial-timeout", "30s")
			}
			for _, line := range tc.then {
				assert.NoError(t, rt.Err(s.Do(t.Context(), line...)))
			}
			if name != "paused" { // what answers may take its time
				flags = append(flags, "--member-timeout", patience.String())
			}
			code, r := diagnose(t, append([]string{"--members", url}, flags...)...)
			if tc.says != "" {
				assert.Equal(t, 2, code)
				want(t, r, doctor.Critical, tc.says)
				assert.False(t, r.Restart)
				if regexp.MustCompile(`^\^(writes|replica)`).MatchString(tc.says) {
					assert.Equal(t, "refusing", r.Members[0].State)
				}
				return
			}
			assert.Less(t, code, 2, "%+v", r.Findings)
			want(t, r, doctor.OK, "^trial: : .*"+tc.tried)
			if keys, err := s.Do(t.Context(), "KEYS", "*redquorum-doctor*"); err == nil {
				assert.Empty(t, keys, "it left")
			}
		})
	}
}

// A clock that runs at another rate than ours is critical. The server is an embedded one: a real one has the clock of this
// machine.
func TestDoctorFindsAClockThatIsFast(t *testing.T) {
	t.Parallel()
	members, urls := embedded(t, 1)
	members.Embedded(0).SetRate(1.02)
	code, stdout := 0, ""
	within := rt.Within(t, patience)
	for !regexp.MustCompile(`critical +clock rate: .* \+\d+ ppm`).MatchString(stdout) { // a reading may take too long
		require.NoError(t, within.Err(), stdout)
		code, stdout, _ = command(t, "doctor", "--sample", "1s", "--members", urls[0])
	}
	assert.Equal(t, 2, code)
}
