// Package tested knows the versions that the tests run on. internal/servers fetches them, redlock
// doctor judges a server by them, and README.md and docs/servers.md name them.
package tested

import "strings"

// Server is a version of Redis or of a server that speaks its protocol.
type Server struct {
	Brand   string // Redis, Valkey, …
	Version string // as redis-server --version says it
}

// The tests run on these versions.
var (
	Redis62  = Server{"Redis", "6.2.11"}
	Redis70  = Server{"Redis", "7.0.15"}
	Redis72  = Server{"Redis", "7.2.4"}
	Redis74  = Server{"Redis", "7.4.1"}
	Redis82  = Server{"Redis", "8.2.3"}
	Valkey80 = Server{"Valkey", "8.0.1"}
	Valkey81 = Server{"Valkey", "8.1.8"}
	Valkey90 = Server{"Valkey", "9.0.0"}
	Valkey91 = Server{"Valkey", "9.1.2"}
)

// Servers lists all of them.
var Servers = []Server{Redis62, Redis70, Redis72, Redis74, Redis82, Valkey80, Valkey81, Valkey90, Valkey91}

// Line returns what patches of a version have in common: 7.2 of 7.2.4.
func (s Server) Line() string {
	major, rest, _ := strings.Cut(s.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// Name returns brand and line: redis-7.2.
func (s Server) Name() string { return strings.ToLower(s.Brand) + "-" + s.Line() }

func (s Server) String() string { return s.Brand + " " + s.Version }

// Tested reports whether tests run on the line of s. It does not tell apart patches that bring or
// cure a fault.
func (s Server) Tested() bool {
	for _, known := range Servers {
		if s.Name() == known.Name() {
			return true
		}
	}
	return false
}
