/* Preloaded into a server (LD_PRELOAD), this shifts its wall clock and lets it run faster or slower. The
   monotonic clock is left alone, as by an operator or an NTP daemon that sets the time.

   The file named by REDQUORUM_CLOCK is mapped, and holds four 64-bit integers that the test changes while
   the server runs: the number of changes (odd while one is under way), and the offset, in ns, and the rate,
   in ppm above that of the real clock, from the anchor on, which is in ns on the real clock.

   No dlsym and no malloc: redis-server's jemalloc reads the clock before either works, which is where
   libfaketime recurses into itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
	volatile int64_t changes, anchor, offset, ppm;
};

static const struct control *control;
static int tried;

static void find(void)
{
	const char *path = getenv("REDQUORUM_CLOCK");
	int fd;
	void *p;

	tried = 1;
	if (!path)
		return;
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
	if (fd < 0)
		return;
	p = mmap(0, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
	syscall(SYS_close, fd);
	if (p != MAP_FAILED)
		control = p;
}

static int64_t shifted(void)
{
	struct timespec t;
	int64_t now, changes, anchor, offset, ppm;

	syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
	now = t.tv_sec * 1000000000LL + t.tv_nsec;
	if (!tried)
		find();
	if (!control)
		return now;
	do {
		changes = control->changes;
		__sync_synchronize();
		anchor = control->anchor, offset = control->offset, ppm = control->ppm;
		__sync_synchronize();
	} while (changes % 2 || changes != control->changes);
	return now + offset + (int64_t)((__int128)(now - anchor) * ppm / 1000000);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int64_t now;

	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
		return syscall(SYS_clock_gettime, clock, t) ? -1 : 0;
	now = shifted();
	t->tv_sec = now / 1000000000LL;
	t->tv_nsec = now % 1000000000LL;
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	int64_t now = shifted();

	(void)zone;
	t->tv_sec = now / 1000000000LL;
	t->tv_usec = now % 1000000000LL / 1000;
	return 0;
}

time_t time(time_t *t)
{
	time_t now = shifted() / 1000000000LL;

	if (t)
		*t = now;
	return now;
}
