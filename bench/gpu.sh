#!/usr/bin/env bash
# Everything that has not been seen on a GPU yet, seen in half an hour: on a bare machine with one, with no network and
# no compiler.
#
#   bench/gpu.sh --carry FOLDER [WHEEL]
#                                    here: builds, and lays into FOLDER all that is to be carried, this script included;
#                                    WHEEL: of the Python package, MANTISSA_PYTHON_PORTABLE, for the part modules
#   FOLDER/gpu.sh                    there: runs all parts, most valuable first, each under a limit of time
#   FOLDER/gpu.sh --parts kernels,ladder
#                                    where a call may take ten minutes: device to loss; networks, lengths, sizes,
#                                    generating; modules, short, peaks, sanitizer
#   FOLDER/gpu.sh --logs LOGS        where logs go (default: logs beside the script)
#   FOLDER/gpu.sh --rehearse         on the emulated GPU, in tiny sizes
#
# Parts: see below. A table with a line for each comes last. Exits with 1 if a part failed; one that cannot run there
# is skipped, with the reason.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

PARTS="device kernels training step ladder short torch attention contraction loss networks modules lengths sizes \
    generating peaks sanitizer"

carry() {
    local to=$1 wheel=${2:-} root
    root=$(cd "$here/.." && pwd)
    (cd "$root" && cmake --preset release >/dev/null && cmake --build build --target mantissa_portable gpu_checks \
        emulated_gpu_stand_in) || exit 1
    mkdir -p "$to/peers" &&
        cp "$root/build/mantissa_portable" "$to/mantissa" && cp "$root/build/gpu_checks" "$here/gpu.sh" "$to" &&
        cp -R "$root/build/emulated_gpu" "$to" &&
        cp "$root"/bench/peers/{gpt2_plain,gpt2_cuda,modules_step,networks_plain,networks_step}.py "$to/peers" &&
        cp -R "$root/python/tests/torch_modules" "$to/peers" &&
        { [ -z "$wheel" ] || python3 -m zipfile -e "$wheel" "$to/python"; } &&
        cat "$root"/docs/*.md >"$to/text.txt" || exit 1
    echo "$to: $(tar -C "$to" -cz . | wc -c) bytes compressed"
}

parts=$PARTS logs="" rehearse=0
while [ $# -gt 0 ]; do
    case $1 in
        --carry) carry "${2:?a folder}" "${3:-}"; exit ;;
        --parts) parts=${2//,/ }; shift ;;
        --logs) logs=$2; shift ;;
        --rehearse) rehearse=1 ;;
        *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
    shift
done
for part in $parts; do
    case " $PARTS " in *" $part "*) ;; *) echo "there is no part '$part'; there are: $PARTS" >&2; exit 2 ;; esac
done
[ -x "$here/gpu_checks" ] || { echo "run this in a folder that bench/gpu.sh --carry FOLDER made" >&2; exit 2; }
logs=${logs:-$here/logs}
mkdir -p "$logs" || exit 1

model=(--model gpt2-124m) sizes=(--batch 16 --sequence 1024) steps=5 repeats=5 small="" torch_sizes=() tests=":-*Assembler*"
if [ $rehearse = 1 ]; then
    export LD_LIBRARY_PATH=$here/emulated_gpu
    model=(--model gpt2-tiny --layers 1 --heads 2 --channels 32 --vocabulary 512) sizes=(--batch 1 --sequence 16)
    steps=2 repeats=1 small=--small torch_sizes=(--rehearse) tests+=":*InSixteen*:*LossesAre*:*Crosses*:*Slow*"
else
    export MANTISSA_TEST_GPU=1
fi
export XDG_CACHE_HOME=$logs/cache

# NVIDIA's libraries lie where the loader looks, or in the packages that pip brought with PyTorch.
find_libraries() {
    local packages folder
    packages=$(python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))" 2>/dev/null) || return 0
    for folder in "$packages"/nvidia/*/lib; do
        [ ! -d "$folder" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
    export LD_LIBRARY_PATH
}
[ $rehearse = 1 ] || find_libraries

# run_tests FILTER: each test in a process of its own, several at a time: a fault of the GPU ends its process alone.
# What failed is printed in full; the last line says how many there were.
run_tests() {
    local folder=$logs/tests.$GPU_PART all
    rm -rf "$folder"
    mkdir -p "$folder"
    "$here/gpu_checks" --gtest_list_tests --gtest_filter="$1" |
        awk '/^[^ ]/ { suite = $1; next } { print suite $1 }' >"$folder/all"
    all=$(wc -l <"$folder/all")
    export folder here
    xargs -a "$folder/all" -P "$(nproc)" -I TEST bash -c '
        log=$folder/$(tr / _ <<<TEST)
        timeout --kill-after=5 100 "$here/gpu_checks" --gtest_brief=1 --gtest_filter=TEST >"$log.log" 2>&1 ||
            { echo "TEST ended with $?"; mv "$log.log" "$log.failed"; }'
    tail -n 25 "$folder"/*.failed 2>/dev/null
    echo "$(find "$folder" -name "*.failed" | wc -l) of $all tests failed:" \
        "$(cd "$folder" && find . -name "*.failed" | sed "s,^./,,; s,.failed$,," | sort | tr "\n" " ")"
    [ "$all" -gt 0 ] && [ -z "$(find "$folder" -name "*.failed")" ]
}
on=(--device cuda --text "$here/text.txt")
sizes=("${model[@]}" "${sizes[@]}")

# train_step WHAT OPTIONS...: the last of a few steps in a line behind WHAT: milliseconds, tokens a second, MFU.
train_step() {
    local what=$1
    shift
    "$here/mantissa" train "${on[@]}" --steps $((steps + 3)) "$@" >"$logs/$what.txt" || { tail -3 "$logs/$what.txt"; return 1; }
    echo "$what: $(grep '^step' "$logs/$what.txt" | tail -1)"
}

# Each part: a limit in seconds, and what it does. The last line of what it prints stands in the table; 77: skipped.
limit_device=20
run_device() {
    [ $rehearse = 1 ] || nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader ||
        echo "no nvidia-smi"
    "$here/mantissa" train "${on[@]}" --model gpt2-tiny --batch 1 --sequence 16 --steps 1 --quiet | tail -1
}

# Every operation's cases, attention in several tiles, cuBLASLt's epilogues, INT8 and INT4 beside the CPU's: against the
# reference, outputs full of NaN before.
limit_kernels=150
run_kernels() {
    run_tests "CudaKernels.*:CudaAttention*:CudaTails.*:CudaQuantized*:CudaRounding.*$tests"
}

# GPT-2 of 2 layers under four policies, eager and fused: losses as the CPU's, the same bits again; micro-batches, a bad
# step's replay, validation and generating, in INT8 and INT4, too.
limit_training=120
run_training() {
    run_tests "CudaTraining.Losses*:CudaTraining.Checkpoints*:CudaRoundedTraining.*:CudaUses.*$tests"
}

# Where the fastest step's time goes, launch by launch.
limit_step=60
run_step() {
    "$here/mantissa" explain --roofline "${on[@]::2}" "${sizes[@]}" --policy bf16 --html "$logs/step.html" |
        tee "$logs/step.txt"
    grep "for the step" "$logs/step.txt"
}

limit_ladder=150
run_ladder() {
    "$here/mantissa" ladder "${on[@]}" "${sizes[@]}" --steps $steps --repeats $repeats --json "$logs/ladder.json" \
        --html "$logs/ladder.html" | tee "$logs/ladder.txt"
    grep "fastest here" "$logs/ladder.txt"
}

# Policies below sixteen bits beside BF16's fastest rung.
limit_short=100
run_short() {
    "$here/mantissa" ladder "${on[@]}" "${sizes[@]}" --steps $steps --repeats $repeats --rungs loss,fp8,mxfp8,nvfp4 |
        tee "$logs/short.txt"
    grep "^mxfp8" "$logs/short.txt"
}

# Up to 8,192 tokens, and beside it by Hopper's own instructions; the emulated GPU is one that has them.
limit_attention=120
run_attention() {
    EMULATED_GPU=sm_90a "$here/gpu_checks" attention $small
}

# Beside cuBLASLt's choice by its own heuristic.
limit_contraction=90
run_contraction() {
    "$here/gpu_checks" contraction $small
}

limit_peaks=40
run_peaks() {
    "$here/mantissa" peaks --device cuda
}

# PyTorch's default and its best documented setting at the same sizes, and its attention.
limit_torch=120
run_torch() {
    python3 -c "import torch" 2>/dev/null || { echo "there is no PyTorch here"; return 77; }
    python3 "$here/peers/gpt2_cuda.py" "${torch_sizes[@]}"
}

# In how many chunks of rows it is the quickest.
limit_loss=60
run_loss() {
    "$here/gpu_checks" loss $small
}

# Networks beside PyTorch's default and its best.
limit_networks=400
run_networks() {
    python3 -c "import torch" 2>/dev/null || { echo "there is no PyTorch here"; return 77; }
    [ $rehearse = 0 ] || { echo "PyTorch runs on no emulated GPU"; return 77; }
    python3 "$here/peers/networks_step.py" --program "$here/mantissa" --device cuda --models ResNet50v1.5,DenseNet121,VGG19 --batch 128 \
        --steps 8 --repeats 1 --policies fp32,tf32,bf16 \
        --only "mantissa fp32,mantissa tf32,mantissa bf16,torch default of plain,torch channels-last of plain,torch best of plain" |
        tee "$logs/networks.txt"
    sed -n 's/^\(mantissa bf16\|torch best of plain\) .*/&/p' "$logs/networks.txt" | tr -s ' ' | tr '\n' ';'
}

# Imported modules beside torch.compile.
limit_modules=600
run_modules() {
    [ -d "$here/python" ] || { echo "no wheel of the Python package was carried"; return 77; }
    PYTHONPATH=$here/python python3 "$here/peers/modules_step.py" --device cuda --steps 5 --no-check --only mantissa,compile \
        --modules unet,nanogpt,vit,convnext,llama,bert,lstm,resnet50 | tee "$logs/modules.txt"
    awk '/ms .*least/ { name = $1 } /^ *mantissa/ { printf "%s %s; ", name, $4 }' "$logs/modules.txt"
}

# Long texts, of 16,384 tokens a step as all.
limit_lengths=120
run_lengths() {
    local length
    for length in 2048 4096 8192; do
        [ $rehearse = 0 ] || length=$((length / 64))
        train_step "length-$length" "${model[@]}" --policy bf16 --context $length --sequence $length \
            --batch $((rehearse ? 1 : 16384 / length)) || return
    done
}

# GPT-2's four sizes; MFU is the last number of each line.
limit_sizes=240
run_sizes() {
    local of names=(gpt2-124m gpt2-355m gpt2-774m gpt2-1558m)
    for of in "${names[@]}"; do
        [ $rehearse = 0 ] || { train_step tiny "${sizes[@]}" --policy bf16; return; }
        train_step "$of" --model "$of" --batch 8 --sequence 1024 --policy bf16 || return
    done
}

# Weights in 8 and 4 bits, one text and eight.
limit_generating=120
run_generating() {
    local policy texts
    "$here/mantissa" train "${on[@]}" "${sizes[@]}" --policy bf16 --steps 1 --quiet --checkpoint "$logs/generating.ckpt" || return
    for policy in bf16 int8 int4; do
        for texts in 1 8; do
            "$here/mantissa" generate --device cuda --checkpoint "$logs/generating.ckpt" --prompt "The" --samples $texts \
                --batch $texts --length $((rehearse ? 8 : 200)) --policy $policy 2>&1 >/dev/null | tail -1
        done
    done
}

limit_sanitizer=60
run_sanitizer() {
    [ $rehearse = 0 ] || { echo "there is no sanitizer for the emulated GPU, which is one"; return 77; }
    command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer here"; return 77; }
    compute-sanitizer --error-exitcode 1 "$here/mantissa" train "${on[@]}" --model gpt2-tiny --layers 1 --batch 1 \
        --sequence 128 --steps 1 --quiet --policy bf16
}

# A part runs in a shell of its own, so that its limit holds for all that it starts.
if [ -n "${GPU_PART:-}" ]; then
    "run_$GPU_PART"
    exit
fi
export -f $(compgen -A function | grep '^run_')

table=() failed=0 started=$SECONDS
for part in $parts; do
    limit=limit_$part began=$SECONDS
    echo "== $part, at most ${!limit} s"
    arguments=(--logs "$logs" --parts "$part")
    [ $rehearse = 0 ] || arguments+=(--rehearse)
    GPU_PART=$part timeout --kill-after=5 "${!limit}" bash "${BASH_SOURCE[0]}" "${arguments[@]}" >"$logs/$part.log" 2>&1
    status=$?
    tail -40 "$logs/$part.log"
    case $status in
        0) verdict=passed ;;
        77) verdict=skipped ;;
        124 | 137) verdict="TIMED OUT" failed=1 ;;
        *) verdict=FAILED failed=1 ;;
    esac
    table+=("$(printf '%-12s %-9s %4d s  %s' "$part" "$verdict" $((SECONDS - began)) \
        "$(grep -v '^[[:space:]]*$' "$logs/$part.log" | tail -1 | cut -c1-110)")")
done
printf '\n%s\n' "logs: $logs; $((SECONDS - started)) s in all"
printf '%s\n' "${table[@]}" | tee "$logs/table.txt"
exit $failed
