"""The notebook of reports runs as it stands, and every report of both modules names modules and source lines."""
import json
import pathlib
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("skipped: no torch: pip install torch brings it")
    sys.exit(0)

import mantissa

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs/guide/module-reports.ipynb"


def cells():
    return ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


class Notebook(unittest.TestCase):
    def test_has_no_outputs_of_a_machine(self):
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None))

    def test_runs_and_names_modules_and_lines(self):
        """Each cell as a file of its own, as Jupyter has it; what a cell ends in is what it shows."""
        known, shown = {}, []
        with tempfile.TemporaryDirectory() as folder:
            for index, text in enumerate(cells()):
                file = pathlib.Path(folder) / f"cell{index}.py"
                file.write_text(text)
                if text.startswith("mantissa."):
                    shown.append((index, eval(compile(text, file, "eval"), known)))
                else:
                    exec(compile(text, file, "exec"), known)
        kinds = ("explain", "roofline", "ladder", "converge", "numerics", "lint")
        sequences = dict(zip(kinds, (report for _, report in shown)))
        images = dict(zip(kinds, known["reports"]))
        self.assertEqual((len(shown), len(images)), (6, 6))
        for reports, class_name, cell, module, any_module, code in (
                (sequences, "Sequences", 1, "blocks.0", r"blocks\.\d|embedding|classes", "q, k, v = self.qkv"),
                (images, "Images", 8, "stem", "stem|norm|body|classes", "x = F.relu(self.norm(self.stem(x)))")):
            line = 1 + next(at for at, each in enumerate(cells()[cell].split("\n")) if code in each)
            for kind, report in reports.items():
                self.assertIsInstance(report, mantissa.Report)
                self.assertIn(class_name, report.text, kind)
                self.assertTrue(report._repr_html_().startswith("<!doctype html>"), kind)
                for form in (report.text, report.page):
                    self.assertRegex(form, rf"cell{cell}\.py:\d+", kind)
                    self.assertRegex(form, any_module, kind)
            self.assertIn(f"{module}.", reports["lint"].text)
            for kind in ("explain", "roofline", "ladder"):
                self.assertRegex(reports[kind].text, rf"(?m)^cell{cell}\.py:{line} +{module}")
                self.assertIn(f"cell{cell}.py:{line}", reports[kind].page)
        # Reports begin from the module's own weights: the first loss is the module's.
        loss = torch.nn.functional.cross_entropy(known["step"].model(known["ids"]), known["labels"]).item()
        self.assertAlmostEqual(loss, json.loads(sequences["converge"].json)["runs"][0]["losses"][0], 4)


if __name__ == "__main__":
    unittest.main()
