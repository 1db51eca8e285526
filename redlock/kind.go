package redlock

// Kind names a kind of lock. Handoffs, inspections, events and metrics carry it, because one client may use locks
// of several kinds. A client that reads a kind which it does not know refuses it.
type Kind string

// KindMutex is the exclusive lock of Client.Mutex: at most one lease of a name is valid at a time.
const KindMutex Kind = "mutex"

// LockName tells one lock from all others of a deployment.
type LockName struct {
	Kind Kind
	Key  string
}
