// Package fencehttp carries fencing tokens over HTTP: a client sends the token of its lease, and a
// server refuses requests of a holder that has been overtaken.
//
//	client   Transport: Fence-Token: 34, from the lease in the context of the request
//	server   Handler:   428 Precondition Required without a token
//	                    412 Precondition Failed with a stale one, and the greatest one
//
// Handler runs the handler inside fence.AtomicGuard.Do, so a check and the write are one step. If
// the data is in a database, no guard in front of the handler can do that. Then take the token with
// Token, and enter with it in the transaction that writes.
//
// A request is a claim whatever its method is. So a holder that reads before it writes sends the
// token with the GET as well, to the same server. Handler judges all tokens as those of writers: a
// reader of a redlock.RWMutex may be refused when another reader of its phase has a greater token.
//
// A token is no secret, and whoever may send one can lock out all others with a great one. So put
// authentication before Handler.
//
// The server is in server.go, the client in client.go.
package fencehttp
