//go:build race

package redlock

const RaceEnabled = true
