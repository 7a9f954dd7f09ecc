"""scripts/check_style.py finds each kind of violation that is planted, and lets code pass that only looks like one.

What is planted is spelt in two pieces here, since the script reads this file, too.
"""
import unittest

from planted_tree import PlantedTree

TODO = "TO" + "DO"


def body(lines):
    return "{\n" + "    ++n;\n" * (lines - 2) + "}\n"


class CheckStyle(PlantedTree):
    script = "check_style"
    clean = {"mantissa/base/good.cpp": """// One purpose.
        namespace mantissa {
        Thing::Thing(int n) noexcept : n_{n}, list_{{1, 2}} {
            run([&] { return n; });
        }
        const auto table = {"not // a comment", R"(nor { this)", 'x', 1'000};
        // A value is kept; it is small (see above).
        // The sum of a and b = c.
        // TODO(#12): measure this again.
        std::uint_fast32_t renewed = kernels_avx2 + AnewArea + std::move(new_line_is_fine_in_middle);
        }
        """.replace("TODO", TODO).replace("new_line", "a_new_line").replace("AnewArea", "is_new")}

    def test_good_code_passes(self):
        self.assert_clean({})

    def test_a_long_file(self):
        self.assert_caught({"cli/x.cpp": "\n" * 1001}, "cli/x.cpp:1: 1001 lines")
        self.assert_clean({"cli/x.cpp": "\n" * 1000})

    def test_a_long_function(self):
        self.assert_caught({"cli/x.cpp": "namespace a {\nint f(int n) " + body(101) + "}\n"},
                           "cli/x.cpp:2: f has 101 lines; at most 100")
        self.assert_clean({"cli/x.cpp": "namespace a {\nint f(int n) " + body(100) + "}\n"})

    def test_a_long_constructor_with_members_in_braces(self):
        self.assert_caught({"cli/x.cpp": "A::A(int n) : n_{n}, m_{1}\n" + body(100)}, "A::A has 101 lines")

    def test_a_long_test_and_a_long_template(self):
        self.assert_caught({"cli/x.cpp": "TEST(A, B) " + body(101)}, "TEST has 101 lines")
        self.assert_caught({"cli/x.cpp": "template <class T>\nauto f(T n) -> std::vector<T> " + body(100)},
                           "f has 101 lines")

    def test_a_micro_kernel_may_be_longer(self):
        self.assert_clean({"cli/x.cpp": "// A micro-kernel: unrolled by hand.\nvoid f() " + body(149)})
        self.assert_caught({"cli/x.cpp": "// A micro-kernel: unrolled by hand.\nvoid f() " + body(151)}, "at most 150")

    def test_a_long_python_function(self):
        self.assert_caught({"scripts/x.py": "def f():\n" + "    n = 1\n" * 100}, "f has 101 lines")

    def test_two_types_of_one_name(self):
        one = "namespace mantissa::inline v0 {\nstruct Part {\n    int n;\n};\n}\n"
        self.assert_caught({"mantissa/a.h": one, "mantissa/b/b.cpp": "// Another.\n" + one.replace("struct", "class")},
                           "mantissa/b/b.cpp:3: mantissa::Part is defined in mantissa/a.h, too")
        for other in (one.replace("inline v0", "on_cpu"), one.replace("struct Part {", "namespace {\nstruct Part {") + "}\n",
                      one.replace("struct Part {", "struct Whole {\nstruct Part {") + "}\n", "namespace mantissa {\nstruct Part;\n}\n"):
            self.assert_clean({"mantissa/a.h": one, "mantissa/b/b.cpp": other})

    def test_words_that_say_nothing(self):
        for name in ("string_" + "utils", "Device" + "Manager", "matmul_" + "v2", "new" + "_matmul", "fast" + "Exp",
                     "optim" + "ized_", "help" + "er"):
            self.assert_caught({"cli/x.cpp": f"int {name} = 0;\n"}, f"cli/x.cpp:1: `{name}`")
            self.assert_caught({"scripts/x.py": f"{name} = 0\n"}, f"scripts/x.py:1: `{name}`")
            self.assert_caught({f"docs/{name}.txt": ""}, f"`{name}.txt`")

    def test_other_peoples_names_may_be_used(self):
        self.assert_clean({"cli/x.cpp": "llvm::Fast" + "MathFlags flags; flags.set" + "Fast();\n"})

    def test_commented_out_code(self):
        for line in ("int n = f(a, b);", "return n;", "f(a, g(b));", "if (n > 0) {", "#include <vector>", "}",
                     "std::vector<int> list;", "n += 2;", "for (int i = 0; i < n; ++i) f(i);"):
            self.assert_caught({"cli/x.cpp": f"// Why.\n// {line}\n"}, f"cli/x.cpp:2: commented-out code: `{line}`")
        self.assert_caught({"cli/x.cpp": "/* Why.\n   n = 2;\n*/\n"}, "cli/x.cpp:2: commented-out code")
        self.assert_caught({"scripts/x.py": "# Why.\n# value = f(2)\n"}, "scripts/x.py:2: commented-out code")

    def test_an_example_below_prose_is_no_commented_out_code(self):
        self.assert_clean({"cli/x.h": "// Used like this:\n//\n//     Graph graph;\n//     run(graph);\n"})
        self.assert_caught({"cli/x.h": "\n//     run(graph);\n"}, "cli/x.h:2: commented-out code")

    def test_work_to_do_without_its_issue(self):
        for name, mark in (("cli/x.cpp", "//"), ("scripts/x.py", "#"), ("scripts/x.sh", "#"), ("docs/x.md", "")):
            self.assert_caught({name: f"{mark} {TODO}: later\n"}, f"{name}:1: a mark for work to do")
            self.assert_clean({name: f"{mark} {TODO}(#7): later\n"})

    def test_paths_of_one_machine(self):
        for path in ("/wo" + "rk/main", "/ro" + "ot/.cache", "/ho" + "me/ann/x", "/Us" + "ers/ann"):
            self.assert_caught({"docs/x.md": f"see {path} for it\n"}, "is a path of one machine")
        self.assert_clean({"docs/x.md": "https://example.org/wo" + "rk/x and ${prefix}/ro" + "ot and a/wo" + "rk/\n"})

    def test_sizes_are_printed(self):
        printed = self.check({})[1]
        self.assertRegex(printed, r"1 +\d+  mantissa/base")
        self.assertIn("longest functions: Thing::Thing 3 (mantissa/base/good.cpp:3)", printed)


if __name__ == "__main__":
    unittest.main()
