#!/usr/bin/env bash
# Sourced by ./test and .ci/run: runs ctest in build folders and fuzz targets, counts, and ends with one line over
# all of them in ctest's own words.
# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

tests_run=0
tests_failed=0
not_run=""

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

# What ctest prints as a test begins, "    Start 12: device", and as it ends, " 3/40 Test #12: device ..... Passed".
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

# run_tests FOLDER [ctest options]
run_tests() {
    local folder=$1 jobs ended="" running=()
    shift
    # One more than half: tests that use two threads use them half of the time, and those of ranks wait.
    jobs=$((($(nproc) + 2) / 2))
    echo "== $folder: ctest $*"
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
    local passed=$((tests_run - tests_failed))
    echo
    [ -z "$not_run" ] || echo "$not_run"
    echo "$((tests_run > 0 ? 100 * passed / tests_run : 0))% tests passed, $tests_failed tests failed out of $tests_run"
    [ "$tests_run" -gt 0 ] && [ "$tests_failed" -eq 0 ]
}
