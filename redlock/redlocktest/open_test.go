package redlocktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

func TestDialThatTakesTooLongOnABusyMachineIsRepeated(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		d := New(t, 3)
		paths := d.network()
		for _, p := range paths {
			p.Pause()
			time.AfterFunc(2500*time.Millisecond, p.Resume)
		}
		began := time.Now()
		require.NoError(t, rt.Err(d.open(paths, redlock.LAN())))
		require.Less(t, time.Since(began), 5*time.Second)
	})
}
