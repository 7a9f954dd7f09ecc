"""scripts/check_symbols.py finds weak symbols in real objects of instruction-set files, compiled here.

usage: check_symbols_test.py CXX
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_symbols.py"
CXX = sys.argv[1] if len(sys.argv) > 1 else "g++"

# noipa, so that the compiler has to write the function down wherever it is used.
WEAK = "struct S { [[gnu::noipa]] int f(int x) { return x + 1; } };\nint g(int x) { return S().f(x); }\n"
OWN = "namespace {\n" + WEAK.replace("int g", "}\nint g")
TEMPLATE = "template <class T> [[gnu::noipa]] T f(T x) { return x; }\nint g(int x) { return f(x); }\n"
VARIABLE = "inline int counter = 3;\nint& g() { return counter; }\n"
EXCEPTION = "struct S { ~S(); };\nvoid h();\nvoid g() { S s; h(); }\n"  # needs DW.ref.__gxx_personality_v0


class CheckSymbols(unittest.TestCase):
    def check(self, name, text, compiled=True):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / name
            source.write_text(text)
            command = [CXX, "-std=c++20", "-O2", "-fPIC", "-o", "x.o", "-c", str(source)]
            if compiled:
                subprocess.run(command, cwd=folder, check=True)
            (pathlib.Path(folder) / "compile_commands.json").write_text(
                json.dumps([{"directory": folder, "file": str(source), "command": " ".join(command)}]))
            done = subprocess.run([sys.executable, "-B", SCRIPT, folder], stdout=subprocess.PIPE, text=True,
                                  check=False)
        return done.returncode, done.stdout

    def test_an_inline_member_is_caught(self):
        for suffix in ("avx2", "avx512", "avx512bf16", "avx512fp16", "avx512vnni", "avx512vpopcntdq", "amx"):
            status, printed = self.check(f"k_{suffix}.cpp", WEAK)
            self.assertEqual(status, 1, printed)
            self.assertIn(f"k_{suffix}.cpp: defines the weak symbol `S::f(int)`", printed)

    def test_a_template_and_an_inline_variable_are_caught(self):
        self.assertIn("`int f<int>(int)`", self.check("k_avx2.cpp", TEMPLATE)[1])
        self.assertIn("`counter`", self.check("k_avx2.cpp", VARIABLE)[1])

    def test_an_anonymous_namespace_passes(self):
        self.assertEqual(self.check("k_avx2.cpp", OWN), (0, "symbols: ok (1 objects)\n"))

    def test_exceptions_pass(self):
        self.assertEqual(self.check("k_avx2.cpp", EXCEPTION), (0, "symbols: ok (1 objects)\n"))

    def test_other_files_are_not_looked_at(self):
        self.assertEqual(self.check("k_generic.cpp", WEAK), (0, "symbols: ok (0 objects)\n"))

    def test_an_object_that_was_not_built_is_a_failure(self):
        status, printed = self.check("k_amx.cpp", WEAK, compiled=False)
        self.assertEqual(status, 1)
        self.assertIn("is missing: build first", printed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
