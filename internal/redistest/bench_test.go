package redistest_test

import (
	"testing"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// BenchmarkEmbedded is a round trip through a Link without faults: what a simulation is made of.
func BenchmarkEmbedded(b *testing.B) {
	for name, cmd := range map[string][]string{
		"ping":   {"PING"},
		"script": {"EVAL", "return redis.call('HINCRBY', KEYS[1], 'f', 1)", "1", "h"},
	} {
		b.Run(name, func(b *testing.B) {
			s := rt.Embedded(b, 1).Servers[0]
			c := dial(b, s.Dialer(), s.Addr())
			b.ReportAllocs()
			for b.Loop() {
				ask(b, c, cmd...)
			}
		})
	}
}
