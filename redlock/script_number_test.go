//go:build !race

package redlock

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"

	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Redis 7.2.0 to 7.2.4 write a number that a script gives to a command, and that ends in eight zeros or more, as
// 1.7e+15: a token that nobody knows again, a counter that does not count on. No script may give them one.
// (https://github.com/redis/redis/pull/13115)
func TestNumbersThatRedisWritesShort(t *testing.T) {
	const token = 17e14
	for _, tc := range []struct {
		name    string
		script  script.Script
		args    string            // ARGV, separated by blanks
		replies map[string]string // to commands, otherwise 1; with blanks: an array
		asked   string            // a command that is reached
	}{
		{"acquire", script.Acquire, "7 o:1 50000000 -", map[string]string{"PTTL": "-2"}, "PEXPIRE"},
		{"acquire in a new bucket", script.Acquire, "7 o:1 50000000 -", map[string]string{"PTTL": "-2", "HINCRBY": "1", "HGET": "-"}, "TIME"},
		{"batch", script.Batch, "000 7 8 9 o:1 50000000 o:2 50000000 o:3 50000000 _ -", map[string]string{"EXISTS": "0"}, "PEXPIRE"},
		{"batch in new buckets", script.Batch, "000 7 8 9 o:1 50000000 o:2 50000000 o:3 50000000 _ -", map[string]string{"EXISTS": "0", "PTTL": "-2", "HINCRBY": "1", "HGET": "-"}, "TIME"},
		{"wait that is granted", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "-2", "HGET": "-", "ZRANGE": ""}, "ZREM"},
		{"wait in a new bucket", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "-2", "HINCRBY": "1", "HGET": "-", "ZRANGE": ""}, "ZREM"},
		{"wait that registers", script.Wait, "7 o:1 50000000 50000000 -", map[string]string{"PTTL": "5000", "HGET": "-", "HGETALL": "PPPPPPPPPPPPPPPPPPPPPPPPPP:1 5"}, "PUBLISH"},
		{"release that hands over", script.Release, "7 o:1 PPPPPPPPPPPPPPPPPPPPPPPPPP:1 -", map[string]string{"HKEYS": "o:1", "HGET": "9999999999999_50000000", "ZRANGE": "PPPPPPPPPPPPPPPPPPPPPPPPPP:1 r:1"}, "PUBLISH"},
		{"yield that keeps the vote", script.Yield, "7 o:1 5 50000000 50000000 -", map[string]string{"HGET": "5", "ZRANGE": ""}, "PTTL"},
		{"with interop, acquire", script.RedissonAcquire, "7 o:1 50000000 theirs ours 5", map[string]string{"PTTL": "-2", "HGET": "5"}, "PEXPIRE"},
		{"with interop, raise", script.RedissonRaise, "7 o:1 1700000000000000 theirs ours -", map[string]string{"HGET": "5", "GET": "5"}, "SET"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := lua.NewState()
			defer l.Close()
			asked := map[string]bool{}
			call := func(l *lua.LState) int {
				asked[l.CheckString(1)] = true
				var words []string
				for i := range l.GetTop() {
					words = append(words, lua.LVAsString(l.Get(i+1)))
					if n, ok := l.Get(i + 1).(lua.LNumber); ok && n != 0 && math.Mod(float64(n), 1e8) == 0 {
						t.Errorf("%s has the number %v", strings.Join(words, " "), float64(n))
					}
				}
				reply, ok := tc.replies[l.CheckString(1)]
				switch {
				case ok && reply == "nil":
					l.Push(lua.LFalse)
				case !ok && l.CheckString(1) == "TIME":
					l.Push(texts("1700000000", "000000"))
				case !ok && (l.CheckString(1) == "HINCRBY" || l.CheckString(1) == "INCR"):
					l.Push(lua.LNumber(token))
				case !ok:
					l.Push(lua.LNumber(1))
				case l.CheckString(1) == "PTTL" || l.CheckString(1) == "HINCRBY" || l.CheckString(1) == "EXISTS":
					l.Push(lua.LNumber(lua.LVAsNumber(lua.LString(reply))))
				case l.CheckString(1) == "ZRANGE" || l.CheckString(1) == "HMGET" || l.CheckString(1) == "HGETALL" || l.CheckString(1) == "HKEYS":
					l.Push(texts(strings.Fields(reply)...))
				default:
					l.Push(lua.LString(strings.ReplaceAll(reply, "_", " ")))
				}
				return 1
			}
			redis := l.NewTable()
			l.SetFuncs(redis, map[string]lua.LGFunction{"call": call, "pcall": call,
				"error_reply": func(l *lua.LState) int { l.RaiseError("%s", l.CheckString(1)); return 0 },
				"sha1hex":     func(l *lua.LState) int { l.Push(lua.LString(l.CheckString(1))); return 1 },
			})
			l.SetGlobal("redis", redis)
			l.SetGlobal("KEYS", texts("lock", "tokens", "boot", "queue", "waiters", "counter", "turn"))
			l.SetGlobal("ARGV", texts(strings.Fields(tc.args)...))
			require.NoError(t, l.DoString(tc.script.Source))
			require.True(t, asked[tc.asked], "%v", asked)
		})
	}
}

func texts(all ...string) *lua.LTable {
	table := &lua.LTable{Metatable: lua.LNil}
	for _, s := range all {
		if s == "nil" {
			table.Append(lua.LFalse)
			continue
		}
		table.Append(lua.LString(s))
	}
	return table
}
