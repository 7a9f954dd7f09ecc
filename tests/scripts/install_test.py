"""Installs mantissa, moves the installed tree, and builds and runs other people's programs against it.

usage: install_test.py BUILD_FOLDER CMAKE CXX [--slow]

Without --slow, each fourth of the installed headers is compiled by itself.
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
HEADERS_STEP = 1 if "--slow" in sys.argv else 4


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
            f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_BUILD_TYPE=Debug", f"-DHEADERS_STEP={HEADERS_STEP}")
        run(CMAKE, "--build", build)
        return build

    def test_programs_find_both_libraries_and_every_header_stands_alone(self):
        build = self.build(ROOT / "tests/install/consumer")
        for kind in ("mantissa", "mantissa_shared"):
            output = run(build / f"consumer_of_{kind}")
            self.assertEqual(output, "slope=3.000\nrefused: model line takes 2 inputs, got 1; 'y' is missing\n", kind)
        self.assertIn("libmantissa.so", run("ldd", build / "consumer_of_mantissa_shared"))
        self.assertNotIn("libmantissa.so", run("ldd", build / "consumer_of_mantissa"))

    def test_the_shared_library_shows_its_namespace_and_nothing_else(self):
        symbols = run("nm", "-DC", "--defined-only", self.prefix / "lib/libmantissa.so").splitlines()
        names = [line.split(None, 2)[2] for line in symbols]
        for name in ("mantissa::v0::cpu(int)", "vtable for mantissa::v0::Examples"):
            self.assertIn(name, names)
        ours = re.compile(r"(typeinfo (name )?for |vtable for )?mantissa::")
        self.assertEqual([name for name in names if not ours.match(name)], [])

    def test_a_parent_project_is_left_alone(self):
        source = self.folder / "parent"
        source.mkdir()
        (source / "main.cpp").write_text('#include "mantissa/mantissa.h"\nint main() { return 0; }\n')
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(parent LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 23)\n"
            f"add_subdirectory({ROOT} mantissa)\nadd_executable(main main.cpp)\n"
            "target_link_libraries(main PRIVATE mantissa::mantissa)\n"
            "get_property(tests TARGET main PROPERTY CXX_STANDARD)\nmessage(STATUS \"standard ${tests}\")\n"
            "message(STATUS \"build type [${CMAKE_BUILD_TYPE}], output [${CMAKE_RUNTIME_OUTPUT_DIRECTORY}]\")\n"
            "if(TARGET test_base OR TARGET mantissa_cli)\n  message(FATAL_ERROR \"more than the library\")\nendif()\n")
        output = run(CMAKE, "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_CXX_COMPILER={CXX}")
        self.assertIn("standard 23", output)
        self.assertIn("build type [], output []", output)
        run(CXX, "-std=c++23", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-I", ROOT,
            source / "main.cpp")

    def test_examples_build_and_run(self):
        build = self.build(ROOT / "examples")
        programs = sorted((build / "programs").glob("*"))
        self.assertEqual([program.name for program in programs],
                         sorted(source.stem for source in (ROOT / "examples").glob("*.cpp")))
        for program in programs:
            with self.subTest(program.name):
                run(program, timeout=300, stdin=subprocess.DEVNULL, cwd=self.folder)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_an_example_runs_on_several_ranks(self):
        if not list((self.prefix / "lib/mantissa").glob("mantissa_*.so")):
            self.skipTest("built without MPI")
        program = self.build(ROOT / "examples") / "programs/several_ranks"
        output = run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", program, timeout=300,
                     stdin=subprocess.DEVNULL, cwd=self.folder)
        self.assertIn("on 2 ranks", output)
        self.assertIn("the quick brown fox", output)

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
        self.assertIn("include/mantissa/mantissa.h", files)
        self.assertIn("share/doc/mantissa/LICENSE", files)
        # Headers that mantissa.h and engine.h bring along; no kernels, no code generation, no passes but their options.
        self.assertLessEqual(sum(name.endswith(".h") for name in files), 61)
        self.assertEqual([name for name in files if re.search("/device/cpu/(?!cpu_device.h)|/graph/ops/|/codegen/|"
                                                              "/passes/(fuse|simplify|expand)|[.]cpp$", name)], [])

    def test_the_face_is_small(self):
        found, todo = {}, ["mantissa/mantissa.h"]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = (ROOT / name).read_text()
                todo += re.findall(r'^#include "(mantissa/[^"]+)"', found[name], re.MULTILINE)
        self.assertLessEqual(len(found), 24, sorted(found))
        self.assertLessEqual(sum(len(text.splitlines()) for text in found.values()), 2450)

    def test_what_run_builds_is_all_that_is_installed_and_before_it_nothing_is(self):
        build, prefix = self.folder / "not built", self.folder / "empty"
        run(CMAKE, "-G", "Ninja", "-S", ROOT, "-B", build, f"-DCMAKE_CXX_COMPILER={CXX}",
            "-DMANTISSA_BUILD_TESTS=OFF", "-DMANTISSA_BUILD_BENCH=OFF")
        refused = subprocess.run([CMAKE, "--install", build, "--prefix", prefix], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1)
        said = " ".join(refused.stderr.split())
        self.assertIn(f"libmantissa.a is not built, so nothing was installed. Build first: cmake --build {build}", said)
        self.assertFalse(prefix.exists())
        # ./run builds the target mantissa_cli.
        self.assertIn(" mantissa_cli\n", (ROOT / "run").read_text())
        steps = run(CMAKE, "--build", build, "--", "-t", "commands", "mantissa_cli")
        for built in ("library/libmantissa.a", "library/libmantissa.so", "mantissa.1"):
            self.assertIn(built, steps)

    def test_the_program_starts(self):
        run(self.prefix / "bin/mantissa", "--help", stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
