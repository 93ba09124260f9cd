// The files of answers.c: names, attributes, and what moves between files.
#include <dirent.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <utime.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#define SYS_file_setattr 469
#endif

static int place, file, other, watch, ends[2];

// A file of two pages, an empty one, a directory, and a pipe.
static void begin_files(void) {
    char name[PAGE], bytes[2 * PAGE];
    place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "%s/answers.file", directory);
    file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    other = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    check("the directory can be written to", place >= 0 && file >= 0 && other >= 0, 1);
    fill(bytes, sizeof bytes, 7);
    check("write", write(file, bytes, sizeof bytes), sizeof bytes);
    check("pipe", pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
}

static void end_files(void) {
    char name[PAGE];
    snprintf(name, sizeof name, "%s/answers.file", directory);
    check("unlink", unlink(name), 0);
    close(place), close(file), close(other), close(watch), close(ends[0]), close(ends[1]);
}

static void names(void) {
    char *created = path("created"), *found = path("file"), *linked = path("linked"), *moved = text("answers.moved");
    char *again = path("linked"), *back = text("answers.moved"), *swapped = path("linked"), *last = text("answers.moved");
    char *gone = path("moved");
    if (!ready()) return;
    opened("creat", CALL(creat, created, 0600));
    said("unlink", CALL(unlink, created));
    opened("open", CALL(open, found, O_RDONLY));
    said("link", CALL(link, found, linked));
    said("linkat", CALL(linkat, AT_FDCWD, again, place, moved, 0));
    said("renameat2", CALL(renameat2, AT_FDCWD, swapped, place, back, RENAME_EXCHANGE));
    said("unlinkat", CALL(unlinkat, place, last, 0));
    said("rename", CALL(rename, linked, gone));
    said("unlink again", CALL(unlink, gone));
}

static void more_names(void) {
    char *made = path("made"), *made_at = text("answers.made"), *pipe = path("pipe"), *pipe_at = text("answers.pipe");
    char *from = text("answers.pipe"), *to = path("pipe.moved"), *here = text(directory);
    char *target = text("a target of some length"), *symbolic = path("symbolic"), *symbolic_at = text("answers.symbolic");
    char *read = cold(23), *read_at = cold(23), *there = cold(PAGE), *again = text("a target of some length");
    if (!ready()) return;
    said("mkdir", CALL(mkdir, made, 0700));
    said("rmdir", CALL(rmdir, made));
    said("mkdirat", CALL(mkdirat, place, made_at, 0700));
    said("unlinkat", CALL(unlinkat, place, made_at, AT_REMOVEDIR));
    said("mknod", CALL(mknod, pipe, S_IFIFO | 0600, 0));
    said("unlink", CALL(unlink, pipe));
    said("mknodat", CALL(mknodat, place, pipe_at, S_IFIFO | 0600, 0));
    said("renameat", CALL(renameat, place, from, AT_FDCWD, to));
    said("unlink", CALL(unlink, to));
    said("symlink", CALL(symlink, target, symbolic));
    told("readlink", CALL(readlink, symbolic, read, 23), read, 23);
    said("unlink", CALL(unlink, symbolic));
    said("symlinkat", CALL(symlinkat, again, place, symbolic_at));
    told("readlinkat", CALL(readlinkat, place, symbolic_at, read_at, 23), read_at, 23);
    said("unlink", CALL(unlinkat, place, symbolic_at, 0));
    said("chdir", CALL(chdir, here));
    long bytes = CALL(getcwd, there, PAGE);
    told("getcwd", bytes, there, bytes > 0 ? bytes : 0);
}

