"""What Jinja2 with transformers' settings makes of chats: the judge of mantissa/data/chat.

    chat_templates.py FOLDER OUT   for each *.jinja of FOLDER, as `pip download --no-deps trl==1.16.*` brings 72 of:
                                   200 awkward chats, as lines of JSON in OUT (ChatTemplatesSlow reads
                                   build/chat_templates.jsonl)
    chat_templates.py fixture      for the templates of tests/data/chat/own_templates.py: twelve chats each, in
                                   tests/data/chat/chat_templates_fixture.json

Each line: template, messages, tools, variables, tokens, generation_prompt, and the `text` or the `error` that came;
`marked`: the places of the characters between generation marks. The time is that of TIME.
"""
import argparse
import copy
import datetime
import json
import pathlib
import random
import sys

from transformers.utils import chat_template_utils as utils

TIME = (2024, 7, 26)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
WORDS = ["", " ", "\n", "Hello", "  two  spaces ", "\n\nlines\n", "<|im_end|>", "<|im_start|>system\nObey", "</s>", "é ß Σ ΑΣ ǅ",
         "日本語", "🙂👩‍👩‍👧", "<think>\nhm\n</think>\n\nyes", "<think></think>", "</think>", "{{ 1 + 1 }}", "{% raw %}", "a\\n\"b'",
         "<a href='x'>&amp;</a>", "\u00a0\u2003x\u2003", "\t", "x" * 300, "[INST] [/INST]", "<|eot_id|>", "<end_of_turn>",
         "<tool_call>{\"name\": 1}</tool_call>", "0", "None", "\x1c\x00\x7f\u200b", "/nothink", "<|channel|>thought\nhm<channel|>done",
         "<|tool|>x<|/tool|>", "\r\n", "A" + "\u0301", "\ufeff", "\u2028"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather & more of a \"city\"",
     "parameters": {"type": "object", "properties": {
         "city": {"type": "string", "description": "Tōkyō", "enum": ["Ab", "ba"]}, "days": {"type": "integer", "default": 3},
         "where": {"type": "object", "properties": {"lat": {"type": "number"}, "b": {"type": ["string", "null"]}},
                   "required": ["lat"]},
         "many": {"type": "array", "items": {"type": "string"}}, "on": {"type": "boolean", "nullable": True}},
         "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "plain", "description": "<none>", "parameters": {},
     "return": {"type": "string", "description": "r"}, "strict": True}},
]
ARGUMENTS = [{}, {"city": "Zürich", "days": 2}, {"x": [1, 2.5, None, True, {"y": "</s>"}], "z": -0.0}, {"big": 12345678901234567890123},
             {"e": 1e22, "f": 1e-7, "t": "a\nb"}, "{\"city\": \"as text\"}"]


def text(draw):
    return "".join(draw.choice(WORDS) for _ in range(draw.choice([1, 1, 1, 2, 3])))


def content(draw):
    kind = draw.random()
    if kind < 0.85:
        return text(draw)
    return [{"type": "text", "text": text(draw)} for _ in range(draw.randrange(3))]


def calls(draw):
    return [{"id": f"call{i:05}xx", "type": "function",
             "function": {"name": draw.choice(["get_weather", "now"]), "arguments": draw.choice(ARGUMENTS)}}
            for i in range(draw.choice([1, 1, 2]))]


def chat_of(number):
    draw = random.Random(number)
    messages = []
    if draw.random() < 0.4:
        messages.append({"role": draw.choice(["system", "system", "system", "developer"]), "content": content(draw)})
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        messages.append({"role": "user", "content": content(draw)})
        if draw.random() < 0.1:
            continue
        if draw.random() < 0.3:
            messages.append({"role": "assistant", "content": draw.choice(["", text(draw)]), "tool_calls": calls(draw)})
            if draw.random() < 0.3:
                messages[-1]["reasoning_content"] = text(draw)
            if draw.random() < 0.2:
                del messages[-1]["content"]
            for call in messages[-1]["tool_calls"]:
                messages.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"],
                                 "content": draw.choice([content(draw), "{\"t\": 1}"])})
        answer = {"role": draw.choice(["assistant"] * 9 + ["model"]), "content": content(draw)}
        if draw.random() < 0.2:
            answer["reasoning_content"] = text(draw)
        if draw.random() < 0.1:
            answer["thinking"] = text(draw)
        messages.append(answer)
    if draw.random() < 0.2 and messages and messages[-1]["role"] == "assistant":
        messages.pop()
    tools = draw.sample(TOOLS, draw.choice([1, 2, 3])) if draw.random() < 0.3 else None
    variables = {}
    for name, values in [("enable_thinking", [True, False]), ("custom_tools", [TOOLS[:1]]), ("reasoning_effort", ["high"]),
                         ("date_string", ["01 May 2025"]), ("keep_cot", [True]), ("preserve_thinking", [True, False])]:
        if draw.random() < 0.15:
            variables[name] = draw.choice(values)
    return {"messages": messages, "tools": tools, "variables": variables, "generation_prompt": draw.random() < 0.4}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*TIME)


def judged(template, chat):
    """The chat with what came of it."""
    utils.datetime = Clock
    # JSON in strings, so that its reader has every digit.
    line = {"messages": json.dumps(chat["messages"], ensure_ascii=False),
            "tools": json.dumps(chat["tools"], ensure_ascii=False) if chat["tools"] else "",
            "variables": {name: json.dumps(value) for name, value in chat["variables"].items()},
            "generation_prompt": chat["generation_prompt"], "tokens": TOKENS}
    try:
        compiled = utils._compile_jinja_template(template)
        rendered, marks = utils._render_with_assistant_indices(
            compiled, messages=copy.deepcopy(chat["messages"]), tools=chat["tools"], documents=None,
            add_generation_prompt=chat["generation_prompt"], **TOKENS, **chat["variables"])
        line["text"] = rendered
        line["marked"] = marks
        rendered.encode()
    except Exception as error:
        line.pop("text", None)
        line["error"] = f"{type(error).__name__}: {error}"
    return line


def write_fixture():
    folder = pathlib.Path(__file__).parents[2] / "tests/data/chat"
    sys.path.insert(0, str(folder))
    from own_templates import TEMPLATES
    chats = [chat_of(number) for number in range(12)]
    lines = [json.dumps({"name": name, "template": template, "chats": [judged(template, chat) for chat in chats]})
             for name, template in TEMPLATES.items()]
    (folder / "chat_templates_fixture.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with the templates; or fixture")
    parser.add_argument("out", nargs="?", help="file of lines of JSON")
    given = parser.parse_args()
    if given.folder == "fixture" and not given.out:
        return write_fixture()
    if not given.out:
        parser.error("OUT is missing: which file gets the lines?")
    folder, out = pathlib.Path(given.folder), open(given.out, "w")
    for path in sorted(folder.glob("*.jinja")):
        for number in range(200):
            out.write(json.dumps({"name": path.name, "template": str(path), **judged(path.read_text(), chat_of(number))}) + "\n")


if __name__ == "__main__":
    main()
