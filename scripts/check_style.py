#!/usr/bin/env python3
"""Prints the sizes of files and functions, and fails on what nobody meant to leave behind: files and functions that
are too long, names that say nothing, commented-out code, a TODO without its issue, paths of somebody's machine, two types
of one name, which the linker would take for one."""
import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

from cpp_functions import Function, functions
from source_tree import Finding, files, is_cpp, parse_root, read_text, report, split_cpp

LONGEST_FILE = 1000
LONGEST_FUNCTION = 100
LONGEST_MICRO_KERNEL = 150  # where a comment in or just above the function calls it a micro-kernel

# Words of a name that say nothing about what it is.
BANNED_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "fast", "faster", "optimized",
                "optimised", "v2"}
# Other people's names that hold such a word and that our code has to write: name -> whose it is.
FOREIGN_NAMES = {"FastMathFlags": "LLVM", "setFast": "LLVM", "setFastMathFlags": "LLVM", "PassManager": "LLVM",
                 "FunctionPassManager": "LLVM", "ModulePassManager": "LLVM", "LoopPassManager": "LLVM",
                 "FunctionAnalysisManager": "LLVM", "ModuleAnalysisManager": "LLVM", "LoopAnalysisManager": "LLVM",
                 "CGSCCAnalysisManager": "LLVM"}

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_IDENTIFIER = re.compile(r"(?<![\w.'])(?:(\w+)\s*::\s*)?([A-Za-z_]\w*)")
_SCOPE = re.compile(r"\bnamespace\s+([\w: ]*)\{|\b(?:struct|class|enum class|enum)\s+(\w+)(?:\s+final)?\s*(?::[^:{;][^{;]*)?\{|[{}]")
_TODO = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")
# Spelt so that this file does not hold what it looks for.
_MACHINE_PATH = re.compile(r"(?<![\w.:/}>)*-])/(?:work|root|home/\w+|Users/\w+)(?:/|\b)")

# A comment line that is a statement: a declaration with a value, a call, a keyword of control, an include.
_CPP_STATEMENT = re.compile(
    r"(?:#\s*(?:include|define|if|ifdef|ifndef|endif|pragma)\b.*"
    r"|(?:return|break|continue|throw|delete|goto|using|typedef)\b[^.]*;"
    r"|(?:if|for|while|switch)\s*\(.*[){;]\s*"
    r"|\}?\s*else\s*\{?|[{}]+;?"
    r"|[\w:<>,*&\s\[\].()-]*[\w\])>]\s*(?:=|\+=|-=|\*=|/=|<<|>>)[^=].*;"
    r"|[\w:.>-]+(?:<[^>]*>)?\([^()]*(?:\([^()]*\)[^()]*)*\)\s*[;{]"
    r"|(?:const\s+)?[\w:]+(?:<[^>]*>)?[*&\s]+\w+(?:\[[^\]]*\])?;"
    r"|(?:\+\+|--)?\w+(?:\+\+|--)?;)\s*")


def name_fault(name, shown):
    """What is wrong with an identifier or a file's name; None if nothing is."""
    words = [word.lower() for word in _WORDS.findall(name)]
    bad = next((word for word in words if word in BANNED_WORDS), None)
    if not bad and len(words) > 1 and words[0] == "new":
        bad = "new"
    return f"`{shown}`: the word {bad!r} says nothing; name what it is" if bad else None


def check_identifiers(name, code):
    findings, seen = [], set()
    for match in _IDENTIFIER.finditer(code):
        qualifier, identifier = match.groups()
        if identifier in seen or identifier in FOREIGN_NAMES or qualifier in ("std", "llvm", "testing", "benchmark"):
            continue
        seen.add(identifier)
        if fault := name_fault(identifier, identifier):
            findings.append(Finding(name, code.count("\n", 0, match.start(2)) + 1, fault))
    return findings


def check_file_name(name):
    parts = pathlib.PurePosixPath(name).parts
    return [Finding(name, 1, fault) for part in parts if (fault := name_fault(part.split(".")[0], part))]


def check_function_sizes(name, found, lines):
    findings = []
    for function in found:
        around = "\n".join(lines[max(0, function.first - 11):function.last])
        limit = LONGEST_MICRO_KERNEL if re.search(r"//.*micro-kernel|\*.*micro-kernel", around) else LONGEST_FUNCTION
        if function.lines > limit:
            findings.append(Finding(name, function.first, f"{function.name} has {function.lines} lines; at most "
                                    f"{limit} are allowed"))
    return findings


def is_example(comments, place):
    """True where the comment line stands indented below prose of the same comment: a use shown to the reader."""
    if not re.match(r" {4,}", comments[place][1]):
        return False
    while place > 0 and comments[place - 1][0] == comments[place][0] - 1:
        place -= 1
        if re.match(r" {0,2}\w", comments[place][1]) and not _CPP_STATEMENT.fullmatch(comments[place][1].strip()):
            return True
    return False


def check_comments(name, comments, is_code):
    findings = []
    for place, (line, text) in enumerate(comments):
        text = text.strip()
        if _TODO.search(text):
            findings.append(Finding(name, line, "a mark for work to do names its issue, like (#12) right after the "
                                    "word"))
        if is_code(text) and not is_example(comments, place):
            findings.append(Finding(name, line, f"commented-out code: `{text}`"))
    return findings


def without_includes(code):
    """Blank lines where other people's headers are named: their names are not ours to choose."""
    return re.sub(r"^[ \t]*#[ \t]*include[ \t]*<[^>]*>", "", code, flags=re.MULTILINE)


