// The kernel reads and writes memory that has left: through messages, files, pipes and rings. Every byte is checked; what is
// printed is the same with and without pleat. kernel_io WHAT [DIRECTORY]
#define _GNU_SOURCE
#include "cold.h"

#include <linux/errqueue.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static const char *directory;

// A file without a name, of `flags` besides.
static int file_of(int flags) {
    int file = open(directory, O_TMPFILE | O_RDWR | flags, 0600);
    check("a file in the directory", file < 0, 0);
    return file;
}

static void events(void) {
    enum { PIPES = 32 };
    struct epoll_event *wanted = (void *)buffer(0), *got = (void *)buffer(1);
    int(*ends)[2] = (void *)buffer(2), epoll = epoll_create1(0);
    chill();
    for (int at = 0; at < PIPES; at++) check("pipe2", pipe2(ends[at], O_CLOEXEC), 0);
    for (int at = 0; at < PIPES; at++) {
        wanted[at] = (struct epoll_event){EPOLLIN, {.u64 = 0x1234567800000000u + at}};
        check("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, ends[at][0], &wanted[at]), 0);
        if (at % 2) check("write", write(ends[at][1], buffer(3), 100), 100);
    }
    chill();
    check("epoll_wait", epoll_wait(epoll, got, PIPES, 1000), PIPES / 2);
    uint64_t sum = 0;
    for (int at = 0; at < PIPES / 2; at++) sum += got[at].data.u64 * (got[at].events == EPOLLIN);
    for (int at = 0; at < PIPES; at++) close(ends[at][0]), close(ends[at][1]);
    close(epoll);
    printf("events %llx\n", (unsigned long long)sum);
}

static void messages(void) {
    enum { COUNT = 12, BYTES = 3000 };
    int ends[2];
    check("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    struct mmsghdr *out = (void *)buffer(4), *in = (void *)buffer(5);
    struct iovec *out_parts = (void *)buffer(6), *in_parts = (void *)buffer(7);
    memset(out, 0, COUNT * sizeof *out), memset(in, 0, COUNT * sizeof *in);
    for (int at = 0; at < COUNT; at++) {
        fill(buffer(10 + at), BUFFER, 10 + at), memset(buffer(30 + at), 0, BUFFER);
        out_parts[2 * at] = (struct iovec){buffer(10 + at), 1000};
        out_parts[2 * at + 1] = (struct iovec){buffer(10 + at) + 1000, BYTES - 1000};
        in_parts[2 * at] = (struct iovec){buffer(30 + at) + PAGE, 2000};
        in_parts[2 * at + 1] = (struct iovec){buffer(30 + at) + PAGE + 2000, BUFFER - PAGE - 2000};
        out[at].msg_hdr.msg_iov = out_parts + 2 * at, out[at].msg_hdr.msg_iovlen = 2;
        in[at].msg_hdr.msg_iov = in_parts + 2 * at, in[at].msg_hdr.msg_iovlen = 2;
    }
    for (int sent = 0, got = 0; got < COUNT;) {
        chill();
        // A queue of datagrams may be shorter than all of them: net.unix.max_dgram_qlen.
        int more = sendmmsg(ends[0], out + sent, COUNT - sent, MSG_DONTWAIT);
        check("sendmmsg", more > 0, 1);
        sent += more;
        chill();
        more = recvmmsg(ends[1], in + got, COUNT - got, MSG_DONTWAIT, 0);
        check("recvmmsg", more > 0, 1);
        got += more;
    }
    for (int at = 0; at < COUNT; at++) {
        check("a message's length", in[at].msg_len, BYTES);
        expect("a message", buffer(30 + at) + PAGE, BYTES, 10 + at);
        check("before it", buffer(30 + at)[PAGE - 1], 0);
    }
    close(ends[0]), close(ends[1]);
    printf("messages\n");
}

static void vectors(void) {
    enum { PARTS = 24 };
    int file = file_of(0);
    struct iovec *parts = (void *)buffer(50);
    for (int at = 0; at < PARTS; at++) {
        fill(buffer(60 + at), BUFFER, 60 + at), memset(buffer(90 + at), 0, BUFFER);
        parts[at] = (struct iovec){buffer(60 + at), BUFFER};
        parts[PARTS + at] = (struct iovec){buffer(90 + at), BUFFER};
    }
    chill();
    check("writev", writev(file, parts, PARTS), PARTS * BUFFER);
    chill();
    check("preadv2", preadv2(file, parts + PARTS, PARTS, 0, 0), PARTS * BUFFER);
    for (int at = 0; at < PARTS; at++) expect("preadv2", buffer(90 + at), BUFFER, 60 + at);
    chill();
    check("pwritev2", pwritev2(file, parts + PARTS, PARTS, 8, 0), PARTS * BUFFER);
    check("pread", pread(file, buffer(90), BUFFER, 8), BUFFER);
    expect("pread", buffer(90), BUFFER, 60);
    close(file);
    printf("vectors\n");
}

// What calls answer, in buffers that were out.
static void answers(void) {
    struct statx *found = (void *)(buffer(120) + PAGE - 64);
    struct utsname *name = (void *)(buffer(121) + PAGE - 64), here;
    char *path = (char *)buffer(122) + PAGE - 3;
    unsigned char *noise = buffer(123);
    strcpy(path, "/proc/self/exe");
    memset(noise, 0, BUFFER);
    chill();
    check("statx", statx(AT_FDCWD, path, 0, STATX_ALL, found), 0);
    check("uname", uname(name), 0);
    uname(&here);
    check("getrandom", getrandom(noise + 100, 2 * PAGE, 0), 2 * PAGE);
    check("readlink", readlink(path, (char *)buffer(124) + PAGE - 2, 2000) > 5, 1);
    int zeros = 0;
    for (int at = 100; at < 100 + 2 * PAGE; at++) zeros += noise[at] == 0;
    check("noise", zeros < PAGE / 16 && noise[99] == 0 && noise[100 + 2 * PAGE] == 0, 1);
    check("the same name", memcmp(name, &here, sizeof here), 0);
    printf("answers %d %c\n", S_ISREG(found->stx_mode), buffer(124)[PAGE - 2]);
}

static long futex(void *word, int what, unsigned value, void *other, unsigned last) {
    return syscall(SYS_futex, word, what, value, (void *)1, other, last);
}

static int *bell, *other_bell, *heard;

static void *listener(void *nothing) {
    // Not FUTEX_PRIVATE: the kernel looks at the page to know whose word it is.
    while (syscall(SYS_futex, bell, FUTEX_WAIT, 7, 0, 0, 0) && errno == EINTR) {}
    __atomic_add_fetch(heard, 1, __ATOMIC_SEQ_CST);
    return nothing;
}

// The page of the word leaves while threads wait for it, and they are found nevertheless.
static void words_to_wait_for(void) {
    pthread_t threads[3];
    bell = (void *)(buffer(130) + PAGE), other_bell = (void *)buffer(131), heard = (void *)buffer(132);
    *bell = 7, *other_bell = 9, *heard = 0;
    chill();
    for (int at = 0; at < 3; at++) check("pthread_create", pthread_create(&threads[at], 0, listener, 0), 0);
    usleep(30000);
    chill();
    check("nobody waits at the other", futex(other_bell, FUTEX_WAKE, 9, 0, 0), 0);
    chill();
    check("woken, or sent on", futex(bell, FUTEX_CMP_REQUEUE, 1, other_bell, 7), 2);
    chill();
    check("the wrong value", syscall(SYS_futex, bell, FUTEX_WAIT, 8, 0, 0, 0), -1);
    check("its reason", errno, EAGAIN);
    check("woken", futex(other_bell, FUTEX_WAKE, 9, 0, 0), 1);
    chill();
    check("woken", futex(bell, FUTEX_WAKE, 9, 0, 0), 1);
    for (int at = 0; at < 3; at++) pthread_join(threads[at], 0);
    printf("words %d\n", *heard);
}

// Straight from and to the device: pages are pinned while it works.
static void direct_round(void) {
    enum { BLOCKS = 32 };
    int file = file_of(O_DIRECT);
    for (int round = 0; round < 8; round++) {
        for (int at = 0; at < BLOCKS; at++)
            check("O_DIRECT write", pwrite(file, buffer(140 + at), BUFFER, (off_t)at * BUFFER), BUFFER);
        for (int at = 0; at < BLOCKS; at++)
            check("O_DIRECT read", pread(file, buffer(180 + at), BUFFER, (off_t)at * BUFFER), BUFFER);
        for (int at = 0; at < BLOCKS; at++) {
            uint64_t key = round ? 1000 * round + at : 140 + at;
            expect("O_DIRECT", buffer(180 + at), BUFFER, key);
            fill(buffer(140 + at), BUFFER, 1000 * (round + 1) + at);
        }
    }
    close(file);
}

static void direct(void) {
    int file = open(directory, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (file < 0) return (void)printf("no O_DIRECT\n");
    close(file);
    chill();
    under_pressure(direct_round);
    for (int at = 140; at < 212; at++) fill(buffer(at), BUFFER, at);
    printf("direct\n");
}

static void read_all(const char *what, int from, unsigned char *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t got = read(from, to + at, bytes - at);
        check(what, got > 0, 1);
        at += got;
    }
}

// A pipe holds the pages themselves. They leave while it does, and what is read is what was there; or, where the program has
// written since, as the kernel has it, what is there now. Never anything else.
static void spliced(void) {
    enum { ROUNDS = 8 };
    int ends[2], file = file_of(0);
    check("pipe", pipe(ends), 0);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *from = buffer(round), *to = buffer(100 + round);
        struct iovec *part = (void *)buffer(250);
        fill(from, BUFFER, 2000 + round);
        *part = (struct iovec){from, BUFFER};
        chill();
        check("vmsplice", vmsplice(ends[1], part, 1, round % 2 ? SPLICE_F_GIFT : 0), BUFFER);
        chill();
        if (round % 4 == 3) {
            for (int page = 0; page < BUFFER; page += PAGE) *(uint64_t *)(from + page) = 77;
            chill();
        }
        off_t at = 0;
        if (round % 2) {
            check("splice", splice(ends[0], 0, file, &at, BUFFER, 0), BUFFER);
            check("pread", pread(file, to, BUFFER, 0), BUFFER);
        } else {
            read_all("read", ends[0], to, BUFFER);
        }
        for (int page = 0; page < BUFFER; page += PAGE)
            if (round % 4 == 3 && *(uint64_t *)(to + page) == 77) *(uint64_t *)(to + page) = word(2000 + round, page / 8);
        expect("out of the pipe", to, BUFFER, 2000 + round);
        for (int page = 0; page < BUFFER; page += PAGE)
            if (round % 4 == 3) check("what was written since", *(uint64_t *)(from + page), 77);
    }
    close(file), close(ends[0]), close(ends[1]);
    printf("spliced %d\n", ROUNDS);
}

static int connected(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) return 0;
    if (getsockname(listener, (void *)&address, &length) || connect(ends[0], (void *)&address, length)) return 0;
    ends[1] = accept(listener, 0, 0);
    close(listener);
    return !setsockopt(ends[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
}

// Waits until the kernel has let go of what `count` calls have sent.
static void let_go(int socket, unsigned count) {
    char control[512];
    for (unsigned ended = 0; ended < count;) {
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        struct pollfd wait = {socket, 0, 0};
        check("poll", poll(&wait, 1, 5000), 1);
        check("the error queue", recvmsg(socket, &message, MSG_ERRQUEUE), 0);
        struct sock_extended_err *note = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
        check("a notification", note->ee_origin, SO_EE_ORIGIN_ZEROCOPY);
        ended += note->ee_data - note->ee_info + 1;
    }
}

static void zero_copy(void) {
    enum { ROUNDS = 6 };
    int ends[2];
    if (!connected(ends)) return (void)printf("no MSG_ZEROCOPY\n");
    for (int round = 0; round < ROUNDS; round++) {
        fill(buffer(round), BUFFER, 3000 + round);
        chill();
        check("MSG_ZEROCOPY", send(ends[0], buffer(round), BUFFER, MSG_ZEROCOPY), BUFFER);
        chill();
        read_all("recv", ends[1], buffer(100 + round), BUFFER);
        let_go(ends[0], 1);
        fill(buffer(round), BUFFER, 1);
        expect("over the loopback", buffer(100 + round), BUFFER, 3000 + round);
    }
    close(ends[0]), close(ends[1]);
    printf("zero copy %d\n", ROUNDS);
}

// A loopback of one's own that sends 4 Mbit a second: what is sent without a copy lies in its queue, held by the kernel.
static int slowed(void) {
    return !unshare(CLONE_NEWNET) && !system("exec 2>&- && ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 4mbit burst 16k limit 1m");
}

// What waits in a device's queue is what was sent, though the program's pages have left and come back since.
static void held(void) {
    enum { ROUNDS = 10 };
    int ends[2], bytes = 1 << 20;
    if (!slowed() || !connected(ends)) return (void)printf("no slow loopback\n");
    check("SO_SNDBUF", setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    for (int round = 0; round < ROUNDS; round++) fill(buffer(round), BUFFER, 4000 + round);
    chill();
    for (int round = 0; round < ROUNDS; round++) check("MSG_ZEROCOPY", send(ends[0], buffer(round), BUFFER, MSG_ZEROCOPY), BUFFER);
    chill();
    for (int round = 0; round < ROUNDS; round++) {
        expect("still the program's", buffer(round), BUFFER, 4000 + round);
        read_all("recv", ends[1], buffer(100 + round), BUFFER);
    }
    let_go(ends[0], ROUNDS);
    for (int round = 0; round < ROUNDS; round++) fill(buffer(round), BUFFER, 1), expect("from the queue", buffer(100 + round), BUFFER, 4000 + round);
    close(ends[0]), close(ends[1]);
    printf("held %d\n", ROUNDS);
}

#include "requests.h"
#include "ring.h"

int main(int count, char **words) {
    if (count < 3) return 2;
    directory = words[2];
    begin();
    if (strcmp(words[1], "calls") == 0) events(), messages(), vectors(), answers(), words_to_wait_for();
    if (strcmp(words[1], "pages") == 0) direct(), spliced(), zero_copy();
    if (strcmp(words[1], "requests") == 0) requests();
    if (strcmp(words[1], "held") == 0) held();
    if (strcmp(words[1], "ring") == 0) ring();
    for (int number = 220; number < 250; number++) expect("at the end", buffer(number), BUFFER, number);
    end();
    return 0;
}
