package outside

import (
	"context"

	"github.com/redquorum/redquorum/redlock"
)

// nightly is a program as docs/testing.md describes it.
func nightly(ctx context.Context, client *redlock.Client) error {
	return client.Mutex("nightly").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
