package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
)

// A recycled route, and a call that is used again, know nothing of the way before.
func TestRoutesAreRecycledClean(t *testing.T) {
	cl := &Cluster{group: &node.Group{}}
	for range 100 {
		c := &member.Call{Result: member.Result{Interrupted: true}}
		cl.begin(c)
		require.Equal(t, &route{cl: cl, gen: cl.group.Era()}, routeOf(c))
		require.False(t, c.Interrupted)
		*routeOf(c) = route{cl: cl, asking: true, hops: 3, gen: 9, since: time.Now()}
		cl.forget(c)
		require.Nil(t, c.Hop)
	}
}
