#!/usr/bin/env bash
# Checks that only a CPU with AMX can make, most valuable first, each part under a time limit, a short table last. From
# the root of the repository:
#
#     bench/amx.sh                     all parts, about an hour of two cores with PyTorch, 35 minutes without
#     bench/amx.sh ladder attention    some
#     bench/amx.sh --rehearse          small sizes, in two minutes: that every part works, on a CPU without AMX, too
#     bench/amx.sh --table             the table of the logs that are there
#
# Parts: ladder, contraction, convolution, attention, rows, long_attention, modes; then beside PyTorch, where python3 has
# torch (best in a virtual environment, `pip install torch torchvision safetensors numpy`, its bin folder first in PATH):
# peer_step, peer_networks, peer_contraction, peer_attention. Logs go to build/amx, or to build/amx-rehearsal; `bench/record.sh amx bench/amx.sh`
# keeps all in one record. Nothing else may run on the machine meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=bench/parts.sh
. bench/parts.sh

PARTS=(ladder contraction convolution attention rows long_attention modes
    peer_step peer_networks peer_contraction peer_attention)
LOGS=build/amx
REHEARSAL=0
case "${1:-}" in
    -h | --help)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --rehearse)
        REHEARSAL=1 LOGS=build/amx-rehearsal
        shift
        ;;
    --table)
        exec python3 bench/amx_table.py "$LOGS"
        ;;
esac

if [ "$REHEARSAL" = 0 ] && ! grep -qw amx_bf16 /proc/cpuinfo; then
    echo "bench/amx.sh: this CPU has no amx_bf16; --rehearse runs without" >&2
    exit 1
fi
cmake --preset release >/dev/null
cmake --build build --target mantissa_cli benches

# A Google Benchmark program: what it prints goes to the log, and the same as JSON beside it for the table.
# benchmark SECONDS PROGRAM [ARGUMENTS...]
benchmark() {
    local seconds=$1 program=$2
    shift 2
    rm -f "$LOGS/$program.json"
    limited "$seconds" "build/bench_$program" --benchmark_out="$LOGS/$program.json" --benchmark_out_format=json "$@"
    [ -s "$LOGS/$program.json" ] # a filter that matches none is no error to the program
}
# A rehearsal makes one call a shape, of the smallest shapes.
small() { [ "$REHEARSAL" = 1 ]; }

part_ladder() {
    if small; then
        limited 120 build/mantissa ladder --model gpt2-tiny --batch 1 --steps 2 --repeats 1 --json "$LOGS/ladder.json" \
            --rungs fp32,tf32,bf16,compiled,flash,nice,loss,fp16
    else
        limited 1200 build/mantissa ladder --batch 4 --json "$LOGS/ladder.json" \
            --rungs fp32,tf32,bf16,compiled,flash,nice,loss,fp16
    fi
}
part_contraction() {
    if small; then
        BENCH_CALLS=1 benchmark 120 contraction --benchmark_filter='small/|/N:768/K:768|/varied/'
    else
        benchmark 600 contraction --benchmark_filter='^(amx|avx512)'
    fi
}
part_convolution() {
    local images=16 calls=5 network
    if small; then images=1 calls=1; fi
    for network in ResNet50 VGG19 DenseNet121; do
        BENCH_NETWORK=$network BENCH_FORMAT=bf16 BENCH_THREADS=2 BENCH_BATCH=$images BENCH_CALLS=$calls \
            limited 300 build/bench_convolution
    done
}
part_attention() {
    if small; then BENCH_CALLS=1 benchmark 120 attention --benchmark_filter='^(amx|avx512-bf16)/forward/bf16'
    else benchmark 400 attention --benchmark_filter='^(amx|avx512)'; fi
}
part_rows() {
    if small; then benchmark 120 rows --benchmark_filter='/2/gelu'
    else benchmark 300 rows --benchmark_filter='/2/'; fi
}
part_long_attention() {
    if small; then BENCH_CALLS=1 benchmark 120 long_attention --benchmark_filter='threads/forward/T:4096'
    else benchmark 300 long_attention; fi
}
part_modes() {
    if small; then BENCH_CALLS=1 benchmark 120 modes
    else benchmark 300 modes; fi
}

# Beside PyTorch; without it the part says so and is no failure.
has_torch() {
    python3 -c 'import torch' 2>/dev/null && return 0
    echo "left out: python3 has no torch"
    return 1
}
part_peer_step() {
    has_torch || return 0
    if small; then limited 300 bench/peers/text_step.py --batch 1 --sequence 64 --repeats 1 --steps 1 --only 'mantissa fp32,torch default'
    else limited 1200 bench/peers/text_step.py --repeats 2 --steps 2; fi
}
part_peer_networks() {
    has_torch || return 0
    if small; then limited 300 bench/peers/networks_step.py --models ResNet20 --batch 2 --image-size 32 --repeats 1 --steps 1
    else limited 1500 bench/peers/networks_step.py --models ResNet50,VGG19,DenseNet121 --batch 16 --repeats 3 --steps 3; fi
}
part_peer_contraction() {
    has_torch || return 0
    if small; then limited 120 bench/peers/contraction.py --rounds 1 --calls 1 --types bf16 --no-large
    else limited 600 bench/peers/contraction.py --types bf16; fi
}
part_peer_attention() {
    has_torch || return 0
    if small; then limited 120 bench/peers/attention_torch.py --rounds 1
    else limited 400 bench/peers/attention_torch.py; fi
}

run_parts "$@"
python3 bench/amx_table.py "$LOGS"
[ "$FAILED" = 0 ]
