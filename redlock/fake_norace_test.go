//go:build !race

package redlock

const RaceEnabled = false
