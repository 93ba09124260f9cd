//! More programs: solvers, compilers, those that convert, align, check, simulate.

use super::table::{PLAIN, Program};

pub(super) const TOOLS: &[Program] = &[
    Program {
        name: "z3",
        what: "a solver on multiplications of bit vectors",
        needs: &[("z3", "z3")],
        prepare: r#"
            python3 - >factor.smt2 <<'END'
print("(set-logic QF_BV)(declare-const a (_ BitVec 40))(declare-const b (_ BitVec 40))")
print("(assert (= (bvmul a b) (_ bv%d 40)))" % (621223 * 863371))
print("(assert (bvult a (_ bv1048576 40)))(assert (bvult b (_ bv1048576 40)))(assert (bvult a b))")
print("(assert (bvugt a (_ bv1 40)))(check-sat)(get-value (a b))")
END
        "#,
        run: "z3 -memory:4000 sat.random_seed=1 $INPUT/factor.smt2",
        ..PLAIN
    },
    Program {
        name: "graphviz",
        what: "a graph of 500 nodes laid out",
        needs: &[("dot", "graphviz")],
        prepare: r#"
            awk 'BEGIN{srand(1); print "digraph g {"; for(i=1;i<500;i++) print int(rand()*i)" -> "i"; "int(rand()*i)" -> "i; print "}"}' >graph.dot
        "#,
        run: "dot -Tplain -Gnslimit=1 -Gnslimit1=1 $INPUT/graph.dot | md5sum",
        ..PLAIN
    },
    Program {
        name: "pandoc",
        what: "a long text from one markup to others",
        needs: &[("pandoc", "pandoc")],
        prepare: r##"
            awk 'BEGIN{for(i=0;i<2500;i++) print "# Part "i"\n\nSome *text* with [a link](http://x/"i") and `code`.\n\n- one\n- two **"i"**\n\n| a | b |\n|---|---|\n| "i" | x |\n"}' >text.md
        "##,
        run: "for to in html latex rst; do pandoc -f markdown -t $to $INPUT/text.md | md5sum; done",
        ..PLAIN
    },
    Program {
        name: "ghostscript",
        what: "a page with thousands of paths drawn at a high resolution",
        needs: &[("gs", "ghostscript")],
        prepare: r#"
            awk 'BEGIN{srand(2); print "%!PS"; for(i=0;i<3000;i++) printf "%f setgray newpath %f %f moveto %f %f lineto %f %f %f 0 360 arc fill\n", rand(), rand()*500, rand()*700, rand()*500, rand()*700, rand()*500, rand()*700, rand()*20; print "showpage"}' >page.ps
        "#,
        run: "gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=ppmraw -r300 -dMaxBitmap=400000000 -sOutputFile=- $INPUT/page.ps | md5sum",
        ..PLAIN
    },
    Program {
        name: "gawk",
        what: "arrays of strings, sorted",
        needs: &[("gawk", "gawk")],
        run: r#"
            gawk 'BEGIN{for(i=0;i<600000;i++){k="key" (i*7919%600000); a[k]=i; b[i%1000]=b[i%1000] "," i}
                for(k in a) s+=a[k]; n=asort(a); for(i=1;i<=n;i+=1000) t=(t*31+a[i])%1000003; print s, n, t, length(b[7])}'
        "#,
        ..PLAIN
    },
    Program {
        name: "cbc",
        what: "a mixed integer program",
        needs: &[("cbc", "coinor-cbc")],
        prepare: r#"
            python3 - >knapsack.lp <<'END'
import random
random.seed(5); n, m = 300, 40
print("Maximize\n obj:", " + ".join(f"{random.randint(10, 99)} x{i}" for i in range(n)))
print("Subject To")
for j in range(m):
    print(f" c{j}:", " + ".join(f"{random.randint(1, 60)} x{i}" for i in range(n)), "<=", 2500 + 10 * j)
print("Binary\n", " ".join(f"x{i}" for i in range(n)), "\nEnd")
END
        "#,
        run: "cbc $INPUT/knapsack.lp maxNodes 300 randomCbcSeed 7 solve | grep '^Objective value:'",
        ..PLAIN
    },
    Program {
        name: "blast",
        what: "a database of six million bases, searched",
        needs: &[("blastn", "ncbi-blast+")],
        prepare: r#"
            python3 - <<'END'
import random
random.seed(3); genome = "".join(random.choice("ACGT") for _ in range(6_000_000))
open("genome.fa", "w").write("".join(f">c{i}\n{genome[i * 100000:(i + 1) * 100000]}\n" for i in range(60)))
with open("reads.fa", "w") as out:
    for i in range(400):
        at = random.randrange(len(genome) - 600); read = list(genome[at:at + 600])
        for _ in range(30): read[random.randrange(600)] = random.choice("ACGT")
        out.write(f">r{i}\n{''.join(read)}\n")
END
            makeblastdb -in genome.fa -dbtype nucl -out genome >/dev/null
        "#,
        run: "blastn -task blastn -word_size 7 -db $INPUT/genome -query $INPUT/reads.fa -outfmt 6 -num_threads 2 | md5sum",
        ..PLAIN
    },
    Program {
        name: "bwa",
        what: "reads aligned to a genome, and sorted",
        needs: &[("bwa", "bwa"), ("samtools", "samtools")],
        prepare: r#"
            python3 - <<'END'
import random
random.seed(3); genome = "".join(random.choice("ACGT") for _ in range(8_000_000))
open("genome.fa", "w").write(f">c\n{genome}\n")
with open("reads.fq", "w") as out:
    for i in range(60000):
        at = random.randrange(len(genome) - 100)
        out.write(f"@r{i}\n{genome[at:at + 100]}\n+\n{'I' * 100}\n")
END
            bwa index genome.fa 2>/dev/null
        "#,
        run: "bwa mem -t 2 -K 2000000 $INPUT/genome.fa $INPUT/reads.fq 2>/dev/null | samtools sort -m 20M -O sam --no-PG 2>/dev/null | grep -v '^@PG' | md5sum",
        ..PLAIN
    },
    Program {
        name: "minimap2",
        what: "long reads aligned to a genome",
        needs: &[("minimap2", "minimap2")],
        prepare: r#"
            python3 - <<'END'
import random
random.seed(4); genome = "".join(random.choice("ACGT") for _ in range(8_000_000))
open("genome.fa", "w").write(f">c\n{genome}\n")
with open("reads.fa", "w") as out:
    for i in range(1500):
        at = random.randrange(len(genome) - 8000)
        out.write(f">r{i}\n{genome[at:at + 8000]}\n")
END
        "#,
        run: "minimap2 -t 2 -x map-ont $INPUT/genome.fa $INPUT/reads.fa 2>/dev/null | md5sum",
        ..PLAIN
    },
    Program {
        name: "maxima",
        what: "algebra, under a Lisp",
        needs: &[("maxima", "maxima")],
        run: r"
            maxima --very-quiet --batch-string='p: expand((x+y+z+1)^40)$ q: expand((x-y+2*z)^12)$ print(length(p), length(expand(q*q)), factor(2^101-1), integrate(1/(x^6+1), x))$' | tail -3
        ",
        ..PLAIN
    },
    Program {
        name: "coq",
        what: "proofs by reflection and computation",
        needs: &[("coqc", "coq")],
        prepare: r"
            cat >proof.v <<'END'
Require Import List Arith Lia.
Import ListNotations.
Fixpoint build (n : nat) : list nat := match n with 0 => [] | S m => n :: build m end.
Definition total := fold_left plus (build 120) 0.
Lemma total_is : total =? 7260 = true. Proof. vm_compute. reflexivity. Qed.
Lemma many (a b c d e f : nat) : a < b -> b < c -> c < d -> d < e -> e < f -> a + 4 < f. Proof. lia. Qed.
Fixpoint rows (n : nat) : list (list nat) := match n with 0 => [] | S m => build 100 :: rows m end.
Lemma rows_are : length (concat (rows 40)) =? 4000 = true. Proof. vm_compute. reflexivity. Qed.
END
        ",
        run: "cp $INPUT/proof.v . && coqc -q proof.v 2>/dev/null && echo proved",
        ..PLAIN
    },
    Program {
        name: "openscad",
        what: "a solid of many parts",
        needs: &[("openscad", "openscad")],
        prepare: r"
            echo '$fn=24; difference(){ cube([40,40,6]); for(x=[1:4],y=[1:4]) translate([x*8,y*8,-1]) cylinder(r=3,h=9); translate([20,20,6]) sphere(9);}' >part.scad
        ",
        // In an order that differs from run to run.
        run: "openscad -o part.stl $INPUT/part.scad 2>/dev/null && sort part.stl | md5sum",
        ..PLAIN
    },
    Program {
        name: "cppcheck",
        what: "checks sources with many branches",
        needs: &[("cppcheck", "cppcheck")],
        prepare: r#"
            awk 'BEGIN{for(f=0;f<300;f++){print "int f"f"(int *p, int n){ int s=0; if(!p) return *p; for(int i=0;i<n;i++){ if(p[i]>"f") s+=p[i]/ (n-"f"); else s-=i; } int q["f%7+1"]; q["f%9"]=s; return q[0]+s; }"}}' >code.c
        "#,
        run: "cppcheck -q --enable=all --template='{line} {id}' $INPUT/code.c 2>&1 | md5sum",
        ..PLAIN
    },
    Program {
        name: "yosys",
        what: "a circuit synthesized",
        needs: &[("yosys", "yosys")],
        prepare: r"
            cat >mul.v <<'END'
module top(input clk, input [23:0] a, b, c, output reg [47:0] y, output reg [47:0] z);
always @(posedge clk) begin y <= a * b + c; z <= (a ^ b) * (b + c); end
endmodule
END
        ",
        run: "yosys -q -p 'read_verilog '$INPUT'/mul.v; synth -top top; write_blif out.blif' >/dev/null 2>&1; grep -v '^#' out.blif | md5sum",
        ..PLAIN
    },
    Program {
        name: "nim",
        what: "a Nim program: tables of strings, reference counts",
        needs: &[("nim", "nim"), ("gcc", "gcc")],
        prepare: r#"
            cat >table.nim <<'END'
import tables
var t = initTable[string, seq[int]]()
for i in 0 ..< 400000:
  t.mgetOrPut("k" & $(i * 7919 mod 100003), @[]).add(i)
var s = 0
for k, v in t: s = (s + v.len * v[0]) mod 1000003
echo t.len, " ", s
END
            nim c -d:release --hints:off --nimcache:cache -o:table table.nim >/dev/null 2>&1
        "#,
        run: "$INPUT/table",
        ..PLAIN
    },
    Program {
        name: "d",
        what: "a D program: its collector, strings, maps",
        needs: &[("ldc2", "ldc")],
        prepare: r#"
            cat >map.d <<'END'
import std.stdio, std.conv, std.algorithm;
void main() { string[string] m; foreach (i; 0 .. 400_000) m["k" ~ to!string(i * 7919L % 400_009)] = to!string(i) ~ " value";
    auto keys = m.keys; sort(keys); ulong s; foreach (k; keys) s = (s * 31 + m[k].length) % 1_000_003; writeln(keys.length, " ", s); }
END
            ldc2 -O2 -of=map map.d
        "#,
        run: "$INPUT/map",
        ..PLAIN
    },
    Program {
        name: "memcached",
        what: "a cache, filled and read through a socket",
        needs: &[("memcached", "memcached")],
        prepare: r#"
            cat >client.py <<'END'
import socket, sys, zlib
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile("rb")
for i in range(60000):
    v = (b"%d " % i) * 150
    s.sendall(b"set k%d 0 0 %d noreply\r\n%s\r\n" % (i, len(v), v))
total = 0
for i in range(0, 60000, 3):
    s.sendall(b"get k%d\r\n" % i)
    n = int(f.readline().split()[3]); total = zlib.crc32(f.read(n), total); f.read(2); f.readline()
print(total)
END
        "#,
        run: r"
            memcached -u root -s $PWD/socket -m 200 -t 2 & server=$!
            until [ -S socket ]; do sleep 0.05; done
            python3 $INPUT/client.py $PWD/socket; kill $server; wait $server || :
        ",
        ..PLAIN
    },
    Program {
        name: "borg",
        what: "a backup made, listed, restored",
        needs: &[("borg", "borgbackup")],
        prepare: r"
            mkdir files; for i in $(seq 60); do seq $((i * 1000)) $((i * 1000 + 60000)) >files/$i; done
        ",
        run: r"
            export BORG_BASE_DIR=$PWD BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
            borg init -e none repo && borg create --compression zstd,10 repo::one $INPUT/files && borg list --short repo::one | md5sum
            mkdir out && cd out && borg extract ../repo::one && find . -type f | sort | xargs cat | md5sum
        ",
        ..PLAIN
    },
    Program {
        name: "sklearn",
        what: "trees and clusters of scikit-learn on a table of pandas",
        needs: &[
            ("/usr/lib/python3/dist-packages/sklearn", "python3-sklearn"),
            ("/usr/lib/python3/dist-packages/pandas", "python3-pandas"),
        ],
        prepare: r#"
            cat >learn.py <<'END'
import numpy, pandas
from sklearn.ensemble import RandomForestClassifier
from sklearn.cluster import KMeans
random = numpy.random.default_rng(1)
table = pandas.DataFrame(random.normal(size=(40000, 20)), columns=[f"c{i}" for i in range(20)])
table["y"] = (table.c0 + table.c1 * table.c2 > 0).astype(int); table["g"] = [f"g{i % 97}" for i in range(len(table))]
forest = RandomForestClassifier(12, random_state=1, n_jobs=2).fit(table[[f"c{i}" for i in range(20)]], table.y)
print(forest.predict(table[[f"c{i}" for i in range(20)]]).sum())
print(round(KMeans(8, n_init=1, random_state=1).fit(table[["c0", "c1", "c2"]]).inertia_, 3))
print(table.groupby("g").c0.sum().round(6).abs().sum().round(4), table.merge(table.head(500), on="g").shape)
END
        "#,
        run: "/usr/bin/python3 $INPUT/learn.py",
        ..PLAIN
    },
    Program {
        name: "clojure",
        what: "persistent maps under java",
        needs: &[("clojure", "clojure")],
        run: r#"
            clojure -e '(let [m (reduce (fn [m i] (assoc m (str "k" (mod (* i 7919) 200003)) {:v i :w (str i)})) {} (range 200000))] (println (count m) (reduce + (map :v (vals m)))))'
        "#,
        ..PLAIN
    },
    Program {
        name: "iverilog",
        what: "a circuit simulated",
        needs: &[("iverilog", "iverilog")],
        prepare: r#"
            cat >memory.v <<'END'
module top; reg [63:0] m [0:1048575]; integer i; reg [63:0] s;
initial begin s = 1; for (i = 0; i < 1048576; i = i + 1) m[i] = i * 7919; for (i = 0; i < 1500000; i = i + 1) begin s = s * 6364136223846793005 + 1; m[s[40:21]] = m[s[60:41]] + s; end
s = 0; for (i = 0; i < 1048576; i = i + 1) s = s ^ m[i]; $display("%x", s); end endmodule
END
            iverilog -o memory memory.v
        "#,
        run: "vvp -n $INPUT/memory",
        ..PLAIN
    },
    Program {
        name: "proot",
        what: "a program whose paths its tracer looks up for it",
        needs: &[("proot", "proot"), ("perl", "perl")],
        prepare: LIST,
        run: "proot -b /tmp:/mnt perl $INPUT/list.pl",
        // Its loader is; what that loads is managed. In user mode, beside the budget.
        messages: &["is static: it runs outside the budget", "it is traced"],
        ..PLAIN
    },
    Program {
        name: "fakes",
        what: "programs with libraries preloaded that tell them another clock, user or root",
        needs: &[("faketime", "faketime"), ("fakeroot", "fakeroot"), ("fakechroot", "fakechroot"), ("perl", "perl")],
        prepare: LIST,
        run: r#"
            faketime -f '@2020-01-01 00:00:00 x0' perl -e 'print scalar localtime, "\n"; exec @ARGV' perl $INPUT/list.pl
            fakeroot sh -c "id -u; perl $INPUT/list.pl; touch f; chown 5:6 f; stat -c %u:%g f"
            fakechroot perl $INPUT/list.pl
        "#,
        ..PLAIN
    },
    Program {
        name: "gevent",
        what: "greenlets, whose stacks are copied away and back, beside threads",
        needs: &[("/usr/lib/python3/dist-packages/gevent", "python3-gevent")],
        prepare: r#"
            cat >greenlets.py <<'END'
import gevent, gevent.pool, hashlib, gevent.queue, gevent.threadpool
data = {}
def work(n):
    l = [f"{n} {i}" for i in range(300)]
    gevent.sleep(0)
    data[n] = l
    gevent.sleep(0.001)
    return sum(len(x) for x in data[n])
p = gevent.pool.Pool(400)
print(sum(p.map(work, range(2500))))
tp = gevent.threadpool.ThreadPool(3)
print(sum(tp.map(lambda n: len("".join(data[n])), range(2500))))
print(hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest())
END
        "#,
        run: "/usr/bin/python3 $INPUT/greenlets.py",
        ..PLAIN
    },
    Program {
        name: "boehm",
        what: "a collector that stops four threads by signals and reads all memory, and a fork",
        needs: &[("gcc", "gcc"), ("/usr/include/gc.h", "libgc-dev")],
        prepare: r#"
            cat >main.c <<'END'
#define GC_THREADS
#include <gc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
struct node { struct node *l, *r; long v; char pad[40]; };
static struct node *tree(int d, long v) { struct node *n = GC_MALLOC(sizeof *n); n->v = v; memset(n->pad, v, 40); if (d) { n->l = tree(d-1, v*2); n->r = tree(d-1, v*2+1); } return n; }
static long sum(struct node *n) { return n ? n->v + n->pad[7] + 3*sum(n->l) + 5*sum(n->r) : 1; }
static void *work(void *a) { long s = (long)a; struct node *keep = tree(15, s); for (int i = 0; i < 20; i++) { s = s*31 + sum(tree(12, i)); } return (void *)(s + sum(keep)); }
int main(void) {
    GC_set_handle_fork(1);
    GC_INIT();
    pthread_t t[4]; struct node *mine = tree(17, 3);
    for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) { void *s; pthread_join(t[i], &s); printf("%ld\n", (long)s); }
    fflush(stdout);
    if (!fork()) { long s = 0; for (int i = 0; i < 20; i++) s += sum(tree(14, i)); printf("%ld %ld\n", s, sum(mine)); fflush(stdout); _exit(0); }
    wait(0); GC_gcollect(); printf("%ld\n", sum(mine)); return 0;
}
END
            gcc -O1 -o main main.c -lgc -lpthread
        "#,
        run: "$INPUT/main",
        ..PLAIN
    },
    Program {
        name: "qemu-system",
        what: "a machine emulated: it fills 62 MiB, and sums them four times",
        needs: &[("qemu-system-x86_64", "qemu-system-x86"), ("as", "binutils")],
        prepare: r"
            cat >b.s <<'END'
.code16
start: cli
 xor %ax,%ax
 mov %ax,%ds
 lgdt gdtr
 mov %cr0,%eax
 or $1,%al
 mov %eax,%cr0
 ljmp $8,$pm
.code32
pm: mov $16,%ax
 mov %ax,%ds
 mov %ax,%es
 mov $0x200000,%edi
1: mov %edi,%eax
 imul $7919,%eax
 mov %eax,(%edi)
 add $4,%edi
 cmp $0x4000000,%edi
 jb 1b
 mov $4,%ecx
3: xor %ebx,%ebx
 mov $0x200000,%edi
2: imul $31,%ebx
 add (%edi),%ebx
 add $4,%edi
 cmp $0x4000000,%edi
 jb 2b
 dec %ecx
 jnz 3b
 mov $8,%ecx
4: rol $4,%ebx
 mov %bl,%al
 and $15,%al
 add $65,%al
 mov $0xe9,%dx
 out %al,%dx
 dec %ecx
 jnz 4b
 mov $0x501,%dx
 out %al,%dx
5: hlt
 jmp 5b
gdt: .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdtr: .word 23
 .long gdt
.org 510
.word 0xaa55
END
            as --32 b.s -o b.o && ld -m elf_i386 -Ttext 0x7c00 --oformat binary -o b.img b.o
        ",
        // It ends by a device that makes a status of what it is given.
        run: r"
            qemu-system-x86_64 -accel tcg -m 96 -display none -monitor none -serial none -debugcon file:said \
                -device isa-debug-exit,iobase=0x501,iosize=1 -drive file=$INPUT/b.img,format=raw,snapshot=on -no-reboot || echo $?
            cat said; echo
        ",
        ..PLAIN
    },
];

/// Strings, all of them gone through three times.
const LIST: &str = r#"
    cat >list.pl <<'END'
my ($sum, @all) = (0, map { "line $_ " x 9 } 1 .. 200000);
for my $round (1 .. 3) { $sum = ($sum * 31 + length($_) + ord(substr($_, 7, 1))) % 1000003 for @all }
print "$sum\n";
END
"#;
