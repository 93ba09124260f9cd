// What answers.c asks about itself: signals, times, rights, limits, children.
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#ifndef SYS_lsm_get_self_attr
#define SYS_lsm_get_self_attr 459
#define SYS_lsm_set_self_attr 460
#define SYS_lsm_list_modules 461
#endif

static int child;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal) { (void)signal, alarms++; }

static void begin_process(void) {
    uint64_t blocked = 1 << (SIGUSR1 - 1) | 1 << (SIGUSR2 - 1);
    check("rt_sigprocmask", CALL(rt_sigprocmask, SIG_BLOCK, &blocked, 0, 8), 0);
    signal(SIGALRM, on_alarm), signal(SIGUSR2, on_alarm);
    child = fork();
    if (child == 0) _exit(7);
    own = CALL(pidfd_open, getpid(), 0);
}

struct action { uint64_t handler, flags, restorer, mask; };

static void signals(void) {
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE, .si_value.sival_int = 1234};
    siginfo_t *first = with(&info, sizeof info), *second = with(&info, sizeof info), *third = with(&info, sizeof info), *got[3];
    for (int at = 0; at < 3; at++) got[at] = ROOM(siginfo_t);
    uint64_t usr1 = 1 << (SIGUSR1 - 1), *pending = ROOM(uint64_t), *wanted = with(&usr1, 8), *none = GIVEN(uint64_t, {0});
    uint64_t *old = ROOM(uint64_t), *more = GIVEN(uint64_t, {1 << 20});
    struct timespec *wait = GIVEN(struct timespec, {5, 0});
    struct action *set = GIVEN(struct action, {1, 0, 0, 0}), *before = ROOM(struct action);
    stack_t *stack = ROOM(stack_t);
    if (!ready()) return;
    said("rt_sigqueueinfo", CALL(rt_sigqueueinfo, getpid(), SIGUSR1, first));
    told("rt_sigpending", CALL(rt_sigpending, pending, 8), pending, 8);
    likely("rt_sigtimedwait", CALL(rt_sigtimedwait, wanted, got[0], wait, 8), got[0]->si_value.sival_int == 1234);
    said("rt_tgsigqueueinfo", CALL(rt_tgsigqueueinfo, getpid(), getpid(), SIGUSR1, second));
    likely("rt_sigtimedwait", CALL(rt_sigtimedwait, wanted, got[1], 0, 8), got[1]->si_value.sival_int == 1234);
    said("pidfd_send_signal", CALL(pidfd_send_signal, own, SIGUSR1, third, 0));
    likely("rt_sigtimedwait", CALL(rt_sigtimedwait, wanted, got[2], 0, 8), got[2]->si_value.sival_int == 1234);
    told("rt_sigprocmask", CALL(rt_sigprocmask, SIG_BLOCK, more, old, 8), old, 8);
    told("rt_sigaction", CALL(rt_sigaction, SIGWINCH, set, before, 8), before, sizeof *before);
    likely("sigaltstack", CALL(sigaltstack, 0, stack), stack->ss_flags == SS_DISABLE);
    kill(getpid(), SIGUSR2), alarms = 0;
    said("rt_sigsuspend", CALL(rt_sigsuspend, none, 8)), said("handled", alarms);
}

static void descriptors(void) {
    uint64_t usr1 = 1 << (SIGUSR1 - 1), *mask = with(&usr1, 8), *masked = with(&usr1, 8);
    uint64_t *count = ROOM(uint64_t), *add = GIVEN(uint64_t, {5}), *expired = ROOM(uint64_t);
    uint32_t *told_by = cold(128);
    struct itimerspec *timer = GIVEN(struct itimerspec, {{100, 0}, {0, 1000}}), *before = ROOM(struct itimerspec), *left = ROOM(struct itimerspec);
    if (!ready()) return;
    opened("signalfd", CALL(signalfd, -1, mask, 8));
    int signals = CALL(signalfd4, -1, masked, 8, 0), clock = CALL(timerfd_create, CLOCK_MONOTONIC, 0), events = CALL(eventfd2, 1, 0);
    kill(getpid(), SIGUSR1);
    told("read of a signal", CALL(read, signals, told_by, 128), told_by, 12);
    said("write of events", CALL(write, events, add, 8));
    told("read of events", CALL(read, events, count, 8), count, 8);
    told("timerfd_settime", CALL(timerfd_settime, clock, 0, timer, before), before, sizeof *before);
    told("read of a timer", CALL(read, clock, expired, 8), expired, 8);
    likely("timerfd_gettime", CALL(timerfd_gettime, clock, left), left->it_interval.tv_sec == 100 && left->it_value.tv_sec >= 90);
    close(signals), close(clock), close(events);
}

