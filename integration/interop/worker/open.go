//go:build unix

package main

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// open waits for members longer than a busy machine is busy. open_earlier.txt is the same for versions without redlock.LAN.
func open(ctx context.Context, urls []string, interop bool) (*redlock.Client, error) {
	return redlock.Open(ctx, urls, redlock.Config{
		FreshMembers: true, Interop: interop, MemberTimeout: 10 * time.Second, StallTimeout: 20 * time.Second,
	})
}
