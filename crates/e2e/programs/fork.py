"""Forks with all of its memory in use; then parent and child, both at once, check what they have and write over parts of it."""
import hashlib
import os
import random
import sys

BLOCK = 1 << 20
PARENT, CHILD = 0, 1


def content(index, version):
    # Half of each page is noise: memory folds to a little more than a half, so that a part must go to the swap file.
    draw = random.Random(index * 1000 + version)
    tame = bytes([index % 251]) * 2048
    return bytearray(b"".join(draw.randbytes(2048) + tame for _ in range(BLOCK // 4096)))


def check(who, blocks, versions, seen):
    for index in range(who, len(blocks), 3):
        if blocks[index] != content(index, versions[index]):
            sys.exit(f"{('parent', 'child')[who]}: block {index} is wrong")
        seen.update(blocks[index])


def work(who, blocks):
    """Checks a third, writes half of it, checks again."""
    seen = hashlib.sha256()
    versions = [0] * len(blocks)
    check(who, blocks, versions, seen)
    for index in range(who, len(blocks), 6):
        versions[index] = 1 + who
        blocks[index][:] = content(index, versions[index])
    check(who, blocks, versions, seen)
    return seen.hexdigest()


blocks = [content(index, 0) for index in range(int(sys.argv[1]))]
child = os.fork()
if child == 0:
    print("child", work(CHILD, blocks), flush=True)
    os._exit(3)
seen = work(PARENT, blocks)
_, status = os.waitpid(child, 0)
print("parent", seen, flush=True)
sys.exit(os.waitstatus_to_exitcode(status))
