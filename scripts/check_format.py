#!/usr/bin/env python3
"""Checks that every C++ file is as clang-format 14 writes it. Exits with 77 (skipped) where that version is absent:
other versions lay the same code out differently."""
import collections
import re
import shutil
import subprocess
import sys

from source_tree import files, is_cpp, parse_root

VERSION = 14


def clang_format():
    """The name of a clang-format of the right version, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return name
    return None


def main():
    root = parse_root(__doc__)
    program = clang_format()
    if not program:
        print(f"format: skipped, clang-format {VERSION} is not installed (package clang-format-{VERSION})")
        return 77
    names = [name for name in files(root) if is_cpp(name)]
    done = subprocess.run([program, "--dry-run", "-Werror", *names], cwd=root, stderr=subprocess.PIPE, text=True,
                          check=False) if names else None
    if done and done.returncode != 0:
        places = re.findall(r"^(.+?):(\d+):\d+: error:", done.stderr, re.MULTILINE)
        faults = collections.Counter(name for name, _ in places)
        for name, count in faults.items():
            first = next(line for other, line in places if other == name)
            print(f"{name}:{first}: not as {program} writes it ({count} places)")
        print(f"format: {len(faults)} files; mend them with {program} -i FILE" if faults else done.stderr)
        return 1
    print(f"format: ok ({len(names)} files)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
