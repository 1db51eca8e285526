package guard

import "github.com/redquorum/redquorum/member"

// layout is how a member keeps what the guard writes: once, or in parts that can leave it.
type layout interface {
	// place is where the marker is. settle chooses it anew, before the guard looks at a marker.
	place() *home
	settle() error
	// found follows up the first look of a session. first says that the session has not found yet that there is no marker.
	found(on Session, m marker, runID string, first bool) (marker, error)
	// inherited reports whether a member without a marker has all that it has from members that remember.
	inherited(on Session, m marker) bool
	// marked is called when m was written.
	marked(on Session, m marker) error
	// book notes that the member has a marker, and booked reports whether it had one: then it forgot, if there is none.
	book()
	booked() bool
	// parted reports whether a reply FORGOT may be of a part alone.
	parted() bool
	// doubt is called when the server is none that gives votes.
	doubt()
	// refused and moved follow up a look of a Watch: one that a server refused, and one that was answered. If done is true,
	// nothing is left to do.
	refused(w *Watch, c *member.Call) (done bool, err error)
	moved(on Session) (done bool, err error)
}

// single is the layout of a member that keeps it once.
type single struct{ *Seat }

func (s single) place() *home {
	if s.blind.Load() {
		return blindHome
	}
	return plainHome
}

// found notes a replication id that changed without a promotion, or that a former version did not note.
func (s single) found(on Session, m marker, runID string, _ bool) (marker, error) {
	if m.names(runID) && m.renamed() && (m.repl == "" || s.neverFollowed(on)) {
		return s.rename(s.host.Context(), on, m)
	}
	return m, nil
}

func (single) settle() error                              { return nil }
func (single) inherited(Session, marker) bool             { return false }
func (single) marked(Session, marker) error               { return nil }
func (single) book()                                      {}
func (single) booked() bool                               { return false }
func (single) parted() bool                               { return false }
func (single) doubt()                                     {}
func (single) refused(*Watch, *member.Call) (bool, error) { return false, nil }
func (single) moved(Session) (bool, error)                { return false, nil }
