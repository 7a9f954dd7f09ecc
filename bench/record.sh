#!/bin/sh
# Makes a record: runs one benchmark and writes its log under bench/records/ with the command, the machine, the load
# and the commit. Usage: bench/record.sh NAME [environment assignments and arguments of the benchmark], from the
# root of the repository, after a release build.
set -eu
name=$1
shift
out="bench/records/$name-$(date -u +%Y%m%d-%H%M).txt"
program="build/bench_$name"
[ -x "$program" ] || { echo "record.sh: $program is missing; build the release preset first" >&2; exit 1; }
{
    echo "command: $program $*"
    echo "commit:  $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
    echo "date:    $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(uname -sr)"
    echo "flags:   $(grep -m1 -ow -E 'avx512f|amx_tile|avx2' /proc/cpuinfo | sort -u | tr '\n' ' ')"
    echo "compiler: $(c++ --version | head -1)"
    echo "load before: $(cat /proc/loadavg)"
    env BENCHMARK_COUNTERS_TABULAR=true "$program" "$@" 2>&1
    echo "load after: $(cat /proc/loadavg)"
} | tee "$out"
echo "wrote $out" >&2
