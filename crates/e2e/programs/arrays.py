"""numpy: sorts and sums arrays of random numbers, half of them of few digits, so that part of the memory folds."""
import hashlib
import sys

import numpy

mib = int(sys.argv[1])
count = mib * (1 << 20) // 8 // 2
random = numpy.random.Generator(numpy.random.PCG64(5))
wild = random.random(count)
tame = random.integers(0, 100, count)
for step in range(3):
    wild[step::7] *= 1.5
    tame[step::5] += 1
picked = random.integers(0, count, count // 16)
total = float(wild[picked].sum()) + int(tame[picked].sum())
wild.sort()
print(total, hashlib.sha256(wild.tobytes()[: 1 << 20]).hexdigest(), hashlib.sha256(tame).hexdigest())
