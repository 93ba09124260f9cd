//! The programs: how each is made, what it does, and what is known to be said about it.

use crate::sh;

/// One program. Both scripts are run by `sh -eu`, with `INPUT` the folder that `prepare` filled and `HERE` the checkout;
/// what `run` prints must be the same whenever it runs.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Programs it needs, and the Debian package of each.
    pub(super) needs: &'static [(&'static str, &'static str)],
    /// Run once, in `INPUT`.
    pub(super) prepare: &'static str,
    /// Run plain and under pleat, each time in an empty folder.
    pub(super) run: &'static str,
    /// Whom it runs as; root if nobody is named. Such a user gets `CAP_SYS_PTRACE`, as `pleat doctor` says.
    pub(super) user: Option<&'static str>,
    /// What pleat says and should: a part of each line.
    pub(super) messages: &'static [&'static str],
    /// Whether pleat can keep it inside the budget.
    pub(super) is_managed: bool,
    pub(super) status: i32,
}

/// What most programs are.
pub(super) const PLAIN: Program = Program {
    name: "",
    what: "",
    needs: &[],
    prepare: "",
    run: "",
    user: None,
    messages: &[],
    is_managed: true,
    status: 0,
};

impl Program {
    /// Packages of what is not there.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let is_there = |program: &str| sh::has(program) || std::path::Path::new(program).exists();
        self.needs.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect()
    }
}

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "redis",
        what: "BGSAVE while redis-benchmark writes; the snapshot loads back equal",
        needs: &[("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
        run: r#"
            start() {
                redis-server --port 0 --unixsocket $PWD/socket --dir $PWD --save '' --enable-debug-command yes "$@" >>log 2>&1 &
                until redis-cli -s socket ping 2>/dev/null | grep -q PONG; do sleep 0.1; done
                while redis-cli -s socket ping | grep -q LOADING; do sleep 0.1; done
            }
            start
            redis-cli -s socket debug populate 300000 key 300
            before=$(redis-cli -s socket debug digest)
            echo "$before"
            redis-cli -s socket bgsave
            redis-benchmark -s socket -q -n 30000 -r 300000 -d 100 -P 8 -t set,incr,hset,zadd >/dev/null
            while redis-cli -s socket info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.1; done
            redis-cli -s socket info persistence | grep -o rdb_last_bgsave_status:ok
            mv dump.rdb snapshot.rdb
            now=$(redis-cli -s socket debug digest)
            redis-cli -s socket debug reload
            test "$now" = "$(redis-cli -s socket debug digest)" && echo "what it has loads back equal"
            redis-cli -s socket shutdown nosave
            wait
            start --dbfilename snapshot.rdb
            test "$before" = "$(redis-cli -s socket debug digest)" && echo "the snapshot is equal" || true
            redis-cli -s socket shutdown nosave
            wait
        "#,
        ..PLAIN
    },
    Program {
        name: "postgres",
        what: "pgbench of eight clients beside sorts and hashes; its sums agree, its indices check",
        needs: &[("pgbench", "postgresql")],
        user: Some("postgres"),
        run: r#"
            PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
            initdb -D data -A trust --no-sync --no-locale -E UTF8 >log 2>&1
            printf "listen_addresses=''\nunix_socket_directories='$PWD'\nshared_buffers=16MB\nwork_mem=64MB\nfsync=off\n" >>data/postgresql.conf
            pg_ctl -D data -w -l log start >/dev/null
            export PGHOST=$PWD PGDATABASE=postgres
            pgbench -i -s 4 -q >>log 2>&1
            for at in 1 2 3; do
                psql -Atc "select md5(string_agg(a, ',' order by a)) from (select repeat(md5(g::text), 4) a from generate_series(1, 200000) g) s" >sum$at &
            done
            pgbench -n -c 8 -j 2 -t 400 >>log 2>&1
            wait
            cat sum1 sum2 sum3
            psql -Atc "select count(*), (select sum(abalance) from pgbench_accounts) = sum(delta),
                (select sum(tbalance) from pgbench_tellers) = sum(delta),
                (select sum(bbalance) from pgbench_branches) = sum(delta) from pgbench_history"
            pg_amcheck --install-missing --heapallindexed --parent-check postgres && echo "amcheck finds nothing"
            pg_ctl -D data -w -m fast stop >/dev/null
        "#,
        ..PLAIN
    },
    Program {
        name: "make",
        what: "make -j4 of 240 C files",
        needs: &[("make", "make"), ("gcc", "gcc")],
        prepare: r#"
            for at in $(seq 240); do
                {
                    echo '#include <stdio.h>'; echo '#include <stdlib.h>'; echo '#include <string.h>'
                    echo '#include <math.h>'; echo '#include <pthread.h>'
                    for k in $(seq 12); do
                        echo "long f${at}_$k(long *a, long n) { long s = $k; for (long i = 0; i < n; i++) {"
                        echo "  switch (a[i] % 9) { case 0: s += a[i] * $at; break; case 1: s ^= strlen(\"text $at $k\"); break;"
                        echo "  case 2: s = s * 31 + (long)sqrt(a[i] + $k); break; case 3: a[i] = s; break; default: s -= i; } } return s; }"
                    done
                } >f$at.c
            done
            {
                echo '#include <stdio.h>'
                for at in $(seq 240); do echo "long f${at}_7(long *, long);"; done
                echo 'int main(void) { long a[64], s = 0; for (int i = 0; i < 64; i++) a[i] = i * 77;'
                for at in $(seq 240); do echo "s = s * 3 + f${at}_7(a, 64);"; done
                echo 'printf("%ld.", s); }'
            } >main.c
            printf 'program: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\t$(CC) -o $@ $^ -lm\n%%.o: %%.c\n\t$(CC) -O2 -g -c $<\n' >Makefile
        "#,
        run: r"
            cp $INPUT/* .
            make -s -j4
            ./program
            cat *.o | sha256sum
        ",
        ..PLAIN
    },
    Program {
        name: "git",
        what: "clone, gc --aggressive and fsck of a repository of 30000 objects",
        needs: &[("git", "git")],
        prepare: r#"
            git init -q -b main big
            awk 'BEGIN { srand(5)
                for (c = 1; c <= 1500; c++) {
                    printf "commit refs/heads/main\nmark :%d\ncommitter A <a@b> %d +0000\ndata 8\nchange.\n\n", c, 1600000000 + c * 60
                    for (k = 0; k < 8; k++) {
                        body = ""
                        for (l = 0; l < 40 + 120 * rand(); l++) body = body sprintf("%d line %d %f\n", c * k, l, rand())
                        printf "M 100644 inline d%d/f%d\ndata %d\n%s\n", int(rand() * 40), int(rand() * 90), length(body), body
                    }
                    # A large file now and then: its forms are held at once, or 40 % of the memory would be less than pleat takes.
                    if (c % 60 == 0) {
                        body = ""
                        for (l = 0; l < 12000; l++) body = body sprintf("%d line %d %f\n", l % 300 ? l : c, l, l / 7)
                        printf "M 100644 inline large\ndata %d\n%s\n", length(body), body
                    }
                }
            }' | git -C big fast-import --quiet
        "#,
        run: r"
            git clone -q --no-local --bare $INPUT/big one
            cd one
            git -c pack.threads=2 -c pack.windowMemory=100m gc -q --aggressive --prune=now
            git fsck --full --strict 2>&1
            git rev-list --objects --all | sort | sha256sum
            git cat-file --batch-all-objects --batch-check | sha256sum
            git log --stat --format=%H | sha256sum
        ",
        ..PLAIN
    },
    Program {
        name: "python",
        what: "multiprocessing pools by fork, forkserver and spawn, and a dictionary",
        needs: &[("/usr/bin/python3", "python3")],
        prepare: r#"
            cat >pool.py <<'END'
import hashlib, multiprocessing, random, sys
TABLE = None
def fill(seed):
    draw = random.Random(seed)
    return {f"key {at}": [draw.random() for _ in range(4)] for at in range(20000)}
def work(seed):
    global TABLE
    if TABLE is None:
        TABLE = fill(0)
    mine = fill(seed)
    for key in mine:
        if key in TABLE:
            mine[key][0] += TABLE[key][1]
    return seed, hashlib.sha256(repr(sorted(mine.items())).encode()).hexdigest()
if __name__ == "__main__":
    TABLE = fill(0)
    for method in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(4) as pool:
            for seed, digest in pool.map(work, range(8), 1):
                print(method, seed, digest)
    print(hashlib.sha256(repr(sorted(TABLE.items())).encode()).hexdigest())
END
        "#,
        run: "/usr/bin/python3 $INPUT/pool.py",
        ..PLAIN
    },
    Program { name: "java-serial", what: "java, serial collector", run: "java -Xmx200m -XX:+UseSerialGC -cp $INPUT Objects 150000", ..JAVA },
    Program { name: "java-parallel", what: "java, parallel collector", run: "java -Xmx200m -XX:+UseParallelGC -cp $INPUT Objects 150000", ..JAVA },
    Program { name: "java-g1", what: "java, G1 collector", run: "java -Xmx200m -XX:+UseG1GC -cp $INPUT Objects 150000", ..JAVA },
    Program { name: "java-z", what: "java, Z collector: its heap is shared memory, of the rest both shares are the least budget", run: "java -Xmx300m -XX:+UseZGC -cp $INPUT Objects 150000", ..JAVA },
    Program {
        name: "java-shenandoah",
        what: "java, Shenandoah collector",
        run: "java -Xmx300m -XX:+UseShenandoahGC -cp $INPUT Objects 150000",
        ..JAVA
    },
    Program {
        name: "node",
        what: "objects and typed arrays",
        needs: &[("node", "nodejs")],
        run: "node $HERE/crates/e2e/programs/objects.js 100000",
        ..PLAIN
    },
    Program {
        name: "node-workers",
        what: "four worker threads with a shared array and their own heaps",
        needs: &[("node", "nodejs")],
        prepare: r#"
            cat >workers.js <<'END'
const { Worker, isMainThread, workerData, parentPort } = require("worker_threads");
const crypto = require("crypto");
if (isMainThread) {
  const results = [];
  for (let at = 0; at < 4; at++) {
    const worker = new Worker(__filename, { workerData: at });
    worker.on("message", (text) => { results[at] = text; if (results.filter(Boolean).length === 4) console.log(results.join("\n")); });
  }
} else {
  const map = new Map();
  for (let at = 0; at < 60000; at++) map.set(`k${at}`, { at, text: `${workerData} text ${at * 7919}`, list: [at, at * 2, at * 3] });
  const sum = crypto.createHash("sha256");
  for (let at = 0; at < 60000; at += 1) { const item = map.get(`k${(at * 48271) % 60000}`); item.list.push(at); sum.update(item.text + item.list.join()); }
  parentPort.postMessage(`${workerData} ${sum.digest("hex")}`);
}
END
        "#,
        run: "node $INPUT/workers.js",
        ..PLAIN
    },
    Program {
        name: "go-cgo",
        what: "a Go program built with cgo",
        needs: &[("go", "golang"), ("gcc", "gcc")],
        prepare: r#"
            cat >main.go <<'END'
package main

/*
#include <stdlib.h>
#include <string.h>
static unsigned long sum(unsigned char *p, long n) { unsigned long s = 0; for (long i = 0; i < n; i++) s = s * 31 + p[i]; return s; }
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

type item struct {
	name string
	body []byte
	next *item
}

func main() {
	var wait sync.WaitGroup
	sums := make([]uint64, 4)
	for who := 0; who < 4; who++ {
		wait.Add(1)
		go func(who int) {
			defer wait.Done()
			table := map[string]*item{}
			var last *item
			for at := 0; at < 40000; at++ {
				body := make([]byte, 400)
				for k := range body {
					body[k] = byte(at*k + who)
				}
				last = &item{fmt.Sprintf("item %d", at), body, last}
				table[last.name] = last
			}
			raw := (*C.uchar)(C.malloc(8 << 20))
			C.memset(unsafe.Pointer(raw), C.int(who), 8<<20)
			sum := uint64(C.sum(raw, 8<<20))
			C.free(unsafe.Pointer(raw))
			for at := 0; at < 40000; at++ {
				one := table[fmt.Sprintf("item %d", (at*7919)%40000)]
				sum = sum*31 + uint64(C.sum((*C.uchar)(unsafe.Pointer(&one.body[0])), 400))
			}
			sums[who] = sum
		}(who)
	}
	wait.Wait()
	fmt.Println(sums)
}
END
            go mod init example >/dev/null 2>&1
            GOCACHE=$PWD/cache GOFLAGS=-mod=mod CGO_ENABLED=1 go build -o main .
        "#,
        run: "$INPUT/main",
        ..PLAIN
    },
    Program {
        name: "go-static",
        what: "a static Go program: runs beside the budget, with a warning",
        needs: &[("go", "golang")],
        prepare: r#"
            cat >main.go <<'END'
package main

import (
	"fmt"
	"time"
)

func main() {
	table := map[int][]byte{}
	for at := 0; at < 50000; at++ {
		table[at] = make([]byte, 1000)
		table[at][7] = byte(at)
	}
	time.Sleep(1500 * time.Millisecond)
	sum := 0
	for at := range table {
		sum += int(table[at][7])
	}
	fmt.Println(len(table), sum)
}
END
            go mod init example >/dev/null 2>&1
            GOCACHE=$PWD/cache CGO_ENABLED=0 go build -o main .
        "#,
        run: "$INPUT/main; true",
        messages: &["is static: it runs outside the budget"],
        is_managed: false,
        ..PLAIN
    },
    Program {
        name: "perl",
        what: "a hash",
        needs: &[("perl", "perl")],
        run: "perl $HERE/crates/e2e/programs/hash.pl 60000",
        ..PLAIN
    },
    Program {
        name: "ruby",
        what: "hashes, strings and a fork",
        needs: &[("ruby", "ruby")],
        run: r#"ruby -rdigest -e '
            t = {}
            120000.times { |i| t["key #{i}"] = ["v" * (i % 60), i * 7919 % 1000] }
            pid = fork { 40000.times { |i| t["key #{i * 3}"][1] += 1 }; puts Digest::SHA256.hexdigest(t.to_a.inspect) }
            Process.wait pid
            GC.start; GC.compact
            100000.times { |i| t["key #{i * 48271 % 120000}"] << i }
            puts Digest::SHA256.hexdigest(t.to_a.inspect)'"#,
        ..PLAIN
    },
    Program {
        name: "r",
        what: "linear algebra, sorting, data frames",
        needs: &[("Rscript", "r-base-core")],
        run: r#"Rscript --vanilla -e '
            set.seed(1); m <- matrix(rnorm(1000 * 1000), 1000); x <- crossprod(m)
            cat(sprintf("%.6f\n", sum(diag(solve(x + diag(1000))))))
            d <- data.frame(a = sample(1:1000, 5e5, TRUE), b = runif(5e5)); s <- aggregate(b ~ a, d, mean)
            cat(sprintf("%.6f %d\n", sum(s$b), nrow(s))); cat(sprintf("%.6f\n", sum(sort(d$b) * seq_along(d$b))))'"#,
        ..PLAIN
    },
    Program {
        name: "octave",
        what: "linear algebra",
        needs: &[("octave", "octave")],
        run: r#"octave --no-gui --no-window-system --norc --quiet --eval "
            rand('seed', 3); a = rand(900); b = a * a'; printf('%.4f\n', trace(b)); c = sort(b(:)); printf('%.6f\n', c(5000));
            s = cell(1, 20000); for i = 1:20000, s{i} = sprintf('%d text', i); end; printf('%s\n', s{end}); [q, r] = qr(a); printf('%.4f\n', norm(q * r - a) < 1e-9)""#,
        ..PLAIN
    },
    Program {
        name: "php",
        what: "arrays",
        needs: &[("php", "php-cli")],
        run: r#"php -d memory_limit=-1 -r '
            $t = []; for ($i = 0; $i < 200000; $i++) $t["key $i"] = [str_repeat(chr(65 + $i % 26), $i % 90), $i];
            for ($i = 0; $i < 200000; $i++) $t["key " . ($i * 48271 % 200000)][1] += $i;
            echo hash("sha256", serialize($t)), "\n";'"#,
        ..PLAIN
    },
    Program {
        name: "lua",
        what: "tables",
        needs: &[("lua5.4", "lua5.4")],
        run: r#"lua5.4 -e '
            local t, s = {}, 0
            for i = 1, 300000 do t[i] = { "key " .. i, i * 7919 } end
            for i = 1, 300000 do local e = t[i * 48271 % 300000 + 1]; e[2] = e[2] + #e[1] + i; s = (s * 31 + e[2]) % 1000000007 end
            print(s)'"#,
        ..PLAIN
    },
    Program {
        name: "ocaml",
        what: "a compacting collector",
        needs: &[("ocamlopt", "ocaml-nox")],
        prepare: r#"
            cat >main.ml <<'END'
let () =
  let table = Hashtbl.create 1000 in
  for i = 0 to 300_000 do Hashtbl.replace table i (Printf.sprintf "text %d" (i * 7919)) done;
  for i = 0 to 100_000 do Hashtbl.replace table (i * 3) (String.concat "," [Hashtbl.find table i; "more"]) done;
  Gc.compact ();
  let sum = ref 0 in
  for i = 0 to 300_000 do sum := (!sum * 31 + Hashtbl.hash (Hashtbl.find table (i * 48271 mod 300_001))) land 0xfffffff done;
  Printf.printf "%d\n" !sum
END
            ocamlfind ocamlopt main.ml -o main 2>/dev/null || ocamlopt main.ml -o main
        "#,
        run: "$INPUT/main",
        ..PLAIN
    },
    Program {
        name: "sbcl",
        what: "a moving collector with write barriers by mprotect",
        needs: &[("sbcl", "sbcl")],
        run: r#"sbcl --noinform --non-interactive --no-userinit --no-sysinit --eval '
            (let ((table (make-hash-table :test (quote equal))) (sum 0))
              (dotimes (i 150000) (setf (gethash (format nil "key ~d" i) table) (list i (make-array 10 :initial-element i))))
              (gc :full t)
              (dotimes (i 150000) (let ((e (gethash (format nil "key ~d" (mod (* i 48271) 150000)) table)))
                (incf (first e) i) (setf sum (mod (+ (* sum 31) (first e) (aref (second e) 3)) 1000000007))))
              (gc :full t)
              (format t "~d~%" sum))'"#,
        ..PLAIN
    },
    Program {
        name: "guile",
        what: "a conservative collector that stops threads by signals",
        needs: &[("guile", "guile-3.0")],
        run: r"guile --no-auto-compile -c '
            (use-modules (ice-9 threads))
            (define (work seed)
              (let ((table (make-hash-table)))
                (do ((i 0 (+ i 1))) ((= i 60000)) (hash-set! table i (list i (number->string (* i seed)))))
                (let loop ((i 0) (sum 0))
                  (if (= i 60000) sum
                    (loop (+ i 1) (modulo (+ (* sum 31) (string-length (cadr (hash-ref table (modulo (* i 48271) 60000))))) 1000000007))))))
            (for-each (lambda (s) (display s) (newline)) (par-map work (list 3 5 7 11)))' ",
        ..PLAIN
    },
    Program {
        name: "mono",
        what: "a collector that maps many blocks and a table of 28 MiB",
        needs: &[("mono", "mono-runtime"), ("mcs", "mono-mcs")],
        prepare: r#"
            cat >main.cs <<'END'
using System; using System.Collections.Generic;
class Objects {
    static void Main() {
        var table = new Dictionary<int, string>();
        for (int i = 0; i < 800000; i++) table[i * 7] = "text " + i;
        long sum = 0;
        foreach (var entry in table) sum += entry.Key + entry.Value.Length;
        var blocks = new List<byte[]>();
        for (int i = 0; i < 1500; i++) { blocks.Add(new byte[40000]); blocks[i][i * 7919 % 40000] = (byte)i; }
        foreach (var block in blocks) foreach (var one in block) sum = (sum * 31 + one) % 1000000007;
        Console.WriteLine(sum);
    }
}
END
            mcs -out:main.exe main.cs
        "#,
        run: "mono $INPUT/main.exe",
        ..PLAIN
    },
    Program {
        name: "ghc",
        what: "a Haskell compiler, and what it makes",
        needs: &[("ghc", "ghc")],
        prepare: r"
            cat >Main.hs <<'END'
import qualified Data.Map.Strict as M
main = do
  let m = M.fromList [ (i * 7919 `mod` 1000003, show i) | i <- [1 .. 300000 :: Int] ]
  print (M.size m, M.foldl' (\s t -> s + length t) 0 m)
  print (take 5 (M.toList (M.map reverse m)))
END
        ",
        run: "ghc -O1 -outputdir made -o main $INPUT/Main.hs >/dev/null; ./main",
        ..PLAIN
    },
    Program {
        name: "prolog",
        what: "lists, sorted",
        needs: &[("swipl", "swi-prolog-nox")],
        run: r"swipl -q --stack-limit=2g -g '
            numlist(1, 800000, L), foldl([X, S0, S]>>(S is (S0 * 31 + X) mod 1000000007), L, 1, Sum),
            findall(K-X, (member(X, L), K is X * 48271 mod 800009), P), msort(P, Q), nth1(400000, Q, M), print(Sum/M), nl' -t halt",
        ..PLAIN
    },
    Program {
        name: "mold",
        what: "a linker with mimalloc, which maps its heap in a constructor",
        needs: &[("mold", "mold"), ("g++", "g++")],
        prepare: r#"
            for i in $(seq 40); do
                printf '#include <map>\n#include <string>\n#include <vector>\n' >part$i.cc
                for k in $(seq 12); do echo "int f${i}_$k(int n) { std::map<std::string, std::vector<int>> m; for (int j = 0; j < n; j++) m[std::to_string(j)].push_back(j * $k); return m.size(); }"; done >>part$i.cc
                g++ -g -c part$i.cc || exit 1
            done
            printf 'int f1_1(int);\nint main() { return f1_1(7); }\n' >main.cc && g++ -g -c main.cc
        "#,
        run: "for i in 1 2 3 4 5; do g++ -fuse-ld=mold $INPUT/*.o -o out$i & done; wait; ./out1 || echo $?; sha256sum out*",
        ..PLAIN
    },
    Program {
        name: "crystal",
        what: "fibers with a stack of 8 MiB each, and the collector of Boehm",
        needs: &[("crystal", "crystal")],
        prepare: r#"
            cat >fibers.cr <<'END'
channel = Channel(Int64).new
1500.times do |i|
  spawn do
    table = {} of String => Int32
    100.times { |k| table["k#{k * i}"] = k }
    Fiber.yield
    channel.send(table.sum { |key, value| (value + key.size).to_i64 })
  end
end
puts (1..1500).sum { channel.receive }
items = Array(String).new(400000) { |i| "item #{i}" }
GC.collect
puts items.sum(&.size)
END
            crystal build --release -o fibers fibers.cr
        "#,
        run: "$INPUT/fibers",
        ..PLAIN
    },
    Program {
        name: "racket",
        what: "a hash of strings, under Chez Scheme's collector",
        needs: &[("racket", "racket")],
        run: r"racket -e '
            (define h (make-hash)) (for ([i 500000]) (hash-set! h i (number->string (* i 7919))))
            (displayln (for/fold ([s 0]) ([i 500000])
                (modulo (+ (* s 31) (string-length (hash-ref h (modulo (* i 48271) 500000)))) 1000000007)))'",
        ..PLAIN
    },
    Program {
        name: "gp",
        what: "PARI's stack of hundreds of MiB",
        needs: &[("gp", "pari-gp")],
        run: r"echo 'v=vector(3000000,i,i^2); print(vecsum(v)); print(factor(2^199-1)); w=vector(300000,i,prime(i%1000+1)*i); print(vecsum(w))' |
            gp -q -s 400M",
        ..PLAIN
    },
    Program {
        name: "pypy",
        what: "a dictionary, under a moving collector",
        needs: &[("pypy3", "pypy3")],
        run: r"pypy3 -c '
t = {i: str(i * 7919) for i in range(1000000)}
s = 0
for i in range(1000000): s = (s * 31 + len(t[i * 48271 % 1000000])) % 1000000007
print(s)'",
        ..PLAIN
    },
    Program {
        name: "emacs",
        what: "a hash, and a buffer in which text is replaced",
        needs: &[("emacs", "emacs-nox")],
        run: r#"emacs --batch -Q --eval '
            (let ((h (make-hash-table :test (quote equal))))
              (dotimes (i 300000) (puthash (format "k%d" i) (list i i) h)) (princ (hash-table-count h)) (terpri)
              (with-temp-buffer
                (dotimes (i 100000) (insert (format "line %d of text\n" i))) (goto-char 1)
                (while (re-search-forward "9 of" nil t) (replace-match "nine of")) (princ (md5 (buffer-string)))))'"#,
        ..PLAIN
    },
    Program {
        name: "povray",
        what: "a scene of 40,000 spheres, in two threads",
        needs: &[("povray", "povray")],
        prepare: r"
            cat >scene.pov <<'END'
camera{location <0,2,-12> look_at 0} light_source{<5,9,-9> 1}
#declare R=seed(1); #declare I=0;
#while(I<40000)
  sphere{<rand(R)*10-5,rand(R)*6-3,rand(R)*10>,0.05 pigment{rgb <rand(R),rand(R),rand(R)>}}
  #declare I=I+1;
#end
END
        ",
        // The head of the picture holds the time.
        run: "povray +I$INPUT/scene.pov +FP +O- +W160 +H120 -D +WT2 2>/dev/null | tail -c 57600 | md5sum",
        ..PLAIN
    },
    Program {
        name: "erlang",
        what: "4000 processes with heaps of their own",
        needs: &[("erl", "erlang-base")],
        run: r#"erl -noshell -eval '
            Self = self(),
            Work = fun(N) -> L = [{I, integer_to_list(I * N), I * 1.5} || I <- lists:seq(1, 300)],
                receive go -> Self ! {N, erlang:phash2(L)} end end,
            Pids = [spawn(fun() -> Work(N) end) || N <- lists:seq(1, 4000)],
            timer:sleep(500),
            [P ! go || P <- Pids],
            Sums = [receive {N, H} -> H end || N <- lists:seq(1, 4000)],
            io:format("~p~n", [erlang:phash2(Sums)]), halt().'"#,
        ..PLAIN
    },
    Program {
        name: "mariadb",
        what: "a server that is bootstrapped, filled, joined, checked",
        needs: &[("mariadbd", "mariadb-server"), ("mariadb-install-db", "mariadb-server")],
        run: r#"
            mkdir data
            mariadb-install-db --no-defaults --datadir=$PWD/data --user=root --auth-root-authentication-method=normal >log 2>&1
            mariadbd --no-defaults --datadir=$PWD/data --user=root --skip-networking --socket=$PWD/socket --innodb-buffer-pool-size=96M >>log 2>&1 &
            sql() { mariadb --no-defaults -u root --socket=$PWD/socket -N "$@"; }
            until sql -e 'select 1' >/dev/null 2>&1; do sleep 0.1; done
            sql -e "create database d; use d; create table t (a int primary key, b varchar(200), c int, key (c)) engine=innodb;
                insert into t select seq, repeat(md5(seq), 4), seq % 977 from seq_1_to_200000;
                update t set c = c + 1 where a % 3 = 0;
                select count(*), sum(c), md5(group_concat(b order by a)) from t where a < 2000;
                select x.c, count(*) from t x join t y on x.a = y.a + 1 group by x.c order by 2 desc, 1 limit 5;
                check table t; checksum table t"
            sql -e shutdown
            wait
        "#,
        ..PLAIN
    },
    Program {
        name: "sqlite",
        what: "a database in memory",
        needs: &[("sqlite3", "sqlite3")],
        run: r#"sqlite3 :memory: "create table t (a integer primary key, b text, c int);
            with recursive s(n) as (select 1 union all select n + 1 from s where n < 400000)
            insert into t select n, printf('%064d', n * 7919), n % 997 from s;
            create index i on t (c, b); update t set c = c + 1 where a % 5 = 0; pragma integrity_check;
            select count(*), sum(c), max(b) from t; select c, count(*) from t group by c order by 2 desc, 1 limit 5;""#,
        ..PLAIN
    },
    Program {
        name: "ffmpeg",
        what: "encodes and decodes with threads",
        needs: &[("ffmpeg", "ffmpeg")],
        run: r"
            ffmpeg -v error -f lavfi -i testsrc2=s=1280x720:d=3 -c:v mpeg4 -q:v 3 -threads 2 -bitexact a.mkv
            ffmpeg -v error -i a.mkv -vf scale=640:-1,reverse -f framemd5 - | sha256sum
        ",
        ..PLAIN
    },
    Program {
        name: "imagemagick",
        what: "blurs and turns an image",
        needs: &[("convert-im6.q16", "imagemagick")],
        run: r"convert-im6.q16 -size 2000x2000 plasma:fractal -seed 7 x.png 2>/dev/null || true
            convert-im6.q16 -size 2000x2000 gradient:red-blue -swirl 180 -blur 0x3 -rotate 33 -depth 8 rgb:- | sha256sum",
        ..PLAIN
    },
    Program {
        name: "asan-gcc",
        what: "a program built with gcc -fsanitize=address",
        needs: &[("gcc", "gcc")],
        prepare: SANITIZED_GCC,
        run: "$INPUT/main",
        ..PLAIN
    },
    Program {
        name: "asan-clang",
        what: "a program built with clang -fsanitize=address",
        needs: &[("clang", "clang"), ("/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.a", "libclang-rt-14-dev")],
        prepare: SANITIZED_CLANG,
        run: "$INPUT/main",
        ..PLAIN
    },
    Program {
        name: "asan-finds",
        what: "the sanitizer finds a use after free, its report is the same",
        needs: &[("gcc", "gcc")],
        prepare: r"
            cat >main.c <<'END'
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *all[60000];
    for (int i = 0; i < 60000; i++) memset(all[i] = malloc(1000), i, 1000);
    free(all[777]);
    return all[777][5];
}
END
            gcc -g -fsanitize=address -o main main.c
        ",
        run: "$INPUT/main 2>report || echo $?; grep -o 'heap-use-after-free\\|is located 5 bytes inside\\|main.c:[0-9]*' report",
        ..PLAIN
    },
    Program {
        name: "valgrind",
        what: "memcheck: static, so it runs beside the budget, with a warning",
        needs: &[("valgrind", "valgrind"), ("gcc", "gcc")],
        prepare: r#"
            cat >main.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    long sum = 0;
    for (int i = 0; i < 20000; i++) { char *p = malloc(1000); memset(p, i, 1000); sum += p[i % 1000]; if (i % 2) free(p); }
    printf("%ld\n", sum);
    return 0;
}
END
            gcc -g -o main main.c
        "#,
        run: "valgrind -q --leak-check=no $INPUT/main",
        messages: &["is static: it runs outside the budget", "it is run by valgrind"],
        is_managed: false,
        ..PLAIN
    },
    Program {
        name: "gdb",
        what: "a managed program under gdb: breakpoints, variables, a call; a folded page cannot be read",
        needs: &[("gdb", "gdb"), ("gcc", "gcc")],
        prepare: r#"
            cat >main.c <<'END'
#include <stdio.h>
#include <stdlib.h>
static long *all;
static long touch(long at) { return all[at]; }
static void pause_here(long at) { all[at] += touch(at); }
int main(void) {
    const long count = 10 << 20;
    all = malloc(count * sizeof(long));
    for (long i = 0; i < count; i++) all[i] = i * 7919;
    for (long round = 0; round < 4; round++) {
        for (long i = 0; i < count; i += 512) all[i] ^= round;
        pause_here(round * 1000000);
    }
    long sum = 0;
    for (long i = 0; i < count; i++) sum = sum * 31 + all[i];
    printf("%ld\n", sum);
    return 0;
}
END
            gcc -g -O1 -fno-inline -o main main.c
        "#,
        run: r"gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'set startup-with-shell off' -ex 'break pause_here' -ex run -ex 'print at' \
            -ex continue -ex 'print at' -ex 'print touch(at)' -ex backtrace -ex delete -ex continue $INPUT/main 2>&1 \
            | sed -n -e 's/0x[0-9a-f]*/ADDRESS/g' -e 's/process [0-9]*/process/' -e '/^\$\|^#\|exited normally\|^-\?[0-9][0-9]*$/p'",
        ..PLAIN
    },
    Program {
        name: "strace",
        what: "a managed program under strace",
        needs: &[("strace", "strace"), ("perl", "perl")],
        run: "strace -f -q -e trace=write -o trace perl $HERE/crates/e2e/programs/hash.pl 40000; grep -c 'write(1,' trace",
        ..PLAIN
    },
    Program {
        name: "chromium",
        what: "headless, makes four million objects, renders a page and prints its tree",
        needs: &[("chromium", "chromium")],
        prepare: r#"
            cat >page.html <<'END'
<!doctype html><title>t</title><body><canvas id=c width=600 height=600></canvas><script>
const n = 4000000, t = []; for (let i = 0; i < n; i++) t.push({ i, s: "text " + (i % 1000) });
let h = 0; for (let k = 0; k < 2; k++) for (let i = 0; i < n; i++) h = (h * 31 + t[i].s.length + t[i].i) | 0;
const c = document.getElementById("c").getContext("2d"); for (let i = 0; i < 300; i++) { c.fillStyle = `hsl(${i},80%,50%)`; c.fillRect(i, i, 200, 200); }
const d = c.getImageData(0, 0, 600, 600).data; let s = 0; for (const v of d) s = (s * 31 + v) | 0;
document.body.append(h + " " + s);
for (let i = 0; i < 2000; i++) { const p = document.createElement("p"); p.textContent = "paragraph " + i; document.body.append(p); }
</script>
END
        "#,
        run: "chromium --headless --no-sandbox --no-zygote --disable-gpu --disable-dev-shm-usage --user-data-dir=$PWD/profile --timeout=600000 --dump-dom file://$INPUT/page.html 2>log | sha256sum; grep -a '^pleat: ' log >&2 || true",
        ..PLAIN
    },
    Program {
        name: "firefox",
        what: "headless, ten processes that ask each other and wait; sorts 400 000 objects, draws and takes a picture",
        needs: &[("firefox-esr", "firefox-esr")],
        prepare: r#"
            cat >page.html <<'END'
<!doctype html><title>t</title><body><p id=sum></p><canvas id=c width=600 height=400></canvas><script>
const all = []; for (let i = 0; i < 400000; i++) all.push({ i, text: "item " + i, key: Math.sin(i) });
all.sort((one, other) => one.key - other.key);
let sum = 0; for (const { i } of all) sum = (sum * 31 + i) >>> 0;
document.getElementById("sum").textContent = "sum " + sum;
const c = document.getElementById("c").getContext("2d");
for (let i = 0; i < 4000; i++) { c.fillStyle = `hsl(${i % 360},80%,50%)`; c.fillRect(i * 7 % 600, i * 13 % 400, 20, 20); }
</script>
END
        "#,
        run: "mkdir profile; HOME=$PWD firefox-esr --headless --no-remote --profile $PWD/profile --screenshot $PWD/page.png file://$INPUT/page.html >log 2>&1; sha256sum <page.png; grep -a '^pleat: ' log >&2 || true",
        // Its sandboxes: of another user, and in user mode with a filter.
        messages: &["runs outside the budget: its user may not join the run", "runs outside the budget: userfaultfd is not permitted", "a seccomp filter is refused"],
        ..PLAIN
    },
    Program {
        name: "jemalloc",
        what: "a preloaded allocator",
        needs: &[("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2"), ("perl", "perl")],
        run: "LD_PRELOAD=\"libjemalloc.so.2 ${LD_PRELOAD:-}\" perl $HERE/crates/e2e/programs/hash.pl 60000",
        ..PLAIN
    },
    Program {
        name: "tcmalloc",
        what: "a preloaded allocator",
        needs: &[("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"), ("perl", "perl")],
        run: "LD_PRELOAD=\"libtcmalloc_minimal.so.4 ${LD_PRELOAD:-}\" perl $HERE/crates/e2e/programs/hash.pl 60000",
        ..PLAIN
    },
    Program {
        name: "mimalloc",
        what: "a preloaded allocator",
        needs: &[("/usr/lib/x86_64-linux-gnu/libmimalloc.so.2", "libmimalloc2.0"), ("perl", "perl")],
        run: "LD_PRELOAD=\"libmimalloc.so.2 ${LD_PRELOAD:-}\" perl $HERE/crates/e2e/programs/hash.pl 60000",
        ..PLAIN
    },
    Program {
        name: "musl",
        what: "a program linked with musl, started by a shell: runs beside the budget, with a warning",
        needs: &[("musl-gcc", "musl-tools")],
        prepare: r#"
            cat >main.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    const long count = 8 << 20;
    long *all = malloc(count * sizeof(long)), sum = 0;
    for (long i = 0; i < count; i++) all[i] = i * 7919;
    usleep(300000);
    pid_t child = fork();
    for (long i = 0; i < count; i++) sum = sum * 31 + all[i] + (child == 0);
    if (child) wait(0);
    printf("%ld\n", sum);
    return 0;
}
END
            musl-gcc -O1 -o main main.c
        "#,
        run: "$INPUT/main; true",
        messages: &["is linked with musl"],
        is_managed: false,
        ..PLAIN
    },
    Program {
        name: "rustc",
        what: "compiles a crate with optimization",
        needs: &[("rustc", "rustc")],
        run: "HOME=/root rustc --edition 2024 -O -C codegen-units=4 --crate-type lib --emit=obj -o x.o $HERE/crates/codec/src/papers/pbpm.rs 2>/dev/null || true
            echo 'fn main() { let mut m = std::collections::BTreeMap::new(); for i in 0..1000u64 { m.insert(i * 7919 % 1000, format!(\"{i:?}\")); } println!(\"{:?}\", m); }' >m.rs
            HOME=/root rustc --edition 2021 -O -C codegen-units=4 m.rs && ./m | sha256sum",
        ..PLAIN
    },
    Program {
        name: "clang",
        what: "compiles templates; gold, lld and mold link",
        needs: &[("clang", "clang"), ("ld.lld", "lld"), ("mold", "mold"), ("g++", "g++")],
        run: r"
            clang++ -std=c++17 -O1 -DCOUNT=10 -S -o - $HERE/crates/e2e/programs/templates.cpp | sha256sum
            clang++ -std=c++17 -O1 -g -DCOUNT=10 -c -o t.o $HERE/crates/e2e/programs/templates.cpp
            for linker in gold lld mold; do clang++ -fuse-ld=$linker -o t t.o && sha256sum t; done
        ",
        ..PLAIN
    },
    Program {
        name: "xz",
        what: "xz -9 and zstd --ultra, there and back",
        needs: &[("xz", "xz-utils"), ("zstd", "zstd"), ("perl", "perl")],
        prepare: "perl -e 'srand(3); print join(\" \", map { int(rand(5000)) } 1..12), \"\\n\" for 1..150000' >text",
        run: r"
            xz -9 -T1 -c $INPUT/text >text.xz; xz -dc text.xz | sha256sum; sha256sum text.xz
            zstd -q --ultra -22 -c $INPUT/text >text.zst; zstd -dc text.zst | sha256sum; sha256sum text.zst
        ",
        ..PLAIN
    },
    Program {
        name: "bash",
        what: "a shell of 60 MiB that starts a thousand short processes",
        needs: &[("bash", "bash")],
        run: r#"bash -c '
            for i in $(seq 60000); do a[$i]="text $i $((i * 7919)) and some more of it to fill memory"; done
            for i in $(seq 500); do /bin/true; (exit 3); done
            s=0; for i in $(seq 60000); do s=$(((s * 31 + ${#a[$i]}) % 1000007)); done; echo $s; printf "%s\n" "${a[@]}" | sha256sum'"#,
        ..PLAIN
    },
    Program {
        name: "bwrap",
        what: "a sandbox with namespaces of its own, in which nothing but /tmp may be written",
        needs: &[("bwrap", "bubblewrap"), ("perl", "perl")],
        run: r#"bwrap --ro-bind / / --tmpfs /tmp --dev /dev --proc /proc --unshare-pid --unshare-ipc --unshare-uts --chdir $HERE \
            sh -c 'perl crates/e2e/programs/hash.pl 60000; ls /proc | grep -c "^[0-9]"'"#,
        ..PLAIN
    },
    Program {
        name: "tmux",
        what: "a server that daemonizes, with a program in it",
        needs: &[("tmux", "tmux"), ("perl", "perl")],
        run: r#"
            tmux -L pleat-$$ -f /dev/null new-session -d "perl $HERE/crates/e2e/programs/hash.pl 60000 >out; echo done >>out"
            until grep -q done out 2>/dev/null; do sleep 0.1; done; cat out
        "#,
        ..PLAIN
    },
];

const JAVA: Program = Program {
    needs: &[("java", "default-jdk-headless"), ("javac", "default-jdk-headless")],
    prepare: "javac -d . $HERE/crates/e2e/programs/Objects.java",
    ..PLAIN
};

const SANITIZED_GCC: &str = r#"
    cat >main.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *who) {
    enum { COUNT = 30000 };
    static __thread char *all[COUNT];
    long sum = (long)who;
    for (int i = 0; i < COUNT; i++) memset(all[i] = malloc(i % 900 + 1), i, i % 900 + 1);
    for (int i = 0; i < COUNT; i++) sum = sum * 31 + all[(i * 7919L) % COUNT][0];
    for (int i = 0; i < COUNT; i += 2) free(all[i]);
    for (int i = 1; i < COUNT; i += 2) { sum = sum * 31 + all[i][i % 900 / 2]; free(all[i]); }
    return (void *)sum;
}
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) { void *sum; pthread_join(threads[i], &sum); printf("%ld\n", (long)sum); }
    return 0;
}
END
    gcc -g -O1 -fsanitize=address -o main main.c -lpthread
"#;

const SANITIZED_CLANG: &str = r#"
    cat >main.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    enum { COUNT = 100000 };
    static char *all[COUNT];
    long sum = 0;
    for (int i = 0; i < COUNT; i++) memset(all[i] = malloc(i % 900 + 1), i, i % 900 + 1);
    for (int i = 0; i < COUNT; i++) { sum = sum * 31 + all[(i * 7919L) % COUNT][0]; }
    for (int i = 0; i < COUNT; i++) free(all[i]);
    printf("%ld\n", sum);
    return 0;
}
END
    clang -g -O1 -fsanitize=address -o main main.c
"#;
