//! Programs that make documents and pictures, or read them.

use super::table::{PLAIN, Program};

pub(super) const DOCUMENTS: &[Program] = &[
    Program {
        name: "libreoffice",
        what: "a table of 12,000 rows, converted twice",
        needs: &[("soffice", "libreoffice-calc-nogui")],
        prepare: r#"
            awk 'BEGIN{print "a,b,c,d"; for(i=0;i<12000;i++) print i ",name " (i*7919%12000) "," i*1.25 ",=C" i+2 "*2"}' >table.csv
        "#,
        run: r"
            export HOME=$PWD
            soffice --headless --convert-to ods $INPUT/table.csv >/dev/null 2>&1
            soffice --headless --convert-to csv:'Text - txt - csv (StarCalc)':44,34,76 --outdir back table.ods >/dev/null 2>&1
            md5sum <back/table.csv
        ",
        ..PLAIN
    },
    Program {
        name: "pdflatex",
        what: "formulas on 400 pages",
        needs: &[("pdflatex", "texlive-latex-base")],
        prepare: r#"
            awk 'BEGIN{print "\\documentclass{article}\\begin{document}\\tableofcontents"; for(i=0;i<1200;i++) print "\\section{Part " i "}\\label{p" i "} See \\ref{p" (i*7%1200) "}. \\[ \\sum_{k=0}^{" i "} \\frac{k^2+" i "}{\\sqrt{1+k}} = \\int_0^\\infty e^{-x^" i%9 "}\\,dx \\]"; print "\\end{document}"}' >text.tex
        "#,
        run: r"
            for turn in 1 2; do pdflatex -interaction=batchmode $INPUT/text.tex >/dev/null; done
            grep -c newlabel text.aux; md5sum <text.aux; grep -o 'Output written.*pages' text.log
        ",
        ..PLAIN
    },
    Program {
        name: "inkscape",
        what: "a drawing of 6,000 shapes as a picture",
        needs: &[("inkscape", "inkscape")],
        prepare: r##"
            awk 'BEGIN{srand(3); print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1500\" height=\"1500\">"; for(i=0;i<6000;i++) printf "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"#%06x\" opacity=\"0.5\"/>\n", rand()*1500, rand()*1500, rand()*40, rand()*16777215; print "</svg>"}' >drawing.svg
        "##,
        run: "export HOME=$PWD; inkscape --export-type=png --export-filename=$PWD/out.png $INPUT/drawing.svg >/dev/null 2>&1; md5sum <out.png",
        ..PLAIN
    },
    Program {
        name: "tesseract",
        what: "the text of a picture",
        needs: &[("tesseract", "tesseract-ocr"), ("convert", "imagemagick"), ("gs", "ghostscript")],
        prepare: r#"
            awk 'BEGIN{print "%!PS\n/Courier findfont 12 scalefont setfont"; for(i=0;i<45;i++) printf "60 %d moveto (line %d has the number %d in it) show\n", 760-16*i, i, i*7919; print "showpage"}' >page.ps
            gs -q -dNOPAUSE -dBATCH -sDEVICE=pnggray -r200 -sOutputFile=page.png page.ps
        "#,
        run: "tesseract $INPUT/page.png - 2>/dev/null | md5sum",
        ..PLAIN
    },
];
