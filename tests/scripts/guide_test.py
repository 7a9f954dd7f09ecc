"""Runs the commands of README.md and of the guide's pages, and looks for what the pages say that they print.

usage: guide_test.py BUILD_FOLDER CXX [--slow]

A page's blocks are run one after another, in a folder of its own. A block of C++, CMake or Python whose first line is
a comment with a file's name becomes that file. A block `text` shows lines of what the commands before it printed,
figures and the machine aside. A block `sh` has commands; `sh mpi` is left out where no mpirun is, `sh slow` and `sh
not-run` are run by --slow alone and never. Without --slow, trainings have a twentieth of their steps, convergences, of
which so few tell nothing, a third of them, and ladders two and one that is timed.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, CXX = (sys.argv[1:3] + [""] * 2)[:2]
SLOW = "--slow" in sys.argv
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/guide").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+) ?([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LATER = re.compile(r"(--(?:steps|[a-z]+-every)) (\d+)")


def masked(line):
    """The line without figures, the machine, and where files lie."""
    for pattern, word in ((r"\b(bf16|fp32)( \(chosen[^)]*\))?", "POLICY"), (r"[GT]FLOP/s (BF16|FP32)", "RATE"),
                          (r"\b(amx|avx512bf16|avx512|avx2|generic), \d+ threads?", "MACHINE"),
                          (r"kept in \S+", "kept"), (r"[-+]?\d[\d,.]*(e[-+]\d+)?", "N"), (r"\s+", " ")):
        line = re.sub(pattern, word, line)
    return line.strip()


def prepare(folder, text):
    """Files that the page speaks of as the reader's own."""
    prose = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    (folder / "notes").mkdir()
    for i, day in enumerate(("monday", "tuesday", "wednesday")):
        (folder / "notes" / f"{day}.md").write_text(prose[20000 * i:20000 * (i + 1)])
    (folder / "chats.jsonl").write_text("".join(json.dumps({"user": line[:80], "answer": line[80:160]}) + "\n"
                                                for line in prose[60000:90000].splitlines() if len(line) > 60))
    (folder / "shakespeare.txt").write_text(prose[:100000])
    shutil.copytree(ROOT / "examples/shapes", folder / "images")
    if "--from llama" in text:
        run("mantissa tokenize --train notes --vocabulary 300 --out tok && mantissa train --model llama-tiny "
            "--tokenizer tok --text notes --steps 1 --checkpoint llama", folder)
    if "my.ckpt" in text and "--checkpoint my.ckpt --quiet" not in text and "--print-every 100 --checkpoint my.ckpt" not in text:
        run("mantissa train --text notes --steps 20 --checkpoint my.ckpt", folder)


def run(commands, folder):
    environment = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "MANTISSA": str(ROOT), "CXX": CXX,
                   "XDG_CACHE_HOME": f"{BUILD}/cache_of_tests"}
    commands = commands.replace('"$MANTISSA/build"', BUILD)
    if not SLOW:
        commands = "".join(
            _LATER.sub(lambda found: f"{found[1]} {max(1, int(found[2]) // (3 if 'converge' in line else 20))}", line)
            .replace("mantissa ladder", "mantissa ladder --steps 2 --repeats 1")
            for line in commands.splitlines(keepends=True))
    done = subprocess.run(["bash", "-euc", commands], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1500)
    if done.returncode != 0:
        raise AssertionError(f"{commands}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def is_run(language, how):
    return language == "sh" and (how == "" or how == "slow" and SLOW or how == "mpi" and bool(shutil.which("mpirun")))


class Pages(unittest.TestCase):
    def follow(self, text, folder):
        """Runs the page's blocks; the number of commands that were run, and of lines that were looked for."""
        printed, ran, looked = None, 0, 0
        for language, how, content in _BLOCK.findall(text):
            name = re.match(r"(?://|#) ([\w.]+)\n", content)
            if language in ("cpp", "cmake", "python") and name:
                (folder / name[1]).write_text(content)
            elif language == "sh":
                printed = run(content, folder) if is_run(language, how) else None
                ran += printed is not None
            elif language == "text" and printed is not None:
                lines = {masked(line) for line in printed.splitlines()}
                for line in content.splitlines():
                    self.assertIn(masked(line), lines, f"{line}\nis not printed:\n{printed}")
                    looked += 1
        return ran, looked

    def test_a_line_that_is_not_printed_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = "```sh\necho step 3 of 4\n```\n\n```text\n{}\n```\n"
            self.assertEqual(self.follow(page.format("step 5 of  6"), pathlib.Path(folder)), (1, 1))
            signs = "```sh\necho apart by -0.0023\n```\n\n```text\napart by +0.0096\n```\n"
            self.assertEqual(self.follow(signs, pathlib.Path(folder)), (1, 1))
            with self.assertRaisesRegex(AssertionError, "is not printed"):
                self.follow(page.format("steps 3 of 4"), pathlib.Path(folder))
            with self.assertRaisesRegex(AssertionError, "ended with 1"):
                self.follow("```sh\nfalse\n```\n", pathlib.Path(folder))

    def test_all_pages(self):
        for page in PAGES:
            with self.subTest(page), tempfile.TemporaryDirectory() as folder:
                text, start = (ROOT / page).read_text(), time.monotonic()
                prepare(pathlib.Path(folder), text)
                ran, looked = self.follow(text, pathlib.Path(folder))
                print(f"{page}: {ran} blocks of commands, {looked} lines, {time.monotonic() - start:.0f} s", flush=True)
                self.assertGreater(ran, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
