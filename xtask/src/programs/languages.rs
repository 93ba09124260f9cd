//! Programs in languages whose runtimes have their own ways with memory, beside those of the first table.

use super::table::{PLAIN, Program};

pub(super) const LANGUAGES: &[Program] = &[
    Program {
        name: "ada",
        what: "an ordered map of 200,000 strings",
        needs: &[("gnatmake", "gnat")],
        prepare: r#"
            cat >maps.adb <<'END'
with Ada.Text_IO; with Ada.Containers.Ordered_Maps; with Ada.Strings.Unbounded; use Ada.Strings.Unbounded;
procedure Maps is
   package Strings is new Ada.Containers.Ordered_Maps (Integer, Unbounded_String);
   Map : Strings.Map;
   Sum : Long_Long_Integer := 0;
   Key : Long_Long_Integer := 1;
begin
   for I in 1 .. 200_000 loop
      Key := (Key * 1103515245 + 12345) mod 2147483648;
      Map.Include (Integer (Key mod 1_000_000), To_Unbounded_String ("value" & Integer'Image (I)));
   end loop;
   for C in Map.Iterate loop
      Sum := Sum + Long_Long_Integer (Length (Strings.Element (C)));
   end loop;
   Ada.Text_IO.Put_Line (Long_Long_Integer'Image (Sum) & Integer'Image (Integer (Map.Length)));
end Maps;
END
            gnatmake -q -O2 maps.adb
        "#,
        run: "$INPUT/maps",
        ..PLAIN
    },
    Program {
        name: "polyml",
        what: "a merge sort of lists, under a copying collector",
        needs: &[("poly", "polyml")],
        prepare: r#"
            cat >sort.sml <<'END'
fun make 0 list = list | make n list = make (n - 1) ((n * 7919 mod 1000003) :: list);
fun split ([], a, b) = (a, b) | split (x :: rest, a, b) = split (rest, x :: b, a);
fun merge ([], b) = b | merge (a, []) = a
  | merge (a as x :: xs, b as y :: ys) = if x < y then x :: merge (xs, b) else y :: merge (a, ys);
fun sort [] = [] | sort [x] = [x] | sort list = let val (a, b) = split (list, [], []) in merge (sort a, sort b) end;
val _ = print (Int.toString (foldl (fn (x, sum) => (sum * 31 + x) mod 1000003) 0 (sort (make 400000 []))) ^ "\n");
END
        "#,
        run: "poly --script $INPUT/sort.sml",
        ..PLAIN
    },
    Program {
        name: "gambit",
        what: "lists of 1,500,000 pairs and strings",
        needs: &[("gsi", "gambc")],
        prepare: SCHEME,
        run: "gsi $INPUT/lists.scm",
        ..PLAIN
    },
    Program {
        name: "mit-scheme",
        what: "the same, in a heap that is laid out at the start",
        needs: &[("mit-scheme", "mit-scheme")],
        prepare: SCHEME,
        run: "mit-scheme --quiet --load $INPUT/lists.scm --eval '(exit)'",
        ..PLAIN
    },
    Program {
        name: "elixir",
        what: "a map, and 2,000 processes of its virtual machine",
        needs: &[("elixir", "elixir")],
        prepare: r#"
            cat >maps.exs <<'END'
map = Enum.reduce(1..300_000, %{}, fn i, map -> Map.put(map, rem(i * 7919, 1_000_003), "v#{i}") end)
IO.puts(Enum.reduce(map, 0, fn {key, value}, sum -> rem(sum * 31 + key + byte_size(value), 1_000_003) end))
tasks = for i <- 1..2000, do: Task.async(fn -> Enum.sum(1..i) end)
IO.puts(Enum.sum(Task.await_many(tasks)))
END
        "#,
        run: "elixir $INPUT/maps.exs",
        ..PLAIN
    },
    Program {
        name: "raku",
        what: "a hash of 120,000 strings, under MoarVM's collector",
        needs: &[("raku", "rakudo")],
        prepare: r#"echo 'my %h; for ^120000 { %h{($_ * 7919) % 1000003} = "v$_" }; say %h.elems; say %h.keys.sort[0..5];' >hash.raku"#,
        run: "raku $INPUT/hash.raku",
        ..PLAIN
    },
    Program {
        name: "tcl",
        what: "an array of 400,000 strings, sorted",
        needs: &[("tclsh8.6", "tcl8.6")],
        prepare: r#"
            cat >array.tcl <<'END'
for {set i 0} {$i < 400000} {incr i} {set a([expr {$i * 7919 % 1000003}]) "v$i"}
set sum 0
foreach key [lsort -integer [array names a]] {set sum [expr {($sum * 31 + $key) % 1000003}]}
puts "[array size a] $sum"
END
        "#,
        run: "tclsh8.6 $INPUT/array.tcl",
        ..PLAIN
    },
    Program {
        name: "luajit",
        what: "1,500,000 small tables, sorted; its memory lies in the lowest gigabytes",
        needs: &[("luajit", "luajit")],
        prepare: r#"
            cat >tables.lua <<'END'
local t = {} for i = 1, 1500000 do t[i] = {i * 7919 % 1000003, "v" .. i % 1000} end
table.sort(t, function(a, b) return a[1] < b[1] end)
local sum = 0 for i = 1, #t do sum = (sum * 31 + t[i][1]) % 1000003 end print(sum)
END
        "#,
        run: "luajit $INPUT/tables.lua",
        ..PLAIN
    },
    Program {
        name: "groovy",
        what: "a tree of 300,000 strings in a Java machine",
        needs: &[("groovy", "groovy")],
        prepare: r#"
            echo 'def m = new TreeMap(); (1..300000).each { m[(it * 7919L) % 1000003] = "v$it".toString() }; println m.keySet().inject(0L) { a, b -> (a * 31 + b) % 1000003 }' >tree.groovy
        "#,
        run: "groovy $INPUT/tree.groovy",
        ..PLAIN
    },
    Program {
        name: "pandas",
        what: "a table of 300,000 rows, grouped and joined",
        needs: &[("/usr/lib/python3/dist-packages/pandas", "python3-pandas")],
        prepare: r"
            cat >tables.py <<'END'
import numpy, pandas
r = numpy.random.default_rng(1); n = 300_000
d = pandas.DataFrame({'a': r.random(n), 'b': r.integers(0, 1000, n), 'c': r.integers(0, 20_000, n).astype(str), 'd': r.normal(size=n)})
print(d.groupby('c').agg({'a': 'mean', 'd': ['min', 'max'], 'b': 'sum'}).head(3).to_string())
m = d.merge(d.sample(50_000, random_state=1), on='c').sort_values(['a_x', 'd_y'])
print(len(m), round(m['a_x'].sum(), 6))
END
        ",
        run: "/usr/bin/python3 $INPUT/tables.py",
        ..PLAIN
    },
    Program {
        name: "gap",
        what: "600,000 pairs sorted, under a generational collector",
        needs: &[("gap", "gap-core")],
        prepare: r#"
            echo 'l := List([1 .. 600000], i -> [i * 7919 mod 1000003, i]);; Sort(l);; Print(l[1], l[600000], "\n"); QUIT;' >sort.g
        "#,
        run: "gap -q $INPUT/sort.g",
        ..PLAIN
    },
    Program {
        name: "scilab",
        what: "a million numbers sorted, and a norm",
        needs: &[("scilab-cli", "scilab-cli")],
        prepare: "",
        run: "scilab-cli -nb -e 'a=modulo((1:1000000)*7919,1000003); [b,k]=gsort(a); disp(sum(b(1:1000))); disp(norm(matrix(a,1000,1000)*0.001,1)); exit'",
        ..PLAIN
    },
];

/// For two ways to run Scheme.
const SCHEME: &str = r"
            cat >lists.scm <<'END'
(define (make n list) (if (= n 0) list (make (- n 1) (cons (modulo (* n 7919) 1000003) list))))
(define numbers (make 1500000 '()))
(define (sum list so-far) (if (null? list) so-far (sum (cdr list) (modulo (+ (* so-far 31) (car list)) 1000003))))
(define strings (map (lambda (number) (cons number (number->string number))) numbers))
(display (sum numbers 0)) (newline) (display (length strings)) (newline)
END
        ";
