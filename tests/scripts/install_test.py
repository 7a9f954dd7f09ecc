"""Installs mantissa, moves the installed tree, and builds and runs other people's programs against it.

usage: install_test.py BUILD_FOLDER CMAKE CXX
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, CMAKE, CXX = (sys.argv[1:4] + [""] * 3)[:3]


def run(*command, **options):
    """Runs a command that must succeed; its output is in the failure otherwise."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} returned {done.returncode}:\n{done.stdout}")
    return done.stdout


class InstalledTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "moved" / "deeper"
        run(CMAKE, "--install", BUILD, "--prefix", cls.folder / "first")
        cls.prefix.parent.mkdir()
        (cls.folder / "first").rename(cls.prefix)

    def build(self, source):
        """Configures and builds `source` against the moved tree; returns the build folder."""
        build = self.folder / ("build-" + source.name)
        run(CMAKE, "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_CXX_COMPILER={CXX}")
        run(CMAKE, "--build", build)
        return build

    def test_a_program_finds_the_package_and_every_header_stands_alone(self):
        output = run(self.build(ROOT / "tests/install/consumer") / "consumer")
        value = float.fromhex(re.fullmatch(r"first=(\S+)\n", output).group(1))
        # A multiple of 2^-24 in [0, 1), as mantissa/base/random.h promises.
        self.assertTrue(0 <= value < 1 and value * 2**24 == int(value * 2**24), output)

    def test_examples_build_and_run(self):
        build = self.build(ROOT / "examples")
        programs = sorted((build / "programs").glob("*"))
        self.assertEqual([program.name for program in programs],
                         sorted(source.stem for source in (ROOT / "examples").glob("*.cpp")))
        for program in programs:
            with self.subTest(program.name):
                run(program, timeout=300, stdin=subprocess.DEVNULL, cwd=self.folder)

    def test_another_version_is_refused(self):
        source = self.folder / "later"
        source.mkdir()
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(later LANGUAGES CXX)\n"
                                               "find_package(mantissa 99 REQUIRED)\n")
        with self.assertRaisesRegex(AssertionError, 'requested\\s+version\\s+"99"'):
            self.build(source)

    def test_no_file_names_where_it_was_built_or_first_installed(self):
        for path in (self.prefix / "lib").rglob("*.cmake"):
            text = path.read_text()
            for place in (str(ROOT), str(self.folder), BUILD):
                self.assertNotIn(place, text, path.name)

    def test_what_is_installed(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        self.assertIn("bin/mantissa", files)
        self.assertIn("include/mantissa/base/error.h", files)
        self.assertIn("share/doc/mantissa/LICENSE", files)
        self.assertEqual([name for name in files if "/device/cpu/" in name or "/graph/ops/" in name
                          or name.endswith(".cpp")], ["include/mantissa/device/cpu/cpu_device.h"])

    def test_the_program_starts(self):
        run(self.prefix / "bin/mantissa", "--help", stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
