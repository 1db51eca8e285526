// Package topology names what a Redis Cluster tells of itself.
package topology

// Master is one master of a Redis Cluster. It is for tools that look at a cluster without being its
// clients.
type Master struct {
	ID    string   // node id; "" if the server is too old to tell
	Addr  string   // host:port, as announced
	Dial  string   // the address to dial, by cluster.Config.Dial
	Slots []uint16 // ascending, at least one
}
