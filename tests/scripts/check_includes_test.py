"""scripts/check_includes.py finds each kind of wrong include that is planted, and lets the right ones pass."""
import unittest

from planted_tree import PlantedTree


class CheckIncludes(PlantedTree):
    script = "check_includes"
    clean = {
        "mantissa/base/error.h": "#pragma once\n#include <string>\n",
        "mantissa/graph/graph.h": '// A graph.\n#pragma once\n#include "mantissa/base/error.h"\n',
        "mantissa/graph/graph.cpp": '#include "mantissa/graph/graph.h"\n#include <fmt/format.h>\n',
        "mantissa/device/device.h": "#pragma once\n",
        "mantissa/device/cpu/gemm.h": '#pragma once\n#include "mantissa/graph/graph.h"\n',
        "mantissa/runtime/run.cpp": '#include "mantissa/device/device.h"\n',
        "cli/main.cpp": '#include "cli/command.h"\n#include "mantissa/graph/graph.h"\n',
        "cli/main_options.cpp": "#include <CLI/CLI.hpp>\n",
        "cli/command.h": "#pragma once\nnamespace CLI {\nclass App;\n}\n",
        "tests/device/gemm_test.cpp": '#include "mantissa/device/cpu/gemm.h"\n#include <gtest/gtest.h>\n',
        "examples/net.cpp": "#include <mantissa/graph/graph.h>\n",
    }

    def test_right_includes_pass(self):
        self.assert_clean({})

    def test_a_later_room(self):
        self.assert_caught({"mantissa/base/late.cpp": '#include "mantissa/graph/graph.h"\n'},
                           "mantissa/base/late.cpp:1: room base must not include mantissa/graph/graph.h")

    def test_an_unknown_room(self):
        self.assert_caught({"mantissa/attic/x.cpp": "\n"}, "attic is no room")

    def test_a_header_that_does_not_exist(self):
        self.assert_caught({"cli/x.cpp": '\n#include "mantissa/graph/gone.h"\n'},
                           "cli/x.cpp:2: mantissa/graph/gone.h does not exist")

    def test_a_name_not_from_the_root(self):
        self.assert_caught({"mantissa/graph/x.cpp": '#include "graph.h"\n'}, "name our headers from the root")

    def test_angle_brackets(self):
        self.assert_caught({"mantissa/graph/x.cpp": "#include <mantissa/graph/graph.h>\n"}, "angle brackets are for")

    def test_a_heavy_header_in_ours(self):
        self.assert_caught({"mantissa/graph/x.h": "#pragma once\n# include <nlohmann/json.hpp>\n"},
                           "mantissa/graph/x.h:2: <nlohmann/json.hpp> is for sources")

    def test_a_heavy_header_in_a_commands(self):
        self.assert_caught({"cli/x.h": "#pragma once\n#include <CLI/CLI.hpp>\n"}, "cli/x.h:2: <CLI/CLI.hpp> is for sources")

    def test_forward_declarations_are_not_heavy(self):
        self.assert_clean({"mantissa/graph/x.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"})

    def test_a_devices_own_header_above_it(self):
        self.assert_caught({"mantissa/runtime/x.cpp": '#include "mantissa/device/cpu/gemm.h"\n'},
                           "mantissa/device/cpu/gemm.h is a device's own header")

    def test_the_library_must_not_include_the_program(self):
        self.assert_caught({"mantissa/report/x.cpp": '#include "cli/command.h"\n'}, '"cli/command.h"')

    def test_a_header_without_pragma_once(self):
        self.assert_caught({"mantissa/base/x.h": "// #pragma once\n"}, "begins with #pragma once")

    def test_an_include_in_a_comment_does_not_count(self):
        self.assert_clean({"mantissa/base/x.cpp": '// #include "mantissa/graph/graph.h"\n/*\n#include "x.h"\n*/\n'})


if __name__ == "__main__":
    unittest.main()
