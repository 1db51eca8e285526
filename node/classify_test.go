package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

func TestClassify(t *testing.T) {
	const (
		behind = " script: aa77f552b24e0b017e3df463ec8364838f1e957b, on @user_script:1."
		six    = "ERR Error running script (call to f_aa77f552b24e0b017e3df463ec8364838f1e957b): @user_script:12: "
		mini   = "ERR Error compiling script (new function): <string>:1: "
	)
	for _, tc := range []struct {
		kind        member.Kind
		reply, text string // no text: the reply itself
	}{
		{member.KindForeign, "WRONGTYPE Operation against a key holding the wrong kind of value", ""},
		{member.KindExhausted, "EXHAUSTED tokens: the counter is at 2^53", ""},
		{member.KindForeign, "WRONGTYPE Operation against a key" + behind, "WRONGTYPE Operation against a key"},
		{member.KindForeign, six + "WRONGTYPE Operation against a key", "WRONGTYPE Operation against a key"},
		{member.KindForeign, mini + "WRONGTYPE Operation against a key\nstack traceback:\n\t[G]: in function 'call'", "WRONGTYPE Operation against a key"},
		{member.KindForeign, "FOREIGN no ttl", ""},
		{member.KindOther, "ERR \x1b[31m\xff\r\nx", `ERR \u001b[31m\xff\u000d\u000ax`},
		{member.KindForeign, six + "FOREIGN no ttl", "FOREIGN no ttl"},
		{member.KindForgot, "FORGOT marker", ""},
		{member.KindForgot, mini + "FORGOT marker", "FORGOT marker"},
		{member.KindNoScript, "NOSCRIPT No matching script. Please use EVAL.", ""},
		{member.KindReadOnly, "READONLY You can't write against a read only replica.", ""},
		{member.KindReadOnly, "READONLY You can't write against a read only replica." + behind, "READONLY You can't write against a read only replica."},
		{member.KindReadOnly, six + "@user_script: 12: -READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica."},
		{member.KindReadOnly, "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.", ""},
		{member.KindReadOnly, "NOREPLICAS Not enough good replicas to write.", ""},
		{member.KindReadOnly, "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ""},
		{member.KindLoading, "LOADING Redis is loading the dataset in memory", ""},
		{member.KindBusy, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ""},
		{member.KindOverloaded, "OOM command not allowed when used memory > 'maxmemory'.", ""},
		{member.KindOverloaded, "OOM command not allowed when used memory > 'maxmemory'." + behind, "OOM command not allowed when used memory > 'maxmemory'."},
		{member.KindOverloaded, six + "@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'."},
		{member.KindOverloaded, "ERR max number of clients reached", ""},
		{member.KindAuth, "NOAUTH Authentication required.", ""},
		{member.KindAuth, "WRONGPASS invalid username-password pair or user is disabled.", ""},
		{member.KindAuth, "NOPERM this user has no permissions to run the 'client|kill' command", ""},
		{member.KindAuth, "NOPERM this user has no permissions to access one of the keys used as arguments", ""},
		{member.KindAuth, "ERR The user executing the script can't run this command or subcommand" + behind, "NOPERM inside a script: The user executing the script can't run this command or subcommand"},
		{member.KindAuth, "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + behind, "NOPERM inside a script: The user executing the script can't access at least one of the keys mentioned in the command arguments"},
		{member.KindAuth, "ERR The user executing the script can't publish to the channel mentioned in the command" + behind, "NOPERM inside a script: The user executing the script can't publish to the channel mentioned in the command"},
		{member.KindAuth, six + "@user_script: 12: The user executing the script can't run this command or subcommand", "NOPERM inside a script: The user executing the script can't run this command or subcommand"},
		{member.KindAuth, six + "@user_script: 12: -NOPERM The user executing the script can't run this command", "NOPERM inside a script: The user executing the script can't run this command"},
		{member.KindAuth, "ERR ACL failure in script: User default has no permissions to run the 'get' command" + behind, "NOPERM inside a script: User default has no permissions to run the 'get' command"},
		{member.KindAuth, "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", ""},
		{member.KindAuth, "DENIED Redis is running in protected mode because protected mode is enabled", ""},
		{member.KindCluster, "MOVED 12182 127.0.0.1:7001", ""},
		{member.KindCluster, "ASK 3300 127.0.0.1:7001", ""},
		{member.KindCluster, "TRYAGAIN Multiple keys request during rehashing of slot", ""},
		{member.KindCluster, "CLUSTERDOWN Hash slot not served", ""},
		{member.KindCluster, "CROSSSLOT Keys in request don't hash to the same slot", ""},
		{member.KindOther, "ERR unknown command 'EVALSHA', with args beginning with: 'sha' '1' 'key' 'owner:token' ", "ERR unknown command 'EVALSHA'"},
		{member.KindOther, "ERR unknown command `AUTH`, with args beginning with: `secret`, ", "ERR unknown command `AUTH`"},
		{member.KindOther, "ERR Error compiling script (new function): user_script:1: unexpected symbol near ')'", ""},
		{member.KindOther, "ERR user_script:1: boom" + behind, "ERR user_script:1: boom"},
		{member.KindCluster, "ERR Script attempted to access a non local key in a cluster node" + behind, "ERR Script attempted to access a non local key in a cluster node"},
		{member.KindCluster, "ERR Attempted to access a non local key in a cluster node script: on @user_script:1.", "ERR Attempted to access a non local key in a cluster node"},
		{member.KindCluster, "ERR Script attempted to access a slot not served" + behind, "ERR Script attempted to access a slot not served"},
		{member.KindCluster, "ERR Script attempted to execute a command while the cluster is down" + behind, "ERR Script attempted to execute a command while the cluster is down"},
		{member.KindCluster, "ERR Script attempted to execute a write command while the cluster is down and readonly" + behind, "ERR Script attempted to execute a write command while the cluster is down and readonly"},
		{member.KindCluster, six + "@user_script: 12: Lua script attempted to execute a command while the cluster is down", "Lua script attempted to execute a command while the cluster is down"},
		{member.KindCluster, six + "@user_script: 12: Lua script attempted to execute a write command while the cluster is down and readonly", "Lua script attempted to execute a write command while the cluster is down and readonly"},
		{member.KindOther, "ERR Can not execute a command 'set' in a module" + behind, "ERR Can not execute a command 'set' in a module"},
		{member.KindCluster, "ERR Can not execute a command 'set' while the cluster is down script: on @user_script:1.", "ERR Can not execute a command 'set' while the cluster is down"},
		{member.KindCluster, "ERR Can not execute a write command 'set' while the cluster is down and readonly script: on @user_script:1.", "ERR Can not execute a write command 'set' while the cluster is down and readonly"},
		{member.KindForeign, "WRONGTYPE Operation against a key script: on @user_script:1.", "WRONGTYPE Operation against a key"},
		{member.KindOther, "UNKILLABLE Sorry the script already executed write commands", ""},
		{member.KindOther, "OOMPH is another word", ""},
		{member.KindOther, "ERR value BUSY is not an integer", ""},
		{member.KindOther, "", ""},
	} {
		want := tc.text
		if want == "" {
			want = tc.reply
		}
		got := classify(tc.reply)
		require.True(t, got.Kind == tc.kind && got.Text == want,
			"classify(%q)\n got %d %q\nwant %d %q", tc.reply, got.Kind, got.Text, tc.kind, want)
	}
}

// The texts are those of a running server, not of our memory.
func TestClassifyARealServer(t *testing.T) {
	s := startRedis(t)
	s.cli("HSET", "hash", "a", "1")
	s.cli("ACL", "SETUSER", "default", "-get", "resetchannels", "&mine")
	for _, tc := range []struct {
		kind member.Kind
		args []string
	}{
		{member.KindForeign, []string{"EVAL", "return redis.call('SETRANGE', 'hash', '0', 'x')", "0"}},
		{member.KindForgot, []string{"EVAL", "return redis.error_reply('FORGOT marker')", "0"}},
		{member.KindForeign, []string{"EVAL", "return redis.error_reply('FOREIGN no ttl')", "0"}},
		{member.KindAuth, []string{"GET", "k"}},
		{member.KindAuth, []string{"EVAL", "return redis.call('GET', 'k')", "0"}},
		{member.KindAuth, []string{"EVAL", "return redis.call('PUBLISH', 'theirs', 'k')", "0"}},
		{member.KindAuth, []string{"AUTH", "x"}},
		{member.KindNoScript, []string{"EVALSHA", strings.Repeat("0", 40), "0"}},
		{member.KindOther, []string{"NOSUCH", "owner:token"}},
	} {
		got := classify(strings.TrimPrefix(s.cli(tc.args...), "-"))
		require.True(t, got.Kind == tc.kind && !strings.Contains(got.Text, "user_script") && !strings.Contains(got.Text, "token"),
			"%v: %d %q", tc.args, got.Kind, got.Text)
	}
	submit(up(t, Config{Addr: s.Addr()}), "SETRANGE", "hash", "0", "x").isRefused(t, member.KindForeign)
	const script = "return redis.call('SET', 'a', 'b')"
	refuses := func(script string, want member.Kind) {
		t.Helper()
		got := classify(s.cli("EVAL", script, "0")[1:])
		require.Equal(t, want, got.Kind, "%q", got.Text)
	}
	s.cli("CONFIG", "SET", "maxmemory", "1")
	refuses(script, member.KindOverloaded)
	if rt.Installed(t).Has(redistest.ScriptFlags) { // then it is refused before it runs
		refuses("#!lua flags=no-cluster\n"+script, member.KindOverloaded)
	}
	s.cli("CONFIG", "SET", "maxmemory", "0")
	s.cli("CONFIG", "SET", "min-replicas-to-write", "1")
	refuses(script, member.KindReadOnly)
	s.cli("CONFIG", "SET", "min-replicas-to-write", "0")
	s.cli("REPLICAOF", "127.0.0.1", "1")
	refuses(script, member.KindReadOnly)
}

// Until 7.2 the ACL does not name the command that a script may not call; the line of the script does.
func TestCommandThatAScriptMayNotCallIsNamed(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "user", "on", ">pw", "allkeys", "resetchannels", "+@all", "-pexpire", "-hset", "-zrem", "-hexists", "-pubsub")
	const asking = "local function ask(...)\n  local a = redis.pcall(...)\n  if a.err then return redis.call(...) end\nend\n"
	lib := "local t = redis.call('TIME')\nif t then redis.call('PEXPIRE', KEYS[1], 1) end\n"
	n := up(t, Config{Addr: s.Addr(), Username: "user", Password: "pw", Scripts: []string{lib}})
	const said = ": The user executing the script can't run this command or subcommand"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"EVALSHA", scriptSHA(lib), "1", "k"}, insideScript + ", PEXPIRE" + said},
		{[]string{"EVAL", lib, "1", "k"}, insideScript + ", PEXPIRE" + said},
		{[]string{"EVAL", "\n\nreturn redis.call('HSET', KEYS[1], 'owner:1', ARGV[1])", "1", "k", "redis.call('GET')"}, insideScript + ", HSET" + said},
		{[]string{"EVAL", "if redis.call('PTTL', KEYS[1]) < 1 then redis.call('PEXPIRE', KEYS[1], 1) end", "1", "k"}, insideScript + ", PTTL or PEXPIRE" + said},
		{[]string{"EVAL", "return redis.call('PUBSUB', 'NUMSUB', 'x')", "0"}, insideScript + ", PUBSUB NUMSUB" + said},
		{[]string{"EVAL", asking + "ask('ZREM', KEYS[1], 'x')\nask('HDEL', KEYS[1], 'x')", "1", "k"}, insideScript + ", ZREM or HDEL" + said},
		{[]string{"EVAL", "local ask = redis.call\nask('PTTL', KEYS[1])\nask('ZREM', KEYS[1], 'x')\nask('HDEL', KEYS[1], 'x')", "1", "k"}, insideScript + ", ZREM" + said},
		{[]string{"EVAL", "return redis.call(ARGV[1], KEYS[1], 'f')", "1", "k", "HEXISTS"}, insideScript + said},
		{[]string{"HSET", "k", "f", "v"}, "NOPERM this user has no permissions to run the 'hset' command"},
	} {
		c := newCall(tc.args...)
		if tc.args[0] == "EVALSHA" {
			c.Marks = marks(c.Cmd, 0)
		}
		n.Submit(&c.Call)
		c.wait(t)
		refused, _ := c.Err.(*member.ReplyError)
		if refused != nil && refused.Kind == member.KindAuth && strings.Contains(refused.Text, "User user has no permissions to run the '") {
			continue // from 7.2 on it says which itself
		}
		require.True(t, refused != nil && refused.Kind == member.KindAuth && strings.TrimSuffix(refused.Text, " or its subcommand") == tc.want,
			"%v\n got %v\nwant %s", tc.args, c.Err, tc.want)
	}
	// 7.2 names it.
	named := classify("ERR ACL failure in script: User u has no permissions to run the 'hset' command script: 00, on @user_script:1.")
	got := naming(named, "on @user_script:1.", "redis.call('HSET')")
	require.Equal(t, insideScript+": User u has no permissions to run the 'hset' command", got.Text, "%q", got.Text)
	for _, reply := range []string{"", "on @user_script:0.", "on @user_script:2.", "on @user_script:99999999999999999999."} {
		got := naming(&member.ReplyError{Kind: member.KindAuth, Text: insideScript + ": x"}, reply, "redis.call('HSET')")
		require.Equal(t, insideScript+": x", got.Text, "%q: %q", reply, got.Text)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("ERR Error running script (call to f_x): @user_script:12: @user_script: 12: -OOM command")
	f.Add("WRONGTYPE x script: aa, on @user_script:1.")
	f.Add("ERR Error compiling script-")
	f.Add("ERR unknown command 'X', with args beginning with: 'token'")
	f.Fuzz(func(t *testing.T, reply string) {
		got := classify(reply)
		require.True(t, len(got.Text) <= maxText, "%q is longer: %q", reply, got.Text)
		again := classify(got.Text)
		require.True(t, again.Kind == got.Kind || len(got.Text) >= maxText, "%q is %d, its text %q is %d", reply, got.Kind, got.Text, again.Kind)
		if strings.Contains(got.Text, "with args beginning with: ") && !strings.Contains(got.Text, "\n") {
			_, rest, found := strings.Cut(got.Text, ", with args beginning with")
			require.False(t, found, "%q keeps arguments %q", reply, rest)
		}
	})
}
