"""Plays replacement policies on recorded programs, and compares pleat with true LRU.

    python3 bench/replacement.py record DIR [NAME...]    records programs into DIR, those that are there already not again
    python3 bench/replacement.py play DIR [NAME...]      plays what DIR has, and prints a line for each size of memory

Takes target/release/pleat, valgrind, and the programs: apt install valgrind bzip2 xz-utils git z3 gnuplot-nox graphviz coq
texlive-latex-base sqlite3 lua5.4 ruby gawk mawk nodejs g++. Recording takes up to four minutes a program; what has been recorded by
then is kept, and played. Published: docs/simulator.md.
"""
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

PLEAT = Path(__file__).resolve().parent.parent / "target/release/pleat"
PYTHON = "/usr/bin/python3"
SECONDS_MAX = 240
# What recorded traces are reduced for: below it they say nothing.
PAGES_MIN = 256
# LRU's misses that make a ratio.
MISSES_MIN = 100
POLICIES = ("lru", "fifo", "clock", "pleat")

PERL = """for $i (1..40000) { $h{"key-$i"} = "value $i of many, $i" }
for $i (1..60000) { $x += length $h{"key-" . (1 + int(rand 40000))} } print "$x\\n" """
PERLSORT = """srand 3; for $i (1..30000) { push @{$h{$i % 97}}, int(rand 1e6) }
@s = map { sort { $a <=> $b } @$_ } values %h; $j = join ",", @s; $j =~ s/7/seven/g; print length $j"""
STRINGS = """import random, re
r = random.Random(3); s = [str(r.random()) for _ in range(25000)]; s.sort(); d = {}
for x in s: d.setdefault(x[:4], []).append(x)
print(sum(len(re.findall("7+", x)) for x in s), sum(len(v) for v in d.values())); s.sort(key=lambda x: x[::-1]); print(s[0])"""
JSON = """import json, random
r = random.Random(1); d = [{"a": r.random(), "b": str(i), "c": [i, i + 1]} for i in range(12000)]
e = json.loads(json.dumps(d)); print(sum(x["c"][0] for x in e))"""
MAWK = """BEGIN { srand(7); for (i = 0; i < 30000; i++) a["k" i] = "value " i
for (i = 0; i < 60000; i++) s += length(a["k" int(rand() * 30000)]); print s }"""
SQL = """create table t(a,b);
with recursive c(i) as (select 1 union all select i+1 from c where i<30000) insert into t select abs(random())%100000, 'row '||i from c;
create index k on t(a); select count(*), sum(length(b)) from t where a in (select a+1 from t); select a%10, count(distinct b) from t group by 1;"""
LUA = """math.randomseed(5) local t={} for i=1,30000 do t[i]={i,tostring(i),math.random()} end
table.sort(t,function(a,b) return a[3]<b[3] end) local s=0 for k=1,3 do for i=1,#t do s=s+#t[i][2] end end
local h={} for i=1,#t do h[t[i][2]]=i end for i=1,60000 do s=s+(h[tostring(math.random(30000))] or 0) end print(s)"""
RUBY = """srand 4; h={}; 15000.times{|i| h["k#{i}"]=[i,rand]}; a=h.sort_by{|k,v| v[1]}
s=0; 20000.times{ s+=h["k#{rand(15000)}"][0]}; puts s, a.first[0]"""
GAWK = """BEGIN { srand(3); for (i=0; i<20000; i++) { a[i]=rand(); b["x" i]=i } n=asort(a)
for (i=0; i<30000; i++) s+=b["x" int(rand()*20000)]; print n, s }"""
NODE = """let a=[];for(let i=0;i<20000;i++)a.push({k:"n"+(i*7919%20000),v:i});a.sort((x,y)=>x.k<y.k?-1:1)
const m=new Map(a.map(o=>[o.k,o]));let s=0;for(let i=0;i<40000;i++)s+=m.get("n"+(i*31%20000)).v;console.log(s)"""
CPP = """#include <algorithm>
#include <map>
#include <string>
#include <vector>
int main() { std::map<std::string, std::vector<int>> m; for (int i = 0; i < 100; i++) m[std::to_string(i % 7)].push_back(i);
int s = 0; for (auto &p : m) s += std::count_if(p.second.begin(), p.second.end(), [](int x) { return x % 2; }); return s; }
"""


def gcc(question):
    return subprocess.run(["gcc", question], check=True, capture_output=True, text=True).stdout.strip()


def compiler(name):
    """The compiler proper: what gcc runs is another process, and not recorded."""
    return [gcc(f"-print-prog-name={name}"), "-imultiarch", gcc("-print-multiarch"), "-quiet"]


def programs():
    """The programs by name, each a command line that is run where its inputs are."""
    root = Path(__file__).resolve().parent
    return {
        "sort": ["sort", "--parallel=1", "-S", "8M", "-n", "nums"],
        "perl": ["perl", "-e", PERL],
        "perlsort": ["perl", "-e", PERLSORT],
        "dictionary": [PYTHON, str(root / "jobs/dictionary.py"), "20000", "4000"],
        "strings": [PYTHON, "-c", STRINGS],
        "mawk": ["mawk", MAWK],
        "cc1": [*compiler("cc1"), "-O2", "b.c", "-o", "/dev/null"],
        "json": [PYTHON, "-c", JSON],
        "bzip2": ["bzip2", "-k", "-c", "blob"],
        "xz": ["xz", "-3", "-k", "-c", "blob"],
        "git": ["git", "-C", str(root.parent), "log", "--stat", "-n", "60"],
        "z3": ["z3", "-T:40", "q.smt2"],
        "gnuplot": ["gnuplot", "-e", "set terminal dumb 200 60; set samples 20000; plot sin(x)*x"],
        "pdflatex": ["pdflatex", "-interaction=batchmode", "doc.tex"],
        "dot": ["dot", "-Tplain", "g.dot"],
        "coqc": ["coqc", "l.v"],
        "sqlite": ["sqlite3", ":memory:", SQL],
        "lua": ["lua5.4", "-e", LUA],
        "ruby": ["ruby", "-e", RUBY],
        "gawk": ["gawk", GAWK],
        "node": ["node", "--jitless", "-e", NODE],
        "gpp": [*compiler("cc1plus"), "-O1", "vec.cc", "-o", "/dev/null"],
    }


