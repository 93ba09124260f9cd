// The sockets of answers.c, and what waits for files.
#include <linux/filter.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

enum { FILTER = 300 };
static int streams[2], datagrams[2], listener, udp, receiver, tcp[2], epoll;
static struct sockaddr_in udp_at, receiver_at;

static struct sockaddr_in of_here(int socket) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    bind(socket, (void *)&address, bytes);
    getsockname(socket, (void *)&address, &bytes);
    return address;
}

static void begin_sockets(void) {
    check("socketpair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, streams), 0);
    check("socketpair", socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, datagrams), 0);
    check("pipe", pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), receiver = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    udp_at = of_here(udp), receiver_at = of_here(receiver);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), tcp[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void wait_for(int socket) {
    struct pollfd readable = {socket, POLLIN, 0};
    poll(&readable, 1, 10000);
}

static void connections(void) {
    struct sockaddr_un name = {AF_UNIX, "\0answers of this process "};
    snprintf(name.sun_path + 1, 40, "answers of %d", getpid());
    struct sockaddr_un *bound = with(&name, 30), *to = with(&name, 30), *again = with(&name, 30);
    struct sockaddr_un *from = cold(30), *here = cold(30), *peer = cold(30);
    struct sockaddr_in *at = cold(16);
    socklen_t *bytes[5];
    for (int number = 0; number < 4; number++) bytes[number] = GIVEN(socklen_t, {30});
    bytes[4] = GIVEN(socklen_t, {16});
    int(*pair)[2] = cold(8), (*both)[2] = cold(8), (*closing)[2] = cold(8);
    if (!ready()) return;
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
    said("bind", CALL(bind, server, bound, 30));
    listen(server, 5);
    said("connect", CALL(connect, client, to, 30));
    said("connect", CALL(connect, second, again, 30));
    opened("accept", CALL(accept, server, from, bytes[0]));
    told("its length", 0, bytes[0], 4);
    likely("getsockname", CALL(getsockname, server, here, bytes[1]), memcmp(here, &name, 30) == 0 && *bytes[1] == 30);
    likely("getpeername", CALL(getpeername, client, peer, bytes[2]), memcmp(peer, &name, 30) == 0 && *bytes[2] == 30);
    opened("accept4", CALL(accept4, server, from, bytes[3], SOCK_CLOEXEC));
    likely("getsockname", CALL(getsockname, udp, at, bytes[4]), memcmp(at, &udp_at, 16) == 0);
    likely("socketpair", CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, pair), (*pair)[1] > 2);
    likely("pipe", CALL(pipe, both), (*both)[1] > 2);
    likely("pipe2", CALL(pipe2, closing, O_CLOEXEC), (*closing)[1] > 2);
    for (int end = 0; end < 2; end++) close((*pair)[end]), close((*both)[end]), close((*closing)[end]);
    close(server), close(client), close(second);
}

static void packets(void) {
    char *sent = text("a packet of some length"), *got = cold(24);
    struct sockaddr_in *to = with(&receiver_at, 16), *from = cold(16);
    socklen_t *bytes = GIVEN(socklen_t, {16});
    if (!ready()) return;
    said("sendto", CALL(sendto, udp, sent, 24, 0, to, 16));
    wait_for(receiver);
    told("recvfrom", CALL(recvfrom, receiver, got, 24, MSG_DONTWAIT, from, bytes), got, 24);
    likely("from", 0, memcmp(from, &udp_at, 16) == 0 && *bytes == 16);
}

// A header, two parts, an address where there is one, and a message beside it: a descriptor, or room for one.
static struct msghdr message(char *first, char *second, void *address, void *control) {
    struct cmsghdr *beside = control;
    if (!is_out) *beside = (struct cmsghdr){CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS}, *(int *)CMSG_DATA(beside) = ends[0];
    return (struct msghdr){address, address ? 16 : 0, parts(first, 12, second, 12), 2, control, CMSG_LEN(4), 0};
}

