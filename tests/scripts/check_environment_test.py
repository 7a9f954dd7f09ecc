"""scripts/check_environment.py finds what is read but not documented, documented but not read, and read elsewhere."""
import unittest

from planted_tree import PlantedTree


class CheckEnvironment(PlantedTree):
    script = "check_environment"
    clean = {
        "mantissa/base/x.cpp": 'auto a = std::getenv("MANTISSA_ISA");  // not getenv(other)\n',
        "scripts/x.sh": 'echo "${CXX:-g++}"\n',
        "tests/x.cpp": 'getenv("ONLY_A_TEST");\n',
        "docs/environment.md": "| variable | read in |\n|---|---|\n| `MANTISSA_ISA` | `mantissa/base/x.cpp` |\n"
                               "| `CXX` | `scripts/x.sh` |\n",
    }

    def test_a_table_that_agrees_passes(self):
        self.assert_clean({})

    def test_read_but_not_documented(self):
        self.assert_caught({"cli/y.cpp": 'getenv( "NEW_ONE" )'}, "cli/y.cpp:1: reads NEW_ONE, which has no row")
        self.assert_caught({"run": '[ "${CI:-}" ]'}, "run:1: reads CI, which has no row")

    def test_documented_but_not_read(self):
        self.assert_caught({"mantissa/base/x.cpp": ""}, "docs/environment.md:3: MANTISSA_ISA is read nowhere")

    def test_read_in_another_file_than_the_row_says(self):
        self.assert_caught({"cli/y.cpp": 'getenv("MANTISSA_ISA")'}, "does not name `cli/y.cpp`")

    def test_a_name_that_cannot_be_checked(self):
        self.assert_caught({"cli/y.cpp": "\ngetenv(name)"}, "cli/y.cpp:2: getenv of something else")

    def test_without_the_document_all_is_undocumented(self):
        self.assert_caught({"docs/environment.md": ""}, "reads MANTISSA_ISA", "reads CXX")


if __name__ == "__main__":
    unittest.main()
