#!/usr/bin/env python3
"""Checks the direction of includes: a room of mantissa/ includes only itself and the rooms before it; our headers
are named from the root, exist, and keep other people's heavy headers out; a device's own headers stay inside it."""
import pathlib
import re
import sys

from source_tree import CPP_SUFFIXES, Finding, files, is_cpp, parse_root, read_text, report, split_cpp

ROOMS = ("base", "numerics", "ranks", "graph", "passes", "codegen", "device", "runtime", "formats", "nn", "data", "train",
         "report")
# Headers of other people's programs: they stand before no room, and no room includes them.
PUBLIC_FACES = ("mantissa/mantissa.h", "mantissa/engine.h")
# These come after all rooms and may include any of them, and their own headers.
OUTER = ("cli", "python", "tests", "bench", "examples", "fuzz")
# Slow to compile, or someone else's promise: used in our sources, not in our headers.
HEAVY = ("fmt/", "nlohmann/", "CLI/", "llvm/", "llvm-c/", "cuda", "cublas", "cudnn", "xxhash", "gtest/", "benchmark/")

# Our headers that include one all the same, and why. They are not installed (cmake/install.cmake).
HEAVY_ALLOWED = {"mantissa/graph/ops/rules.h": "has messages checked at compile time; only rows of the op table see it",
                 "cli/print_error.h": "has words checked at compile time; only sources of the program see it"}


def is_heavy(target):
    """Headers of forward declarations cost nothing."""
    return target.startswith(HEAVY) and not pathlib.PurePosixPath(target).stem.endswith("_fwd")


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def room_of(path):
    """The room of a path below mantissa/, or None."""
    parts = pathlib.PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "mantissa" else None


def fault_of_own(name, quoted, target):
    """What is wrong with the file `name` including `target`, one of our headers; None if nothing is."""
    source_room, target_room = room_of(name), room_of(target)
    if target in PUBLIC_FACES:
        return f"{target} is for programs outside; name the header that is meant" if source_room else None
    if not quoted and not name.startswith(("examples/", "tests/install/")):
        return f'write #include "{target}": angle brackets are for other people\'s headers'
    if target_room not in ROOMS:
        return f"{target_room} is no room; the rooms are {' '.join(ROOMS)}"
    if source_room and ROOMS.index(target_room) > ROOMS.index(source_room):
        return f"room {source_room} must not include {target}: {target_room} comes after it"
    device = re.match(r"mantissa/device/[^/]+/", target)
    if device and source_room and source_room != "device":
        return f"{target} is a device's own header: take a Device, which the program made"
    return None


def check_include(root, name, line, quoted, target, produced):
    own = target.startswith("mantissa/")
    if own or (quoted and target.split("/")[0] in OUTER and "/" in target and not name.startswith("mantissa/")):
        fault = fault_of_own(name, quoted, target) if own else None
        if not fault and not (root / target).is_file():
            fault = f"{target} does not exist"
    elif quoted and target not in produced:
        fault = f'"{target}": name our headers from the root, and other people\'s in angle brackets'
    elif name.startswith(("mantissa/", "cli/")) and name.endswith(".h") and is_heavy(target) and name not in HEAVY_ALLOWED:
        fault = f"<{target}> is for sources, not for our headers"
    else:
        fault = None
    return [Finding(name, line, fault)] if fault else []


def check_tree(root):
    findings, count = [], 0
    for name in files(root):
        if not is_cpp(name):
            continue
        text = read_text(root / name)
        count += 1
        room = room_of(name)
        if room and room not in ROOMS:
            findings.append(Finding(name, 1, f"{room} is no room; the rooms are {' '.join(ROOMS)}"))
            continue
        code = split_cpp(text)[0].split("\n")
        if name.endswith(".h") and "#pragma once" not in (line.strip() for line in code):
            findings.append(Finding(name, 1, "a header begins with #pragma once"))
        # Made by the build of tests/install/consumer.
        produced = {"all_headers.h"} if name.startswith("tests/install/") else set()
        for match in _INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            if "#" in code[line - 1]:  # not in a comment or a string
                findings += check_include(root, name, line, match.group(1) == '"', match.group(2), produced)
    return findings, f"{count} files with suffix {' '.join(CPP_SUFFIXES)}"


if __name__ == "__main__":
    findings, summary = check_tree(parse_root(__doc__))
    sys.exit(report("includes", findings, summary))
