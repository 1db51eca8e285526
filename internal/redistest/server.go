package redistest

import "context"

// Server is one Redis server to break. It is safe for concurrent use.
//
// Kill, Restart, Pause and Flush happen to the server. The methods of Faults happen to the network
// in front of it.
type Server interface {
	// Addr names the server in URLs. A real server listens there.
	Addr() string
	// Dialer opens connections through Faults.
	Dialer() Dialer
	// Faults is the network path that Dialer uses.
	Faults() *Link
	// Path makes another network path to the same server, with faults of its own, so that clients
	// can be cut off one by one. It is closed with the server.
	Path() *Link

	// Kill ends the server and its connections at once, as SIGKILL does. It accepts none after
	// that.
	Kill()
	// Restart kills the server if it runs, and starts it again at the same address, with its data
	// or without. It then has a new run id, an empty script cache, and client ids from the
	// beginning.
	Restart(keepMemory bool) error
	// Pause stops the server as SIGSTOP does, and returns when it has stopped. The server executes
	// nothing and still accepts connections.
	Pause()
	// Resume ends Pause. The server executes what came meanwhile.
	Resume()
	// Flush deletes all keys (FLUSHALL). Scripts stay.
	Flush() error
	// Snapshot remembers the data. Rollback restarts the server with what the latest Snapshot
	// remembers, as an operator does who restores a backup.
	Snapshot() error
	Rollback() error

	// Do executes one command on a connection of its own that no Link touches. An error reply is an
	// Error. On a paused server Do waits.
	Do(ctx context.Context, args ...string) (any, error)
	// Close ends the server and its paths, and waits for their goroutines and processes.
	Close() error
}