static void messages(void) {
    char *sent[8], *got[8];
    struct mmsghdr to[3], from[3];
    for (int at = 0; at < 8; at++) sent[at] = text("of a message"), got[at] = cold(12);
    for (int at = 0; at < 3; at++) {
        to[at] = (struct mmsghdr){message(sent[2 * at], sent[2 * at + 1], 0, cold(CMSG_LEN(4))), 0};
        from[at] = (struct mmsghdr){message(got[2 * at], got[2 * at + 1], 0, cold(CMSG_LEN(4))), 0};
    }
    struct msghdr *one = with(&to[0].msg_hdr, sizeof *one), *back = with(&from[0].msg_hdr, sizeof *back);
    struct mmsghdr *many = with(to + 1, 2 * sizeof *many), *all = with(from + 1, 2 * sizeof *many);
    struct timespec *wait = GIVEN(struct timespec, {1000, 0});
    struct msghdr named = message(sent[6], sent[7], with(&receiver_at, 16), cold(CMSG_LEN(4)));
    struct msghdr *packet = (named.msg_controllen = 0, with(&named, sizeof named));
    struct msghdr by_whom = message(got[6], got[7], cold(16), cold(CMSG_LEN(4))), *came = with(&by_whom, sizeof by_whom);
    if (!ready()) return;
    said("sendmsg", CALL(sendmsg, datagrams[0], one, 0));
    said("recvmsg", CALL(recvmsg, datagrams[1], back, MSG_CMSG_CLOEXEC));
    told("beside it", back->msg_controllen, got[1], 12);
    said("sendmmsg", CALL(sendmmsg, datagrams[0], many, 2, 0));
    said("recvmmsg", CALL(recvmmsg, datagrams[1], all, 2, MSG_CMSG_CLOEXEC, wait));
    told("their lengths", all[0].msg_len + all[1].msg_len, got[5], 12);
    likely("what is left of the time", 0, wait->tv_sec >= 900 && wait->tv_sec < 1000);
    said("sendmsg by address", CALL(sendmsg, udp, packet, 0));
    wait_for(receiver);
    likely("recvmsg by address", CALL(recvmsg, receiver, came, MSG_DONTWAIT), memcmp(came->msg_name, &udp_at, 16) == 0);
    for (int at = 0; at < 3; at++) close(*(int *)CMSG_DATA((struct cmsghdr *)from[at].msg_hdr.msg_control));
}

// The length of a filter is that of its instructions.
static void filters(void) {
    struct sock_filter code[FILTER];
    for (int at = 0; at < FILTER; at++) code[at] = (struct sock_filter){BPF_LD | BPF_IMM, 0, 0, at};
    code[FILTER - 1] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog *program = GIVEN(struct sock_fprog, {FILTER, with(code, sizeof code)});
    struct sock_filter *read = cold(sizeof code);
    socklen_t *count = GIVEN(socklen_t, {FILTER});
    if (!ready()) return;
    int filtered = socket(AF_INET, SOCK_DGRAM, 0);
    said("SO_ATTACH_FILTER", CALL(setsockopt, filtered, SOL_SOCKET, SO_ATTACH_FILTER, program, sizeof *program));
    told("SO_GET_FILTER", CALL(getsockopt, filtered, SOL_SOCKET, SO_GET_FILTER, read, count), read, sizeof code);
    told("its length", 0, count, 4);
    close(filtered);
}

static void options(void) {
    struct timeval *wait = GIVEN(struct timeval, {5, 0}), *waits = ROOM(struct timeval);
    struct linger *linger = GIVEN(struct linger, {1, 2});
    struct ucred *peer = ROOM(struct ucred);
    struct tcp_info *info = cold(104);
    char *congestion = cold(16), *device = with("lo\0a name of a device", 16), *bound = cold(16);
    socklen_t *bytes[5];
    for (int at = 0; at < 5; at++) bytes[at] = GIVEN(socklen_t, {(int[]){16, sizeof *peer, 104, 16, 16}[at]});
    if (!ready()) return;
    said("SO_RCVTIMEO", CALL(setsockopt, receiver, SOL_SOCKET, SO_RCVTIMEO, wait, sizeof *wait));
    told("SO_RCVTIMEO", CALL(getsockopt, receiver, SOL_SOCKET, SO_RCVTIMEO, waits, bytes[0]), waits, 16);
    said("SO_LINGER", CALL(setsockopt, tcp[0], SOL_SOCKET, SO_LINGER, linger, sizeof *linger));
    likely("SO_PEERCRED", CALL(getsockopt, streams[0], SOL_SOCKET, SO_PEERCRED, peer, bytes[1]), peer->pid == getpid() && peer->gid == getgid());
    likely("TCP_INFO", CALL(getsockopt, tcp[0], IPPROTO_TCP, TCP_INFO, info, bytes[2]), info->tcpi_state == TCP_CLOSE && *bytes[2] == 104);
    told("TCP_CONGESTION", CALL(getsockopt, tcp[0], IPPROTO_TCP, TCP_CONGESTION, congestion, bytes[3]), congestion, 16);
    said("SO_BINDTODEVICE", CALL(setsockopt, udp, SOL_SOCKET, SO_BINDTODEVICE, device, 16));
    told("SO_BINDTODEVICE", CALL(getsockopt, udp, SOL_SOCKET, SO_BINDTODEVICE, bound, bytes[4]), bound, 3);
}