static void opens(void) {
    char *at = text("answers.file"), *how_at = text("answers.file"), *name = text("a name in memory");
    char *may = path("file"), *may_at = text("answers.file"), *may_at2 = text("answers.file"), *shorter = path("file");
    struct open_how *how = GIVEN(struct open_how, {.flags = O_RDONLY | O_CLOEXEC});
    char *tree = text("answers.file"), *handled = text("answers.file"), *longer = path("file");
    struct { uint32_t bytes; int type; char rest[128]; } *handle = with(&(uint32_t[34]){128}, 136);
    int *mount = ROOM(int);
    if (!ready()) return;
    opened("openat", CALL(openat, place, at, O_RDONLY));
    opened("openat2", CALL(openat2, place, how_at, how, sizeof *how));
    opened("memfd_create", CALL(memfd_create, name, 1));
    said("access", CALL(access, may, R_OK));
    said("faccessat", CALL(faccessat, place, may_at, W_OK));
    said("faccessat2", CALL(faccessat2, place, may_at2, R_OK, 0));
    said("truncate", CALL(truncate, shorter, PAGE));
    said("truncate", CALL(truncate, longer, 2 * PAGE));
    opened("open_tree", CALL(open_tree, place, tree, 0));
    long result = CALL(name_to_handle_at, place, handled, handle, mount, 0);
    likely("name_to_handle_at", result, handle->bytes > 0 && handle->bytes < 128 && *mount > 0);
    reached("open_by_handle_at", CALL(open_by_handle_at, place, handle, O_RDONLY));
}

static void attributes(void) {
    char *names[8];
    for (int at = 0; at < 3; at++) names[at] = path("file");
    for (int at = 3; at < 6; at++) names[at] = text("answers.file");
    struct stat *stat = ROOM(struct stat), *link = ROOM(struct stat), *there = ROOM(struct stat), *at = ROOM(struct stat);
    struct statx *more = ROOM(struct statx);
    struct statfs *system = ROOM(struct statfs), *same = ROOM(struct statfs);
    void *old = cold(32);
    struct stat known;
    if (!ready()) return;
    fstat(file, &known);
    likely("stat", CALL(stat, names[0], stat), memcmp(stat, &known, sizeof known) == 0);
    likely("lstat", CALL(lstat, names[1], link), memcmp(link, &known, sizeof known) == 0);
    likely("fstat", CALL(fstat, file, there), memcmp(there, &known, sizeof known) == 0);
    likely("newfstatat", CALL(newfstatat, place, names[3], at, 0), memcmp(at, &known, sizeof known) == 0);
    likely("statx", CALL(statx, place, names[4], 0, STATX_ALL, more), more->stx_size == 2 * PAGE && more->stx_ino == known.st_ino);
    likely("statfs", CALL(statfs, names[2], system), system->f_namelen >= 255 && system->f_bsize >= 512);
    likely("fstatfs", CALL(fstatfs, file, same), same->f_type == system->f_type);
    likely("ustat", CALL(ustat, known.st_dev, old), 1);
}

static long changed(void) {
    struct stat now;
    fstat(file, &now);
    return now.st_mtim.tv_sec * 1000 + now.st_mtim.tv_nsec / 1000000;
}

static void changes(void) {
    char *names[12];
    for (int at = 0; at < 5; at++) names[at] = path("file");
    for (int at = 5; at < 10; at++) names[at] = text("answers.file");
    struct utimbuf *seconds = GIVEN(struct utimbuf, {1000000, 2000000});
    void *micros = GIVEN(struct { struct timeval of[2]; }, {{{3, 4}, {5, 6000}}});
    void *micros_at = GIVEN(struct { struct timeval of[2]; }, {{{3, 4}, {7, 8000}}});
    void *nanos = GIVEN(struct { struct timespec of[2]; }, {{{3, 4}, {9, 10000000}}});
    if (!ready()) return;
    said("utime", CALL(utime, names[0], seconds)), said("changed", changed());
    said("utimes", CALL(utimes, names[1], micros)), said("changed", changed());
    said("futimesat", CALL(futimesat, place, names[5], micros_at)), said("changed", changed());
    said("utimensat", CALL(utimensat, place, names[6], nanos, 0)), said("changed", changed());
    said("chmod", CALL(chmod, names[2], 0640));
    said("fchmodat", CALL(fchmodat, place, names[7], 0600));
    said("fchmodat2", CALL(fchmodat2, place, names[8], 0600, 0));
    said("chown", CALL(chown, names[3], getuid(), getgid()));
    said("lchown", CALL(lchown, names[4], getuid(), getgid()));
    said("fchownat", CALL(fchownat, place, names[9], getuid(), getgid(), 0));
}

