//! Servers that fork or start threads for those who ask.

use super::table::{PLAIN, Program};

pub(super) const SERVERS: &[Program] = &[Program {
    name: "apache",
    what: "processes made ahead, scripts started",
    needs: &[("/usr/sbin/apache2", "apache2-bin"), ("ab", "apache2-utils")],
    prepare: r#"
            mkdir files; seq 200000 >files/numbers
            cat >files/count <<'END'
#!/usr/bin/python3
table = [str(i * 7919) * 3 for i in range(200000)]
print(f"Content-Type: text/plain\n\n{len(table)} {sum(map(len, table))}")
END
            chmod 755 files/count
        "#,
    run: r"
            m=/usr/lib/apache2/modules; port=18471
            cat >conf <<END
ServerName localhost
Listen 127.0.0.1:$port
PidFile $PWD/pid
ErrorLog $PWD/log
LoadModule mpm_prefork_module $m/mod_mpm_prefork.so
LoadModule authz_core_module $m/mod_authz_core.so
LoadModule alias_module $m/mod_alias.so
LoadModule cgi_module $m/mod_cgi.so
MaxRequestsPerChild 40
ScriptAlias /run/ $INPUT/files/
Alias /files/ $INPUT/files/
DocumentRoot $INPUT
END
            setsid /usr/sbin/apache2 -f $PWD/conf -DFOREGROUND & server=$!
            until curl -sf http://127.0.0.1:$port/run/count >/dev/null; do sleep 0.1; done
            ab -q -n 300 -c 8 http://127.0.0.1:$port/files/numbers | grep -E '^(Complete|Failed)'
            ab -q -n 24 -c 4 http://127.0.0.1:$port/run/count | grep -E '^(Complete|Failed)'
            curl -sf http://127.0.0.1:$port/run/count; kill $(cat pid); wait $server || :
        ",
    ..PLAIN
}];
