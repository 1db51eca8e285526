package doctor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// asUser connects as the user of the rules that are shipped, which does not permit ACL DRYRUN.
func asUser(t *testing.T) (*redistest.Real, Target, asker) {
	t.Helper()
	rt.Needs(t, redistest.ScriptFlags) // by which it tries what a user may do
	s := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Persist: redistest.Volatile}))(t)
	t.Cleanup(func() { _ = s.Close() })
	rules(t, s)
	c := node.Config{Addr: s.Addr(), Username: "locker", Password: "pw-canary", ClientName: "redlock", DialTimeout: 20 * time.Second, StallTimeout: 20 * time.Second}
	n := rt.Must(node.New(c))(t)
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	require.NoError(t, Ready(t.Context(), n, 20*time.Second))
	ask := func(args ...string) (member.Reply, error) {
		return member.Ask(t.Context(), n, member.Command{Cmd: resp.Command(args...)})
	}
	return s, Target{Node: n, Config: c, Name: s.Addr()}, ask
}

// rules gives the user what the shipped file has, and returns the commands of it.
func rules(t *testing.T, s *redistest.Real, more ...string) (commands []string) {
	t.Helper()
	text := rt.Must(os.ReadFile("../../../../acl/" + rt.Installed(t).Rules()))(t)
	words := strings.Fields(strings.ReplaceAll(string(text), ">CHANGE-ME", ">pw-canary"))[1:]
	require.NoError(t, rt.Err(s.Do(t.Context(), append(append([]string{"ACL", "SETUSER"}, words...), more...)...)))
	for _, w := range words {
		if c, ok := strings.CutPrefix(w, "+"); ok {
			commands = append(commands, c)
		}
	}
	return commands
}

// On Redis 6.2, which has no ACL DRYRUN, CLIENT KILL ID 0 ends every connection but one's own.
func TestTryingEndsNobodysConnection(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	s := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Persist: redistest.Volatile}))(t)
	t.Cleanup(func() { _ = s.Close() })
	start := func() *node.Node {
		n := rt.Must(node.New(node.Config{Addr: s.Addr(), DialTimeout: 20 * time.Second, StallTimeout: 20 * time.Second}))(t)
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		require.NoError(t, Ready(t.Context(), n, 20*time.Second))
		return n
	}
	witness, n := start(), start()
	before := witness.State().Gen
	var f Facts
	f.permissions(t.Context(), func(args ...string) (member.Reply, error) {
		return member.Ask(t.Context(), n, member.Command{Cmd: resp.Command(args...)})
	}, Target{Node: n, Config: node.Config{Addr: s.Addr()}, Name: s.Addr()}, Terms{Key: "app:held"})
	assert.NoError(t, rt.Err(member.Ask(t.Context(), witness, member.Command{Cmd: resp.Command("PING")})))
	now := witness.State()
	assert.False(t, now.Gen != before || !now.Up, "another's connection was ended: %+v", now)
}

// The rules that are shipped do not permit ACL DRYRUN. What the user lacks is found all the same, and finding
// it changes nothing.
func TestWhatTheUserLacksIsFoundByTrying(t *testing.T) {
	t.Parallel()
	s, target, ask := asUser(t)
	terms := Terms{Key: "app:held"}
	require.NoError(t, rt.Err(s.Do(t.Context(), "HSET", terms.Key, "f", "v")))
	look := func() (f Facts) {
		f.permissions(t.Context(), ask, target, terms)
		return f
	}
	if f := look(); f.ACLErr != nil || len(f.Denied) > 0 {
		t.Errorf("may do everything: %v, %v", f.Denied, f.ACLErr)
	}
	// What one server, which needs no acknowledgement of replicas, is never asked.
	others := []string{"select", "wait", "asking", "ssubscribe", "spublish", "cluster|shards", "cluster|slots", "cluster|myid"}
	tried := 0
	for _, c := range rules(t, s) {
		if slices.Contains(others, c) {
			continue
		}
		tried++
		rules(t, s, "-"+c)
		f := look()
		rules(t, s)
		want := strings.ToUpper(strings.ReplaceAll(c, "|", " "))
		missing := func(d string) bool { return d == want || strings.HasPrefix(d, want+" ") }
		if len(f.Denied) == 0 || !slices.ContainsFunc(f.Denied, missing) || slices.ContainsFunc(f.Denied, func(d string) bool { return !missing(d) }) {
			t.Errorf("without %s: %v", c, f.Denied)
		}
		assert.True(t, (f.ACLErr != nil) == (c == "eval"), "without %s: %v", c, f.ACLErr)
	}
	assert.True(t, tried >= 25, "only %d commands are in the rules", tried)

	terms.Key = "other"
	if f := look(); f.ACLErr != nil || !slices.Contains(f.Denied, "HSET other") || !slices.Contains(f.Denied, "PTTL other") || slices.Contains(f.Denied, "PING") {
		t.Errorf("a key that the rules do not have: %v, %v", f.Denied, f.ACLErr)
	}
	for chosen, want := range map[bool]Severity{true: Critical, false: OK} {
		terms.KeyChosen = chosen
		report := Judge([]Facts{look()}, terms, time.Now())
		i := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Check == "permissions" && f.Severity == want })
		if i < 0 || slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Check == "permissions" && f.Severity > want }) {
			t.Errorf("a name that the rules do not have, chosen: %v: %v", chosen, report.Findings)
		}
	}
	rules(t, s, "-zadd")
	if report := Judge([]Facts{look()}, terms, time.Now()); !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Severity == Critical && strings.Contains(f.What, "ZADD") }) {
		t.Errorf("without zadd, and for a name that the rules do not have: %v", report.Findings)
	}
	rules(t, s)
	terms.Key, terms.KeyChosen = "app:held", false
	rules(t, s, "resetchannels")
	assert.Equal(t, []string{"SUBSCRIBE redquorum:inbox:doctor", "PUBLISH redquorum:inbox:doctor"}, look().Denied, "without channels")
	rules(t, s)
	target.Config.MinReplicasAck = 1
	rules(t, s, "-wait")
	assert.Equal(t, []string{"WAIT"}, look().Denied, "without wait")

	assert.Equal(t, []any{"app:held"}, rt.Must(s.Do(t.Context(), "KEYS", "*"))(t), "it left")
	assert.Len(t, rt.Must(s.Do(t.Context(), "HGETALL", "app:held"))(t), 2, "the lock")
	assert.Equal(t, int64(-1), rt.Must(s.Do(t.Context(), "PTTL", "app:held"))(t))
}