static void extended(void) {
    char *names[12], *keys[12];
    for (int at = 0; at < 8; at++) names[at] = path("file");
    for (int at = 0; at < 9; at++) keys[at] = text("user.answer");
    char *set = text("a value of the first"), *set_link = text("a value of the link"), *set_file = text("a value of the file");
    char *got = cold(21), *got_link = cold(20), *got_file = cold(20), *list = cold(12), *list_link = cold(12), *list_file = cold(12);
    if (!ready()) return;
    said("setxattr", CALL(setxattr, names[0], keys[0], set, 21, 0));
    told("getxattr", CALL(getxattr, names[1], keys[1], got, 21), got, 21);
    said("lsetxattr", CALL(lsetxattr, names[2], keys[2], set_link, 20, 0));
    told("lgetxattr", CALL(lgetxattr, names[3], keys[3], got_link, 20), got_link, 20);
    said("fsetxattr", CALL(fsetxattr, file, keys[4], set_file, 20, 0));
    told("fgetxattr", CALL(fgetxattr, file, keys[5], got_file, 20), got_file, 20);
    // Where there are no more of others.
    told("listxattr", CALL(listxattr, names[4], list, 12), list, 12);
    told("llistxattr", CALL(llistxattr, names[5], list_link, 12), list_link, 12);
    told("flistxattr", CALL(flistxattr, file, list_file, 12), list_file, 12);
    said("removexattr", CALL(removexattr, names[6], keys[6]));
    said("lremovexattr", CALL(lremovexattr, names[7], keys[7]));
    said("fremovexattr", CALL(fremovexattr, file, keys[8]));
}

struct value { uint64_t at; uint32_t bytes, flags; };
struct file_flags { uint64_t flags; uint32_t extent, count, project, copied; };

// Of newer kernels.
static void extended_at(void) {
    char *names[6], *keys[3], *set = text("a value by its place"), *got = cold(21), *list = cold(12);
    for (int at = 0; at < 6; at++) names[at] = text("answers.file");
    for (int at = 0; at < 3; at++) keys[at] = text("user.answer");
    struct value *from = GIVEN(struct value, {(uintptr_t)set, 21}), *to = GIVEN(struct value, {(uintptr_t)got, 21});
    struct file_flags *flags = ROOM(struct file_flags);
    if (!ready()) return;
    said("setxattrat", CALL(setxattrat, place, names[0], 0, keys[0], from, sizeof *from));
    told("getxattrat", CALL(getxattrat, place, names[1], 0, keys[1], to, sizeof *to), got, 21);
    told("listxattrat", CALL(listxattrat, place, names[2], 0, list, 12), list, 12);
    said("removexattrat", CALL(removexattrat, place, names[3], 0, keys[2]));
    likely("file_getattr", CALL(file_getattr, place, names[4], flags, sizeof *flags, 0), 1);
    said("file_setattr", CALL(file_setattr, place, names[5], flags, sizeof *flags, 0));
}

// Names of a directory, in an order that differs.
static void lists(void) {
    char name[PAGE], *entries = cold(2000), *old = cold(2000), *watched = path("watched"), *event = cold(80);
    if (!is_out) return;
    snprintf(name, sizeof name, "%s/answers.watched", directory);
    mkdir(name, 0700);
    int list = open(name, O_RDONLY | O_DIRECTORY), again = open(name, O_RDONLY | O_DIRECTORY);
    for (int at = 0; at < 5; at++) mkdirat(list, (char[]){'a' + at, 0}, 0700);
    ready();
    long bytes = CALL(getdents64, list, entries, 2000), old_bytes = CALL(getdents, again, old, 2000);
    uint64_t names = 0;
    for (long at = 0; at < bytes; at += ((struct dirent64 *)(entries + at))->d_reclen) names += sum(((struct dirent64 *)(entries + at))->d_name, 2);
    said("getdents64", bytes), said("names", names), said("getdents", old_bytes);
    said("inotify_add_watch", CALL(inotify_add_watch, watch, watched, IN_DELETE | IN_ISDIR));
    for (int at = 0; at < 5; at++) unlinkat(list, (char[]){'a' + at, 0}, AT_REMOVEDIR);
    told("read of events", CALL(read, watch, event, 80), event, 80);
    close(list), close(again);
    rmdir(name);
}

