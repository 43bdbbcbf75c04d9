/* Counts every fsync and fdatasync of a process, and can give each one the same length.
 *
 * Preloaded into every contender and into the database server. The counts go to a file mapped
 * into memory, so that the measuring process reads them without asking:
 *
 *     slot 0   syncs so far
 *     slot 1   nanoseconds of CPU spent spinning (to be taken off the CPU time)
 *
 * BENCH_COUNTERS names that file. BENCH_SYNC_US, when set, replaces the real call by a wait of
 * that many microseconds. It sleeps, as a thread that waits for a disk does, and spins only to
 * the deadline: a sleep alone overshoots, and not by the same amount for each contender, while
 * spinning alone takes a core from the others and keeps the thread hot that waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 80000

enum { SYNCS, SPUN_NS, SLOTS };

static uint64_t *slots;
static int64_t fixed_ns = -1;

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("BENCH_COUNTERS");
    const char *micros = getenv("BENCH_SYNC_US");
    if (micros != NULL && *micros != '\0')
        fixed_ns = strtoll(micros, NULL, 10) * 1000;
    if (path == NULL)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *map = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        slots = map;
}

static void count(int slot, uint64_t amount) {
    if (slots != NULL)
        __atomic_fetch_add(&slots[slot], amount, __ATOMIC_RELAXED);
}

static int sync_file(int fd, const char *name) {
    count(SYNCS, 1);
    if (fixed_ns < 0) {
        int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
        return real(fd);
    }
    if (fcntl(fd, F_GETFD) == -1)
        return -1;
    int64_t spent = now_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t end = now_ns(CLOCK_MONOTONIC) + fixed_ns, wake = end - SPIN_NS;
    struct timespec until = {wake / 1000000000, wake % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    while (now_ns(CLOCK_MONOTONIC) < end)
        ;
    count(SPUN_NS, (uint64_t)(now_ns(CLOCK_THREAD_CPUTIME_ID) - spent));
    return 0;
}

int fsync(int fd) { return sync_file(fd, "fsync"); }
int fdatasync(int fd) { return sync_file(fd, "fdatasync"); }
