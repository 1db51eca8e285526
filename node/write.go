package node

import (
	"runtime"
	"time"
)

// leanBuffer is the largest write buffer that is kept while little is written.
const leanBuffer = 4 << 10

// writeLocked sees to it that what is in line is written, by this goroutine or by another one. calls
// were in flight before, and size bytes are now. It returns with the line unlocked.
func (s *session) writeLocked(late bool, calls int, size int64) {
	if s.flushing && !(s.gathering && s.unsentLocked() >= enough) || !s.flushing && s.holdsLocked() {
		s.line.Unlock()
		return
	}
	s.flushing, s.gathering = true, false
	if late || size > inlineBytes {
		s.wakeLocked()
		s.line.Unlock()
		return
	}
	s.writeInline(calls)
}

// writeInline writes on the goroutine of a caller, which has locked the line; others is the number
// of calls that were in flight before. It returns with the line unlocked.
func (s *session) writeInline(others int) {
	if others >= 2 && s.unsentLocked() < enough {
		// Company: whoever is runnable appends first. This gathers batches without a timer.
		s.gathering = true
		s.line.Unlock()
		runtime.Gosched()
		s.line.Lock()
		if !s.gathering { // another caller has taken over
			s.line.Unlock()
			return
		}
		s.gathering = false
		if _, size := s.line.InFlight(); size > inlineBytes {
			s.wakeLocked()
			s.line.Unlock()
			return
		}
	}
	if s.broke != nil { // meanwhile: the reader completes what is queued
		s.line.Unlock()
		return
	}
	s.countLocked()
	written := s.writeNext()
	s.flushing = !s.line.Empty() && !s.holdsLocked()
	if s.flushing && written { // gathered during the write: not this caller's any more
		s.wakeLocked()
	}
	s.line.Unlock()
}

// holdsLocked reports whether calls gather before they are written. The reader has them written when an earlier write is
// answered, see letGo.
func (s *session) holdsLocked() bool {
	l := s.backlogLocked()
	until := l.until()
	if s.line.Answered() >= until {
		return false
	}
	s.parked.Store(true)
	return s.line.Answered() < until // or else the reader may have looked at parked before
}

// backlogLocked is what decides whether a write waits.
func (s *session) backlogLocked() backlog {
	waiting, encoded := s.line.Unsent()
	return backlog{
		trip: time.Duration(s.trip.Load()), bytes: encoded, waiting: waiting,
		oldest: s.ends[s.writes%deep], before: s.ends[(s.writes+deep-2)%deep], last: s.ends[(s.writes+deep-1)%deep],
	}
}

func (s *session) unsentLocked() uint64 {
	calls, _ := s.line.Unsent()
	return calls
}

// countLocked notes that all that is in line is about to be written.
func (s *session) countLocked() {
	end := s.line.Queued()
	s.parked.Store(false)
	s.ends[s.writes%deep] = end
	s.writes++
	if s.probe.Load() == 0 {
		s.probed = time.Now()
		s.probe.Store(end)
	}
}

// letGo is called by the reader when it has read all that has arrived.
func (s *session) letGo() {
	if end := s.probe.Load(); end != 0 && s.line.Answered() >= end {
		s.trip.Store(max(1, int64(s.now.Sub(s.probed))))
		s.probe.Store(0)
	}
	if !s.parked.Load() {
		return
	}
	s.line.Lock()
	defer s.line.Unlock()
	if !s.flushing && !s.line.Empty() && !s.holdsLocked() {
		s.flushing = true
		s.wakeLocked()
	}
}

// shrink gives back the write buffers and the flusher of a connection that carried little since it was
// called last.
func (s *session) shrink() {
	s.line.Lock()
	defer s.line.Unlock()
	queued := s.line.Queued()
	idle := queued-s.noted <= enough
	s.noted = queued
	if !idle {
		return
	}
	s.line.Shrink(leanBuffer)
	if s.flusherUp {
		s.dismissed = true
		s.kickLocked()
	}
}

// wakeLocked leaves the buffer to the flusher. flushing is set.
func (s *session) wakeLocked() {
	s.turn = true
	switch {
	case s.flusherUp:
		s.kickLocked()
	case s.broke == nil: // so the reader has not ended, and end waits for this one too
		s.flusherUp, s.dismissed = true, false
		s.gone.Go(s.flusher)
	}
}

func (s *session) kickLocked() {
	wake(s.kick)
}

// flusher writes for callers that must not or may not. It ends when the session breaks, or when it was dismissed and there
// is nothing to write.
func (s *session) flusher() {
	for s.flush() {
		select {
		case <-s.broken:
			return
		case <-s.kick:
		}
	}
}

// flush writes until nothing is left, or what is left gathers. It reports whether the flusher stays.
func (s *session) flush() bool {
	for {
		runtime.Gosched() // as in writeInline
		s.line.Lock()
		if s.broke != nil {
			s.line.Unlock()
			return false
		}
		if s.line.Empty() || s.holdsLocked() {
			s.flushing, s.turn = s.flushing && !s.turn, false
			stays := !s.dismissed
			s.flusherUp = stays
			s.line.Unlock()
			return stays
		}
		s.countLocked()
		written := s.writeNext()
		s.line.Unlock()
		if !written {
			return false
		}
	}
}
