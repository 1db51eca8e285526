package main

import "slices"

// mutant is one guard taken out of the product.
type mutant struct {
	name     string // what is taken out: what would follow
	file     string // from the root of the module
	old, new string // old occurs once
	tests    []tests
}

// tests are tests of one package, as `go test -run` takes them.
type tests struct{ pkg, run string }

// by names the tests that should notice, the cheapest first.
func by(pkg, run string) []tests { return []tests{{"./" + pkg, run}} }

// mutants are all of them. Keep the old text short, so that changes beside it do not matter.
func mutants() []mutant {
	return slices.Concat(scripts, guardScripts, ballots, rounds, clocks, leases, ends, members, guards, tokens, clusters, operators, batches)
}
