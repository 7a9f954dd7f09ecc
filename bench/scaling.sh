#!/bin/sh
# How a step scales with threads, and with a rank a NUMA node: a step's milliseconds on 1, 2, 4, ... N threads of one
# process, then on a rank a node with all threads of its node. No machine with several nodes has run it. Needs a machine
# that does nothing else, and Open MPI for the ranks. Usage: bench/scaling.sh [OPTIONS OF TRAIN], by default of GPT-2 124M
# in BF16 at 4 x 1,024. The last line compares a step of all ranks with one of a process that makes as many tokens.
set -eu
program=${MANTISSA:-build/mantissa}
[ $# -gt 0 ] || set -- --model gpt2-124m --policy bf16 --batch 4 --sequence 1024
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for i in $(seq 3000); do echo "the cat sat on the mat and saw the dog number $i"; done > "$text"

step() {  # COMMAND...: median milliseconds of a step
    "$@" --text "$text" --steps 10 --compare-every 0 2>&1 | python3 -c '
import re, statistics, sys
text = sys.stdin.read()
steps = [float(t) * (1 if unit == "ms" else 1000) for t, unit in re.findall(r"^step.*\| +([0-9.]+) (ms|s) \|", text, re.M)]
if len(steps) < 4: sys.exit("no steps:\n" + text)
print(round(statistics.median(steps[3:]), 1))'
}

cores=$(nproc)
nodes=$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)
echo "$cores cores, $nodes NUMA nodes; train $*"
threads=1
first=
while :; do
    ms=$(step "$program" train "$@" --threads "$threads")
    first=${first:-$ms}
    python3 -c "print('$threads threads: $ms ms a step,', round($first / $ms, 2), 'times one thread,', round($first / $ms / $threads, 3), 'efficient')"
    [ "$threads" -lt "$cores" ] || break
    threads=$((threads * 2 < cores ? threads * 2 : cores))
done
if [ "$nodes" -lt 2 ]; then
    echo "one NUMA node: a rank a node is this process"
    exit 0
fi
one=$(step "$program" train "$@" --accumulate "$nodes")
ranks=$(step mpirun --allow-run-as-root -n "$nodes" --map-by numa --bind-to numa "$program" train "$@")
python3 -c "print('a rank a node: $ranks ms a step; one process with as many tokens: $one ms,', round($one / $ranks, 2), 'times')"
