// io_uring by raw system calls: the kernel uses memory after the call that named it, from threads of its own, and what is
// registered it holds for as long as the ring lives.
static struct {
    int file;
    unsigned *tail, mask, *order, *ended_head, *ended_tail, ended_mask;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *answers;
} io;

static int open_ring(unsigned flags) {
    struct io_uring_params about = {.flags = flags, .sq_thread_idle = 1000};
    io.file = (int)syscall(SYS_io_uring_setup, 32, &about);
    if (io.file < 0) return 0;
    int shared = MAP_SHARED | MAP_POPULATE, access = PROT_READ | PROT_WRITE;
    size_t asked = about.sq_off.array + about.sq_entries * 4, ended = about.cq_off.cqes + about.cq_entries * 16;
    char *queue = mmap(0, asked, access, shared, io.file, IORING_OFF_SQ_RING);
    char *answers = mmap(0, ended, access, shared, io.file, IORING_OFF_CQ_RING);
    io.requests = mmap(0, about.sq_entries * sizeof *io.requests, access, shared, io.file, IORING_OFF_SQES);
    check("the ring's memory", queue == MAP_FAILED || answers == MAP_FAILED || (void *)io.requests == MAP_FAILED, 0);
    io.tail = (void *)(queue + about.sq_off.tail), io.mask = *(unsigned *)(queue + about.sq_off.ring_mask);
    io.order = (void *)(queue + about.sq_off.array), io.answers = (void *)(answers + about.cq_off.cqes);
    io.ended_head = (void *)(answers + about.cq_off.head), io.ended_tail = (void *)(answers + about.cq_off.tail);
    io.ended_mask = *(unsigned *)(answers + about.cq_off.ring_mask);
    return 1;
}

static void ask(int what, int flags, int file, void *memory, unsigned bytes, uint64_t at, int registered) {
    unsigned place = *io.tail & io.mask;
    io.requests[place] = (struct io_uring_sqe){.opcode = what, .flags = flags, .fd = file, .addr = (uintptr_t)memory,
        .len = bytes, .off = at, .buf_index = registered, .user_data = bytes};
    io.order[place] = place;
    __atomic_store_n(io.tail, *io.tail + 1, __ATOMIC_RELEASE);
}

static void submit(int count) {
    check("io_uring_enter", syscall(SYS_io_uring_enter, io.file, count, 0, IORING_ENTER_SQ_WAKEUP, 0, 0), count);
}

// Each answer is the length that was asked for.
static void await(int count) {
    for (int ended = 0; ended < count;) {
        unsigned head = *io.ended_head;
        if (head == __atomic_load_n(io.ended_tail, __ATOMIC_ACQUIRE)) {
            long result = syscall(SYS_io_uring_enter, io.file, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
            check("io_uring_enter, waiting", result < 0 && errno != EINTR, 0);
            continue;
        }
        struct io_uring_cqe answer = io.answers[head & io.ended_mask];
        errno = answer.res < 0 ? -answer.res : 0;
        check("an answer of the ring", answer.res, answer.user_data);
        __atomic_store_n(io.ended_head, head + 1, __ATOMIC_RELEASE);
        ended++;
    }
}

enum { ASKED = 24 };

// `kind` says which calls, and whether a thread of the kernel's makes them.
static void ring_round(int file, int kind, int round) {
    int is_fixed = kind & 1, flags = kind & 2 ? IOSQE_ASYNC : 0;
    for (int at = 0; at < ASKED; at++) fill(buffer(at), BUFFER, 4000 + 100 * round + at);
    chill();
    for (int at = 0; at < ASKED; at++)
        ask(is_fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE, flags, file, buffer(at), BUFFER, at * BUFFER, at);
    submit(ASKED), await(ASKED);
    chill();
    for (int at = 0; at < ASKED; at++)
        ask(is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ, flags, file, buffer(100 + at), BUFFER, at * BUFFER, ASKED + at);
    submit(ASKED);
    press();
    await(ASKED);
    chill();
    for (int at = 0; at < ASKED; at++) expect("through the ring", buffer(100 + at), BUFFER, 4000 + 100 * round + at);
}

// Reads that wait: their memory leaves meanwhile.
static void late_answers(void) {
    int ends[ASKED][2];
    for (int at = 0; at < ASKED; at++) {
        check("pipe", pipe(ends[at]), 0);
        ask(at % 2 ? IORING_OP_READ : IORING_OP_POLL_ADD, 0, ends[at][0], at % 2 ? buffer(100 + at) : 0, at % 2 ? PAGE : 0, 0, 0);
        if (at % 2 == 0) io.requests[(*io.tail - 1) & io.mask].poll_events = POLLIN;
        if (at % 2 == 0) io.requests[(*io.tail - 1) & io.mask].user_data = POLLIN;
    }
    submit(ASKED);
    chill();
    for (int at = 0; at < ASKED; at++) check("write", write(ends[at][1], buffer(at), PAGE), PAGE);
    await(ASKED);
    for (int at = 1; at < ASKED; at += 2) expect("a late answer", buffer(100 + at), PAGE, 4000 + at);
    for (int at = 0; at < ASKED; at++) close(ends[at][0]), close(ends[at][1]);
}

static int ring_file;

static void ring_rounds(void) {
    for (int kind = 0; kind < 4; kind++) ring_round(ring_file, kind, kind);
}

static void ring(void) {
    if (!open_ring(0)) return (void)printf("no io_uring: %s\n", strerror(errno));
    struct iovec *parts = (void *)buffer(251);
    for (int at = 0; at < ASKED; at++) {
        parts[at] = (struct iovec){buffer(at), BUFFER};
        parts[ASKED + at] = (struct iovec){buffer(100 + at), BUFFER};
    }
    chill();
    check("registered buffers",
          syscall(SYS_io_uring_register, io.file, IORING_REGISTER_BUFFERS, parts, 2 * ASKED), 0);
    ring_file = file_of(0);
    ring_rounds();
    under_pressure(ring_rounds);
    check("no buffers any more", syscall(SYS_io_uring_register, io.file, IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    ring_round(ring_file, 0, 0);
    late_answers();
    close(io.file);
    // A thread of the kernel's takes the requests by itself.
    check("a ring that is looked at", open_ring(IORING_SETUP_SQPOLL), 1);
    for (int kind = 0; kind <= 2; kind += 2) ring_round(ring_file, kind, 5 + kind);
    close(ring_file), close(io.file);
    printf("ring\n");
}
