//go:build !race

package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Members evict nothing (maxmemory-policy noeviction). One that is full refuses a script at its first write, if that needs memory:
// it grants nothing, but whoever has something keeps it, renews it and gives it back.
func TestWhoHoldsSomethingKeepsItAtAFullServer(t *testing.T) {
	t.Parallel()
	server := rt.Real(t, 1).Servers[0]
	s := newScripted(t, server)
	for _, source := range (Config{Interop: true}).scripts() {
		s.ask("SCRIPT", "LOAD", source)
	}
	full := func(is bool) {
		s.ask("CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[is])
	}
	mutex, fair, shared := script.Exclusive(s.Name), script.Fair(s.Name), script.ExclusiveWithRedisson(s.Name)
	writer, reader := script.Writing(s.Name), script.Reading(s.Name)
	hash := script.Hash([]byte(alice))

	// again are the calls of a holder, and ends those of which each takes a lock from alice. The first of the locks of a kind is
	// that of alice. With waiters, bob and carol wait.
	type kind struct {
		lock  script.Lock
		again map[string]func(l script.Lock, token int64) member.Command
		ends  map[string]func(l script.Lock) member.Command
	}
	keeps := func(more map[string]func(script.Lock, int64) member.Command) map[string]func(script.Lock, int64) member.Command {
		all := map[string]func(script.Lock, int64) member.Command{
			"acquire": func(l script.Lock, _ int64) member.Command { return l.Acquire(nil, alice, minute) },
			"acquire, for less": func(l script.Lock, _ int64) member.Command {
				return l.Acquire(nil, alice, second)
			},
			"wait": func(l script.Lock, _ int64) member.Command { return l.Wait(nil, alice, minute, minute, 0) },
			"wait, for less": func(l script.Lock, _ int64) member.Command {
				return l.Wait(nil, alice, second, minute, 0)
			},
			"extend": func(l script.Lock, _ int64) member.Command { return l.Extend(nil, alice, minute) },
			"extend, for less": func(l script.Lock, _ int64) member.Command {
				return l.Extend(nil, alice, second)
			},
			"rejoin": func(l script.Lock, token int64) member.Command { return l.Rejoin(nil, alice, minute, token, token) },
			"adopt":  func(l script.Lock, _ int64) member.Command { return l.Adopt(nil, alice, "former", minute) }, // once more
		}
		for name, call := range more {
			all[name] = call
		}
		return all
	}
	ends := map[string]func(script.Lock) member.Command{
		"release":           func(l script.Lock) member.Command { return l.Release(nil, alice, "") },
		"release to a hint": func(l script.Lock) member.Command { return l.Release(nil, alice, carol) },
		"release, readers first": func(l script.Lock) member.Command {
			return l.Release(nil, alice, script.ReadersFirst(""))
		},
		"force":        func(l script.Lock) member.Command { return l.Force(nil, "", minute) },
		"force of one": func(l script.Lock) member.Command { return l.Force(nil, hash, minute) },
		"adopt":        func(l script.Lock) member.Command { return l.Adopt(nil, "new", alice, minute) },
	}
	proclaims := map[string]func(script.Lock, int64) member.Command{
		"proclaim": func(l script.Lock, token int64) member.Command {
			return l.Proclaim(nil, alice, token, 1, minute, []byte("x"))
		},
		"proclaim again": func(l script.Lock, token int64) member.Command {
			return l.Proclaim(nil, alice, token, 1, 2*minute, []byte("x"))
		},
		"resign": func(l script.Lock, token int64) member.Command { return l.Resign(nil, alice, token, second) },
	}
	permits := func(n int) script.Lock {
		return script.Semaphore(s.Name).Asking(&script.Asked{Limit: 2, N: n})
	}
	for name, k := range map[string]kind{
		"mutex": {mutex, keeps(proclaims), ends}, "fair": {fair, keeps(nil), ends}, "writer": {writer, keeps(nil), ends},
		"reader": {reader, keeps(nil), ends}, "with Redisson": {shared, keeps(nil), ends},
		"permit": {permits(1), keeps(nil), ends}, "permits": {permits(2), keeps(nil), ends},
	} {
		for _, waited := range []bool{false, true} {
			play := func(what string, cmd func(l script.Lock, token int64) member.Command) {
				full(false)
				require.NoError(t, server.Flush())
				l := k.lock
				v := rt.Must(s.run(l.Acquire(nil, alice, minute)))(t)
				token, _ := v.(int64)
				if held, ok := v.(string); ok {
					list, _ := permit.Parse(held)
					l = l.Holding(list)
				}
				if waited {
					for _, waiter := range []string{bob, carol} {
						w := l
						if name == "writer" && waiter == bob {
							w = reader
						}
						if name == "reader" {
							w = writer
						}
						if name == "permit" {
							w = permits(2)
						}
						require.NoError(t, rt.Err(s.run(w.Wait(nil, waiter, minute, minute, 0))))
					}
				}
				full(true)
				before := s.state()
				another := script.Exclusive("another")
				_, err := s.run(another.Acquire(nil, bob, minute))
				require.ErrorContains(t, err, "OOM", "the server is full")
				require.Equal(t, len(before), len(s.state()))
				v, err = s.run(cmd(l, token))
				require.NoError(t, err, "%s: %s, others wait %v", name, what, waited)
				if all, ok := v.([]any); ok {
					v = all[0]
				}
				if n, ok := v.(int64); ok {
					require.Positive(t, n, "%s: %s, others wait %v", name, what, waited)
				}
			}
			for what, again := range k.again {
				play(what, again)
			}
			for what, end := range k.ends {
				play(what, func(l script.Lock, _ int64) member.Command { return end(l) })
			}
			if name == "writer" {
				play("downgrade", func(_ script.Lock, _ int64) member.Command { return reader.Downgrade(nil, alice, minute) })
			}
		}
	}
	full(false)
}
