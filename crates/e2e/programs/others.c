// Another process reads and writes memory that has left: a child its parent's (process_vm_readv), a parent its child's
// (ptrace). What cannot be read is refused, and never comes as something else. others children|parents
#define _GNU_SOURCE
#include "cold.h"

#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { FIRST = 20, LAST = 120 };
static unsigned char got[BUFFER];
static size_t refused;

// A page of another process's: 1 if it came.
static int reads(pid_t pid, unsigned char *page) {
    struct iovec here = {got, PAGE}, there = {page, PAGE};
    ssize_t result = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (result != PAGE) check("process_vm_readv's reason", errno, EFAULT);
    return result == PAGE;
}

static int writes(pid_t pid, const unsigned char *from, unsigned char *page) {
    struct iovec here = {(void *)from, PAGE}, there = {page, PAGE};
    ssize_t result = process_vm_writev(pid, &here, 1, &there, 1, 0);
    if (result != PAGE) check("process_vm_writev's reason", errno, EFAULT);
    return result == PAGE;
}

// What a child does to its parent; its own copy of the memory is cold, too, and is read as well.
static int child(void) {
    static unsigned char new[PAGE];
    pid_t parent = getppid();
    for (int number = FIRST; number < LAST; number++)
        for (int page = 0; page < BUFFER; page += PAGE) {
            uint64_t key = number;
            if (reads(parent, buffer(number) + page))
                for (int at = 0; at < PAGE / 8; at++)
                    check("a word of the parent's", ((uint64_t *)got)[at] == word(key, page / 8 + at), 1);
            else
                refused++;
        }
    for (int number = FIRST; number < LAST; number++) {
        fill(new, PAGE, 5000 + number);
        if (!writes(parent, new, buffer(number) + PAGE)) refused++, fill(new, PAGE, 0);
        expect("the child's own", buffer(number), BUFFER, number);
    }
    fprintf(stderr, "%zu pages were refused\n", refused);
    return 0;
}

static void children(void) {
    chill();
    pid_t pid = fork();
    if (pid == 0) _exit(child());
    int status;
    check("waitpid", waitpid(pid, &status, 0), pid);
    check("the child", status, 0);
    for (int number = FIRST; number < LAST; number++) {
        unsigned char *second = buffer(number) + PAGE;
        // Written, or refused and as it was.
        if (*(uint64_t *)second == word(5000 + number, 0)) {
            expect("what the child wrote", second, PAGE, 5000 + number);
            for (int at = 0; at < PAGE / 8; at++) ((uint64_t *)second)[at] = word(number, PAGE / 8 + at);
        }
        expect("the parent's", buffer(number), BUFFER, number);
    }
    printf("children\n");
}

// Its child's memory, word by word, while the child stands still.
static void parents(void) {
    int ends[2];
    char byte;
    check("pipe", pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        fill(buffer(FIRST), (LAST - FIRST) * (size_t)BUFFER, 6000);
        chill(), end();
        check("write", write(ends[1], "!", 1), 1);
        pause();
        _exit(2);
    }
    check("read", read(ends[0], &byte, 1), 1);
    check("PTRACE_SEIZE", ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
    check("PTRACE_INTERRUPT", ptrace(PTRACE_INTERRUPT, pid, 0, 0), 0);
    int status;
    check("waitpid", waitpid(pid, &status, __WALL), pid);
    for (size_t at = 0; at < (LAST - FIRST) * (size_t)BUFFER; at += PAGE + 8) {
        errno = 0;
        long found = ptrace(PTRACE_PEEKDATA, pid, buffer(FIRST) + at, 0);
        if (errno) {
            check("PTRACE_PEEKDATA's reason", errno, EIO);
            refused++;
        } else {
            check("a word of the child's", (uint64_t)found == word(6000, at / 8), 1);
        }
    }
    kill(pid, SIGKILL);
    check("waitpid", waitpid(pid, &status, __WALL), pid);
    fprintf(stderr, "%zu pages were refused\n", refused);
    printf("parents\n");
}

int main(int count, char **words) {
    begin();
    if (count > 1 && strcmp(words[1], "children") == 0) children();
    if (count > 1 && strcmp(words[1], "parents") == 0) parents();
    end();
    return 0;
}
