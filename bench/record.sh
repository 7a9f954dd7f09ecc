#!/bin/sh
# Makes a record: runs a command from the root of the repository and writes its log under bench/records/, with the
# command, the machine, the load and the commit. Usage: bench/record.sh NAME COMMAND [ARGUMENTS], for example
#   bench/record.sh contraction build/bench_contraction
#   bench/record.sh ladder build/mantissa ladder
set -eu
[ $# -ge 2 ] || { echo "usage: bench/record.sh NAME COMMAND [ARGUMENTS]" >&2; exit 2; }
name=$1
shift
# One field of /proc/cpuinfo, for the first core.
cpu() { sed -n "s/^$1[[:space:]]*: //p" /proc/cpuinfo | head -1; }
out="bench/records/$name-$(date -u +%Y%m%d-%H%M).txt"
{
    echo "command: $*"
    echo "commit:  $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
    echo "date:    $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "machine: $(cpu 'model name'), family $(cpu 'cpu family'), model $(cpu model), $(nproc) cores, $(uname -sr)"
    echo "flags:   $(cpu flags | grep -ow -E 'avx2|avx512f|avx512_bf16|amx_tile' | sort -u | tr '\n' ' ')"
    echo "compiler: $(c++ --version | head -1)"
    echo "load before: $(cat /proc/loadavg)"
    env BENCHMARK_COUNTERS_TABULAR=true "$@" 2>&1
    echo "load after: $(cat /proc/loadavg)"
} | tee "$out"
echo "wrote $out" >&2
