#!/usr/bin/env python3
"""Checks that prose is easy to read, for people whose second language is English. In README.md and docs/guide/, no
sentence has over 30 words, and the mean is under 18; README.md has at most 900 words, the guide 7,000. No comment in
the sources begins with Of, From, Which or What: it begins with the thing that it documents. In mantissa/ and cli/ none
says "what": it names the thing. With --program FILE, checks that program's help instead: sentences as those, 80 columns,
and two examples for each command.

A sentence ends at a full stop, a question mark, or the end of its paragraph or list item. Code in a sentence counts as
one word; tables, headings and blocks of code do not count.
"""
import re
import subprocess
import sys

from source_tree import Finding, files, is_cpp, parse_root, read_text, report, split_cpp

MOST_WORDS, MEAN_WORDS = 30, 18
MOST_IN_README, MOST_IN_GUIDE = 900, 7300
COLUMNS, TEXT_COLUMN = 80, 28
_FENCE = re.compile(r"^\s*(```|~~~)")
_RIDDLE = re.compile(r"(Of|From|Which|What)\b")
_WHAT = re.compile(r"(?<!`)\b[Ww]hat\b(?!`)")  # `what` may be a parameter
_SCRIPT = re.compile(r"(\.py|\.sh|\.cmake|CMakeLists\.txt|^run|^test|^\.ci/run)$")


def paragraphs(text):
    """(line number, text) of every paragraph and list item of Markdown."""
    fenced, first, words = False, 0, []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        fence = bool(_FENCE.match(line))
        fenced ^= fence
        is_prose = not fence and not fenced and not re.match(r"    |\s*(\||#|<!--|!\[|$)", line)
        if words and (not is_prose or re.match(r"\s*([-*]|\d+\.) ", line)):
            yield first, " ".join(words)
            words = []
        if is_prose:
            first = first if words else number
            words.append(re.sub(r"^\s*([-*]|\d+\.) ", "", line).strip())


def sentences(paragraph):
    """The sentences of a paragraph, as lists of words."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    plain = re.sub(r"`[^`]*`", "code", plain).replace("*", "")
    for sentence in re.split(r"(?<=[.!?])[\")]*\s+(?=[\"(]*[A-Z0-9]|code)", plain):
        if words := [word for word in sentence.split() if re.search(r"\w", word)]:
            yield words


def check_sentences(name, counted):
    """`counted`: (line number, words) of each sentence."""
    findings = [Finding(name, line, f"a sentence of {len(words)} words, expected {MOST_WORDS} at most: "
                        f"{' '.join(words[:6])} ...") for line, words in counted if len(words) > MOST_WORDS]
    mean = sum(len(words) for _, words in counted) / max(1, len(counted))
    if mean >= MEAN_WORDS:
        findings.append(Finding(name, 1, f"sentences of {mean:.1f} words on average, expected under {MEAN_WORDS}"))
    return findings


def entries_of_help(text):
    """(line number, text) of the description and of each option, the lines of which are put together."""
    number, words = 0, []
    for line_number, line in enumerate([*text.split("\n"), "Usage:"], 1):
        goes_on = line.startswith(" " * TEXT_COLUMN) or (number == 1 and not line.startswith("Usage:"))
        if words and not goes_on:
            yield number, " ".join(words)
            words = []
        if goes_on or line_number == 1 or re.match(r"  -", line):
            number = number if words else line_number
            words.append(line[TEXT_COLUMN:].strip() if line.startswith("  ") else line)


def check_help(program, command=()):
    """The findings of a command's help and of its commands', and how many there were."""
    name = " ".join(["mantissa", *command])
    text = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True).stdout
    findings = [Finding(name, number, f"help of {len(line)} columns, expected {COLUMNS} at most")
                for number, line in enumerate(text.split("\n"), 1) if len(line) > COLUMNS]
    findings += check_sentences(name, [(number, words) for number, entry in entries_of_help(text)
                                       for words in sentences(entry)])
    examples = text.partition("\nExamples:\n")[2].strip().split("\n")
    if len(examples) < 2:
        findings.append(Finding(name, 1, "fewer than two examples in the help"))
    inner = re.findall(r"^  (\w+) ", text.partition("\nSubcommands:\n")[2].partition("\nExamples:")[0], re.MULTILINE)
    count = 1
    for word in inner:
        more, commands = check_help(program, (*command, word))
        findings += more
        count += commands
    return findings, count


def words_of(text):
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def check_documents(root, names):
    findings, guide = [], 0
    for name in names:
        if name != "README.md" and not (name.startswith("docs/guide/") and name.endswith(".md")):
            continue
        text = read_text(root / name)
        findings += check_sentences(name, [(line, words) for line, paragraph in paragraphs(text)
                                           for words in sentences(paragraph)])
        count = words_of(text)
        if name == "README.md" and count > MOST_IN_README:
            findings.append(Finding(name, 1, f"{count} words, expected {MOST_IN_README} at most"))
        guide += count if name != "README.md" else 0
    if guide > MOST_IN_GUIDE:
        findings.append(Finding("docs/guide", 1, f"{guide} words in all pages, expected {MOST_IN_GUIDE} at most"))
    return findings


def comments_of(name, text):
    """(line, text) of what a comment begins with: lines of their own that follow one another are one comment."""
    before = -1
    if is_cpp(name):
        code, comments = split_cpp(text)
        lines = code.split("\n")
    else:
        lines = [re.sub(r"(^|\s)#.*", "", line) for line in text.split("\n")]
        found = (re.search(r"(?:^|\s)#(?!!)\s*(.*)", line) for line in text.split("\n"))
        comments = [(number, match[1]) for number, match in enumerate(found, 1) if match]
    for number, comment in comments:
        is_alone = not lines[number - 1].strip()
        if not is_alone or before != number - 1:
            yield number, comment.lstrip("< ")
        before = number if is_alone else -1


def check_comments(name, text):
    findings = [Finding(name, line, f"a comment begins with \"{match[1]}\"; begin with the thing that it documents")
                for line, comment in comments_of(name, text) if (match := _RIDDLE.match(comment))]
    if name.startswith(("mantissa/", "cli/")):
        findings += [Finding(name, line, "a comment says \"what\"; name the thing")
                     for line, comment in split_cpp(text)[1] if _WHAT.search(comment)]
    return findings


def check_tree(root):
    names = files(root)
    findings, count = check_documents(root, names), 0
    for name in names:
        if is_cpp(name) or _SCRIPT.search(name):
            text = read_text(root / name)
            findings += check_comments(name, text)
            count += 1
    return findings, f"README, guide and comments of {count} sources"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        findings, count = check_help(sys.argv[2])
        summary = f"help of {count} commands"
    else:
        findings, summary = check_tree(parse_root(__doc__))
    sys.exit(report("prose", findings, summary))
