#!/usr/bin/env bash
# Sourced by ./run, ./test and .ci/run from the repository's root, after
# install_dependencies.sh, which chooses CXX: configures and builds a preset, rebuilding
# only what changed. Progress goes to standard error: ninja's own line on a terminal, a line every half minute
# elsewhere, and nothing where there is nothing to do; a failure shows the compiler's words.
# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

# Configures PRESET into FOLDER where that was not done yet, or where packages were installed, the presets changed or
# the checkout moved.
# configure PRESET FOLDER [cmake options]
configure() {
    local preset=$1 folder=$2 cache=$2/CMakeCache.txt
    shift 2
    if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
        rm -rf "$cache" "$folder/CMakeFiles"
    fi
    if [ -z "$newly_installed" ] && [ -f "$folder/build.ninja" ] && [ "$cache" -nt CMakePresets.json ]; then
        return 0
    fi
    echo "configuring in $folder" >&2
    # A warning is an error with the compiler that the project is written with; others warn about other things.
    [ "$("$CXX" -dumpversion | cut -d. -f1)" = "$MINIMUM_GCC" ] || set -- "$@" -DMANTISSA_WARNINGS_AS_ERRORS=OFF
    if ! cmake --preset "$preset" "$@" >"$folder/configure.log" 2>&1; then
        cat "$folder/configure.log" >&2
        echo "configuring failed: cmake --preset $preset" >&2
        return 1
    fi
    touch "$cache"
}

# ninja's "[120/282] Building ..." says how far it is. It begins with looking for new files, as [0/2].
note_build() {
    [[ $1 =~ ^\[([1-9][0-9]*)/([0-9]+)\] ]] || return 0
    built="${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
    [ -n "$told" ] || tell_build >&2
}
tell_build() {
    told=yes
    echo "building in $folder: ${built:-0} files"
}

# build FOLDER [TARGET...]
build() {
    local folder=$1 built="" told=""
    shift
    local command=(cmake --build "$folder" "${@/#/--target=}")
    if [ -t 2 ]; then
        "${command[@]}" >&2 && return 0
    else
        "${command[@]}" 2>&1 | with_progress note_build tell_build >"$folder/build.log" && return 0
        # The failure, without the reports of what built well around it; the whole log where nothing says so.
        if grep -q '^FAILED: ' "$folder/build.log"; then
            sed -n '/^FAILED: /,$p' "$folder/build.log" | grep -v '^\[[0-9]*/[0-9]*\] ' >&2
        else
            cat "$folder/build.log" >&2
        fi
    fi
    echo "building failed: ${command[*]}" >&2
    return 1
}

# prepare PRESET FOLDER [TARGET...]: configures and builds, one caller at a time in a folder.
prepare() {
    local preset=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    (
        flock --nonblock 9 || { echo "waiting for another build in $folder" >&2; flock 9; }
        configure "$preset" "$folder" && build "$folder" "$@" 9>&-
    ) 9>"$folder/.lock"
}
