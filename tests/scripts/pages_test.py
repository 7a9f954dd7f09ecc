"""Opens the pages that the program writes in Chromium, 400 and 1,200 pixels wide: nothing is said on the console, no text
lies outside the window, and none is cut off where it cannot be scrolled to. Plants a page that fails in each of the
three ways first.

    tests/scripts/pages_test.py PROGRAM

Exits with 77, which ctest reports as skipped, where Chromium is not installed.
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = (400, 1200)
TINY = "--model gpt2-tiny --batch 2 --sequence 32"
PAGES = {
    "train": f"train {TINY} --steps 6 --validate-every 3 --quiet --text README.md --html",
    "ladder": f"ladder {TINY} --steps 2 --repeats 1 --quiet --html",
    "bench": "bench --model ResNet20 --batch-size 2 --quiet --html",
    "roofline": f"explain {TINY} --roofline --quiet --html",
    "numerics": f"numerics {TINY} --steps 2 --html",
    "converge": f"numerics converge {TINY} --steps 6 --warmup 2 --tolerance 1 --quiet --html",
}
# Parts with text that lie outside the window, or of which an ancestor without a bar shows only a part.
LOOK = """
const frame = document.getElementById('page'), inner = frame.contentDocument, found = [];
const bars = ['auto', 'scroll'];
for (const part of inner.body.querySelectorAll('*')) {
  const own = [...part.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const box = part.getBoundingClientRect();
  if (!own || box.width === 0 || ['title', 'style', 'script'].includes(part.tagName.toLowerCase())) continue;
  let shown = false, cut = box.right > frame.clientWidth + 1 || box.left < -1;
  for (let outer = part.parentElement; outer && outer !== inner.documentElement; outer = outer.parentElement) {
    const style = frame.contentWindow.getComputedStyle(outer), room = outer.getBoundingClientRect();
    if (bars.includes(style.overflowX)) shown = true;
    if (style.overflowX === 'hidden' && !shown && (box.right > room.right + 1 || box.left < room.left - 1)) cut = true;
  }
  if (cut && !shown) found.push(part.textContent.trim().slice(0, 60));
}
document.body.innerHTML = '<pre id="found"></pre>';
document.getElementById('found').textContent = JSON.stringify(found);
"""
PLANTED = {
    "a script that fails": "<p>text</p><script>nothing.at.all()</script>",
    "text outside the window": "<p style='width:2000px'>text</p>",
    "text cut off": "<div style='width:300px;overflow:hidden'><p style='width:350px'>text</p></div>",
}


def chromium():
    return next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)


def faults(browser, page, width, folder):
    """What is wrong with the page's text, in a frame of that width: a window has a least width of its own."""
    holder = folder / "holder.html"
    holder.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0"><iframe id="page" style="border:0" '
                      f'width="{width}" height="4000" srcdoc="{html.escape(page)}"></iframe>'
                      f"<script>window.onload = () => {{ {LOOK} }}</script>", encoding="utf-8")
    ran = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=5000",
         f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, 800)},4000", "--dump-dom", holder.as_uri()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    said = [f"console: {line}" for line in re.findall(r"CONSOLE.*", ran.stderr)]
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout, re.S)
    if not found:
        return said + [f"the page was not looked at: {ran.stderr[-300:]}"]
    return said + [f"cut off: {text}" for text in json.loads(html.unescape(found.group(1)))]


def main():
    browser = chromium()
    if not browser:
        print("Chromium is not installed (package chromium)")
        return 77
    program, failed = pathlib.Path(sys.argv[1]).resolve(), False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for what, body in PLANTED.items():
            page = f'<!doctype html><html><head><meta charset="utf-8"></head><body>{body}</body></html>'
            if not faults(browser, page, WIDTHS[0], folder):
                print(f"not found where it was planted: {what}")
                failed = True
        for page, words in PAGES.items():
            file = folder / f"{page}.html"
            subprocess.run([program, *words.split(), file], check=True, stdout=subprocess.DEVNULL)
            for width in WIDTHS:
                for fault in faults(browser, file.read_text(encoding="utf-8"), width, folder):
                    print(f"{page}, {width} pixels: {fault}")
                    failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
