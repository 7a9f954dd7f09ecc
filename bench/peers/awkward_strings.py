"""10,000 random and awkward strings, and hashes of what tokenizers make of them. Not stored anywhere: both sides make
them from the same generator, the other being tests/data/awkward_strings.h.
"""
MASK = (1 << 64) - 1

FRAGMENTS = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u0085", "\u2003", "\u3000", "\u180e",
    "\u200b", "\u200d", "\ufeff", "\u0000", "\u001c", "\u001f", "\u000b", "'", "''", "'s", "'S", "'t", "'re", "'ve",
    "'m", "'ll", "'d", "'LL", "' s", " 's", "\u2019s", "don't", "we've", "I'm", "they'll", "he'd", "the", " the", "The",
    "hello", " world", "Hello world", "a", " a", "aaaa", "1", " 1", "12", "2024", "3.14", "1,000", "\u00b2", "\u00bd",
    "\u2167", "\u0664", "\u4e09", ".", "...", "!", "?!", "--", "(", ")", "[]", "{};", "/*", "*/", "//", "http://x.y/z?q=1",
    "_", "__init__", "#include <x>", "<|endoftext|>", "<|end", "|>", "\u00e9", "e\u0301", "na\u00efve", "stra\u00dfe",
    "\u0130", "\u03a3\u03c2", "\u043f\u0440\u0438\u0432\u0435\u0442", " \u043c\u0438\u0440", "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u4f60\u597d\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155", "\U0001f600", "\U0001f468\u200d\U0001f469",
    "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001d49c", "\U00020000", "\ufffd", "\uffff", "\U0010ffff", "\ue000",
]
RANGES = [[0x00, 0x7F], [0x20, 0x7E], [0x80, 0x24F], [0x370, 0x52F], [0x590, 0x6FF], [0x900, 0x97F], [0x2000, 0x206F],
          [0x2150, 0x218F], [0x3000, 0x30FF], [0x4E00, 0x9FFF], [0xA000, 0xABFF], [0x1F300, 0x1FAFF], [0x10000, 0x1FFFF],
          [0x0, 0xD7FF], [0xE000, 0x10FFFF]]


class Random:
    """splitmix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def string_number(i, fragments=tuple(FRAGMENTS), ranges=tuple(RANGES)):
    random = Random(i)
    text = ""
    for _ in range(1 + random.below(12)):
        kind = random.below(4)
        if kind < 2:
            text += fragments[random.below(len(fragments))]
        elif kind == 2:
            first, last = ranges[random.below(len(ranges))]
            for _ in range(1 + random.below(6)):
                text += chr(first + random.below(last - first + 1))
        else:
            fragment = fragments[random.below(len(fragments))]
            text += fragment * (1 + random.below(40))
    return text


def fnv(data, start=0xCBF29CE484222325):
    for byte in data:
        start = ((start ^ byte) * 0x100000001B3) & MASK
    return start


def hash_of_ids(ids):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids))
