"""A process that sleeps while another one needs the memory: how long it takes to read all of its 100 MiB at random when it wakes up."""
import mmap, os, random, sys, time

PAGES = 100 << 8


def fill(noise):
    memory = mmap.mmap(-1, PAGES << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(PAGES):
        memory[page << 12:(page << 12) + 16] = b"%016d" % page
        memory[(page << 12) + 2048:(page << 12) + 2048 + noise] = os.urandom(noise)
    return memory


def read(memory, order):
    begun = time.time()
    for page in order:
        assert memory[page << 12:(page << 12) + 16] == b"%016d" % page
    return time.time() - begun


other = os.fork() == 0
if other:
    time.sleep(1)
    memory, draw = fill(2000), random.Random(2)
    while time.time() < float(sys.argv[1]) + 6:
        read(memory, [draw.randrange(PAGES) for _ in range(10000)])
    os._exit(0)
memory = fill(int(sys.argv[2]))
os.wait()
order = list(range(PAGES))
random.Random(1).shuffle(order)
print("sleeper %.2f s" % read(memory, order))