static void clocks(void) {
    struct timeval *day = ROOM(struct timeval);
    struct timezone *zone = ROOM(struct timezone);
    struct timespec *now = ROOM(struct timespec), *fine = ROOM(struct timespec), *left = ROOM(struct timespec), *rest = ROOM(struct timespec);
    struct timespec *nap = GIVEN(struct timespec, {500, 0}), *sleep = GIVEN(struct timespec, {500, 0});
    time_t *seconds = ROOM(time_t);
    struct timex *state = GIVEN(struct timex, {.modes = 0}), *clock = GIVEN(struct timex, {.modes = 0});
    struct tms *used = ROOM(struct tms);
    struct itimerval *every = GIVEN(struct itimerval, {{0, 20000}, {0, 20000}}), *never = GIVEN(struct itimerval, {0});
    struct itimerval *old = ROOM(struct itimerval), *now_set = ROOM(struct itimerval), *after = ROOM(struct itimerval);
    if (!ready()) return;
    likely("gettimeofday", CALL(gettimeofday, day, zone), day->tv_sec > 1600000000 && zone->tz_minuteswest < 1000);
    likely("clock_gettime", CALL(clock_gettime, CLOCK_REALTIME, now), now->tv_sec >= day->tv_sec);
    likely("time", CALL(time, seconds), *seconds >= day->tv_sec);
    told("clock_getres", CALL(clock_getres, CLOCK_MONOTONIC, fine), fine, 16);
    likely("adjtimex", CALL(adjtimex, state), state->tick > 0), likely("clock_adjtime", CALL(clock_adjtime, CLOCK_REALTIME, clock), clock->tick > 0);
    likely("times", CALL(times, used), used->tms_utime >= 0 && used->tms_utime < 1000000);
    told("setitimer", CALL(setitimer, ITIMER_REAL, every, old), old, sizeof *old);
    likely("nanosleep", CALL(nanosleep, nap, left), left->tv_sec >= 400 && left->tv_sec < 500);
    likely("clock_nanosleep", CALL(clock_nanosleep, CLOCK_MONOTONIC, 0, sleep, rest), rest->tv_sec >= 400 && rest->tv_sec < 500);
    likely("getitimer", CALL(getitimer, ITIMER_REAL, now_set), now_set->it_interval.tv_usec >= 20000);
    likely("setitimer", CALL(setitimer, ITIMER_REAL, never, after), after->it_interval.tv_usec >= 20000);
}

static void timers(void) {
    struct sigevent *event = GIVEN(struct sigevent, {.sigev_notify = SIGEV_NONE});
    int *id = ROOM(int);
    struct itimerspec *set = GIVEN(struct itimerspec, {{100, 0}, {200, 0}}), *old = ROOM(struct itimerspec), *now = ROOM(struct itimerspec);
    if (!ready()) return;
    said("timer_create", CALL(timer_create, CLOCK_MONOTONIC, event, id));
    told("timer_settime", CALL(timer_settime, *id, 0, set, old), old, sizeof *old);
    likely("timer_gettime", CALL(timer_gettime, *id, now), now->it_interval.tv_sec == 100 && now->it_value.tv_sec > 190);
    CALL(timer_delete, *id);
}

static void schedules(void) {
    // As nice as it is: less is not for everybody.
    int nice = getpriority(PRIO_PROCESS, 0);
    uint32_t beyond[50] = {200, 0, 0, 0, nice}, attributes[12] = {48, 0, 0, 0, nice};
    uint64_t every[128];
    memset(every, 255, sizeof every);
    struct sched_param *now = ROOM(struct sched_param), *set = GIVEN(struct sched_param, {0}), *other = GIVEN(struct sched_param, {0});
    struct timespec *slice = ROOM(struct timespec);
    uint64_t *all = with(every, sizeof every), *can = cold(1024);
    uint32_t *got = cold(56), *wanted = with(attributes, 48), *longer = with(beyond, 200), *cpu = ROOM(uint32_t), *node = ROOM(uint32_t);
    if (!ready()) return;
    told("sched_getparam", CALL(sched_getparam, 0, now), now, 4);
    said("sched_setparam", CALL(sched_setparam, 0, set));
    said("sched_setscheduler", CALL(sched_setscheduler, 0, 0, other));
    likely("sched_rr_get_interval", CALL(sched_rr_get_interval, 0, slice), slice->tv_sec == 0);
    said("sched_setaffinity", CALL(sched_setaffinity, 0, 1024, all));
    told("sched_getaffinity", CALL(sched_getaffinity, 0, 1024, can), can, 1024);
    said("sched_getattr", CALL(sched_getattr, 0, got, 56, 0));
    said("sched_setattr", CALL(sched_setattr, 0, wanted, 0));
    said("sched_setattr of what is longer", CALL(sched_setattr, 0, longer, 0));
    likely("getcpu", CALL(getcpu, cpu, node, 0), *cpu < 4096 && *node < 1024);
}

