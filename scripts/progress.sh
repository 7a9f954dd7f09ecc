#!/usr/bin/env bash
# Sourced by the scripts beside it: says how far a long command is, so that nobody takes it to hang.

progress_seconds=25  # so that no gap is longer than half a minute

# COMMAND | with_progress NOTE TELL: copies standard input to standard output line by line, and gives each line to the
# function NOTE. Calls the function TELL, which says on standard error how far it is, every $progress_seconds, whether
# lines come or not. It reads in the foreground: whatever ends the command ends it, too.
with_progress() {
    local note=$1 tell=$2 line="" read_now status due=$((SECONDS + progress_seconds))
    while true; do
        status=0
        IFS= read -r -t "$((due > SECONDS ? due - SECONDS : 1))" read_now || status=$?
        line+=$read_now  # what was read before the time was up is the beginning of a line
        if [ "$status" -eq 0 ]; then
            printf '%s\n' "$line"
            "$note" "$line"
            line=""
        elif [ "$status" -le 128 ]; then  # the end, not the time
            [ -z "$line" ] || printf '%s\n' "$line"
            return 0
        fi
        if [ "$SECONDS" -ge "$due" ]; then
            "$tell" >&2
            due=$((SECONDS + progress_seconds))
        fi
    done
}
