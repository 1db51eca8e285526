package cluster

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// route is what a cluster notes of a call on its way, the ability.Hop of the call.
type route struct {
	cl     *cluster
	asking bool
	hops   uint8     // servers that sent the call elsewhere
	gen    uint64    // of the member when the call came in
	since  time.Time // when it was first not executed where it was sent
}

// Done implements ability.Hop.
func (r *route) Done(c *member.Call) { r.cl.done(c) }

// Asking implements ability.Hop.
func (r *route) Asking() bool { return r.asking }

// waited is how long the call has been on a detour, or will be if it begins one now.
func (r *route) waited() time.Duration {
	if r.since.IsZero() {
		return 0
	}
	return time.Since(r.since)
}

// begin gives a call its route. Routes are recycled: a call costs no more memory than at a plain member.
func (cl *cluster) begin(c *member.Call) {
	r, _ := cl.routes.Get().(*route)
	if r == nil {
		r = new(route)
	}
	*r = route{cl: cl, gen: cl.group.Era()}
	c.Hop, c.Interrupted = r, false
}

// routeOf is for calls between begin and forget.
func routeOf(c *member.Call) *route { return c.Hop.(*route) }

// forget takes the route back.
func (cl *cluster) forget(c *member.Call) {
	r := routeOf(c)
	c.Hop = nil
	cl.routes.Put(r)
}
