#!/usr/bin/env python3
"""Checks the objects of instruction-set files (*_avx2.cpp, *_avx512.cpp, *_avx512bf16.cpp, ..., *_amx.cpp): none may define a weak symbol.

An inline function or template with external linkage is compiled into every object that uses it, and the linker keeps
one copy for all. Were it the AVX-512 one, a machine without AVX-512 would fault in code that never asked for it.

usage: check_symbols.py BUILD_FOLDER [--nm NM]
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

INSTRUCTION_SET_FILE = re.compile(r"_(avx2|avx512|avx512bf16|avx512fp16|avx512vnni|avx512vpopcntdq|amx)\.cpp$")
# W, V: weak with a definition; u: unique over the process. Lower-case w and v are undefined references.
WEAK = "WVu"
# A pointer to the C++ library's exception handler: data, the same in every object.
HARMLESS = re.compile(r"^DW\.ref\.")


def objects(build):
    """(source, object) of every instruction-set file that the build folder compiles."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if INSTRUCTION_SET_FILE.search(entry["file"]):
            arguments = entry.get("arguments") or shlex.split(entry["command"])
            yield entry["file"], pathlib.Path(entry["directory"]) / arguments[arguments.index("-o") + 1]


def weak_symbols(nm, path):
    """Demangled names of the weak symbols that the object defines."""
    listing = subprocess.run([nm, "-C", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        kind, name = re.match(r"[0-9a-f]*\s+(\S)\s+(.*)", line).groups()
        if kind in WEAK and not HARMLESS.match(name):
            yield name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--nm", default="nm")
    options = parser.parse_args()
    count = faults = 0
    for source, path in objects(options.build):
        count += 1
        if not path.is_file():
            print(f"{path} is missing: build first")
            faults += 1
            continue
        for symbol in weak_symbols(options.nm, path):
            faults += 1
            print(f"{source}: defines the weak symbol `{symbol}`: put it into an anonymous namespace, make it "
                  "static, or do without that header")
    print(f"symbols: {faults} violations in {count} objects" if faults else f"symbols: ok ({count} objects)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
