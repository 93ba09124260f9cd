"""sqlite3 in memory: a table of random blobs and an index over it, then queries at random."""
import hashlib
import random
import sqlite3
import sys

rows = int(sys.argv[1])
draw = random.Random(6)
base = sqlite3.connect(":memory:")
base.execute("create table item (id integer primary key, name text, body blob)")
for start in range(0, rows, 10000):
    part = range(start, min(start + 10000, rows))
    base.executemany("insert into item values (?, ?, ?)", ((at, f"item {at * 7919 % rows:08d}", draw.randbytes(400)) for at in part))
base.execute("create index by_name on item (name)")
seen = hashlib.sha256()
for _ in range(rows // 6):
    row = base.execute("select id, body from item where name = ?", (f"item {draw.randrange(rows):08d}",)).fetchone()
    seen.update(repr(row).encode())
base.execute("update item set body = substr(body, 1, 100) where id % 3 = 0")
print(base.execute("select count(*), sum(length(body)), min(name), max(name) from item").fetchone(), seen.hexdigest())
