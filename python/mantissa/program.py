"""The neutral program: what an importer makes of a framework's module. It knows no framework.

A program is a list of nodes, each an operation by name with named arguments, over values that are numbered. Its
weights, inputs and constants are described beside them. Rows (mantissa.rows) say what each operation records.
"""
import base64
import dataclasses
import json

import numpy as np



@dataclasses.dataclass(frozen=True)
class Type:
    """A framework's type of numbers."""
    name: str  # as numpy and torch write it
    stored: str = ""  # the type in which its numbers lie; nothing: they cannot
    given: str = ""  # the type of an input of such numbers; nothing: there is none
    floating: bool = False


TYPES = {"f32": Type("float32", "f32", "f32", True), "f64": Type("float64", floating=True),
         "f16": Type("float16", floating=True), "bf16": Type("bfloat16", floating=True),
         "i64": Type("int64", "i32", "i32"), "i32": Type("int32", "i32", "i32"), "i16": Type("int16", "i32"),
         "i8": Type("int8", "i32"), "u8": Type("uint8", "u8", "u8"), "bool": Type("bool", "bool", "i32"),
         "c64": Type("complex64"), "c128": Type("complex128")}
_LIKE_ANOTHER = ("aten.expand_as", "aten.view_as", "aten.reshape_as", "aten.type_as")  # of `other` they take the type


def is_floating(dtype):
    return dtype in TYPES and TYPES[dtype].floating


@dataclasses.dataclass(frozen=True)
class Ref:
    """A value, where an argument of a node names one."""
    value: int


@dataclasses.dataclass
class Node:
    op: str  # "aten.gelu"
    arguments: dict  # by name: Ref, a list that may hold some, a number, a word or None
    outputs: list  # values it makes
    path: str = ""  # of the module, "h.3.attn"
    line: str = ""  # "model.py:52"
    code: str = ""  # what stands there
    exact: bool = False  # FP32 under any policy


@dataclasses.dataclass
class Weight:
    name: str
    value: int
    trained: bool = True  # a parameter that is
    running: bool = False  # a statistic that steps update


@dataclasses.dataclass
class Program:
    name: str
    types: dict = dataclasses.field(default_factory=dict)  # value -> (dtype, shape), "f32" and a tuple
    inputs: list = dataclasses.field(default_factory=list)  # values, in order
    weights: list = dataclasses.field(default_factory=list)
    constants: dict = dataclasses.field(default_factory=dict)  # value -> numpy array
    nodes: list = dataclasses.field(default_factory=list)
    loss: int = -1
    output: int = -1  # what the network predicts; -1: nothing
    folded: int = 0  # nodes that were computed once
    updates: dict = dataclasses.field(default_factory=dict)  # value of a running weight -> what a step makes of it

    def used(self, roots):
        """The nodes that these values follow from, in their order."""
        needed, kept = set(roots), []
        for node in reversed(self.nodes):
            if needed.isdisjoint(node.outputs):
                continue
            kept.append(node)
            needed.update(refs(node.arguments))
        return kept[::-1]

    def differentiated(self):
        """Values that a gradient of the loss comes to: what is detached, or shows but its type or shape, has none."""
        found = {self.loss}
        for node in reversed(self.nodes):
            of = [value for value in node.outputs if value in found and is_floating(self.types[value][0])]
            if of and node.op != "aten.detach":
                found.update(refs({name: x for name, x in node.arguments.items()
                                   if not (name == "other" and node.op in _LIKE_ANOTHER)}))
        return found

    def to_json(self):
        """Everything but the values of weights, as text."""
        def plain(x):
            if isinstance(x, Ref):
                return {"value": x.value}
            if isinstance(x, (list, tuple)):
                return [plain(each) for each in x]
            if isinstance(x, float) and (x != x or x in (float("inf"), float("-inf"))):
                return {"number": repr(x)}
            return x
        constants = {str(value): {"dtype": str(array.dtype), "shape": list(array.shape),
                                  "bytes": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}
                     for value, array in self.constants.items()}
        nodes = [dict(dataclasses.asdict(node), arguments={name: plain(x) for name, x in node.arguments.items()})
                 for node in self.nodes]
        return json.dumps({
            "name": self.name, "types": {str(value): [dtype, list(shape)] for value, (dtype, shape) in
                                         self.types.items()},
            "inputs": self.inputs, "weights": [dataclasses.asdict(weight) for weight in self.weights],
            "constants": constants, "nodes": nodes, "loss": self.loss, "output": self.output, "folded": self.folded,
            "updates": list(self.updates.items())})

    @staticmethod
    def from_json(text):
        def rich(x):
            if isinstance(x, dict):
                return Ref(x["value"]) if "value" in x else float(x["number"])
            return [rich(each) for each in x] if isinstance(x, list) else x
        read = json.loads(text)
        constants = {int(value): np.frombuffer(base64.b64decode(each["bytes"]), each["dtype"]).reshape(each["shape"])
                     for value, each in read["constants"].items()}
        nodes = [Node(**dict(each, arguments={name: rich(x) for name, x in each["arguments"].items()}))
                 for each in read["nodes"]]
        return Program(
            name=read["name"], types={int(value): (dtype, tuple(shape)) for value, (dtype, shape) in
                                      read["types"].items()},
            inputs=read["inputs"], weights=[Weight(**each) for each in read["weights"]], constants=constants,
            nodes=nodes, loss=read["loss"], output=read["output"], folded=read["folded"],
            updates=dict(read.get("updates", [])))


def refs(x):
    """The values that an argument, or several, name."""
    if isinstance(x, Ref):
        yield x.value
    elif isinstance(x, dict):
        for each in x.values():
            yield from refs(each)
    elif isinstance(x, (list, tuple)):
        for each in x:
            yield from refs(each)
