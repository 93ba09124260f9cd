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
];
