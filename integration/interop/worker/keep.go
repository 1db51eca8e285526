//go:build unix

package main

import (
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A version without Keep is built without this file.
func init() {
	stays, ownerOf = []redlock.LockOption{redlock.Keep(5 * time.Second)}, (*redlock.Lease).Owner
}
