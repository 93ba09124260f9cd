"""A dictionary of N entries (1.5 million take 600 MiB), then updates at random, N / 5 unless said otherwise; prints a sum over
all it saw."""
import hashlib
import random
import sys

count = int(sys.argv[1])
updates = int(sys.argv[2]) if len(sys.argv) > 2 else count // 5
entries = {}
for index in range(count):
    entries[f"key-{index:09d}"] = [index, str(index * 7919), index / 7, f"value {index} of {count}"]

draw = random.Random(42)
seen = hashlib.sha256()
for _ in range(updates):
    entry = entries[f"key-{draw.randrange(count):09d}"]
    entry[0] += 1
    seen.update(repr(entry).encode())
print(len(entries), sum(entry[0] for entry in entries.values()), seen.hexdigest())