static void moves(void) {
    off_t *from = GIVEN(off_t, {100}), *in = GIVEN(off_t, {200}), *out = GIVEN(off_t, {300}), *into = GIVEN(off_t, {400}), *back = GIVEN(off_t, {3});
    unsigned char *read = cold(2000), *write = cold(3000), *place_read = cold(5000), *place_write = cold(6000);
    struct { uint64_t from, bytes; } *range = with(&(uint64_t[2]){0, 2 * PAGE}, 16);
    uint64_t *cached = cold(40);
    if (!ready()) return;
    told("sendfile", CALL(sendfile, other, file, from, 1000), from, 8);
    told("copy_file_range", CALL(copy_file_range, file, in, other, out, 1000, 0), in, 8);
    told("its other offset", 0, out, 8);
    told("splice", CALL(splice, file, into, ends[1], 0, 500, 0), into, 8);
    told("splice", CALL(splice, ends[0], 0, other, back, 500, 0), back, 8);
    lseek(other, 0, SEEK_SET);
    told("read", CALL(read, other, read, 2000), read, 2000);
    said("write", CALL(write, other, write, 3000));
    said("pwrite64", CALL(pwrite64, other, place_write, 6000, 77L));
    told("pread64", CALL(pread64, other, place_read, 5000, 33L), place_read, 5000);
    likely("cachestat", CALL(cachestat, file, range, cached, 0), cached[0] > 0);
}

// Two parts each.
static void *parts(void *first, size_t bytes, void *second, size_t more) {
    return GIVEN(struct { struct iovec of[2]; }, {{{first, bytes}, {second, more}}});
}

static void vectors(void) {
    unsigned char *in[8], *out[8];
    void *reads[4], *writes[4];
    for (int at = 0; at < 8; at++) in[at] = cold(900), out[at] = cold(800);
    for (int at = 0; at < 4; at++)
        reads[at] = parts(in[2 * at], 900, in[2 * at + 1], 900), writes[at] = parts(out[2 * at], 800, out[2 * at + 1], 800);
    if (!ready()) return;
    lseek(file, 0, SEEK_SET), lseek(other, 0, SEEK_SET);
    said("writev", CALL(writev, other, writes[0], 2));
    said("pwritev", CALL(pwritev, other, writes[1], 2, 50L, 0L));
    said("pwritev2", CALL(pwritev2, other, writes[2], 2, 60L, 0L, 0));
    said("vmsplice", CALL(vmsplice, ends[1], writes[3], 2, 0));
    said("readv", CALL(readv, file, reads[0], 2));
    said("preadv", CALL(preadv, other, reads[1], 2, 50L, 0L));
    said("preadv2", CALL(preadv2, other, reads[2], 2, 60L, 0L, 0));
    said("readv of a pipe", CALL(readv, ends[0], reads[3], 2));
    for (int at = 0; at < 8; at++) told("a part", at, in[at], 900);
}

// Linux AIO; the second request is of a vector.
static void asked_for(void) {
    char *read = cold(700), *part = cold(600), *other_part = cold(500);
    void *vector = parts(part, 600, other_part, 500);
    struct iocb *one = GIVEN(struct iocb, {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_buf = (uintptr_t)read, .aio_nbytes = 700});
    struct iocb *two = GIVEN(struct iocb, {.aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = file, .aio_buf = (uintptr_t)vector, .aio_nbytes = 2});
    struct iocb *none = GIVEN(struct iocb, {.aio_fildes = file});
    void *both = GIVEN(struct { void *of[2]; }, {{one, two}});
    uint64_t *context = GIVEN(uint64_t, {0});
    struct io_event *ended = cold(2 * sizeof *ended), *cancelled = ROOM(struct io_event);
    struct timespec *wait = GIVEN(struct timespec, {5, 0});
    if (!ready()) return;
    said("io_setup", CALL(io_setup, 2, context));
    said("io_submit", CALL(io_submit, *context, 2, both));
    said("io_getevents", CALL(io_getevents, *context, 2, 2, ended, wait));
    told("what was read", ended[0].res + ended[1].res, read, 700), told("the last part", 0, other_part, 500);
    said("io_cancel", CALL(io_cancel, *context, none, cancelled));
    CALL(io_destroy, *context);
}

struct owner { int type, process; };

