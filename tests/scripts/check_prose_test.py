"""scripts/check_prose.py finds long sentences, long pages, and comments that begin with a riddle."""
import pathlib
import sys
import tempfile
import unittest

from planted_tree import PlantedTree

SHORT = "The program trains a small model. It prints a line a step.\n"


class CheckProse(PlantedTree):
    script = "check_prose"
    clean = {
        "README.md": "# Of a program\n\n" + SHORT,
        "docs/guide/a.md": SHORT + "\n- " + "word " * 20 + "\n- " + "word " * 20 + "\n\n| " + "word " * 40
                           + "|\n\n    " + "word " * 40 + "\n\n" + SHORT * 4,
        "docs/other.md": "word " * 40 + "\n",
        "cli/main.cpp": "// A comment that goes on.\n// Of two lines, the second may begin so.\nint x;  ///< a number\n"
                        "const char* s = \"// What is in quotes is no comment\";\n",
        "run": "#!/usr/bin/env bash\n# Runs the program.\n# From here on.\n",
    }

    def test_right_prose_passes(self):
        self.assert_clean({})

    def test_a_long_sentence(self):
        for text in ("word " * 31 + ".\n", "word " * 16 + "\n" + "[word](a.md) " * 15 + "\n", "- " + "word " * 31 + "\n"):
            self.assert_caught({"docs/guide/b.md": SHORT * 9 + "\n" + text},
                               "docs/guide/b.md:11: a sentence of 31 words, expected 30 at most: word word")

    def test_sentences_that_are_long_on_average(self):
        self.assert_caught({"docs/guide/b.md": ("Word" + " word" * 17 + ". ") * 3 + "\n"},
                           "docs/guide/b.md:1: sentences of 18.0 words on average")

    def test_long_pages(self):
        self.assert_caught({"README.md": SHORT * 76}, "README.md:1: 912 words, expected 900 at most")
        self.assert_caught({"docs/guide/b.md": SHORT * 300, "docs/guide/c.md": SHORT * 300},
                           "words in all pages, expected 7300 at most")

    def test_a_comment_that_begins_with_a_riddle(self):
        for text in ("/// Of the last step.\nint x;\n", "int x;  ///< Which it is\n", "/* What it does. */\n",
                     "// A comment.\nint x;\n// From here.\n"):
            self.assert_caught({"bench/b.cpp": text}, "bench/b.cpp:")
        for name in ("b.py", "cmake/b.cmake", "b.sh", "a/CMakeLists.txt"):
            self.assert_caught({name: "x  " + "# What it is\n"}, "a comment begins with \"What\"")

    def test_a_comment_that_names_no_thing(self):
        for text in ("/// Frees what is left.\nint x;\n", "int x;  ///< as `what` says what it is\n"):
            self.assert_caught({"cli/b.cpp": text}, "a comment says \"what\"; name the thing")
        self.assert_clean({"cli/b.cpp": "/// Throws UserError, naming it `what`.\nint x;\n",
                           "bench/b.cpp": "/// Frees what is left.\nint x;\n"})

    def test_help(self):
        from check_prose import check_help  # found once planted_tree is there
        good = ("Train a model\nUsage: mantissa [OPTIONS]\n\nOptions:\n  --steps INT               Training steps (default: 100)"
                "\n                            in all\n\nExamples:\n  mantissa\n  mantissa --steps 3\n")
        for text, expected in ((good, []), (good.replace("in all", "in all " + "word " * 30), ["columns", "a sentence of 3", "on average"]),
                               (good.replace("  mantissa --steps 3\n", ""), ["fewer than two examples"])):
            with tempfile.TemporaryDirectory() as folder:
                program = pathlib.Path(folder) / "program"
                program.write_text(f"#!{sys.executable}\nprint({text!r}, end='')\n")
                program.chmod(0o755)
                findings, count = check_help(program)
            self.assertEqual((len(findings), count), (len(expected), 1), findings)
            for finding, words in zip(findings, expected):
                self.assertIn(words, str(finding))


if __name__ == "__main__":
    unittest.main()
