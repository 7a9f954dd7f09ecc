#!/usr/bin/env python3
"""Checks the one table of environment variables, docs/environment.md, against the programs: every variable that is
read has its row, every row's variable is read, and the row names the files that read it."""
import re
import sys

from source_tree import Finding, files, is_cpp, parse_root, read_text, report, split_cpp

DOCUMENT = "docs/environment.md"
# Programs that the user runs; what tests and benchmarks read for themselves is their own business.
PROGRAMS = ("mantissa/", "cli/")
SCRIPTS = ("run", "test", ".ci/run", "scripts/")

_GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
_LITERAL = re.compile(r'\s*"([A-Za-z_][A-Za-z0-9_]*)"\s*\)')
# ${NAME:-default}: how the shell scripts read what may be unset.
_SHELL = re.compile(r"\$\{([A-Z][A-Z0-9_]*):?-")
_ROW = re.compile(r"^\|\s*`([A-Za-z_][A-Za-z0-9_]*)`\s*\|(.*)\|\s*$")


def variables_read(root):
    """({variable: files that read it}, findings)."""
    reads, findings = {}, []
    for name in files(root):
        if is_cpp(name) and name.startswith(PROGRAMS):
            text = read_text(root / name)
            code = split_cpp(text)[0]
            for match in _GETENV.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                literal = _LITERAL.match(text, match.end())
                if literal:
                    reads.setdefault(literal.group(1), set()).add(name)
                else:
                    findings.append(Finding(name, line, "getenv of something else than a name in quotes cannot be "
                                            f"checked against {DOCUMENT}"))
        elif name in SCRIPTS or (name.startswith("scripts/") and name.endswith(".sh")):
            for match in _SHELL.finditer(read_text(root / name)):
                reads.setdefault(match.group(1), set()).add(name)
    return reads, findings


def variables_documented(root):
    """{variable: (line, row)} of the table."""
    if not (root / DOCUMENT).is_file():
        return {}
    rows = ((number, _ROW.match(line)) for number, line in enumerate(read_text(root / DOCUMENT).split("\n"), 1))
    return {row.group(1): (number, row.group(2)) for number, row in rows if row}


def check_tree(root):
    reads, findings = variables_read(root)
    documented = variables_documented(root)
    for variable, names in reads.items():
        if variable not in documented:
            findings += [Finding(name, 1, f"reads {variable}, which has no row in {DOCUMENT}") for name in names]
            continue
        line, row = documented[variable]
        findings += [Finding(DOCUMENT, line, f"the row of {variable} does not name `{name}`, which reads it")
                     for name in names if f"`{name}`" not in row]
    findings += [Finding(DOCUMENT, line, f"{variable} is read nowhere")
                 for variable, (line, _) in documented.items() if variable not in reads]
    return findings, f"{len(reads)} variables"


if __name__ == "__main__":
    findings, summary = check_tree(parse_root(__doc__))
    sys.exit(report("environment", findings, summary))
