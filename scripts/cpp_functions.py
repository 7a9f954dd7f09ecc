"""Finds the functions of a C++ file by its braces: no compiler, so it also reads what this machine cannot build.

What opens a brace is told from the text before it. Lambdas and local types count towards the function they are in.
"""
import dataclasses
import re

_SCOPE = re.compile(r"^(?:export\s+|inline\s+|template\s*<.*>\s*|typedef\s+|static\s+|constexpr\s+)*"
                    r"(?:namespace|class|struct|union|enum|extern\s*\"[^\"]*\")(?![^(]*\)\s*$)", re.DOTALL)
# The text of a constructor up to the name of a member that is initialised with braces.
_MEMBER_INITIALIZER = re.compile(r"\)\s*(?:noexcept\s*(?:\([^)]*\)\s*)?)?:(?!:).*[\w>]\s*$", re.DOTALL)
_ENDS_SIGNATURE = re.compile(r"(?:const|noexcept|override|final|mutable|try)\s*$")
_NAME = re.compile(r"([~\w:]+|operator\s*\S+?)\s*\(")


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    first: int  # line of the signature
    last: int  # line of the closing brace

    @property
    def lines(self):
        return self.last - self.first + 1


def _without_directives(code):
    """Blanks preprocessor lines, which may hold unbalanced braces."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group(0)), code,
                  flags=re.MULTILINE)


def _kind(head):
    """What a brace after the text `head` opens: "scope", "function", "member" (of an initialiser list) or "value"."""
    text = re.sub(r"\[\[.*?\]\]", "", head, flags=re.DOTALL).strip()
    if _SCOPE.match(text):
        return "scope"
    if "(" not in text or re.search(r"=\s*$", text):
        return "value"
    if _MEMBER_INITIALIZER.search(text) and not _ENDS_SIGNATURE.search(text):
        return "member"
    before = text[:text.index("(")]
    return "value" if re.search(r"(?<![=!<>])=(?!=)", before) and "operator" not in before else "function"


def functions(code):
    """The functions of `code` (comments and strings already blanked), outermost only."""
    code = _without_directives(code)
    found, stack, head_start, started = [], [], 0, None
    for match in re.finditer(r"[{};]", code):
        token, place = match.group(0), match.start()
        in_scope = not stack or stack[-1] == "scope"
        if token == "{":
            kind = _kind(code[head_start:place]) if in_scope else "value"
            if kind == "function":
                head = code[head_start:place]
                offset = head_start + len(head) - len(head.lstrip())
                name = _NAME.search(head)
                started = (name.group(1) if name else "?", code.count("\n", 0, offset) + 1)
            stack.append(kind)
            if kind in ("scope", "function"):
                head_start = place + 1
        elif token == "}":
            kind = stack.pop() if stack else "value"
            if kind == "function":
                found.append(Function(*started, code.count("\n", 0, place) + 1))
            if kind in ("scope", "function"):
                head_start = place + 1
        elif in_scope:
            head_start = place + 1
    return found
