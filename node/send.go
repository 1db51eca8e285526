package node

import (
	"fmt"

	"github.com/redquorum/redquorum/member"
)

// writeNext writes what is next in line, whatever else is written, or ends the session. It is called with the line locked and
// returns so, but the line is not locked meanwhile. A peer that takes nothing answers nothing either: whoever misses its answers
// cuts the connection, which ends the write.
func (s *session) writeNext() (written bool) {
	buf := s.line.Take()
	s.line.Unlock()
	_, err := s.link.wire.Write(buf)
	if err != nil {
		s.fail(member.ErrBroken, fmt.Errorf("write: %w", err))
	}
	s.line.Lock()
	s.line.Give(buf)
	return err == nil
}
