package work

import (
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StorageSize is the size of a Storage's file.
const StorageSize = 64

// Storage is what the lock of a contended workload protects: a file that all contenders map, in
// whatever process. All numbers are little-endian, 8 bytes:
//
//	 0  the counter: read on entry, written plus one on exit, so an overlap loses updates
//	 8  the contender inside, plus one; 0 for none
//	16  the contender that released last, plus one
//	24  when that release began, CLOCK_MONOTONIC in ns
//	32  the readers inside, or those with a permit
type Storage struct {
	mapped []byte
	word   *[StorageSize / 8]atomic.Int64
}

// OpenStorage maps the file.
func OpenStorage(path string) (*Storage, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(StorageSize); err != nil {
		return nil, err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, StorageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Storage{m, (*[StorageSize / 8]atomic.Int64)(unsafe.Pointer(&m[0]))}, nil
}

// Close unmaps it.
func (s *Storage) Close() { _ = unix.Munmap(s.mapped) }

// Visit is one stay inside.
type Visit struct {
	Overlap bool          // a contender was inside who must not be
	Handoff time.Duration // since the release before began; negative: there was none
	Self    bool          // that release was by the same caller
	seen    int64
	who     int64
}

// Enter is called by the contender that has got the lock, for itself alone.
func (s *Storage) Enter(who int) Visit {
	v := Visit{who: int64(who) + 1, Handoff: -1}
	if last := s.word[2].Load(); last != 0 {
		v.Self = last == v.who
		v.Handoff = time.Duration(monotonic() - s.word[3].Load())
	}
	v.Overlap = s.word[1].Swap(v.who) != 0 || s.word[4].Load() != 0
	v.seen = s.word[0].Load()
	return v
}

// Leave is called just before the release.
func (s *Storage) Leave(v *Visit) {
	s.word[0].Store(v.seen + 1)
	v.Overlap = s.word[4].Load() != 0 || v.Overlap
	v.Overlap = !s.word[1].CompareAndSwap(v.who, 0) || v.Overlap
	s.word[3].Store(monotonic())
	s.word[2].Store(v.who)
}

// EnterShared is called by a contender that has got the lock as a reader. Readers and writers write
// their own word before they look at the other one. So if a reader and a writer overlap, one sees
// it.
func (s *Storage) EnterShared() Visit {
	s.word[4].Add(1)
	return Visit{Overlap: s.word[1].Load() != 0, Handoff: -1, seen: s.word[0].Load()}
}

// LeaveShared is called just before the release. A writer that came and went meanwhile has counted.
func (s *Storage) LeaveShared(v *Visit) {
	v.Overlap = v.Overlap || s.word[1].Load() != 0 || s.word[0].Load() != v.seen
	s.word[4].Add(-1)
}

// EnterPermit is called by a contender that has got one of so many permits.
func (s *Storage) EnterPermit(limit int) Visit {
	return Visit{Overlap: s.word[4].Add(1) > int64(limit), Handoff: -1}
}

// LeavePermit is called just before the release.
func (s *Storage) LeavePermit() { s.word[4].Add(-1) }

// Count returns the counter.
func (s *Storage) Count() int64 { return s.word[0].Load() }

// monotonic is CLOCK_MONOTONIC, which all processes of a machine share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
