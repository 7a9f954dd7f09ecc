"""scripts/check_documents.py finds paths that do not exist, figures without a record and long lines of prose."""
import unittest

from planted_tree import PlantedTree

FIGURES = "| rung | ms per step |\n|---|---|\n| fp32 | 41.5 |\n"


class CheckDocuments(PlantedTree):
    script = "check_documents"
    clean = {
        "README.md": "# x\nSee [the docs](docs/a.md#part), `mantissa/base/error.h:12`, `./run`, `mantissa/ROOM/NAME.h`,\n"
                     "`cli/` and [elsewhere](https://example.org/a/b); `n/a` and `and/or` are no paths.\n",
        "docs/a.md": "Back to [the start](../README.md).\n\n    cmake -S cli -B build/x mantissa/base\n",
        "mantissa/base/error.h": "",
        "cli/main.cpp": "",
        "bench/records/one.md": "| a | 12 ms |\n",
    }

    def test_right_documents_pass(self):
        self.assert_clean({})

    def test_a_path_that_does_not_exist(self):
        for text in ("`mantissa/base/gone.h`", "run `cli/gone --x` now", "`mantissa/gone/NAME.h`",
                     "\n\n    cat mantissa/gone\n", "```\nmantissa/gone\n```", "[x](gone.md)", "[x](../gone)"):
            self.assert_caught({"docs/b.md": text}, "which does not exist")

    def test_a_table_of_figures_without_a_record(self):
        for table in (FIGURES, "| a | b |\n|---|---|\n| copy | 16 GB/s |\n", "| a |\n|---|\n| 12.5k tokens/s |\n"):
            self.assert_caught({"docs/b.md": table}, "docs/b.md:1: a table of measured figures")

    def test_a_record_beside_the_table(self):
        self.assert_clean({"docs/b.md": FIGURES + "\nMeasured: `bench/records/one.md`.\n"})
        self.assert_clean({"docs/b.md": "[record](../bench/records/one.md)\n\n" + FIGURES})

    def test_a_record_far_away_or_missing_does_not_count(self):
        self.assert_caught({"docs/b.md": "`bench/records/one.md`\n" + "\n" * 10 + FIGURES}, "a table of measured")
        self.assert_caught({"docs/b.md": "`bench/records/gone.md`\n" + FIGURES}, "which does not exist")

    def test_figures_that_nobody_measured(self):
        self.assert_clean({"docs/b.md": "<!-- not measured: datasheet -->\n" + FIGURES})
        self.assert_caught({"docs/b.md": "<!-- not measured: -->\n" + FIGURES}, "a table of measured figures")

    def test_tables_without_figures_pass(self):
        self.assert_clean({"docs/b.md": "| option | unit |\n|---|---|\n| 2 | ms |\n| `--x` | tokens/s |\n"})

    def test_prose_has_a_width(self):
        wide = "word " * 24 + "1"
        self.assert_caught({"docs/b.md": "short\n\n" + wide + "\n"}, "docs/b.md:3: prose of 121 columns, expected 120")
        self.assert_clean({"docs/b.md": wide[1:] + "\n\n    " + wide + "\n\n| " + wide + " |\n\n```\n" + wide + "\n```\n"})


if __name__ == "__main__":
    unittest.main()
