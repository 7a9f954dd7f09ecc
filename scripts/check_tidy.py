#!/usr/bin/env python3
"""Checks the library and the program with clang-tidy, by .clang-tidy, as BUILD_FOLDER compiles them. Exits with 77
(skipped) where no clang-tidy is new enough.

    scripts/check_tidy.py BUILD_FOLDER [PATTERN]     of the sources whose path matches PATTERN
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

OLDEST = 16  # the first that knows std::source_location
ONLY_GCC = re.compile(r" -mmem(?:set|cpy)-strategy=\S+")  # which clang takes for an error
ROOT = pathlib.Path(__file__).resolve().parents[1]


def clang_tidy():
    """The name of a clang-tidy that is new enough, or None."""
    for name in ("clang-tidy", *(f"clang-tidy-{version}" for version in range(22, OLDEST - 1, -1))):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            version = re.search(r"version (\d+)", said)
            if version and int(version.group(1)) >= OLDEST:
                return name
    return None


def sources(build, pattern):
    """What is compiled of mantissa/ and cli/, neighbouring sources as one where they are compiled so."""
    places = (f"{ROOT}/mantissa/", f"{ROOT}/cli/", f"{build}/library/", f"{build}/cli/")
    with open(build / "compile_commands.json", encoding="utf-8") as commands:
        found = {entry["file"] for entry in json.load(commands)}
    return sorted(file for file in found if file.startswith(places) and re.search(pattern, file))


def write_commands(build, folder):
    """The commands that compile the sources, as clang takes them."""
    commands = (build / "compile_commands.json").read_text(encoding="utf-8")
    (pathlib.Path(folder) / "compile_commands.json").write_text(ONLY_GCC.sub("", commands), encoding="utf-8")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    program = clang_tidy()
    if not program:
        print(f"tidy: skipped, no clang-tidy of version {OLDEST} or later is installed (package clang-tidy-19)")
        return 77
    named = sources(build, sys.argv[2] if len(sys.argv) > 2 else "")
    if not named:
        print(f"tidy: {build} compiles no such source")
        return 1

    def check(file, folder):
        return subprocess.run([program, "-p", folder, "--quiet", "--extra-arg=-Wno-everything", file],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        write_commands(build, folder)
        checked = pool.map(lambda file: check(file, folder), named)
        failed = [done.stdout for done in checked if done.returncode != 0]
    for said in failed:
        print(said)
    print(f"tidy: {'ok' if not failed else f'{len(failed)} with findings'} ({len(named)} sources)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
