#!/usr/bin/env bash
# Sourced by ./test and .ci/run: runs ctest in build folders and fuzz targets, counts, and ends with what took longest,
# the skipped test cases by reason and one line over all tests in ctest's own words.
# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

tests_run=0
tested_folders=()
tests_failed=0
not_run=""
only_hardware=""  # .ci/run sets it: a test that is skipped for another reason fails

# count_closing_line FILE: adds what ctest's closing line in FILE says.
count_closing_line() {
    local closing
    closing=$(grep -E '^[0-9]+% tests passed' "$1" | tail -n 1) || closing=""
    if [[ $closing =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
        tests_failed=$((tests_failed + BASH_REMATCH[1]))
        tests_run=$((tests_run + BASH_REMATCH[2]))
    else
        # No tests, or ctest itself fell over: that is a failure, too.
        tests_failed=$((tests_failed + 1))
        tests_run=$((tests_run + 1))
    fi
}

# ctest prints as a test begins "    Start 12: device", and as it ends, " 3/40 Test #12: device ..... Passed".
note_test() {
    if [[ $1 =~ ^\ *Start\ +([0-9]+):\ (.*) ]]; then
        running[BASH_REMATCH[1]]=${BASH_REMATCH[2]}
    elif [[ $1 =~ ^\ *([0-9]+)/([0-9]+)\ Test\ +#([0-9]+): ]]; then
        ended="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} ended"
        unset "running[${BASH_REMATCH[3]}]"
    fi
}
tell_tests() {
    echo "testing in $folder: ${ended:-none ended}, running: ${running[*]}"
}

# Reasons that no package of Debian's cures: what the machine's hardware lacks or has, what a container forbids, what
# NVIDIA's toolkit has, and what runs in the build without sanitizers.
HARDWARE="no AVX-512|no AVX512_BF16|no AMX|AMX is here|a GPU is here|little memory|no right to mount"
HARDWARE+="|no network namespaces|no ptrace|no ptxas|under a sanitizer"

# Prints why each skipped test case was skipped, one a line, up to the first colon or semicolon: what GoogleTest wrote
# of each program, and what ctest says of what is none.
skip_reasons() {
    local folder
    for folder in "$@"; do
        sed -nE 's/.*<skipped message="[^"&]*&#x0A;([^:;&"]*).*/\1/p' /dev/null "$folder"/test_results/*.xml 2>/dev/null
        sed -nE 's/.* Test +#[0-9]+: ([^ ]+) \.*\*\*\*Skipped.*/the check \1 cannot run/p' "$folder/test.log" 2>/dev/null
    done
    return 0
}

# Prints how many test cases were skipped, by reason. Where only_hardware is set, counts other reasons as a failure.
print_skipped() {
    local reasons count
    reasons=$(skip_reasons "${tested_folders[@]}")
    count=$(grep -c . <<<"$reasons") || true
    echo "$count test cases skipped"
    [ "$count" -gt 0 ] || return 0
    sort <<<"$reasons" | uniq -c | sort -rn
    if [ -n "$only_hardware" ] && grep -vqxE "$HARDWARE" <<<"$reasons"; then
        echo "skipped for more than this machine's hardware, counted as a failed test"
        tests_failed=$((tests_failed + 1))
        tests_run=$((tests_run + 1))
    fi
}

# Prints the ten longest of ctest's entries and of GoogleTest's cases, with their seconds: where time grows.
print_longest() {
    local folder line='s|.*<testcase name="([^"]*)".* time="([^"]*)".* classname="([^"]*)".*|\2'
    echo "seconds of the longest entries"
    for folder in "${tested_folders[@]}"; do
        sed -nE "s|^ *[0-9]+/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec\$|\2 $folder \1|p" "$folder/test.log" 2>/dev/null || true
    done | sort -rn | sed -n 1,10p
    echo "seconds of the longest test cases"
    for folder in "${tested_folders[@]}"; do
        sed -nE "$line $folder \3.\1|p" /dev/null "$folder"/test_results/*.xml 2>/dev/null || true
    done | sort -rn | sed -n 1,10p
}

# run_tests FOLDER [ctest options]
run_tests() {
    local folder=$1 jobs ended="" running=()
    shift
    # One more than half: tests that use two threads use them half of the time, and those of ranks wait.
    jobs=$((($(nproc) + 2) / 2))
    echo "== $folder: ctest $*"
    rm -rf "$folder/test_results"
    tested_folders+=("$folder")
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" "$@" </dev/null |
        with_progress note_test tell_tests | tee "$folder/test.log" || true
    count_closing_line "$folder/test.log"
}

MINIMUM_CLANG=16

# Prints the name of a clang++ that knows std::source_location.
choose_clang() {
    local candidate version
    for candidate in clang++ clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++-16; do
        version=$("$candidate" -dumpversion 2>/dev/null) || continue
        if [ "${version%%.*}" -ge "$MINIMUM_CLANG" ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# run_fuzz_targets SECONDS: each program build-fuzz/fuzz_* from its corpus, fuzz/corpus/NAME, counted as a test.
run_fuzz_targets() {
    local seconds=$1 compiler target name seeds
    [ -d fuzz ] || return 0
    if ! compiler=$(choose_clang); then
        not_run="fuzz targets NOT RUN: clang++ $MINIMUM_CLANG or later is needed (for example package clang-19)"
        return 0
    fi
    CXX=$compiler prepare fuzz build-fuzz
    for target in build-fuzz/fuzz_*; do
        [ -f "$target" ] || continue
        name=$(basename "$target")
        seeds=(fuzz/corpus/"${name#fuzz_}"/)
        [ -d "${seeds[0]}" ] || seeds=()
        mkdir -p "build-fuzz/found/$name"
        tests_run=$((tests_run + 1))
        echo "== $name for $seconds s"
        if ! "$target" -max_total_time="$seconds" -artifact_prefix="build-fuzz/found/" \
            "build-fuzz/found/$name" "${seeds[@]}" >"build-fuzz/$name.log" 2>&1; then
            tests_failed=$((tests_failed + 1))
            tail -n 40 "build-fuzz/$name.log"
        fi
    done
}

# The closing line; its status is that of the whole.
print_total() {
    echo
    [ -z "$not_run" ] || echo "$not_run"
    print_longest
    print_skipped
    local passed=$((tests_run - tests_failed))
    echo "$((tests_run > 0 ? 100 * passed / tests_run : 0))% tests passed, $tests_failed tests failed out of $tests_run"
    [ "$tests_run" -gt 0 ] && [ "$tests_failed" -eq 0 ]
}