// As many sources as the structure says, whatever its length is said to be.
static void sources(void) {
    enum { SOURCES = 5, BYTES = 16 + 4 * SOURCES };
    struct ip_mreq_source join[SOURCES];
    for (int at = 0; at < SOURCES; at++)
        join[at] = (struct ip_mreq_source){{htonl(0xe8010203)}, {htonl(INADDR_LOOPBACK)}, {htonl(0x0a000001 + at)}};
    uint32_t asked[BYTES / 4] = {htonl(0xe8010203), htonl(INADDR_LOOPBACK), MCAST_INCLUDE, SOURCES};
    struct ip_mreq_source *joined[SOURCES];
    for (int at = 0; at < SOURCES; at++) joined[at] = with(join + at, sizeof *join);
    uint32_t *filter = with(asked, BYTES);
    struct { uint32_t device, spare; struct sockaddr_in group; char rest[112]; uint32_t mode, count; char sources[128 * SOURCES]; } wanted = {
        .device = if_nametoindex("lo"), .group = {.sin_family = AF_INET, .sin_addr.s_addr = asked[0]}, .mode = MCAST_INCLUDE, .count = SOURCES};
    void *any = with(&wanted, sizeof wanted);
    socklen_t *bytes = GIVEN(socklen_t, {16}), *any_bytes = GIVEN(socklen_t, {144});
    if (!ready()) return;
    int listening = socket(AF_INET, SOCK_DGRAM, 0);
    for (int at = 0; at < SOURCES; at++)
        said("IP_ADD_SOURCE_MEMBERSHIP", CALL(setsockopt, listening, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, joined[at], sizeof *join));
    told("IP_MSFILTER", CALL(getsockopt, listening, IPPROTO_IP, IP_MSFILTER, filter, bytes), filter, BYTES);
    told("MCAST_MSFILTER", CALL(getsockopt, listening, IPPROTO_IP, MCAST_MSFILTER, any, any_bytes), any, sizeof wanted);
    close(listening);
}

struct zero_copy {
    uint64_t address;
    uint32_t length, hint, waiting, error;
    uint64_t buffer;
    uint32_t bytes, flags;
    uint64_t control, control_bytes;
    uint32_t message_flags, spare;
};

