"""What the check scripts share: the files of the repository, C++ text split into code and comments, and findings."""
import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
CPP_SUFFIXES = (".cpp", ".h", ".cu", ".cuh")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One violation: where, and what is wrong and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


def files(root):
    """Paths, relative to `root`, of all files that git tracks or would track, sorted. Without git, or where
    it refuses: of all that lie outside build folders."""
    if shutil.which("git") and (pathlib.Path(root) / ".git").exists():
        listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
                                 capture_output=True, check=False)
        if listing.returncode == 0:
            names = listing.stdout.decode().split("\0")
            return sorted({name for name in names if name and (pathlib.Path(root) / name).is_file()})
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders
                      if name not in (".git", "__pycache__", "build") and not name.startswith("build-")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read_text(path):
    """The file's text, or None where it is binary."""
    raw = pathlib.Path(path).read_bytes()
    return None if b"\0" in raw else raw.decode(errors="replace")


def is_cpp(name):
    return name.endswith(CPP_SUFFIXES)


# In the order of trial: raw strings, comments, strings, characters (not the separators of digits).
_CPP_TOKENS = re.compile(
    r'(?P<raw>R"(?P<delimiter>[^()\s\\]{0,16})\((?:.|\n)*?\)(?P=delimiter)")'
    r"|(?P<line>//(?:\\\n|[^\n])*)"
    r"|(?P<block>/\*(?:.|\n)*?\*/)"
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<number>\b\d[\w.']*)"
    r"|(?P<character>'(?:\\.|[^'\\\n])+')")


def split_cpp(text):
    """(code, comments): the text with comments and the insides of strings blanked, lines kept; and the comments as
    (line, text without its marks, its indentation kept)."""
    comments = []

    def blank(match):
        token = match.group(0)
        if match.lastgroup == "number":
            return token
        if match.lastgroup in ("line", "block"):
            number = text.count("\n", 0, match.start()) + 1
            inner = token[2:-2] if match.lastgroup == "block" else token[2:].lstrip("/!")
            comments.extend((number + i, re.sub(r"^\s*\*(?= |$)", "", part).rstrip() if i else part.rstrip())
                            for i, part in enumerate(inner.split("\n")))
            return re.sub(r"[^\n]", " ", token)
        return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1]

    return _CPP_TOKENS.sub(blank, text), comments


def parse_root(description):
    """The folder to check: this repository, or the one given with --root (for the tests of the checks)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    return parser.parse_args().root


def report(name, findings, summary):
    """Prints the findings, then one line; returns the exit status."""
    for finding in sorted(findings):
        print(finding)
    print(f"{name}: {len(findings)} violations ({summary})" if findings else f"{name}: ok ({summary})")
    return 1 if findings else 0
