#!/usr/bin/env bash
# Installs, from the packages of Debian or Ubuntu, what building and testing mantissa needs and this machine
# lacks: as root at once, with sudo after asking on a terminal; otherwise one line says what to install.
# Run it by itself, or source it and call install_dependencies, which leaves the compiler's name in CXX.
# shellcheck source=scripts/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"

MINIMUM_GCC=12
MINIMUM_CMAKE=3.22

# Header -> the package that holds it.
HEADERS=(
    "fmt/core.h libfmt-dev"
    "nlohmann/json.hpp nlohmann-json3-dev"
    "CLI/CLI.hpp libcli11-dev"
    "xxhash.h libxxhash-dev"
    "jpeglib.h libjpeg-dev"
    "png.h libpng-dev"
    "llvm-19/llvm/IR/Module.h llvm-19-dev"
    "gtest/gtest.h libgtest-dev"
    "benchmark/benchmark.h libbenchmark-dev"
)

# Program -> its package: what only the caller wants. Tests that use such a program skip where it is not.
TOOLS=()

# Open MPI, whose plug-in is built where pkg-config finds it, and what starts ranks of it.
OPEN_MPI=("pkg-config pkg-config" "mpicc.openmpi libopenmpi-dev" "mpirun.openmpi openmpi-bin")

# Set where packages were installed: what was configured before did not see them.
newly_installed=""

have() { command -v "$1" >/dev/null 2>&1; }

# Exports CXX: the caller's choice, or the first g++ that is new enough. Fails if there is none.
choose_compiler() {
    [ -n "${CXX:-}" ] && return 0
    local candidate version
    for candidate in g++ g++-14 g++-13 g++-12; do
        version=$("$candidate" -dumpversion 2>/dev/null) || continue
        if [ "${version%%.*}" -ge "$MINIMUM_GCC" ]; then
            export CXX=$candidate
            return 0
        fi
    done
    return 1
}

# The compiler's package: where g++ is older than what is needed (Ubuntu 22.04), a newer one stands beside it.
compiler_package() {
    local release=""
    # shellcheck source=/dev/null
    [ -r /etc/os-release ] && release=$(set +u; . /etc/os-release; echo "$ID-$VERSION_ID")
    if [ "$release" = ubuntu-22.04 ] || have g++; then echo "g++-$MINIMUM_GCC"; else echo g++; fi
}

# Prints the packages whose header the compiler does not find: the preprocessor itself is asked, so that
# libraries in unusual places count.
missing_headers() {
    local entry
    for entry in "${HEADERS[@]}"; do
        printf '#if !__has_include(<%s>)\n%s\n#endif\n' "${entry% *}" "${entry#* }"
    done | "$CXX" -x c++ -E -P - | grep -v '^$' || true
}

# Passes on package names but LLVM's where this release has none: mantissa is built without it then.
available() {
    local package
    while read -r package; do
        if [ "$package" = llvm-19-dev ] && have apt-cache && apt-cache show cmake >/dev/null 2>&1 &&
            ! apt-cache show llvm-19-dev >/dev/null 2>&1; then
            continue
        fi
        echo "$package"
    done
}

# Prints what is missing, one package a line.
missing_packages() {
    have cmake || echo cmake
    have ninja || echo ninja-build
    have python3 || echo python3
    local entry
    for entry in "${TOOLS[@]}"; do have "${entry% *}" || echo "${entry#* }"; done
    if choose_compiler; then
        missing_headers | available
    else
        compiler_package
        for entry in "${HEADERS[@]}"; do echo "${entry#* }"; done | available
    fi
}

note_installation() { doing=$1; }
tell_installation() { echo "installing: ${doing:-fetching the list of packages}"; }

# Runs apt-get with the given prefix (empty, or sudo). Says what it is at every half minute, and what was wrong.
install_with_apt() {
    local log status=0 doing=""
    log=$(mktemp)
    {
        "$@" apt-get update &&
            "$@" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
    } </dev/null 2>&1 | with_progress note_installation tell_installation >"$log" || status=$?
    [ "$status" -eq 0 ] || tail -n 20 "$log" >&2
    rm -f "$log"
    return "$status"
}

install_dependencies() {
    local packages
    mapfile -t packages < <(missing_packages)
    if [ "${#packages[@]}" -gt 0 ]; then
        local command="apt-get install ${packages[*]}" answer=""
        if ! have apt-get; then
            echo "mantissa needs these Debian packages, or their like here: ${packages[*]}" >&2
            return 1
        elif [ "$(id -u)" -eq 0 ]; then
            echo "installing: ${packages[*]}" >&2
            install_with_apt || { echo "could not be installed: $command" >&2; return 1; }
        elif have sudo && [ -t 0 ] && [ -t 2 ]; then
            read -r -p "mantissa needs ${packages[*]}. Install with sudo? [y/N] " answer
            [[ $answer = [yY]* ]] || { echo "please install first: sudo $command" >&2; return 1; }
            # sudo asks for its password here, before the output goes to a log.
            if ! sudo true || ! install_with_apt sudo; then
                echo "could not be installed: $command" >&2
                return 1
            fi
        else
            echo "please install first: sudo $command" >&2
            return 1
        fi
        hash -r
        newly_installed=yes
    fi
    choose_compiler || { echo "no C++ compiler: g++ $MINIMUM_GCC or later is needed" >&2; return 1; }
    local version
    version=$(cmake --version | sed -n '1s/.* //p')
    if [ "$(printf '%s\n' "$MINIMUM_CMAKE" "$version" | sort -V | head -n 1)" != "$MINIMUM_CMAKE" ]; then
        echo "cmake $version is too old: $MINIMUM_CMAKE or later is needed" >&2
        return 1
    fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    set -o pipefail
    install_dependencies
fi