// A server that cannot tell, because it is older, is not taken for one that permits everything.
func TestPermissionsThatCannotBeTriedAreNotTakenForGranted(t *testing.T) {
	t.Parallel()
	old := func(args ...string) (member.Reply, error) {
		if args[0] == "ACL" || args[0] == "EVAL" {
			return member.Reply{}, &member.ReplyError{Text: "ERR"}
		}
		return member.Reply{}, nil
	}
	var f Facts
	f.permissions(t.Context(), old, Target{Config: node.Config{Addr: "127.0.0.1:1"}}, Terms{Key: "x"})
	assert.False(t, f.ACLErr == nil || len(f.Denied) > 0, "%v, %v", f.ACLErr, f.Denied)
	broken := func(...string) (member.Reply, error) { return member.Reply{}, errors.New("broken") }
	f = Facts{}
	f.permissions(t.Context(), broken, Target{Config: node.Config{Addr: "127.0.0.1:1"}}, Terms{Key: "x"})
	assert.Error(t, f.ACLErr, "nothing was answered, and nothing is said of that")
}

// What a permission that is missing does to locks is what the finding says of it, and its cure names it.
func TestEachMissingPermissionHasItsSeverityAndCure(t *testing.T) {
	t.Parallel()
	s, target, _ := asUser(t)
	for without, want := range map[string]struct {
		check    string
		severity Severity
		cure     string
	}{
		"ping":           {"permissions", Warning, "+ping"},
		"client|setname": {"permissions", Warning, "+client|setname"},
		"client|list":    {"permissions", Warning, "+client|list"},
		"script|load":    {"permissions", Warning, "+script|load"},
		"script|exists":  {"permissions", Warning, "+script|exists"},
		"zscore":         {"permissions", Warning, "+zscore"},
		"hscan":          {"permissions", Critical, "acl/members.acl"},
		"zadd":           {"permissions", Critical, "acl/members.acl"},
		"hmget":          {"restart guard", Critical, "+hmget"},
	} {
		rules(t, s, "-"+without)
		f := Ask(t.Context(), target, Terms{Key: "app:held", Dial: 20 * time.Second})
		rules(t, s)
		if f.Err != nil || f.RTT <= 0 || f.state() == "down" {
			t.Errorf("without %s: %v", without, f.Err)
			continue
		}
		if f.MarkerErr == nil {
			f.Marker, f.State, f.Repl = f.Info["run_id"]+" 1", "n", f.Info["master_replid"]
		}
		r := Judge([]Facts{f}, Terms{Drift: 0.01, MaxTTL: 30 * time.Second}, time.Now())
		found := false
		for _, x := range r.Findings {
			assert.False(t, x.Check == "quorum" && f.MarkerErr == nil || strings.Contains(x.What, "\n") || strings.Contains(x.What, f.Member),
				"without %s: %+v", without, x)
			found = found || x.Check == want.check && x.Severity == want.severity && strings.Contains(x.Cure, want.cure)
			assert.False(t, want.severity == Warning && x.Severity == Critical, "without %s: %+v", without, x)
		}
		assert.True(t, found, "without %s: %+v", without, r.Findings)
	}
}

// Servers that lack a command, as those of some providers do, are not taken for ones that have it, whatever else they lack.
func TestEachCommandThatAServerLacksIsFound(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	words := make(map[string]bool)
	for _, c := range Commands(Target{}, "app:x", false) {
		words[c[0]] = true
	}
	assert.Greater(t, len(words), 20)
	for lacks := range words {
		for _, also := range [][]string{nil, {"ACL", "CONFIG", "INFO"}} {
			var args []string
			for _, c := range append([]string{lacks}, also...) {
				if c != lacks || len(args) == 0 {
					args = append(args, "--rename-command", c, "gone-"+c)
				}
			}
			s := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Persist: redistest.Volatile, Args: args}))(t)
			n := rt.Must(node.New(node.Config{Addr: s.Addr(), DialTimeout: 20 * time.Second, StallTimeout: 20 * time.Second}))(t)
			assert.NoError(t, Ready(t.Context(), n, 20*time.Second))
			f := Ask(t.Context(), Target{Node: n, Config: node.Config{Addr: s.Addr(), ClientName: "redlock"}, Name: s.Addr()}, Terms{Key: "app:x", Dial: 20 * time.Second})
			assert.True(t, len(f.Denied) > 0, "%s %v: %v %v", lacks, also, f.Denied, f.ACLErr)
			for _, d := range f.Denied {
				word, _, _ := strings.Cut(d, " ")
				assert.True(t, word == lacks || slices.Contains(also, word), "%s %v: %s", lacks, also, d)
			}
			_ = n.Close(context.Background())
			_ = s.Close()
		}
	}
}