def write_inputs(inputs):
    """The files that programs read: the same each time, but for `blob`, the start of a large executable."""
    draw = random.Random(5)
    numbers = list(range(60000))
    draw.shuffle(numbers)
    function = "int f{0}(int*a,int n){{int s={0};for(int j=0;j<n;j++){{s+=a[j]*{0}+(s>>{1});if(s&{0})s^=a[j];}}return s;}}"
    values = [draw.randrange(1 << 24) for _ in range(60)]
    equations = ["(set-logic QF_BV)", *(f"(declare-const x{i} (_ BitVec 24))" for i in range(60))]
    for _ in range(58):
        a, b, c = draw.sample(range(60), 3)
        sum_ = (values[a] * 7 + values[b]) & 0xFFFFFF
        factor = draw.randrange(256)
        equations.append(f"(assert (= (bvadd (bvmul x{a} #x{factor:06x}) x{b} (bvxor x{c} x{a})) #x{sum_:06x}))")
    edges = [f"{draw.randrange(500)} -- {draw.randrange(500)}" for _ in range(300)]
    section = "\\section{{S {0}}} Some words about {0}, and $x^{{{0}}}+\\frac{{{0}}}{{y}}$ follow. \\label{{l{0}}} See \\ref{{l{1}}}.\n"
    sections = [section.format(i, max(0, i - 3)) for i in range(400)]
    lemma = "Lemma l{0} : forall a b c : nat, a + b + c + {0} = {0} + c + b + a. Proof. intros; lia. Qed."
    files = {
        "nums": numbers,
        "b.c": [function.format(i, i % 7) for i in range(400)],
        "q.smt2": [*equations, "(check-sat)"],
        "g.dot": ["graph g {", *edges, "}"],
        "doc.tex": ["\\documentclass{article}\\begin{document}\\tableofcontents", *sections, "\\end{document}"],
        "l.v": ["Require Import Arith Lia List.", *(lemma.format(i) for i in range(60))],
        "vec.cc": [CPP],
    }
    for name, lines in files.items():
        (inputs / name).write_text("\n".join(map(str, lines)) + "\n")
    (inputs / "blob").write_bytes(Path(shutil.which("git")).resolve().read_bytes()[:1_500_000])


def record(directory, names):
    directory.mkdir(parents=True, exist_ok=True)
    write_inputs(directory)
    for name, command in programs().items():
        trace = directory / f"{name}.trace"
        if (names and name not in names) or trace.exists():
            continue
        print(f"{name}: recording", file=sys.stderr)
        recording = [PLEAT, "record", "--out", trace.resolve(), "--", *command]
        limited = ["timeout", str(SECONDS_MAX), *recording]
        done = subprocess.run(limited, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        if not trace.exists():
            print(f"{name}: no trace, status {done.returncode}", file=sys.stderr)


def simulate(trace, sizes, policies):
    """What `pleat sim` says, by policy and size."""
    out = trace.with_suffix(".json")
    what = ["--replacement", ",".join(policies), "--pages", ",".join(map(str, sizes)), "--json", out]
    subprocess.run([PLEAT, "sim", trace, *what], check=True, stdout=subprocess.DEVNULL)
    rows = json.loads(out.read_text())
    out.unlink()
    return {(row["policy"], row["pages"]): row for row in rows}


def play(directory, names):
    print("trace", "pages", "lru_misses", "fifo", "clock", "pleat", "soft_faults_percent", sep="\t")
    compared = above = most = 0
    for trace in sorted(directory.glob("*.trace")):
        if names and trace.stem not in names:
            continue
        pages = simulate(trace, [PAGES_MIN], ["lru"])["lru", PAGES_MIN]["cold_misses"]
        sizes = range(PAGES_MIN, int(pages * 0.97), max(5, pages // 400))
        rows = simulate(trace, sizes, POLICIES) if sizes else {}
        for size in sizes:
            misses = rows["lru", size]["misses"]
            if misses < MISSES_MIN:
                continue
            fifo, clock, pleat = (rows[policy, size]["misses"] / misses for policy in POLICIES[1:])
            soft = 100 * rows["pleat", size]["soft_faults"] / rows["pleat", size]["references"]
            print(trace.stem, size, misses, f"{fifo:.3f}", f"{clock:.3f}", f"{pleat:.3f}", f"{soft:.1f}", sep="\t", flush=True)
            compared, above, most = compared + 1, above + (pleat > 1.05), max(most, pleat)
    print(f"{compared} sizes, pleat above 1.05 in {above}, at most {most:.3f}", file=sys.stderr)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("record", "play"):
        sys.exit(__doc__)
    {"record": record, "play": play}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:])


if __name__ == "__main__":
    main()
