//go:build race

package faketime

// Race tells whether the race detector is on.
const Race = true
