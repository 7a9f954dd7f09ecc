"""scripts/check_format.py finds a file that clang-format would write differently."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


class CheckFormat(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / ".clang-format", folder)
            (pathlib.Path(folder) / "x.cpp").write_text(text)
            done = subprocess.run([sys.executable, "-B", ROOT / "scripts/check_format.py", "--root", folder],
                                  stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout)
        return done.returncode, done.stdout

    def test_formatted_code_passes(self):
        self.assertEqual(self.check("int f(int n) { return n; }\n"), (0, "format: ok (1 files)\n"))

    def test_other_code_is_caught(self):
        status, printed = self.check("int f( int n )\n{ return n; }\n")
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"^x.cpp:1: not as clang-format\S* writes it \(\d places\)\nformat: 1 files; ")


if __name__ == "__main__":
    unittest.main()
