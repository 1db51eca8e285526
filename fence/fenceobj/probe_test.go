package fenceobj

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// odd is a store whose Get is not as it should be.
type odd struct {
	*memory
	get func(body []byte, version string, err error) ([]byte, string, error)
}

func (o odd) Get(ctx context.Context, key string) ([]byte, string, error) {
	return o.get(o.memory.Get(ctx, key))
}

// Each of these stores has one fault that real ones have had, and the probe sees it.
func TestProbeFindsTheFaultOfEveryBrokenStore(t *testing.T) {
	t.Parallel()
	with := func(change func(m *memory)) Store {
		m := newMemory()
		change(m)
		return m
	}
	for fault, s := range map[string]Store{
		"ignores all conditions": with(func(m *memory) { m.matches = func(object, bool, string) bool { return true } }),
		"ignores that nothing may exist": with(func(m *memory) {
			m.matches = func(o object, _ bool, v string) bool { return v == "" || o.version == v }
		}),
		"ignores the version": with(func(m *memory) { m.matches = func(_ object, found bool, v string) bool { return found == (v != "") } }),
		"writes what is gone": with(func(m *memory) {
			m.matches = func(o object, found bool, v string) bool { return !found || o.version == v }
		}),
		"refuses every condition": with(func(m *memory) { m.matches = func(_ object, found bool, v string) bool { return !found && v == "" } }),
		"races":                   with(func(m *memory) { m.between = runtime.Gosched }),
		"has one version": odd{newMemory(), func(body []byte, v string, err error) ([]byte, string, error) {
			return body, "v", err
		}},
		"has no version": odd{newMemory(), func(body []byte, v string, err error) ([]byte, string, error) {
			return body, "", err
		}},
		"has what nobody has written": odd{newMemory(), func(body []byte, v string, err error) ([]byte, string, error) {
			return []byte("old"), "v", nil
		}},
	} {
		t.Run(fault, func(t *testing.T) {
			var step *fence.StepError
			g, err := Open(t.Context(), s, "p/")
			assert.Nil(t, g)
			require.ErrorAs(t, err, &step)
			assert.Equal(t, fence.StepProbe, step.Step)
			assert.ErrorIs(t, err, ErrNoConditions)
		})
	}
	require.NoError(t, Probe(t.Context(), newMemory(), ""))
}

func TestProbeTellsAFailureFromAFault(t *testing.T) {
	t.Parallel()
	denied := errors.New("403")
	m := newMemory()
	m.answer = func(func() error) error { return denied }
	err := Probe(t.Context(), m, "")
	assert.ErrorIs(t, err, denied)
	assert.NotErrorIs(t, err, ErrNoConditions)
	err = Probe(t.Context(), odd{newMemory(), func([]byte, string, error) ([]byte, string, error) { return nil, "", denied }}, "")
	assert.ErrorIs(t, err, denied)
	assert.NotErrorIs(t, err, ErrNoConditions)
	assert.Error(t, Probe(t.Context(), nil, ""))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, Probe(ended, newMemory(), ""), context.Canceled)
}
