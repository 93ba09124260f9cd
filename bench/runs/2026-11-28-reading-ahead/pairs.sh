#!/bin/sh
# pairs.sh ROUNDS BUILD...: each BUILD is a directory with `pleat` and `libpleat_agent.so`; they take turns.
rounds=$1; shift
here=$(dirname "$0")
for round in $(seq "$rounds"); do
    for ram in 100M 90M 80M 70M; do
        for build; do
            printf '%s %s ' "$ram" "$(basename "$build")"
            "$build/pleat" run --ram "$ram" -- python3 "$here/workers.py" 20
        done
    done
    for noise in 512 2000; do
        for build; do
            printf '60M %s noise %s ' "$(basename "$build")" "$noise"
            "$build/pleat" run --ram 60M -- python3 "$here/sleeper.py" "$(date +%s)" "$noise"
        done
    done
done
