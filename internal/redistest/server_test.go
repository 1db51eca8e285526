package redistest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func embedded(t *testing.T) redistest.Server { return rt.Embedded(t, 1).Servers[0] }

func real(t *testing.T) redistest.Server { return rt.Real(t, 1).Servers[0] }

func TestEmbeddedConforms(t *testing.T) { rt.Conformance(t, embedded) }

func TestEmbeddedConformsInFakeTime(t *testing.T) { rt.ConformanceInBubble(t, embedded) }

func TestRealConforms(t *testing.T) { rt.Conformance(t, real) }
