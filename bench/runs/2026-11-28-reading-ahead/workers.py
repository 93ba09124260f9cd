"""A server that forks: COUNT workers, four at a time, each of which reads 20,000 pages at random of the 60 MiB that all share."""
import mmap, os, random, sys, time

PAGES, READS, AT_ONCE, COUNT = 60 << 8, 20000, 4, int(sys.argv[1])

memory = mmap.mmap(-1, PAGES << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(PAGES):
    memory[page << 12:(page << 12) + 64] = b"%016d" % page * 4
    memory[(page << 12) + 2048:(page << 12) + 2560] = os.urandom(512)


def work(seed):
    draw = random.Random(seed)
    for _ in range(READS):
        page = draw.randrange(PAGES)
        if memory[page << 12:(page << 12) + 16] != b"%016d" % page:
            os._exit(1)
    os._exit(0)


begun, alive, wrong = time.time(), 0, 0
for seed in range(COUNT):
    if alive == AT_ONCE:
        wrong += os.wait()[1] != 0
        alive -= 1
    if os.fork() == 0:
        work(seed)
    alive += 1
while alive:
    wrong += os.wait()[1] != 0
    alive -= 1
print("workers %.2f s, %d wrong" % (time.time() - begun, wrong))
