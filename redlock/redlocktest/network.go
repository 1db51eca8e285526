package redlocktest

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// Network is what a client has between itself and a member, one way and the other. The zero value
// delivers at once and in order.
type Network struct {
	// Request is how long a byte of the client is on its way to the member, and Reply how long one of
	// the member is on its way back, a push to a waiter included. A new connection takes both. A
	// negative duration is 0.
	Request, Reply time.Duration

	// LoseRequests loses what the client sends: the member executes nothing of it. LoseReplies loses
	// what the member sends: it executes all, and nobody hears of it. Neither side sees an error. The
	// client knows of the member that it is silent, and takes it for down after Config.StallTimeout.
	LoseRequests, LoseReplies bool

	// LosePushes loses what members tell of their own accord, as servers may. A waiter learns of its
	// lock by asking, within a third of Config.Entry.
	LosePushes bool

	// Cut breaks the connections and refuses new ones, as Deployment.Cut does for all clients.
	Cut bool
}

// Network puts a network between a client of New or Open and members. It replaces the one that is
// there, with all that Cut, Delay and an earlier Network did to it. Where bytes were lost and are lost
// no longer, the client connects again, within half a second.
func (d *Deployment) Network(client *redlock.Client, n Network, members ...int) {
	d.t.Helper()
	paths := d.paths[d.place(client)]
	for _, i := range d.these(members) {
		path := paths[i]
		if n.Cut {
			path.Refuse(true)
			path.Cut()
			continue
		}
		path.Heal()
		path.SetDelay(redistest.Delay{Fixed: n.Request}, redistest.Delay{Fixed: n.Reply})
		if n.LosePushes {
			path.LosePushRate(1)
		}
		if n.LoseRequests {
			path.DropRequests()
		}
		if n.LoseReplies {
			path.DropReplies()
		}
		if !n.LoseRequests && !n.LoseReplies {
			path.CutMute()
		}
	}
}

// Delay is Network with a round trip to members: each way takes half of it.
func (d *Deployment) Delay(client *redlock.Client, roundTrip time.Duration, members ...int) {
	d.t.Helper()
	d.Network(client, Network{Request: roundTrip / 2, Reply: roundTrip - roundTrip/2}, members...)
}

// Crash ends a client of New or Open for the members, as the end of its process does: what it holds is
// released by nobody, and others get it when its TTL is over. What is under way between them is lost.
// No verb brings the client back. The code that uses it goes on, sees all members down, and loses its
// leases when their validity is over.
func (d *Deployment) Crash(client *redlock.Client) {
	d.t.Helper()
	at := d.place(client)
	for _, path := range d.paths[at] {
		path.Refuse(true)
		path.Cut()
	}
	d.clients, d.paths = slices.Delete(d.clients, at, at+1), slices.Delete(d.paths, at, at+1)
}

// place is where a client stands among those that have a network.
func (d *Deployment) place(client *redlock.Client) int {
	d.t.Helper()
	at := slices.Index(d.clients, client)
	if at < 0 {
		d.t.Fatalf("redlocktest: that client is not of New or Open of this deployment, or Crash has ended it")
	}
	return at
}

// lasting are the keys that a member keeps for good, whatever is locked.
var lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

// Leftovers are the keys on members, as "0/name" on member 0, without those that a member keeps for
// good. If nobody holds or waits, there are none: a program that leaves some has forgotten to Unlock.
// Members that did not decide hear of a release a moment after Unlock has returned, so call
// synctest.Wait before Leftovers, or ask again in real time. Some keys end by themselves: those of an
// election three seconds after its last candidate, those of ForceUnlock after Config.MaxTTL, and
// those of a latch after its Life. Leftovers waits for members that Pause has stopped, for up to 30
// seconds.
func (d *Deployment) Leftovers() []string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	left, err := d.members.Leftovers(ctx, lasting...)
	if err != nil {
		d.t.Fatalf("redlocktest: keys of members: %v", err)
	}
	return left
}
