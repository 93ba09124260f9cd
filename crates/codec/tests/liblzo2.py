"""What liblzo2 makes of pages: a process of its own, so that nothing under its license is linked into a test.

Reads pages, each with our encoding of it behind: 4096 bytes, a length of 4 bytes, lowest first, and so many bytes. Checks
that liblzo2 decodes the encoding to the page. Writes for each page liblzo2's encodings at the lowest level (lzo1x_1) and
at the highest (lzo1x_999), which has instructions that the lowest does not use: each with its length before it.
"""

import ctypes
import sys

PAGE_BYTES = 4096
UNAVAILABLE = 3

try:
    lzo = ctypes.CDLL("liblzo2.so.2")
except OSError:
    sys.exit(UNAVAILABLE)

out = ctypes.create_string_buffer(3 * PAGE_BYTES)
work = ctypes.create_string_buffer(1 << 20)


def call(function, data):
    """The output of one of liblzo2's functions, which all have these parameters."""
    length = ctypes.c_size_t(len(out))
    status = function(data, ctypes.c_size_t(len(data)), out, ctypes.byref(length), work)
    assert status == 0, f"{function.__name__}: {status}"
    return out.raw[: length.value]


def length_of(data):
    return len(data).to_bytes(4, "little")


while page := sys.stdin.buffer.read(PAGE_BYTES):
    encoding = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "little"))
    assert call(lzo.lzo1x_decompress_safe, encoding) == page, "another page came back"
    for compress in lzo.lzo1x_1_compress, lzo.lzo1x_999_compress:
        theirs = call(compress, page)
        sys.stdout.buffer.write(length_of(theirs) + theirs)