static void limits(void) {
    struct rlimit known;
    getrlimit(RLIMIT_CORE, &known);
    struct rlimit *got = ROOM(struct rlimit), *set = with(&known, 16), *new = with(&known, 16), *old = ROOM(struct rlimit);
    struct rusage *used = ROOM(struct rusage);
    struct sysinfo *system = ROOM(struct sysinfo);
    struct utsname *name = ROOM(struct utsname), here;
    unsigned char *noise = cold(3000);
    if (!ready()) return;
    told("getrlimit", CALL(getrlimit, RLIMIT_CORE, got), got, 16);
    said("setrlimit", CALL(setrlimit, RLIMIT_CORE, set));
    told("prlimit64", CALL(prlimit64, 0, RLIMIT_CORE, new, old), old, 16);
    likely("getrusage", CALL(getrusage, RUSAGE_SELF, used), used->ru_maxrss > 0 && used->ru_maxrss < 1 << 30);
    likely("sysinfo", CALL(sysinfo, system), system->mem_unit > 0 && system->procs > 0);
    uname(&here);
    likely("uname", CALL(uname, name), memcmp(name, &here, sizeof here) == 0);
    uint64_t before = sum(noise, 3000);
    likely("getrandom", CALL(getrandom, noise, 3000, 0), sum(noise, 3000) != before);
}

static void rights(void) {
    uid_t *ids[6];
    for (int at = 0; at < 6; at++) ids[at] = ROOM(uid_t);
    gid_t *groups = cold(4 * 1024), *same = with(&(gid_t[2]){0}, 8);
    struct __user_cap_header_struct *header[3];
    for (int at = 0; at < 3; at++) header[at] = GIVEN(struct __user_cap_header_struct, {_LINUX_CAPABILITY_VERSION_3, 0});
    struct __user_cap_data_struct data[2], *has = cold(sizeof data), *keeps;
    struct __user_cap_header_struct version = {_LINUX_CAPABILITY_VERSION_3, 0};
    CALL(capget, &version, data);
    keeps = with(data, sizeof data);
    if (!ready()) return;
    likely("getresuid", CALL(getresuid, ids[0], ids[1], ids[2]), *ids[0] == getuid() && *ids[1] == geteuid() && *ids[2] == getuid());
    likely("getresgid", CALL(getresgid, ids[3], ids[4], ids[5]), *ids[3] == getgid() && *ids[4] == getegid() && *ids[5] == getgid());
    likely("getgroups", CALL(getgroups, 1024, groups), 1);
    reached("setgroups", CALL(setgroups, 2, same));
    likely("capget", CALL(capget, header[0], has), memcmp(has, data, sizeof data) == 0);
    said("capset", CALL(capset, header[1], keeps));
}

struct ruleset { uint64_t files; };
struct __attribute__((packed)) rule { uint64_t allowed; int parent; };

static void controls_of_processes(void) {
    char *name = text("answers of this"), *got = cold(16), *area = text("answers"), *auxiliary = cold(300);
    int *death = ROOM(int), *counter = ROOM(int), *reaps = ROOM(int);
    uint64_t *cleared = ROOM(uint64_t), *base = ROOM(uint64_t), *head = ROOM(uint64_t), *length = ROOM(uint64_t);
    uint32_t *action = GIVEN(uint32_t, {0x7fff0000});
    unsigned short *sizes = cold(6);
    void *mapped = is_out ? mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
    if (!ready()) return;
    said("PR_SET_NAME", CALL(prctl, PR_SET_NAME, name));
    told("PR_GET_NAME", CALL(prctl, PR_GET_NAME, got), got, 16);
    told("PR_GET_PDEATHSIG", CALL(prctl, PR_GET_PDEATHSIG, death), death, 4);
    told("PR_GET_TSC", CALL(prctl, PR_GET_TSC, counter), counter, 4);
    told("PR_GET_CHILD_SUBREAPER", CALL(prctl, PR_GET_CHILD_SUBREAPER, reaps), reaps, 4);
    likely("PR_GET_TID_ADDRESS", CALL(prctl, PR_GET_TID_ADDRESS, cleared), 1);
    said("PR_SET_VMA", CALL(prctl, 0x53564d41, 0L, mapped, (long)PAGE, area));
    likely("PR_GET_AUXV", CALL(prctl, 0x41555856, auxiliary, 300L, 0L, 0L), 1);
    likely("arch_prctl", CALL(arch_prctl, 0x1003, base), *(uint64_t *)*base == *base);
    likely("get_robust_list", CALL(get_robust_list, 0, head, length), *length == 24 && *head > PAGE);
    said("SECCOMP_GET_ACTION_AVAIL", CALL(seccomp, 2, 0, action));
    told("SECCOMP_GET_NOTIF_SIZES", CALL(seccomp, 3, 0, sizes), sizes, 6);
    munmap(mapped, PAGE);
}