// What is short is copied to a buffer that the structure names.
static void zero_copies(void) {
    char *got = cold(24);
    struct sockaddr_in *to = (void *)with(&(struct sockaddr_in){0}, 16);
    struct zero_copy *request = GIVEN(struct zero_copy, {.buffer = (uintptr_t)got, .bytes = 24});
    socklen_t *bytes = GIVEN(socklen_t, {sizeof *request});
    if (!is_out) return;
    *to = of_here(listener);
    listen(listener, 1);
    connect(tcp[0], (void *)to, 16);
    tcp[1] = accept(listener, 0, 0);
    void *mapped = mmap(0, 4 * PAGE, PROT_READ, MAP_SHARED, tcp[1], 0);
    request->address = (uintptr_t)mapped, request->length = 4 * PAGE;
    send(tcp[0], "twenty-four bytes in all", 24, 0);
    wait_for(tcp[1]);
    chill_all();
    ready();
    told("TCP_ZEROCOPY_RECEIVE", CALL(getsockopt, tcp[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, request, bytes), got, 24);
    said("copied", request->bytes);
    if (mapped != MAP_FAILED) munmap(mapped, 4 * PAGE);
}

static void waits(void) {
    struct pollfd *polled = GIVEN(struct pollfd, {streams[0], POLLOUT}), *waited = GIVEN(struct pollfd, {streams[0], POLLOUT | POLLIN});
    fd_set some;
    FD_ZERO(&some);
    FD_SET(streams[0], &some);
    fd_set *sets[6];
    for (int at = 0; at < 6; at++) sets[at] = with(&some, 8);
    struct timeval *wait = GIVEN(struct timeval, {5, 0});
    struct timespec *more = GIVEN(struct timespec, {5, 0}), *most = GIVEN(struct timespec, {5, 0});
    uint64_t *mask = GIVEN(uint64_t, {1 << 9}), *blocked = GIVEN(uint64_t, {1 << 9});
    uint64_t *mask_of = GIVEN(struct { uint64_t of[2]; }, {{(uintptr_t)blocked, 8}})->of;
    if (!ready()) return;
    said("poll", CALL(poll, polled, 1, 1000)), said("it can be written to", polled->revents);
    said("ppoll", CALL(ppoll, waited, 1, more, mask, 8)), said("it can be written to", waited->revents);
    told("select", CALL(select, streams[0] + 1, sets[0], sets[1], sets[2], wait), sets[1], 8), told("none", 0, sets[0], 8);
    told("pselect6", CALL(pselect6, streams[0] + 1, sets[3], sets[4], sets[5], most, mask_of), sets[4], 8), told("none", 0, sets[5], 8);
}

static void events(void) {
    struct epoll_event *wanted = GIVEN(struct epoll_event, {EPOLLOUT, {.u64 = 0x123456789a}});
    struct epoll_event *changed = GIVEN(struct epoll_event, {EPOLLOUT, {.u64 = 77}});
    struct epoll_event *got = cold(3 * sizeof *got), *once = cold(12), *more = cold(12), *last = cold(12);
    uint64_t *mask = GIVEN(uint64_t, {1 << 9}), *masked = GIVEN(uint64_t, {1 << 9});
    struct timespec *wait = GIVEN(struct timespec, {5, 0});
    int slot[3] = {epoll, streams[0], 0}, *asked = with(slot, sizeof slot);
    if (!ready()) return;
    said("epoll_ctl", CALL(epoll_ctl, epoll, EPOLL_CTL_ADD, streams[0], wanted));
    told("epoll_wait", CALL(epoll_wait, epoll, got, 3, 1000), got, 12);
    said("epoll_ctl", CALL(epoll_ctl, epoll, EPOLL_CTL_MOD, streams[0], changed));
    told("epoll_wait", CALL(epoll_wait, epoll, once, 1, 1000), once, 12);
    told("epoll_pwait", CALL(epoll_pwait, epoll, more, 1, 1000, mask, 8), more, 12);
    told("epoll_pwait2", CALL(epoll_pwait2, epoll, last, 1, wait, masked, 8), last, 12);
    said("KCMP_EPOLL_TFD", CALL(kcmp, getpid(), getpid(), 7, streams[0], asked));
}

static void interfaces(void) {
    struct ifconf *all = GIVEN(struct ifconf, {.ifc_len = 40, .ifc_buf = cold(40)});
    struct ifreq *flags = with(&(struct ifreq){.ifr_name = "lo"}, sizeof *flags), *index = with(&(struct ifreq){.ifr_name = "lo"}, sizeof *index);
    uint32_t *link = with(&(uint32_t[2]){10}, 8);
    struct ifreq *driver = GIVEN(struct ifreq, {.ifr_name = "lo", .ifr_data = (void *)link});
    struct winsize *window = GIVEN(struct winsize, {24, 80, 1, 2}), *seen = ROOM(struct winsize);
    char *mode = cold(36);
    int *number = ROOM(int);
    if (!ready()) return;
    told("SIOCGIFCONF", CALL(ioctl, udp, 0x8912, all), all->ifc_buf, 18);
    told("SIOCGIFFLAGS", CALL(ioctl, udp, 0x8913, flags), flags, 18);
    told("SIOCGIFINDEX", CALL(ioctl, udp, 0x8933, index), index, 20);
    told("SIOCETHTOOL", CALL(ioctl, udp, 0x8946, driver), link, 8);
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    said("TIOCSWINSZ", CALL(ioctl, terminal, TIOCSWINSZ, window));
    told("TIOCGWINSZ", CALL(ioctl, terminal, TIOCGWINSZ, seen), seen, 8);
    told("TCGETS", CALL(ioctl, terminal, TCGETS, mode), mode, 36);
    likely("TIOCGPTN", CALL(ioctl, terminal, TIOCGPTN, number), *number >= 0);
    close(terminal);
}

static void (*const socket_steps[])(void) = {connections, packets, messages, filters, options, sources, waits, events, interfaces, zero_copies, 0};
