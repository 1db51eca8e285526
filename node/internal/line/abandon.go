package line

import "github.com/redquorum/redquorum/member"

// Abandon removes all calls, in their order, and tells of each whether a byte of it may have been written. Nothing may be
// added any more, and nothing is answered.
func (l *Line) Abandon(end func(c *member.Call, sent bool)) {
	l.Lock()
	rest, sent := l.queue, l.sent
	l.queue, l.buf, l.spare, l.items = nil, nil, nil, nil
	l.Unlock()
	position := l.answered.Load() // the number of the first call in line
	for _, part := range [][]Entry{l.batch[l.next:], rest} {
		for _, e := range part {
			l.leave(e)
			end(e.Call, position < sent)
			position++
		}
	}
	l.batch, l.next = nil, 0
}
