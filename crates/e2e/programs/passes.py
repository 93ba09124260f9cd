"""Makes N rows and walks over all of them twice, changing some; prints a sum over what it saw."""
import hashlib
import sys

count = int(sys.argv[1])
rows = [[index, f"row {index} of {count}", index * 7919, str(index / 7)] for index in range(count)]
seen = hashlib.sha256()
for walk in range(2):
    for row in rows[walk::3]:
        row[2] += row[0]
        seen.update(repr(row).encode())
print(len(rows), seen.hexdigest())
