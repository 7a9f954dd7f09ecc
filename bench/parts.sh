#!/usr/bin/env bash
# Sourced by scripts that measure what a rare machine alone can show (bench/amx.sh): parts that run one after another,
# most valuable first, each under a time limit of its own, each with its log in LOGS. One that fails or runs out of time
# is said so and holds nobody back.
#
#     PARTS=(ladder contraction)        names, in order
#     LOGS=build/amx                    a folder
#     part_ladder() { limited 900 build/mantissa ladder; }
#     run_parts "$@"                    all, or those named
#     [ "$FAILED" = 0 ]                 how many did not end well

# limited SECONDS COMMAND...: what it runs is told to end when its time is over, and ended ten seconds later.
limited() { timeout --kill-after=10 "$@"; }

# run_parts [NAME...]
run_parts() {
    local name started status
    FAILED=0
    for name in "$@"; do
        [[ " ${PARTS[*]} " = *" $name "* ]] || {
            echo "there is no part '$name'; parts are: ${PARTS[*]}" >&2
            return 2
        }
    done
    [ $# -gt 0 ] || set -- "${PARTS[@]}"
    mkdir -p "$LOGS"
    for name in "$@"; do
        started=$SECONDS status=0
        echo "== $name ($(date -u +%H:%M:%S))"
        # In a process of its own: `set -e` inside a function called in a condition would do nothing.
        (set -eo pipefail; "part_$name") > >(tee "$LOGS/$name.log") 2>&1 &
        wait $! || status=$?
        wait
        case $status in
            0) echo "== $name: done in $((SECONDS - started)) s" ;;
            124 | 137) echo "== $name: OUT OF TIME after $((SECONDS - started)) s" ;;
            *) echo "== $name: FAILED with status $status after $((SECONDS - started)) s" ;;
        esac
        [ "$status" = 0 ] || FAILED=$((FAILED + 1))
    done
}
