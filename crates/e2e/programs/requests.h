// Linux AIO (io_submit), part of kernel_io.c: requests, their vectors, and what is told of them lie in memory that has left, and
// leaves again while a device is at work on it.
#include <linux/aio_abi.h>

enum { REQUESTS = 48, PARTS = 4 };

static struct iocb *request(int number) { return (struct iocb *)buffer(100) + number; }

// Submits all of them, in several calls if the kernel takes some at a time.
static void submit_all(aio_context_t context, int count) {
    struct iocb **all = (void *)buffer(101);
    for (int at = 0; at < count; at++) all[at] = request(at);
    chill();
    for (int done = 0; done < count;) {
        long taken = syscall(SYS_io_submit, context, (long)count - done, all + done);
        check("io_submit", taken > 0, 1);
        done += taken;
    }
}

static void await_all(const char *what, aio_context_t context, int count, long bytes) {
    struct io_event *events = (void *)buffer(102);
    struct timespec *limit = (void *)buffer(103);
    limit->tv_sec = 20, limit->tv_nsec = 0;
    chill();
    check("io_getevents", syscall(SYS_io_getevents, context, (long)count, (long)count, events, limit), count);
    long seen = 0;
    for (int at = 0; at < count; at++) check(what, events[at].res, bytes), seen += events[at].data;
    check("each once", seen, (long)count * (count - 1) / 2);
}

static struct iocb whole(int operation, int file, int number, int target) {
    return (struct iocb){.aio_data = number,
                         .aio_lio_opcode = operation,
                         .aio_fildes = file,
                         .aio_buf = (uintptr_t)buffer(target),
                         .aio_nbytes = BUFFER,
                         .aio_offset = (int64_t)number * BUFFER};
}

// The same buffer by four pages in a row, the last one first in the file.
static struct iocb in_parts(int operation, int file, int number, int target) {
    struct iovec *parts = (struct iovec *)buffer(104) + number * PARTS;
    for (int part = 0; part < PARTS; part++) parts[part] = (struct iovec){buffer(target) + (PARTS - 1 - part) * PAGE, PAGE};
    struct iocb result = whole(operation, file, number, target);
    result.aio_buf = (uintptr_t)parts, result.aio_nbytes = PARTS;
    return result;
}

static void round_of_requests(aio_context_t context, int file) {
    for (int at = 0; at < REQUESTS; at++) {
        fill(buffer(at), BUFFER, 5000 + at), memset(buffer(50 + at), 0, BUFFER);
        *request(at) = at % 2 ? in_parts(IOCB_CMD_PWRITEV, file, at, at) : whole(IOCB_CMD_PWRITE, file, at, at);
    }
    submit_all(context, REQUESTS), await_all("written", context, REQUESTS, BUFFER);
    for (int at = 0; at < REQUESTS; at++)
        *request(at) = at % 2 ? in_parts(IOCB_CMD_PREADV, file, at, 50 + at) : whole(IOCB_CMD_PREAD, file, at, 50 + at);
    submit_all(context, REQUESTS), await_all("read", context, REQUESTS, BUFFER);
    for (int at = 0; at < REQUESTS; at++) expect("a request", buffer(50 + at), BUFFER, 5000 + at);
}

// One that waits for who writes, and one that nobody serves.
static void waiting_requests(aio_context_t context) {
    int ends[2];
    check("pipe", pipe(ends), 0);
    for (int at = 0; at < 2; at++)
        *request(at) = (struct iocb){.aio_data = at, .aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = ends[0], .aio_buf = POLLIN};
    submit_all(context, 2);
    check("write", write(ends[1], "x", 1), 1);
    await_all("readable", context, 2, POLLIN | POLLRDNORM);
    struct io_event *event = (void *)buffer(102);
    struct timespec *limit = (void *)buffer(103);
    limit->tv_sec = 0, limit->tv_nsec = 1000000;
    chill();
    check("nothing", syscall(SYS_io_getevents, context, 1L, 4L, event, limit), 0);
    request(0)->aio_lio_opcode = IOCB_CMD_PREAD, request(0)->aio_buf = 8 * PAGE, request(0)->aio_nbytes = PAGE;
    submit_all(context, 1), await_all("nowhere", context, 1, -EFAULT);
    close(ends[0]), close(ends[1]);
}

static void requests(void) {
    aio_context_t *context = (void *)buffer(105);
    *context = 0;
    chill();
    if (syscall(SYS_io_setup, 128, context)) return (void)printf("no requests: %s\n", strerror(errno));
    for (int direct = 0; direct < 2; direct++) {
        int file = open(directory, O_TMPFILE | O_RDWR | (direct ? O_DIRECT : 0), 0600);
        if (file < 0) continue;
        round_of_requests(*context, file);
        close(file);
    }
    waiting_requests(*context);
    check("io_destroy", syscall(SYS_io_destroy, *context), 0);
    for (int at = 0; at < 106; at++) fill(buffer(at), BUFFER, at);
    printf("requests %d\n", REQUESTS);
}
