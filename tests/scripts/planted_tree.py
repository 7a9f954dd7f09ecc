"""For the tests of the check scripts: a small tree of files in which a violation is planted, and a run over it."""
import contextlib
import importlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from source_tree import report  # noqa: E402 (found through the line above)


class PlantedTree(unittest.TestCase):
    script = ""  # the name of the script under test, a module with check_tree(root) -> findings, summary
    clean = {}  # path -> text of a tree without a violation

    def check(self, planted):
        """Runs the script over the clean tree with the `planted` files added: (exit status, what it printed)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**self.clean, **planted}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = report(self.script, *importlib.import_module(self.script).check_tree(pathlib.Path(folder)))
        return status, printed.getvalue()

    def assert_clean(self, planted):
        status, printed = self.check(planted)
        self.assertEqual((status, [line for line in printed.splitlines() if "violations" in line]), (0, []), printed)

    def assert_caught(self, planted, *expected):
        """Every expected text is in the output, and there is no violation beyond them."""
        status, printed = self.check(planted)
        self.assertEqual(status, 1, printed)
        for text in expected:
            self.assertIn(text, printed)
        self.assertIn(f": {len(expected)} violations", printed)
