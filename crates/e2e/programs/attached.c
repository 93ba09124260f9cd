// A shared segment is attached over memory (SHM_REMAP) that may be away, and detached; new memory comes there.
#define _GNU_SOURCE
#include "cold.h"
#include <sys/shm.h>

enum { FIRST = 100, COUNT = 16, BYTES = COUNT * BUFFER };

static long attachments(int id) {
    struct shmid_ds segment;
    check("IPC_STAT", shmctl(id, IPC_STAT, &segment), 0);
    return segment.shm_nattch;
}

int main(void) {
    begin();
    unsigned char *place = buffer(FIRST);
    int id = shmget(IPC_PRIVATE, BYTES - 99, IPC_CREAT | 0600);
    unsigned char *other = shmat(id, 0, 0);
    check("shmctl", shmctl(id, IPC_RMID, 0), 0);
    fill(other, BYTES, 500);
    for (int round = 0; round < 3; round++) {
        // What is refused leaves what is there, here and with us.
        check("a segment that is not there", (long)shmat(0x7fff0000, place, SHM_REMAP), -1);
        check("an address that is not round", (long)shmat(id, place + 1, SHM_REMAP), -1);
        check("no address", (long)shmat(id, 0, SHM_REMAP), -1);
        check("a place that is taken", (long)shmat(id, place, 0), -1);
        for (int number = FIRST; !round && number < FIRST + COUNT; number++)
            expect("a buffer", buffer(number), BUFFER, number);

        check("shmat", shmat(id, place + 5, SHM_REMAP | SHM_RND) == place, 1);
        check("attachments", attachments(id), 2);
        expect("the segment", place, BYTES, 500 + round);
        fill(place, BYTES, 501 + round);
        chill();
        expect("the segment", other, BYTES, 501 + round);
        check("shmat again", shmat(id, place, SHM_REMAP) == place, 1);
        expect("the segment", place, BYTES, 501 + round);
        check("attachments", attachments(id), 2);
        if (round < 2) check("shmdt", shmdt(place), 0);
        else check("munmap", munmap(place, BYTES), 0);
        check("attachments", attachments(id), 1);

        int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        check("mmap", mmap(place, BYTES, protection, flags, -1, 0) == place, 1);
        fill(place, BYTES, 600 + round);
        chill();
        expect("new memory", place, BYTES, 600 + round);
    }
    for (int number = 0; number < BUFFERS; number++)
        if (number < FIRST || number >= FIRST + COUNT) expect("a buffer", buffer(number), BUFFER, number);
    check("shmdt", shmdt(other), 0);
    end();
    printf("equal\n");
}
