#!/usr/bin/env python3
"""Takes a chart out of a report's page (--html) as a picture of its own, with the page's colours and its legend, for
the documents.

usage: svg_of_page.py PAGE NUMBER FILE.svg    the chart of that number on the page, from 0
"""
import pathlib
import re
import sys


def chart_of(page, number):
    """The SVG with the style of the page, and the legend that stands before it written into its top margin."""
    charts = list(re.finditer(r"(<p class='key'>(?:(?!</p>).)*</p>)?\s*"
                              r"<svg viewBox='0 0 (\d+) (\d+)'([^>]*)>(.*?)</svg>", page, re.DOTALL))
    key, width, height, attributes, inside = charts[number].groups()
    colours = dict(re.findall(r"(--\w+):(#\w+)", page[:page.index("@media")]))
    style = page[page.index("<style>"):page.index("</style>")].replace("width:100%;", "")
    rules = "\n".join(re.findall(r"(?:svg|\.c\d)[^{}]*\{[^{}]*\}", style))
    names = re.findall(r"<i class='(c\d)'></i>([^<]*)", key or "")
    legend = "".join(f"<rect class='{name}' style='fill:var(--c)' x='{80 + 150 * i}' y='-20' width='12' height='12'/>"
                     f"<text x='{98 + 150 * i}' y='-9'>{text}</text>" for i, (name, text) in enumerate(names))
    variables = ";".join(f"{name}:{value}" for name, value in colours.items())
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 -28 {width} {int(height) + 28}'{attributes}>\n"
            f"<style>svg{{{variables};background:var(--page)}}\n{rules}</style>\n{legend}\n{inside}</svg>\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    pathlib.Path(sys.argv[3]).write_text(chart_of(pathlib.Path(sys.argv[1]).read_text(), int(sys.argv[2])))
