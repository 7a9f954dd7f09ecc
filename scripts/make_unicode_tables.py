#!/usr/bin/env python3
"""Writes mantissa/data/unicode_tables.cpp, the general category of each code point for one version of Unicode, and
mantissa/data/unicode_decompositions.cpp, what its normal forms need.

Both come from Python's unicodedata, or from the package unicodedata2 where the interpreter's own tables are of another
version. White_Space is written out here from PropList.txt, since Python does not offer the property (str.isspace
differs: it takes in U+001C to U+001F). U+180E lost the property in Unicode 6.3 and is not in it.

Normal forms are those of Unicode 9.0, by which Hugging Face's tokenizers normalises: what has been assigned since is
left as it is. A code point that is assigned never changes its decomposition or combining class (Unicode's stability
policy), so that NEWER, which the later versions added, is all that differs.
"""
import pathlib
import sys

VERSION = "16.0.0"
WHITE_SPACE = [(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
               (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
# In the order of the characters of category_names in mantissa/data/unicode.h. Controls that are white space are a
# category of their own, so that White_Space is a union of categories.
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn", "white control"]
NEWER = """7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA 32FF A7F2-A7F4 A82C AB69 105C9 105E4
10781-10785 10787-107B0 107B2-107BA 10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B
11383 11385 1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A 11938 1193D-1193E 11943 119E0 11A34 11A47 11A99
11D42 11D44-11D45 11D97 11F41-11F42 16121-16128 1612F 16D68-16D6A 16FF0-16FF1 1CCD6-1CCF9 1E030-1E06D 1E08F 1E130-1E136
1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1F16C 1FBF0-1FBF9"""
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic


def tables():
    import unicodedata
    if unicodedata.unidata_version == VERSION:
        return unicodedata
    try:
        import unicodedata2
    except ImportError:
        unicodedata2 = unicodedata
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"make_unicode_tables.py: needs Unicode {VERSION}, found {unicodedata.unidata_version} in this Python "
                 f"and {unicodedata2.unidata_version} in unicodedata2: pip install unicodedata2=={VERSION}")
    return unicodedata2


BY_TURNS = 31  # in place of a category: the two before go on by turns, a code point each


def words_of_categories(unicode):
    """32 * how many code points + category for each maximal range of one category."""
    found = []  # [category, how many]
    for code_point in range(0x110000):
        kind = unicode.category(chr(code_point))
        if kind == "Cc" and any(first <= code_point <= last for first, last in WHITE_SPACE):
            kind = "white control"
        if found and found[-1][0] == kind:
            found[-1][1] += 1
        else:
            found.append([kind, 1])
    words, goes_on = [], False
    for at, (kind, count) in enumerate(found):
        last = found[max(0, at - 2):at + 1]
        if len(last) == 3 and last[0][0] == kind and all(length == 1 for _, length in last):
            words[-1:] = [words[-1] + 32] if goes_on else [words[-1], 32 | BY_TURNS]
            goes_on = True
        else:
            words.append(count << 5 | CATEGORIES.index(kind))
            goes_on = False
    return words


def newer():
    found = set()
    for item in NEWER.split():
        first, _, last = item.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


def steps_of(unicode):
    """(code point, length of what it becomes and how, that) for each that decomposes."""
    left_out = newer()
    for code_point in range(0x110000):
        parts = unicode.decomposition(chr(code_point)).split()
        if not parts or code_point in HANGUL or code_point in left_out:
            continue
        compatible = parts[0].startswith("<")
        into = [int(part, 16) for part in parts[1 if compatible else 0:]]
        composes = len(into) == 2 and not compatible and unicode.normalize("NFC", chr(code_point)) == chr(code_point)
        yield code_point, len(into) | compatible << 5 | composes << 6, into


def moving(steps, at):
    """How many steps from `at` on follow each other and move the same parts by one, and these parts, as bits."""
    count, parts = 1, 0
    while at + count < len(steps):
        (before, form_before, old), (code_point, form, new) = steps[at + count - 1:at + count + 1]
        if code_point != before + 1 or form != form_before or any(b - a not in (0, 1) for a, b in zip(old, new)):
            break
        moved = sum((b - a) << part for part, (a, b) in enumerate(zip(old, new)))
        if moved == 0 or moved > 7 or parts not in (0, moved):
            break
        count, parts = count + 1, moved
    return count, parts


def words_of_decompositions(unicode):
    """For each run of code points that decompose alike: a header, 8 * how many they are + the parts that move, what each
    becomes, or the first alone where parts move.
    """
    steps, words = list(steps_of(unicode)), []
    at = end = 0  # the code point behind the last run
    listed = None  # the place of its count, where it is a list
    while at < len(steps):
        code_point, form, into = steps[at]
        count, parts = moving(steps, at)
        if count < 3:
            count, parts = 1, 0
        if parts == 0 and listed is not None and code_point == end and words[listed - 1] & 127 == form:
            words[listed] += 8
        else:
            words += [(code_point - end) << 7 | form, count << 3 | parts]
            listed = None if parts else len(words) - 1
        words += into
        at, end = at + count, code_point + count
    return words


def words_of_combining_classes(unicode):
    """256 * how many code points + combining class for each maximal range of one class."""
    words, left_out = [], newer()
    for code_point in range(0x110000):
        own = 0 if code_point in left_out else unicode.combining(chr(code_point))
        if not words or words[-1] & 255 != own:
            words.append(own)
        words[-1] += 256
    return words


def array(name, values):
    lines, line = [], "   "
    for value in values:
        word = f" 0x{value:x},"
        if len(line) + len(word) > 118:
            lines.append(line)
            line = "   "
        line += word
    return f"constexpr std::uint32_t {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def write(name, about, arrays, accessors):
    text = f"""// Generated by scripts/make_unicode_tables.py from Unicode {VERSION}: do not edit.
{about}
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {{

namespace {{

// clang-format off
{arrays}// clang-format on

}}  // namespace

{accessors}

}}  // namespace mantissa
"""
    root = pathlib.Path(__file__).resolve().parent.parent
    (root / "mantissa/data" / name).write_text(text)


def main():
    unicode = tables()
    categories = words_of_categories(unicode)
    write("unicode_tables.cpp",
          "// 32 * how many code points + category (of category_names) of each range, in order; 31 in its place: the two\n"
          "// before go on by turns, a code point each.",
          array("categories", categories),
          "std::span<const std::uint32_t> unicode_categories() { return categories; }")
    decompositions, classes = words_of_decompositions(unicode), words_of_combining_classes(unicode)
    write("unicode_decompositions.cpp",
          "// Runs of code points: 128 * how many lie between it and the run before + length + 32 if for compatibility\n"
          "// only + 64 if it composes again; 8 * how many they are + bits of the parts that move on with each; the\n"
          "// result of each, or the first result alone where parts move. And 256 * how many code points\n"
          "// + combining class of each range, in order.",
          array("decompositions", decompositions) + array("classes", classes),
          "std::span<const std::uint32_t> unicode_decompositions() { return decompositions; }\n"
          "std::span<const std::uint32_t> unicode_combining_classes() { return classes; }")
    print(f"{len(categories)} ranges, {len(decompositions)} words of decompositions, {len(classes)} ranges of combining "
          "classes")


if __name__ == "__main__":
    main()
