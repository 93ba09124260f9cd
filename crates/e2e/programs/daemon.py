"""Becomes a daemon with its memory in use, as daemon(3) does: its parents exit at once. The last one checks what it has."""
import hashlib
import os
import random
import sys
import time

noise = random.Random(1)
blocks = [noise.randbytes(1 << 19) + bytes([index % 251]) * (1 << 19) for index in range(int(sys.argv[1]))]
sum_before = hashlib.sha256(b"".join(hashlib.sha256(block).digest() for block in blocks)).hexdigest()
time.sleep(0.3)
done, told = os.pipe()
for generation in range(3):
    if os.fork() != 0:
        if generation == 0:
            os.close(told)
            print(os.read(done, 100).decode())
        os._exit(0)
sum_after = hashlib.sha256(b"".join(hashlib.sha256(block).digest() for block in blocks)).hexdigest()
os.write(told, b"equal" if sum_after == sum_before else b"other")