def types_of(name, code):
    """(full name, line) of each type that is defined in a namespace; the unnamed one is the file's own."""
    scopes = []
    for match in _SCOPE.finditer(code):
        namespace, name_of_type = match.groups()
        if match[0] == "}":
            del scopes[-1:]
            continue
        if name_of_type and None not in scopes:
            yield "::".join([*scopes, name_of_type]), code.count("\n", 0, match.start()) + 1
        scopes.append(None if namespace is None else namespace.replace("inline v0", "").strip(": ") or f"({name})")


def check_types(code_of):
    """Types of the library that two files define: the linker takes their functions for one another's."""
    first, findings = {}, []
    for name, code in code_of.items():
        for full_name, line in types_of(name, code):
            other = first.setdefault(full_name, name)
            if other != name:
                findings.append(Finding(name, line, f"{full_name} is defined in {other}, too; give one another name"))
    return findings


def check_cpp(name, text):
    """(functions, findings)."""
    code, comments = split_cpp(text)
    found = functions(code)
    findings = check_function_sizes(name, found, text.split("\n")) + check_identifiers(name, without_includes(code))
    return found, findings + check_comments(name, comments, lambda line: bool(_CPP_STATEMENT.fullmatch(line)))


def is_python_statement(text):
    """True for a comment that reads as a statement with an effect; prose, a name and a label do not."""
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return False
    plain = (ast.AnnAssign,)
    return any(not isinstance(node, (ast.Expr, *plain)) or isinstance(getattr(node, "value", None), ast.Call)
               for node in body)


def check_python(name, text):
    """(functions, findings)."""
    tree = ast.parse(text)
    definitions = [node for node in ast.walk(tree)
                   if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    found = [Function(node.name, node.lineno, node.end_lineno) for node in definitions
             if not isinstance(node, ast.ClassDef)]
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    findings = check_function_sizes(name, found, text.split("\n"))
    for identifier, line in {node.name: node.lineno for node in definitions}.items() | {
            node.id: node.lineno for node in stored}.items():
        if fault := name_fault(identifier, identifier):
            findings.append(Finding(name, line, fault))
    comments = [(token.start[0], token.string.lstrip("#!").strip())
                for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    return found, findings + check_comments(name, comments, is_python_statement)


def hash_comments(text):
    """Comments of shell and CMake files, roughly: what follows a # at the start of a line or after a space."""
    return [(number, match.group(1).strip()) for number, line in enumerate(text.split("\n"), 1)
            if (match := re.search(r"(?:^|\s)#+\s(.*)", line))]


def check_file(name, text):
    """(functions, findings) of any text file."""
    findings = check_file_name(name)
    for number, line in enumerate(text.split("\n"), 1):
        if match := _MACHINE_PATH.search(line):
            findings.append(Finding(name, number, f"`{match.group(0)}` is a path of one machine"))
    if name.startswith("tests/fixtures/") or name.startswith("bench/records/"):
        return [], findings
    if text.count("\n") > LONGEST_FILE:
        findings.append(Finding(name, 1, f"{text.count(chr(10))} lines; at most {LONGEST_FILE} are allowed"))
    found, more = [], []
    if is_cpp(name):
        found, more = check_cpp(name, text)
    elif name.endswith(".py"):
        found, more = check_python(name, text)
    elif name.endswith((".sh", ".cmake", "CMakeLists.txt")) or text.startswith("#!/usr/bin/env bash"):
        more = check_comments(name, hash_comments(text), lambda line: False)
    elif name.endswith(".md"):
        more = check_comments(name, list(enumerate(text.split("\n"), 1)), lambda line: False)
    return found, findings + more


def room_of(name):
    parts = pathlib.PurePosixPath(name).parts
    return "/".join(parts[:2]) if parts[0] == "mantissa" and len(parts) > 2 else parts[0] if len(parts) > 1 else "."


def print_sizes(lines, sizes):
    """One row a room, then the longest of each."""
    rooms = collections.defaultdict(lambda: [0, 0])
    for name, count in lines.items():
        rooms[room_of(name)][0] += 1
        rooms[room_of(name)][1] += count
    print(f"{'files':>6} {'lines':>7}  where")
    for room, (count, total) in sorted(rooms.items()):
        print(f"{count:6} {total:7}  {room}")
    print("longest files: " + ", ".join(f"{name} {count}" for name, count in
                                        sorted(lines.items(), key=lambda item: -item[1])[:5]))
    longest = sorted(sizes, key=lambda item: -item[1].lines)[:5]
    print("longest functions: " + ", ".join(f"{function.name} {function.lines} ({name}:{function.first})"
                                            for name, function in longest))


def check_tree(root):
    findings, lines, sizes, code_of = [], {}, [], {}
    for name in files(root):
        text = read_text(root / name)
        if text is None:
            findings += check_file_name(name)
            continue
        found, more = check_file(name, text)
        findings += more
        sizes += [(name, function) for function in found]
        if is_cpp(name) or name.endswith(".py"):
            lines[name] = text.count("\n")
        if is_cpp(name) and name.startswith(("mantissa/", "cli/")):
            code_of[name] = split_cpp(text)[0]
    findings += check_types(code_of)
    print_sizes(lines, sizes)
    return findings, f"{len(lines)} source files, {len(sizes)} functions"


if __name__ == "__main__":
    findings, summary = check_tree(parse_root(__doc__))
    sys.exit(report("style", findings, summary))