struct descriptor { uint32_t entry, base, limit, flags; };

static void kernels(void) {
    uint64_t attributes[16] = {0}, *map = with(attributes, 72), *event;
    ((uint32_t *)attributes)[1] = 128, event = with(attributes, 128);
    struct descriptor *set = GIVEN(struct descriptor, {0, 0x1000, 0xfff, 0x51});
    uint64_t *table = cold(16);
    struct ruleset *rules = GIVEN(struct ruleset, {1});
    struct rule *rule = cold(sizeof *rule);
    char *log = cold(3000), *image = text("no module at all"), *parameters = text("none"), *module = text("no such module");
    uint32_t *bytes[2] = {GIVEN(uint32_t, {200}), GIVEN(uint32_t, {80})};
    uint64_t *modules = cold(80), *label = cold(200), *wanted = with(attributes, 40);
    if (!is_out) *rule = (struct rule){1, 0};
    if (!ready()) return;
    reached("lsm_list_modules", CALL(lsm_list_modules, modules, bytes[1], 0));
    reached("lsm_get_self_attr", CALL(lsm_get_self_attr, 100, label, bytes[0], 0));
    reached("lsm_set_self_attr", CALL(lsm_set_self_attr, 100, wanted, 40, 0));
    reached("bpf", CALL(bpf, 0, map, 72));
    reached("perf_event_open", CALL(perf_event_open, event, 0, -1, -1, 0L));
    said("modify_ldt", CALL(modify_ldt, 1, set, 16L));
    told("modify_ldt", CALL(modify_ldt, 0, table, 16L), table, 16);
    int ruleset = CALL(landlock_create_ruleset, rules, sizeof *rules, 0);
    said("landlock_create_ruleset", ruleset < 0 ? ruleset : 0);
    said("landlock_add_rule", CALL(landlock_add_rule, ruleset, 1, rule, 0));
    if (ruleset >= 0) close(ruleset);
    reached("syslog", CALL(syslog, 3, log, 3000));
    reached("init_module", CALL(init_module, image, 17L, parameters));
    reached("delete_module", CALL(delete_module, module, 0));
}

static void children(void) {
    siginfo_t *info = ROOM(siginfo_t);
    struct rusage *used = ROOM(struct rusage), *all = ROOM(struct rusage);
    int *status = ROOM(int), *ended = ROOM(int), *pidfd = ROOM(int), *parent = ROOM(int), *number = ROOM(int), *ended_too = ROOM(int);
    char *program = text("/bin/sh"), *words[3] = {text("sh"), text("-c"), text("exit $answer")}, *variable = text("answer=9");
    void *all_words = GIVEN(struct { char *of[4]; }, {{words[0], words[1], words[2], 0}});
    void *variables = GIVEN(struct { char *of[2]; }, {{variable, 0}});
    struct clone_args *wanted = GIVEN(struct clone_args, {.flags = CLONE_PIDFD | CLONE_PARENT_SETTID, .exit_signal = SIGCHLD,
                                                          .pidfd = (uintptr_t)pidfd, .parent_tid = (uintptr_t)parent});
    int *chosen = GIVEN(int, {getpid()});
    struct clone_args *taken = GIVEN(struct clone_args, {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)chosen, .set_tid_size = 1});
    if (!ready()) return;
    likely("waitid", CALL(waitid, P_PID, child, info, WEXITED | WNOWAIT, used), info->si_status == 7 && used->ru_maxrss >= 0);
    told("wait4", CALL(wait4, child, status, 0, all) == child, status, 4);
    fflush(stdout);
    long made = CALL(clone3, wanted, sizeof *wanted);
    if (made == 0) _exit(CALL(execve, program, all_words, variables));
    likely("clone3", made, *parent == made && *pidfd > 2);
    told("execve", CALL(wait4, made, ended, 0, 0) == made, ended, 4);
    fflush(stdout);
    made = CALL(clone, CLONE_PARENT_SETTID | SIGCHLD, 0, number);
    if (made == 0) _exit(CALL(execveat, AT_FDCWD, program, all_words, variables));
    likely("clone", made, *number == made);
    told("execveat", CALL(wait4, made, ended_too) == made, ended_too, 4);
    long none = CALL(clone3, taken, sizeof *taken);
    if (none == 0) _exit(0);
    reached("clone3 of a number that is taken", none);
    close(*pidfd);
}

static void (*const process_steps[])(void) = {signals, descriptors, clocks, timers, schedules, limits, rights,
                                              controls_of_processes, kernels, children, 0};
