#!/usr/bin/env python3
"""Checks what the documents claim: every path that a Markdown file names exists, and every table of measured figures
stands beside a link to its record under bench/records/ (the command, the log, the machine, the commit). Prose keeps to
120 columns, so that it reads in a terminal and a change shows as the lines it changes; tables and code are as wide as
they are.

Capital words in a path stand for anything, as in `tests/ROOM/NAME_test.cpp`. Figures that nobody measured (a
datasheet's, an example's) are said to be so by a comment before the table: <!-- not measured: why -->.
"""
import pathlib
import re
import sys

from source_tree import Finding, files, parse_root, read_text, report

_FENCE = re.compile(r"^\s*(```|~~~)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_SPAN = re.compile(r"`([^`]+)`")
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]*[A-Z]\b|\b[A-Z]\b")
_UNIT = r"(?:ms|GFLOP/s|TFLOP/s|GFLOPS|TFLOPS|tokens/s|MB/s|GB/s|images/s|img/s|steps/s)"
_FIGURE = re.compile(rf"\d\s*k?\s*{_UNIT}(?![\w/])")
_UNIT_ALONE = re.compile(rf"(?<![\w/]){_UNIT}(?![\w/])")
_RECORD = re.compile(r"bench/records/[\w./-]*\w|\]\((?:\.\./)*(?:bench/)?records/[\w./-]+\)")
_NOT_MEASURED = re.compile(r"<!--\s*not measured: \w.*-->")
# How far from a table its record may be named: within these lines before its first or after its last.
NEAR = 6
WIDTH = 120


def named_paths(text, tops):
    """(line, path, is a link) of every path that the document names. `tops` are the names at the repository's root:
    in code, only what begins with one of them is a path of ours."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line):
            fenced = not fenced
            continue
        if not fenced:
            for target in _LINK.findall(line):
                if not re.match(r"[a-z]+:|#", target):
                    yield number, target.split("#")[0], True
        code = [line] if fenced or line.startswith("    ") else _SPAN.findall(line)
        for word in " ".join(code).split():
            word = re.sub(r"(:\d+)?[,.;:)]*$", "", word.strip("\"'(").removeprefix("./"))
            if "/" in word and word.split("/")[0] in tops:
                yield number, word, False


def exists(folder, path):
    """Whether the path exists below `folder`, a capital word or a * standing for anything."""
    path = path.rstrip("/") or "."
    if (folder / path).exists():
        return True
    pattern = _PLACEHOLDER.sub("*", path)
    return "*" in pattern and not pattern.startswith("/") and any(folder.glob(pattern))


def check_paths(root, name, text, tops):
    folder = (root / name).parent
    return [Finding(name, line, f"names `{path}`, which does not exist")
            for line, path, is_link in named_paths(text, tops)
            if not (exists(folder, path) if is_link else exists(root, path))]


def tables(lines):
    """(first, last) line index of every table."""
    first = None
    for number, line in enumerate([*lines, ""]):
        inside = line.lstrip().startswith("|")
        if inside and first is None:
            first = number
        elif not inside and first is not None:
            yield first, number - 1
            first = None


def holds_figures(rows):
    """Whether a row has a number with a unit of speed, or a number below a heading with such a unit."""
    if any(_FIGURE.search(row) for row in rows):
        return True
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    columns = [place for place, cell in enumerate(cells[0]) if _UNIT_ALONE.search(cell)]
    return any(place < len(row) and re.search(r"\d", row[place]) for row in cells[2:] for place in columns)


def check_figures(name, text):
    lines, findings = text.split("\n"), []
    for first, last in tables(lines):
        near = "\n".join(lines[max(0, first - NEAR):last + 1 + NEAR])
        before = "\n".join(lines[max(0, first - NEAR):first])
        if holds_figures(lines[first:last + 1]) and not _RECORD.search(near) and not _NOT_MEASURED.search(before):
            findings.append(Finding(name, first + 1, "a table of measured figures without a link to its record under "
                                    "bench/records/"))
    return findings


def check_width(name, text):
    fenced, findings = False, []
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= bool(_FENCE.match(line))
        prose = not fenced and not line.startswith("    ") and not line.lstrip().startswith("|")
        if prose and len(line) > WIDTH:
            findings.append(Finding(name, number, f"prose of {len(line)} columns, expected {WIDTH} at most"))
    return findings


def check_tree(root):
    names = files(root)
    tops = {pathlib.PurePosixPath(name).parts[0] for name in names} - {"build"}
    findings, count = [], 0
    for name in names:
        if name.endswith(".md") and not name.startswith("bench/records/"):
            text = read_text(root / name)
            findings += check_paths(root, name, text, tops) + check_figures(name, text) + check_width(name, text)
            count += 1
    return findings, f"{count} documents"


if __name__ == "__main__":
    findings, summary = check_tree(parse_root(__doc__))
    sys.exit(report("documents", findings, summary))
