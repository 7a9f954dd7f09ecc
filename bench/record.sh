#!/bin/sh
# Makes a record: runs a command from the root of the repository and writes its log under bench/records/, with the
# command, the machine, the load and the commit. Usage: bench/record.sh NAME COMMAND [ARGUMENTS], for example
#   bench/record.sh contraction build/bench_contraction
#   bench/record.sh ladder build/mantissa ladder
set -eu
[ $# -ge 2 ] || { echo "usage: bench/record.sh NAME COMMAND [ARGUMENTS]" >&2; exit 2; }
name=$1
shift
out="bench/records/$name-$(date -u +%Y%m%d-%H%M).txt"
{
    echo "command: $*"
    echo "commit:  $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
    echo "date:    $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(uname -sr)"
    echo "flags:   $(grep -m1 '^flags' /proc/cpuinfo | grep -ow -E 'avx512f|amx_tile|avx2' | sort -u | tr '\n' ' ')"
    echo "compiler: $(c++ --version | head -1)"
    echo "load before: $(cat /proc/loadavg)"
    env BENCHMARK_COUNTERS_TABULAR=true "$@" 2>&1
    echo "load after: $(cat /proc/loadavg)"
} | tee "$out"
echo "wrote $out" >&2
