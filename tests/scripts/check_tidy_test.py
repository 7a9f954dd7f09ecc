"""scripts/check_tidy.py finds what .clang-tidy lists in what a build folder compiles."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


class CheckTidy(unittest.TestCase):
    def check(self, text, folder="library"):
        with tempfile.TemporaryDirectory() as build:
            shutil.copy(ROOT / ".clang-tidy", build)
            source = pathlib.Path(build).resolve() / folder / "x.cpp"
            source.parent.mkdir()
            source.write_text(text)
            (pathlib.Path(build) / "compile_commands.json").write_text(json.dumps(
                [{"directory": build, "file": str(source), "command": f"c++ -std=c++20 -c {source}"}]))
            done = subprocess.run([sys.executable, "-B", ROOT / "scripts/check_tidy.py", build],
                                  stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout)
        return done.returncode, done.stdout

    def test_good_code_passes(self):
        self.assertEqual(self.check("int* p = nullptr;\n"), (0, "tidy: ok (1 sources)\n"))

    def test_a_finding_is_caught(self):
        status, printed = self.check("int* p = 0;\n")
        self.assertEqual(status, 1)
        self.assertIn("modernize-use-nullptr", printed)
        self.assertTrue(printed.endswith("tidy: 1 with findings (1 sources)\n"), printed)

    def test_nothing_to_check_is_a_failure(self):
        status, printed = self.check("int* p = 0;\n", "elsewhere")
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"^tidy: \S+ compiles no such source\n$")


if __name__ == "__main__":
    unittest.main()
