package demo

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing of a run goes on after it: no client, no member, no display.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
