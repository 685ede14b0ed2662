/*
 * Makes one chosen system call of a process fail, or kills the process there. Preloaded; `faults_arm` chooses.
 *
 * Only calls on paths below a prefix count, and on descriptors that were opened below it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum call { OPEN, WRITE, FSYNC, FDATASYNC, RENAME, CLOSE, LINK, UNLINK, MKDIR, FTRUNCATE, CALLS };
enum mode { FAIL, KILL, TEAR };

static char prefix[4096];
static size_t prefix_length;
static int chosen = -1, number, kind;
static long countdown;
static size_t kept;
static long counts[CALLS];
static unsigned char tracked[65536];

void faults_arm(const char *path, int call, long nth, int error, int mode, size_t keep) {
    strncpy(prefix, path, sizeof prefix - 1);
    prefix_length = strlen(prefix);
    chosen = call;
    countdown = nth;
    number = error;
    kind = mode;
    kept = keep;
    memset(counts, 0, sizeof counts);
}

long faults_count(int call) { return counts[call]; }

static int is_below(const char *path) {
    return prefix_length && path && strncmp(path, prefix, prefix_length) == 0;
}

static int is_tracked(int fd) { return fd >= 0 && fd < (int)sizeof tracked && tracked[fd]; }

/* Count a call; true when it is the chosen one. Killing happens here, but for a torn write. */
static int strikes(enum call call) {
    long nth = counts[call]++;
    if ((int)call != chosen || nth != countdown) return 0;
    if (kind == KILL) kill(getpid(), SIGKILL);
    return 1;
}

static int refuse(void) {
    errno = number;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < (int)sizeof tracked) tracked[fd] = is_below(path);
    return fd;
}

#define MODE_ARGUMENT(flags, mode)              \
    mode_t mode = 0;                            \
    if ((flags) & (O_CREAT | O_TMPFILE)) {      \
        va_list list;                           \
        va_start(list, flags);                  \
        mode = va_arg(list, mode_t);            \
        va_end(list);                           \
    }

int open(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    if (is_below(path) && strikes(OPEN)) return refuse();
    return opened(REAL(open)(path, flags, mode), path);
}

int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    if (is_below(path) && strikes(OPEN)) return refuse();
    return opened(REAL(open64)(path, flags, mode), path);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    if (is_below(path) && strikes(OPEN)) return refuse();
    return opened(REAL(openat)(folder, path, flags, mode), path);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    if (is_below(path) && strikes(OPEN)) return refuse();
    return opened(REAL(openat64)(folder, path, flags, mode), path);
}

ssize_t write(int fd, const void *data, size_t size) {
    if (is_tracked(fd) && strikes(WRITE)) {
        if (kind != TEAR) return refuse();
        REAL(write)(fd, data, kept < size ? kept : size / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(write)(fd, data, size);
}

int fsync(int fd) {
    if (is_tracked(fd) && strikes(FSYNC)) return refuse();
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    if (is_tracked(fd) && strikes(FDATASYNC)) return refuse();
    return REAL(fdatasync)(fd);
}

int ftruncate(int fd, off_t size) {
    if (is_tracked(fd) && strikes(FTRUNCATE)) return refuse();
    return REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    if (is_tracked(fd) && strikes(FTRUNCATE)) return refuse();
    return REAL(ftruncate64)(fd, size);
}

int close(int fd) {
    int was = is_tracked(fd), strike = was && strikes(CLOSE);
    if (was) tracked[fd] = 0;
    int result = REAL(close)(fd);
    return strike ? refuse() : result;
}

int rename(const char *source, const char *target) {
    if (is_below(target) && strikes(RENAME)) return refuse();
    return REAL(rename)(source, target);
}

int link(const char *source, const char *target) {
    if (is_below(target) && strikes(LINK)) return refuse();
    return REAL(link)(source, target);
}

int linkat(int from, const char *source, int to, const char *target, int flags) {
    if (is_below(target) && strikes(LINK)) return refuse();
    return REAL(linkat)(from, source, to, target, flags);
}

int unlink(const char *path) {
    if (is_below(path) && strikes(UNLINK)) return refuse();
    return REAL(unlink)(path);
}

int mkdir(const char *path, mode_t mode) {
    if (is_below(path) && strikes(MKDIR)) return refuse();
    return REAL(mkdir)(path, mode);
}
