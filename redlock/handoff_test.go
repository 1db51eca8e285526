package redlock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// A derived key that a user could name would be lost as a lock, or locked as a key.
func TestNoLockHasTheNameOfADerivedKey(t *testing.T) {
	const derived, theirs = "redquorum:s1.3:{k}", "redisson_lock_token:{k}"
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		plain, shared := JoinAll(t, cluster), JoinAll(t, cluster, WithInterop())
		evals := shared.Links[0].Call(redistest.Named("EVALSHA"), -1, func([]string) {})
		refused := func(p *Peer, name, problem string) {
			t.Helper()
			owner := "A:1"
			secret := Handoff{key: name, owner: &owner, token: 5, terms: terms{kind: &exclusive, ttl: time.Second}}.Secret()
			handoff, err := ParseHandoff(secret)
			require.NoError(t, err)
			for op, call := range map[string]func() error{
				"Lock":        func() error { _, err := p.Mutex(name).Lock(t.Context()); return err },
				"Inspect":     func() error { _, err := p.Inspect(t.Context(), name); return err },
				"ForceUnlock": func() error { _, err := p.ForceUnlock(t.Context(), name); return err },
				"Adopt":       func() error { _, err := p.Adopt(t.Context(), handoff); return err },
			} {
				err := call()
				require.ErrorIs(t, err, ErrInput, op)
				require.ErrorContains(t, err, problem, op)
			}
		}
		refused(plain, derived, "names that begin with redquorum: are the library's own keys")
		refused(shared, derived, "names that begin with redquorum: are the library's own keys")
		refused(shared, theirs, "counters of Redisson's locks")
		require.Zero(t, evals.Hits(), "no member was asked")
		require.NoError(t, plain.Lock(t, theirs).Unlock(t.Context()))
	})
}

func TestHandoffIsShownByNoPrinterAndNoEncoder(t *testing.T) {
	owner := "ABCDEFGHIJKLMNOPQRSTUVWXYZ:7"
	h := Handoff{key: "k", owner: &owner, token: 5, terms: terms{kind: &exclusive, ttl: time.Second}}
	type around struct {
		H Handoff
		h Handoff
	}
	var out bytes.Buffer
	for _, v := range []any{h, &h, []Handoff{h}, map[string]Handoff{"x": h}, around{h, h}, &around{h, h}} {
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("handing off", "lease", v)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
			fmt.Fprintf(&out, verb, v)
		}
		_ = json.NewEncoder(&out).Encode(v)
	}
	for _, secret := range []string{h.Secret(), owner, owner[:26], fmt.Sprintf("%x", owner[:26]), fmt.Sprintf("%X", owner[:26])} {
		require.NotContains(t, out.String(), secret)
	}
	require.Contains(t, out.String(), "(mutex, token 5)")
	back, err := ParseHandoff(h.Secret())
	require.NoError(t, err)
	require.Equal(t, h, back)
	require.Empty(t, Handoff{}.Secret())
	require.Equal(t, KindMutex, back.Kind())
}
