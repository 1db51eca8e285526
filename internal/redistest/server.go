package redistest

import "context"

// Server is one Redis server to break. Safe for concurrent use.
//
// Kill, Restart, Pause and Flush happen to the server, the methods of Faults to the network in
// front of it.
type Server interface {
	// Addr names the server in URLs. For a real one it is where the process listens.
	Addr() string
	// Dialer opens connections through Faults.
	Dialer() Dialer
	// Faults is the network path that Dialer uses.
	Faults() *Link
	// Path makes another network path to the same server, with faults of its own, so that clients
	// can be cut off one by one. It is closed with the server.
	Path() *Link

	// Kill ends the server as SIGKILL does: at once, connections with it, and none are accepted.
	Kill()
	// Restart kills the server if it runs, and starts it again at the same address with a new run
	// id, an empty script cache and client ids from the beginning; with its data or without.
	Restart(keepMemory bool) error
	// Pause stops the server as SIGSTOP does: nothing is executed, connections are still accepted.
	// Returns when it has stopped.
	Pause()
	// Resume ends Pause. What came meanwhile is executed.
	Resume()
	// Flush deletes all keys (FLUSHALL). Scripts stay.
	Flush() error
	// Snapshot remembers the data, and Rollback restarts the server with what the latest Snapshot
	// remembers: an operator who restores a backup.
	Snapshot() error
	Rollback() error

	// Do executes one command on a connection of its own that no Link touches; an error reply is an
	// Error. On a paused server it waits.
	Do(ctx context.Context, args ...string) (any, error)
	// Close ends the server and its paths, and waits for their goroutines and processes.
	Close() error
}
