package node

import "time"

// waiting is the moment since when the first call in line has been first, and false if there is
// none.
func (s *session) waiting() (since time.Time, busy bool) {
	calls, _ := s.inFlight()
	return s.base.Add(time.Duration(s.progress.Load())), calls > 0
}

func (s *session) touch(now time.Time) { s.progress.Store(int64(now.Sub(s.base))) }

// beginLocked notes that the line, which was empty, is no longer. If the supervisor sleeps for longer than a call may go
// without an answer, it is woken.
func (s *session) beginLocked(now time.Time) {
	s.touch(now)
	if s.asleep.Sub(now) > s.node.cfg.StallTimeout {
		s.asleep = now
		wake(s.woken)
	}
}

// sleep notes that the supervisor sleeps, and returns for how long it may: not for longer than a call that is in line may
// go without an answer.
func (s *session) sleep(now time.Time, wait time.Duration) time.Duration {
	s.line.Lock()
	defer s.line.Unlock()
	if calls, _ := s.line.InFlight(); calls > 0 {
		wait = min(wait, s.node.cfg.StallTimeout)
	}
	s.asleep = now.Add(wait)
	return wait
}

// Pause implements guard.Session.
func (s *session) Pause(news <-chan struct{}, d time.Duration) error {
	select {
	case <-news:
	case <-time.After(d):
	case <-s.broken:
		return s.cause()
	case <-s.node.accepting.Done():
		return s.node.errClosed
	}
	return nil
}
