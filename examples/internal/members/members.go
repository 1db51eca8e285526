// Package members has three members for the tests of the examples, inside the process. The examples themselves import
// nothing that a program elsewhere could not: copy them.
package members

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// Open starts members and connects to them. What it returns as closed ends the client first, and then the members.
func Open(ctx context.Context) (client *redlock.Client, closed func(), err error) {
	in, stop, err := Start()
	if err != nil {
		return nil, nil, err
	}
	if client, err = Connect(ctx, in); err != nil {
		stop()
		return nil, nil, err
	}
	return client, func() { _ = client.Close(); stop() }, nil
}

// Connect opens a client on members that Start has started. Nothing was ever held at these, and they
// share their processors with everything else here, so they may be slow.
func Connect(ctx context.Context, urls []string) (*redlock.Client, error) {
	return redlock.Open(ctx, urls, redlock.Config{
		MemberTimeout: 20 * time.Second, DialTimeout: 20 * time.Second, StallTimeout: 40 * time.Second, FreshMembers: true,
	})
}

// Start starts three members in this process.
func Start() (urls []string, stop func(), err error) {
	cluster := redistest.NewEmbeddedCluster(3)
	for i := range cluster.Len() {
		if err := cluster.Embedded(i).ServeTCP("127.0.0.1:0"); err != nil {
			_ = cluster.Close()
			return nil, nil, err
		}
		urls = append(urls, "redis://"+cluster.Servers[i].Addr())
	}
	return urls, func() { _ = cluster.Close() }, nil
}
