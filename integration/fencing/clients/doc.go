// Package clients tests what package fenceredis needs of a client, one EVAL, with go-redis, rueidis,
// valkey-go and radix. Copy from it.
package clients
