//go:build unix

package fencing

import (
	"testing"

	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// The guarded sets of many additions, and the suite of guards where make test does not run it.
func TestLongGuardsLoseNothing(t *testing.T) {
	rt.Long(t, "2,000 additions, and 300 where each is dozens of requests of HTTP")
	type fixture = func(t *testing.T) fencetest.Fixture
	for _, c := range []struct {
		name  string
		suite bool
		n     int
		open  func(t *testing.T) fixture
	}{
		{"bucket", false, 300, func(*testing.T) fixture { return bucket }},
		{"PostgreSQL", false, 2000, func(t *testing.T) fixture { return postgres(t).fixture }},
		{"pgx", false, 2000, func(t *testing.T) fixture { return postgres(t).pgxFixture }},
		{"MariaDB", false, 2000, func(t *testing.T) fixture { return mariadb(t).fixture }},
		{"SQLite", false, 2000, func(t *testing.T) fixture { return sqlite(t).fixture }},
		{"server of S3", true, 300, func(t *testing.T) fixture { return startVersity(t).fixture }},
		{"etcd", true, 2000, func(*testing.T) fixture { return etcdPart }},
	} {
		t.Run(c.name, func(t *testing.T) {
			open := c.open(t)
			if c.suite {
				fencetest.Run(t, open)
			}
			fencetest.RunSet(t, open, c.n)
		})
	}
}