static void controls(void) {
    struct flock *lock = GIVEN(struct flock, {.l_type = F_WRLCK, .l_len = 10}), *asked = GIVEN(struct flock, {.l_type = F_WRLCK, .l_len = 9});
    struct flock *open_lock = GIVEN(struct flock, {.l_type = F_RDLCK, .l_len = 8});
    struct owner *owner = GIVEN(struct owner, {1, getpid()}), *owned = ROOM(struct owner);
    uint64_t *hint = GIVEN(uint64_t, {2}), *hinted = ROOM(uint64_t);
    int *waiting = ROOM(int), *flags = ROOM(int), *block = ROOM(int), *nonblocking = GIVEN(int, {1});
    struct fsxattr *more = ROOM(struct fsxattr);
    struct file_clone_range *clone = GIVEN(struct file_clone_range, {.src_fd = file, .src_length = PAGE});
    if (!ready()) return;
    said("F_SETLK", CALL(fcntl, file, F_SETLK, lock));
    told("F_GETLK", CALL(fcntl, file, F_GETLK, asked), asked, sizeof *asked);
    said("F_OFD_SETLK", CALL(fcntl, other, F_OFD_SETLK, open_lock));
    said("F_SETOWN_EX", CALL(fcntl, ends[0], F_SETOWN_EX, owner));
    likely("F_GETOWN_EX", CALL(fcntl, ends[0], F_GETOWN_EX, owned), owned->process == getpid());
    said("F_SET_RW_HINT", CALL(fcntl, file, 1036, hint));
    told("F_GET_RW_HINT", CALL(fcntl, file, 1035, hinted), hinted, 8);
    told("FIONREAD", CALL(ioctl, file, FIONREAD, waiting), waiting, 4);
    said("FIONBIO", CALL(ioctl, ends[0], FIONBIO, nonblocking));
    told("FS_IOC_GETFLAGS", CALL(ioctl, file, FS_IOC_GETFLAGS, flags), flags, 4);
    told("FIGETBSZ", CALL(ioctl, file, FIGETBSZ, block), block, 4);
    likely("FS_IOC_FSGETXATTR", CALL(ioctl, file, FS_IOC_FSGETXATTR, more), 1);
    said("FICLONERANGE", CALL(ioctl, other, FICLONERANGE, clone));
}

struct mount_request { uint32_t bytes, spare; uint64_t mount, wanted; };

// Mounts are not changed: there is nothing of these names.
static void mounts(void) {
    char *sources[8], *targets[8], *type = text("no such type"), *options = text("none"), *known = text("tmpfs"), *kind = text("proc");
    for (int at = 0; at < 8; at++) sources[at] = path("none"), targets[at] = path("none");
    uint64_t *attributes = cold(32), *ids = cold(80), *about = cold(512);
    struct mount_request *all = GIVEN(struct mount_request, {24, 0, UINT64_MAX, 0}), *root = GIVEN(struct mount_request, {24, 0, UINT64_MAX, 1});
    char *marked = text(directory), *device = path("file"), *quota = cold(72), *type_name = cold(16);
    if (!ready()) return;
    reached("mount", CALL(mount, sources[0], targets[0], type, 0, options));
    reached("umount2", CALL(umount2, sources[1], 0));
    reached("pivot_root", CALL(pivot_root, sources[2], targets[2]));
    reached("chroot", CALL(chroot, sources[3]));
    reached("acct", CALL(acct, targets[3]));
    reached("swapon", CALL(swapon, sources[4], 0));
    reached("swapoff", CALL(swapoff, targets[4]));
    reached("move_mount", CALL(move_mount, AT_FDCWD, sources[5], AT_FDCWD, targets[5], 0));
    reached("fspick", CALL(fspick, AT_FDCWD, sources[6], 0));
    reached("mount_setattr", CALL(mount_setattr, AT_FDCWD, targets[6], 0, attributes, 32));
    long context = CALL(fsopen, known, 1);
    reached("fsopen", context);
    if (context >= 0) close(context);
    reached("listmount", CALL(listmount, all, ids, 10, 0));
    reached("statmount", CALL(statmount, root, about, 512, 0));
    int notes = CALL(fanotify_init, 0x200, 0);
    reached("fanotify_mark", CALL(fanotify_mark, notes, 1, 0x100, AT_FDCWD, marked));
    if (notes >= 0) close(notes);
    said("quotactl", CALL(quotactl, 0x80000700, device, 0, quota));
    long number = CALL(sysfs, 1, kind);
    likely("sysfs", number, 1);
    told("its name", CALL(sysfs, 2, number < 0 ? 0 : number, type_name), type_name, number < 0 ? 0 : 5);
}

static void (*const file_steps[])(void) = {names, more_names, opens, attributes, changes, extended, extended_at, lists,
                                           moves, vectors, asked_for, controls, mounts, 0};
