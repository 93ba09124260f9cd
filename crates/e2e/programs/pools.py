# Pools of processes, started in each way that Python has, while the parent holds more than the budget: each worker fills memory of
# its own, and the workers and the parent say what they have.
import multiprocessing
import zlib

PIECES, PIECE = 6, 4 << 20


def fill(seed):
    return b"".join(b"%08d" % (seed * 7 + at) * 8 for at in range(0, PIECE, 64))


def work(seed):
    own = [fill(seed + at) for at in range(3)]
    return zlib.crc32(b"".join(own[at][:: at + 1] for at in range(3)))


if __name__ == "__main__":
    held = [fill(100 + at) for at in range(PIECES)]
    for way in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(way).Pool(3) as pool:
            print(way, pool.map(work, range(6)), flush=True)
    print([zlib.crc32(piece) for piece in held])
