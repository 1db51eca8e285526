package server

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/internal/redistest"
)

// Missing says why servers of a kind cannot be started, and what installs them; "" if they can.
func Missing(kind entry.Kind) (why, install string) {
	switch kind {
	case entry.Redis:
		if err := redistest.Available(); err != nil {
			return err.Error(), "make redis"
		}
	default:
		return "not supported yet", ""
	}
	return "", ""
}

// Start starts n servers of a kind other than Redis.
func Start(_ context.Context, kind entry.Kind, _ int, _ string) (Set, error) {
	return nil, fmt.Errorf("no servers of kind %s", kind)
}
