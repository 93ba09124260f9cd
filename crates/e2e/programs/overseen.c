// Forks while its buffers are out, and reads the child's memory from the first moment on: what the child has is still there.
#define _GNU_SOURCE
#include <sys/uio.h>
#include <sys/wait.h>
#include "cold.h"

enum { ROUNDS = 6 };

// All buffers of the child, as far as it lets us.
static void read_all(pid_t child) {
    static unsigned char copy[BUFFER];
    for (int number = 0; number < BUFFERS; number++) {
        struct iovec local = {copy, BUFFER}, remote = {buffer(number), BUFFER};
        process_vm_readv(child, &local, 1, &remote, 1, 0);
    }
}

int main(void) {
    begin();
    for (int round = 0; round < ROUNDS; round++) {
        int written[2], status = -1;
        char byte;
        check("pipe", pipe(written), 0);
        chill();
        pid_t child = fork();
        if (child == 0) {
            // Until its parent has looked, and then holds it up no more.
            close(written[1]);
            check("read", read(written[0], &byte, 1), 0);
            for (int number = 0; number < BUFFERS; number++) expect("in the child", buffer(number), BUFFER, number);
            _exit(0);
        }
        for (int look = 0; look < 5; look++) read_all(child);
        close(written[0]), close(written[1]);
        check("waitpid", waitpid(child, &status, 0), child);
        check("the child's status", status, 0);
    }
    end();
    puts("equal");
    return 0;
}
