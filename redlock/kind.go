package redlock

// Kind names a kind of lock. Handoffs, inspections, events and metrics carry it, because one client
// may use locks of several kinds. A client that reads an unknown kind refuses it.
type Kind string

// KindMutex is the exclusive lock of Client.Mutex: at most one lease of a name is valid at a time.
const KindMutex Kind = "mutex"

// LockName identifies a lock within a deployment.
type LockName struct {
	Kind Kind
	Key  string
}
