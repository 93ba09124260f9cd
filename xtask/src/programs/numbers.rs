//! Programs that calculate: in threads, in processes that exchange memory, in code compiled while they run.

use super::table::{PLAIN, Program};

pub(super) const NUMBERS: &[Program] = &[
    Program {
        name: "torch",
        what: "a network trained, in threads",
        needs: &[("/usr/lib/python3/dist-packages/torch", "python3-torch")],
        prepare: r"
            cat >train.py <<'END'
import torch
torch.manual_seed(1); torch.set_num_threads(2)
x = torch.randn(6000, 256); y = (x[:, :3].sum(1) > 0).float()
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for turn in range(25):
    opt.zero_grad(); loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y); loss.backward(); opt.step()
print(round(loss.item(), 3), int((net(x)[:, 0] > 0).eq(y > 0).sum()) // 10)
END
        ",
        run: "/usr/bin/python3 $INPUT/train.py",
        ..PLAIN
    },
    Program {
        name: "numba",
        what: "Python compiled while it runs",
        needs: &[("/usr/lib/python3/dist-packages/numba", "python3-numba")],
        prepare: r"
            cat >sieve.py <<'END'
import numba, numpy
@numba.njit
def sieve(n):
    s = numpy.ones(n, numpy.bool_); s[:2] = False
    for i in range(2, int(n ** 0.5) + 1):
        if s[i]: s[i * i::i] = False
    return s.sum()
@numba.njit(parallel=True)
def total(a):
    t = 0.0
    for i in numba.prange(len(a)): t += a[i] % 7
    return t
print(sieve(20_000_000), total(numpy.arange(5_000_000, dtype=numpy.float64)))
END
        ",
        run: "/usr/bin/python3 $INPUT/sieve.py",
        ..PLAIN
    },
    Program {
        name: "networkx",
        what: "a graph of 60,000 nodes",
        needs: &[("/usr/lib/python3/dist-packages/networkx", "python3-networkx")],
        prepare: r"
            cat >graph.py <<'END'
import networkx
g = networkx.gnm_random_graph(60000, 180000, seed=4)
print(networkx.number_connected_components(g), sum(d for _, d in networkx.single_source_shortest_path_length(g, 0).items()))
r = networkx.pagerank(g, max_iter=8, tol=1); print(max(r, key=r.get), sum(networkx.core_number(g).values()))
END
        ",
        run: "/usr/bin/python3 $INPUT/graph.py",
        ..PLAIN
    },
    Program {
        name: "gfortran",
        what: "OpenMP over arrays",
        needs: &[("gfortran", "gfortran")],
        prepare: r"
            cat >heat.f90 <<'END'
program heat
  real(8), allocatable :: a(:,:), b(:,:)
  integer :: i, j, t
  allocate(a(2500,2500), b(2500,2500))
  do j = 1, 2500; do i = 1, 2500; a(i,j) = mod(i*31+j*17, 97); end do; end do
  b = a
  do t = 1, 12
    !$omp parallel do private(i)
    do j = 2, 2499; do i = 2, 2499; b(i,j) = (a(i-1,j)+a(i+1,j)+a(i,j-1)+a(i,j+1))/4; end do; end do
    a = b
  end do
  print '(f20.6)', a(1000,1000) + a(7,2000)
end program
END
            gfortran -O2 -fopenmp -o heat heat.f90
        ",
        run: "OMP_NUM_THREADS=2 $INPUT/heat",
        ..PLAIN
    },
    Program {
        name: "openmpi",
        what: "four processes that send each other memory (process_vm_readv)",
        needs: &[("mpirun", "openmpi-bin"), ("mpicc", "libopenmpi-dev")],
        prepare: r#"
            cat >ring.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int c, char **v) {
    MPI_Init(&c, &v); int me, all; MPI_Comm_rank(MPI_COMM_WORLD, &me); MPI_Comm_size(MPI_COMM_WORLD, &all);
    long n = 2 << 20, *a = malloc(8 * n), *b = malloc(8 * n); unsigned long sum = 0, whole;
    for (long i = 0; i < n; i++) a[i] = i * 7919 % 1009 + me;
    for (int turn = 0; turn < all; turn++) {
        for (long at = 0, k = n / 16; at < n; at += k)
            MPI_Sendrecv(a + at, k, MPI_LONG, (me + 1) % all, 0, b + at, k, MPI_LONG, (me + all - 1) % all, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (long i = 0; i < n; i++) sum = sum * 31 + b[i];
        long *t = a; a = b; b = t;
    }
    MPI_Reduce(&sum, &whole, 1, MPI_UNSIGNED_LONG, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (me == 0) printf("%lx\n", whole);
    MPI_Finalize();
}
END
            mpicc -O2 -o ring ring.c
        "#,
        run: "mpirun --allow-run-as-root --oversubscribe -n 4 $INPUT/ring",
        ..PLAIN
    },
    Program {
        name: "x265",
        what: "a film encoded, in threads",
        needs: &[("x265", "x265")],
        prepare: r#"
            python3 - >film.y4m <<'END'
import sys
w, h = 480, 272; out = sys.stdout.buffer
out.write(b"YUV4MPEG2 W%d H%d F25:1 Ip C420jpeg\n" % (w, h))
for t in range(50):
    out.write(b"FRAME\n" + bytes((x * y // 32 + t * 3) & 255 for y in range(h) for x in range(w)))
    out.write(bytes((x + t) & 255 for y in range(h // 2) for x in range(w // 2)) * 2)
END
        "#,
        run: "x265 --log-level none --pools 2 --frame-threads 1 -o out.hevc $INPUT/film.y4m 2>/dev/null; md5sum <out.hevc",
        ..PLAIN
    },
];
