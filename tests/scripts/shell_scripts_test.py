"""The shell scripts behind ./run and ./test, with stand-ins for the programs they call: what is installed and when,
what is said where nothing may be installed, and what the closing line counts."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "cut", "dirname", "env", "grep", "head", "mkdir", "mktemp", "nproc", "rm", "sed", "sleep", "sort", "tail", "tee",
         "touch", "flock", "basename", "uniq")
ALL_PACKAGES = "cmake ninja-build python3 g++ libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libjpeg-dev libpng-dev llvm-19-dev libgtest-dev " \
               "libbenchmark-dev"


class ShellScripts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def stand_in(self, name, script):
        """A program of this name that runs `script`."""
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        path.chmod(0o755)

    def stand_in_for_tools(self, gcc="12", cmake="3.25.1", missing=""):
        """A machine with everything but the packages `missing`."""
        self.stand_in("cmake", f"echo cmake version {cmake}")
        self.stand_in("ninja", "")
        self.stand_in("python3", "")
        self.stand_in("g++", f'if [ "$1" = -dumpversion ]; then echo {gcc}; else cat >/dev/null; printf "{missing}"; fi')

    def run_shell(self, script):
        """(status, output of both kinds) of a script that has sourced ours; standard input is no terminal."""
        sourced = "".join(f". scripts/{name}.sh\n" for name in ("install_dependencies", "build", "run_tests"))
        with open(self.folder / "said", "w") as said:
            done = subprocess.run([shutil.which("bash"), "-c", f"set -euo pipefail\n{sourced}{script}"], cwd=ROOT,
                                  env={"PATH": str(self.bin), "HOME": str(self.folder), "TMPDIR": str(self.folder)},
                                  stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, check=False)
        return done.returncode, (self.folder / "said").read_text()

    def until_said(self, words):
        """A command for a stand-in: waits until the script said this, on a busy machine, too, up to a minute."""
        return f'for ((n = 0; n < 3000; ++n)); do grep -q "{words}" {self.folder}/said && break; sleep 0.02; done'

    def log(self):
        return (self.folder / "log").read_text() if (self.folder / "log").exists() else ""

    def test_nothing_is_said_or_done_where_nothing_is_missing(self):
        self.stand_in_for_tools()
        self.stand_in("apt-get", f"echo $* >> {self.folder}/log")
        self.assertEqual(self.run_shell("install_dependencies; echo CXX=$CXX"), (0, "CXX=g++\n"))
        self.assertEqual(self.log(), "")

    def test_root_installs_exactly_what_is_missing(self):
        self.stand_in_for_tools(missing="libfmt-dev\\nlibgtest-dev\\n")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f"echo $* >> {self.folder}/log")
        self.assertEqual(self.run_shell("install_dependencies"), (0, "installing: libfmt-dev libgtest-dev\n"))
        self.assertEqual(self.log(), "update\ninstall -y --no-install-recommends libfmt-dev libgtest-dev\n")

    def test_a_failed_installation_shows_what_apt_said(self):
        self.stand_in_for_tools(missing="libfmt-dev")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", "echo E: no such package; exit 100")
        status, said = self.run_shell("install_dependencies")
        self.assertEqual(status, 1)
        self.assertIn("E: no such package\ncould not be installed: apt-get install libfmt-dev\n", said)

    def test_a_long_installation_says_what_it_is_at(self):
        self.stand_in_for_tools(missing="libfmt-dev")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f"echo Unpacking libfmt-dev; {self.until_said('Unpacking')}")
        status, said = self.run_shell("progress_seconds=1; install_dependencies")
        self.assertEqual(status, 0, said)
        self.assertIn("installing: Unpacking libfmt-dev\n", said)

    def test_without_rights_or_a_terminal_one_line_says_what_to_install(self):
        self.stand_in("id", "echo 1000")
        self.stand_in("apt-get", f"echo $* >> {self.folder}/log")
        self.stand_in("sudo", f"echo sudo $* >> {self.folder}/log")
        status, said = self.run_shell("install_dependencies")
        self.assertEqual(status, 1)
        # The compiler's package carries its version where the distribution's default is too old.
        self.assertEqual(re.sub(r"g\+\+-12", "g++", said), f"please install first: sudo apt-get install {ALL_PACKAGES}\n")
        self.assertEqual(self.log(), "")

    def test_another_distribution(self):
        self.stand_in_for_tools(missing="libcli11-dev")
        self.assertEqual(self.run_shell("install_dependencies"),
                         (1, "mantissa needs these Debian packages, or their like here: libcli11-dev\n"))

    def test_an_old_compiler_beside_a_newer_one(self):
        self.stand_in_for_tools(gcc="11")
        self.stand_in("g++-13", 'if [ "$1" = -dumpversion ]; then echo 13; fi')
        self.assertEqual(self.run_shell("install_dependencies; echo CXX=$CXX"), (0, "CXX=g++-13\n"))

    def test_an_old_compiler_alone(self):
        self.stand_in_for_tools(gcc="11")
        self.stand_in("id", "echo 1000")
        self.stand_in("apt-get", "")
        status, said = self.run_shell("install_dependencies")
        self.assertEqual(status, 1)
        self.assertIn("g++-12", said)

    def test_an_old_cmake(self):
        self.stand_in_for_tools(cmake="3.18.4")
        self.assertEqual(self.run_shell("install_dependencies"), (1, "cmake 3.18.4 is too old: 3.22 or later is needed\n"))

    def test_a_failed_build_shows_the_compilers_error(self):
        self.stand_in("cmake", 'echo "[1/2] well"; echo "FAILED: x.o"; echo "x.cpp:1:1: error: no such type"; exit 1')
        status, said = self.run_shell(f"build {self.folder} target")
        self.assertEqual(status, 1)
        self.assertEqual(said, f"building in {self.folder}: 1 of 2 files\n"
                               "FAILED: x.o\nx.cpp:1:1: error: no such type\n"
                               f"building failed: cmake --build {self.folder} --target=target\n")

    def test_a_build_without_a_terminal_says_how_far_it_is(self):
        lines = {done: f"building in {self.folder}: {done} of 282 files" for done in (1, 120)}
        self.stand_in("cmake", 'echo "[0/2] Re-checking globbed directories..."; '
                               f'echo "[1/282] Building x.o"; {self.until_said(lines[1])}; '
                               f'echo "[120/282] Building y.o"; {self.until_said(lines[120])}; echo "[282/282] Linking z"')
        status, said = self.run_shell(f"progress_seconds=1; build {self.folder} target")
        self.assertEqual(status, 0, said)
        self.assertLessEqual(set(lines.values()), set(said.splitlines()))
        self.assertIn("[120/282] Building y.o\n", (self.folder / "build.log").read_text())

    def test_a_build_says_at_once_that_it_began(self):
        self.stand_in("cmake", f'echo "[1/282] Building x.o"; {self.until_said("1 of 282")}')
        status, said = self.run_shell(f"build {self.folder} target")
        self.assertEqual((status, said), (0, f"building in {self.folder}: 1 of 282 files\n"))

    def test_a_build_that_says_nothing_for_long_is_spoken_of(self):
        self.stand_in("cmake", self.until_said("0 files"))
        status, said = self.run_shell(f"progress_seconds=1; build {self.folder} target")
        self.assertEqual((status, set(said.splitlines())), (0, {f"building in {self.folder}: 0 files"}))

    def test_nothing_is_said_where_nothing_is_to_build(self):
        self.stand_in("cmake", 'echo "[0/2] Re-checking globbed directories..."; echo "ninja: no work to do."')
        self.assertEqual(self.run_shell(f"build {self.folder} target"), (0, ""))

    def test_a_build_that_fails_late_shows_progress_and_error(self):
        self.stand_in("cmake", f'echo "[1/9] a"; {self.until_said("1 of 9 files")}; echo "FAILED: x.o"; '
                               'echo "x.cpp:1:1: error: no such type"; printf "ninja: build stopped"; exit 1')
        status, said = self.run_shell(f"progress_seconds=1; build {self.folder} target")
        self.assertEqual(status, 1)
        self.assertIn("1 of 9 files\n", said)
        self.assertTrue(said.endswith("FAILED: x.o\nx.cpp:1:1: error: no such type\nninja: build stopped\n"
                                      f"building failed: cmake --build {self.folder} --target=target\n"), said)

    def test_configuring_is_announced(self):
        self.stand_in_for_tools()
        status, said = self.run_shell(f"CXX=g++; configure release {self.folder}")
        self.assertEqual((status, said), (0, f"configuring in {self.folder}\n"))

    def test_a_long_test_is_named_while_it_runs(self):
        self.stand_in("ctest", 'echo "    Start  1: base"; echo " 1/2 Test  #1: base ...   Passed    0.1 sec"; '
                               f'echo "    Start 12: device"; {self.until_said("running: device")}; '
                               'echo " 2/2 Test #12: device ...   Passed    1 sec"; '
                               'echo "100% tests passed, 0 tests failed out of 2"')
        status, said = self.run_shell(f"progress_seconds=1; run_tests {self.folder}; print_total")
        self.assertEqual(status, 0, said)
        self.assertIn(f"testing in {self.folder}: 1 of 2 ended, running: device\n", said)

    def test_the_closing_line_adds_up(self):
        self.stand_in("ctest", 'echo "90% tests passed, 1 tests failed out of 10"; echo "Total Test time"; exit 8')
        status, said = self.run_shell(f"run_tests {self.folder}; run_tests {self.folder}; print_total")
        self.assertEqual((status, said.splitlines()[-1]), (1, "90% tests passed, 2 tests failed out of 20"))

    def test_a_runner_that_falls_over_is_a_failure(self):
        self.stand_in("ctest", "echo no tests were found; exit 1")
        status, said = self.run_shell(f"run_tests {self.folder}; print_total")
        self.assertEqual((status, said.splitlines()[-1]), (1, "0% tests passed, 1 tests failed out of 1"))

    def test_all_passed(self):
        self.stand_in("ctest", 'echo "100% tests passed, 0 tests failed out of 7"')
        status, said = self.run_shell(f"run_tests {self.folder}; print_total")
        self.assertEqual((status, said.splitlines()[-1]), (0, "100% tests passed, 0 tests failed out of 7"))

    def test_one_failure_among_many_is_not_rounded_to_all(self):
        self.stand_in("ctest", 'echo "99% tests passed, 1 tests failed out of 1000"; exit 8')
        status, said = self.run_shell(f"run_tests {self.folder}; print_total")
        self.assertEqual((status, said.splitlines()[-1]), (1, "99% tests passed, 1 tests failed out of 1000"))

    def test_what_took_longest_is_printed(self):
        results = self.folder / "test_results"
        cases = "".join(f'<testcase name="C{i}" file="a.cpp" line="1" time="{i}.5" timestamp="" classname="Suite" />\n'
                        for i in range(12))
        entries = "".join(f" {i}/12 Test #{i}: entry_{i} .....   Passed  {i}.25 sec\n" for i in range(1, 13))
        self.stand_in("ctest", f"mkdir -p {results}; cat > {results}/a.xml <<'X'\n{cases}X\ncat <<'X'\n{entries}"
                               "100% tests passed, 0 tests failed out of 12\nX")
        status, said = self.run_shell(f"run_tests {self.folder}; print_total")
        lines = said.splitlines()
        begin = lines.index("seconds of the longest entries")
        self.assertEqual((status, lines[begin + 1:begin + 11]),
                         (0, [f"{i}.25 {self.folder} entry_{i}" for i in range(12, 2, -1)]))
        self.assertEqual(lines[begin + 11:begin + 22], ["seconds of the longest test cases"] +
                         [f"{i}.5 {self.folder} Suite.C{i}" for i in range(11, 1, -1)])

    def plant_results(self):
        """A ctest that passes, with what GoogleTest writes of three skipped cases and one check that is skipped."""
        results = self.folder / "test_results"
        report = "".join(f'      <skipped message="a.cpp:7&#x0A;{reason}&#x0A;"><![CDATA[a.cpp:7]]></skipped>\n'
                         for reason in ("no AVX512_BF16", "no Open MPI: built without it", "no AVX512_BF16: tiles need it"))
        self.stand_in("ctest", f"mkdir -p {results}; cat > {results}/device.xml <<'X'\n{report}X\n"
                               'echo " 1/2 Test #1: check_format .......***Skipped   0.02 sec"; '
                               'echo "100% tests passed, 0 tests failed out of 7"')

    def test_skipped_cases_are_counted_by_reason(self):
        self.plant_results()
        status, said = self.run_shell(f"run_tests {self.folder}; print_total")
        self.assertEqual((status, said.splitlines()[-5:]),
                         (0, ["4 test cases skipped", "      2 no AVX512_BF16", "      1 the check check_format cannot run",
                              "      1 no Open MPI", "100% tests passed, 0 tests failed out of 7"]))

    def test_continuous_integration_fails_where_more_than_hardware_is_missing(self):
        self.plant_results()
        status, said = self.run_shell(f"run_tests {self.folder}; only_hardware=yes; print_total")
        self.assertEqual((status, said.splitlines()[-1]), (1, "87% tests passed, 1 tests failed out of 8"))
        self.stand_in("ctest", f"mkdir -p {self.folder}/test_results; "
                      f"echo '<skipped message=\"a.cpp:7&#x0A;under a sanitizer: slow\">' > {self.folder}/test_results/a.xml; "
                      'echo "100% tests passed, 0 tests failed out of 7"')
        status, said = self.run_shell(f"run_tests {self.folder}; only_hardware=yes; print_total")
        self.assertEqual((status, said.splitlines()[-3:]),
                         (0, ["1 test cases skipped", "      1 under a sanitizer", "100% tests passed, 0 tests failed out of 7"]))

    def test_what_was_installed_meanwhile_is_found_by_configuring_again(self):
        self.stand_in_for_tools()
        (self.folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n")
        os.utime(self.folder / "CMakeCache.txt", (4e9, 4e9))
        (self.folder / "build.ninja").touch()
        self.assertEqual(self.run_shell(f"CXX=g++; configure release {self.folder}"), (0, ""))
        self.assertEqual(self.run_shell(f"CXX=g++; newly_installed=yes; configure release {self.folder}"),
                         (0, f"configuring in {self.folder}\n"))

    def test_usage(self):
        for arguments, status, text in ((["--help"], 0, "usage: ./test"), (["--wrong"], 2, "unknown option --wrong")):
            done = subprocess.run([ROOT / "test", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, check=False, env=os.environ)
            self.assertEqual(done.returncode, status)
            self.assertIn(text, done.stdout)


if __name__ == "__main__":
    unittest.main()
