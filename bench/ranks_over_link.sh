#!/bin/sh
# How near `explain --ranks` comes to a step of two ranks over a link: two hosts in network namespaces, each
# sending at most RATE Mbit/s, and for buckets of several sizes the predicted step beside the measured one. The speed
# of the link is that at which a model travels that computes next to nothing. Needs what tests/cli/rank_hosts.sh needs,
# Open MPI, and a machine that does nothing else. Usage: bench/ranks_over_link.sh [RATE]
set -eu
rate=${1:-1000}
hosts="env RANK_HOSTS=bench-host sh tests/cli/rank_hosts.sh"
model="--model gpt2-tiny --layers 4 --channels 512 --heads 8 --threads 1 --policy fp32"
text=$(mktemp)
table=$(mktemp)
trap 'rm -f "$text" "$table"; $hosts down' EXIT
for i in $(seq 3000); do echo "the cat sat on the mat and saw the dog number $i"; done > "$text"
$hosts up 2 "${rate}mbit"

step() {  # BATCH SEQUENCE BUCKET: "milliseconds of a step, of travelling"
    # shellcheck disable=SC2086
    $hosts run mpirun.openmpi $($hosts options 2) -n 2 build/mantissa train --text "$text" $model --batch "$1" \
        --sequence "$2" --bucket "$3" --steps 14 --compare-every 0 2>&1 |
        python3 -c '
import re, statistics, sys
text = sys.stdin.read()
steps = [float(t) * (1 if unit == "ms" else 1000) for t, unit in re.findall(r"^step.*\| +([0-9.]+) (ms|s) \|", text, re.M)]
travelled = re.search(r"travelled ([0-9.]+) ms", text)
if len(steps) != 14 or not travelled: sys.exit("no steps:\n" + text)
print(round(statistics.median(steps[3:]), 1), travelled[1])'
}

# Gradients and parameters of 13.0 million, of which half goes each way.
set -- $(step 1 16 16)
link=$(python3 -c "print(round(13003776 * 4 / ($2 / 1000) / 1e9, 4))")
python3 -c "print('nothing but the exchange: $2 ms, $link GB/s,', round($link / ($rate / 8e3), 2), 'of the link')"
# Both hosts compute at a time and share this machine's memory, so the launches of one are measured beside the other's.
predict() {
    # shellcheck disable=SC2086
    build/mantissa explain --ranks 2 --link "$link" --latency 100 $model --batch 4 --sequence 256 --roofline
}
predict >/dev/null &
predict > "$table"
sed -n '/step ms/,/best/p;/step ms/,/best/!{/predicted/p}' "$table" | awk '!/--batch/'
wait
for bucket in 1 4 16 64; do
    set -- $(step 4 256 $bucket)
    predicted=$(sed -n "s/^ *buckets of $bucket MB *\([0-9.]*\) .*/\1/p" "$table")
    python3 -c "print('buckets of $bucket MB: measured $1 ms a step, $2 ms travelling;', round($1 / $predicted, 3), 'of what is predicted')"
done
