# Limits its own addresses, before its memory is managed or after, allocates within the limit and beyond, forks, and runs
# another program, which sees the same limit. addresses.py early|late MIB
import os, resource, subprocess, sys, time

MIB = 1 << 20
when, limit = sys.argv[1], int(sys.argv[2]) * MIB


def restrict():
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def page(number):
    return bytes([number & 255]) * 2000 + number.to_bytes(8, "little") * 262


def grow(count):
    return [page(number) for number in range(count)]


def are_equal(pages):
    return all(found == page(number) for number, found in enumerate(pages))


if when == "early":
    restrict()
first = grow(60 << 8)
time.sleep(0.3)
if when == "late":
    restrict()
second = grow(12 << 8)
print("limits", resource.getrlimit(resource.RLIMIT_AS))
try:
    bytearray(limit)
    print("all of it could be had")
except MemoryError:
    print("more is refused")
sys.stdout.flush()
child = os.fork()
if child == 0:
    own = grow(4 << 8)
    print("child", are_equal(first) and are_equal(second) and are_equal(own), resource.getrlimit(resource.RLIMIT_AS))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print("parent", are_equal(first) and are_equal(second))
print("shell", subprocess.run(["sh", "-c", "ulimit -v; ulimit -Hv"], capture_output=True, text=True).stdout.split())
