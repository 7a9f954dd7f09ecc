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


def ranges_of_categories(unicode):
    """(first code point, category) for each maximal range of one category."""
    found = []
    for code_point in range(0x110000):
        kind = unicode.category(chr(code_point))
        if kind == "Cc" and any(first <= code_point <= last for first, last in WHITE_SPACE):
            kind = "white control"
        if not found or found[-1][1] != kind:
            found.append((code_point, kind))
    return found


def newer():
    found = set()
    for item in NEWER.split():
        first, _, last = item.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return found


def words_of_decompositions(unicode):
    """For each run of code points that decompose alike, one step: a header, the number of code points in it if there are
    several, the code points that the first becomes. In a run each becomes one code point, of the same distance.
    """
    runs, left_out = [], newer()
    for code_point in range(0x110000):
        parts = unicode.decomposition(chr(code_point)).split()
        if not parts or code_point in HANGUL or code_point in left_out:
            continue
        compatible = parts[0].startswith("<")
        into = [int(part, 16) for part in parts[1 if compatible else 0:]]
        composes = len(into) == 2 and not compatible and unicode.normalize("NFC", chr(code_point)) == chr(code_point)
        flags = len(into) << 21 | compatible << 26 | composes << 27
        if runs and len(into) == 1:
            first, count, previous_flags, previous = runs[-1]
            if previous_flags == flags and first + count == code_point and previous[0] + count == into[0]:
                runs[-1] = (first, count + 1, flags, previous)
                continue
        runs.append((code_point, 1, flags, into))
    return [word for first, count, flags, into in runs
            for word in ((first | flags, *into) if count == 1 else (first | flags | 1 << 28, count, *into))]


def words_of_combining_classes(unicode):
    left_out = newer()
    return [code_point << 8 | unicode.combining(chr(code_point)) for code_point in range(0x110000)
            if code_point not in left_out and unicode.combining(chr(code_point))]


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
    found = ranges_of_categories(unicode)
    write("unicode_tables.cpp",
          "// Each entry is 32 * first code point + category (of category_names) of one range, in order.",
          array("starts", [first << 5 | CATEGORIES.index(kind) for first, kind in found]),
          "std::span<const std::uint32_t> unicode_category_starts() { return starts; }")
    decompositions, classes = words_of_decompositions(unicode), words_of_combining_classes(unicode)
    write("unicode_decompositions.cpp",
          "// A run of code points: first + 2^21 * length + 2^26 if for compatibility only + 2^27 if it composes again\n"
          "// + 2^28 if they are several; how many, if so; what the first becomes. And 256 * code point + combining\n"
          "// class of each that has one.",
          array("decompositions", decompositions) + array("classes", classes),
          "std::span<const std::uint32_t> unicode_decompositions() { return decompositions; }\n"
          "std::span<const std::uint32_t> unicode_combining_classes() { return classes; }")
    print(f"{len(found)} ranges, {len(decompositions)} words of decompositions, {len(classes)} combining classes")


if __name__ == "__main__":
    main()
