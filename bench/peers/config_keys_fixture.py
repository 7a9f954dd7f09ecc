#!/usr/bin/env python3
"""Writes tests/nn/hf_config_keys.json: the keys of config.json that the configuration classes of Hugging Face's
`transformers` have, by family, with the values that they have by default. tests/nn/hf_config_keys_test.cpp holds
the lists of known keys to them.

    pip install torch transformers
    python bench/peers/config_keys_fixture.py

`--check` compares with the stored file instead of writing it.
"""
import argparse
import dataclasses
import importlib.metadata
import json
import pathlib

import transformers
from transformers import GenerationConfig

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/nn/hf_config_keys.json"
# A Mistral with layer_types is read as a Ministral.
FAMILIES = {"gpt2": ["GPT2"], "llama": ["Llama"], "mistral": ["Mistral", "Ministral"], "qwen2": ["Qwen2"],
            "qwen3": ["Qwen3"], "gpt_neox": ["GPTNeoX"], "opt": ["OPT"], "gemma": ["Gemma"], "gemma2": ["Gemma2"],
            "gemma3_text": ["Gemma3Text"], "phi": ["Phi"], "phi3": ["Phi3"], "smollm3": ["SmolLM3"],
            "granite": ["Granite"], "olmo2": ["Olmo2"], "starcoder2": ["Starcoder2"]}


def keys_of(class_name):
    configuration = getattr(transformers, class_name + "Config")()
    keys = {field.name: getattr(configuration, field.name) for field in dataclasses.fields(configuration)}
    keys |= {name: getattr(configuration, name) for name in configuration.attribute_map}
    keys |= configuration.to_dict()
    keys.pop("model_type", None)
    return {key: value for key, value in keys.items() if not key.startswith("__")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored file, write nothing")
    options = parser.parse_args()
    fixture = {"made_by": f"transformers {importlib.metadata.version('transformers')}",
               "families": {name: {key: value for configuration in classes
                                   for key, value in sorted(keys_of(configuration).items())}
                            for name, classes in FAMILIES.items()}}
    of_all = GenerationConfig._get_default_generation_params()
    # A line for each key.
    families = ",\n".join(f'  "{name}": {{\n' + ",\n".join(f"   {json.dumps(key)}: {json.dumps(value, default=str)}"
                                                           for key, value in keys.items()) + "\n  }"
                          for name, keys in fixture["families"].items())
    text = f'{{\n "made_by": {json.dumps(fixture["made_by"])},\n "of_all": {json.dumps(of_all)},\n "families": {{\n{families}\n }}\n}}\n'
    if options.check:
        same = json.loads(FIXTURE.read_text())["families"] == json.loads(text)["families"]
        print(f"{FIXTURE.name}: {'as computed here' if same else 'DIFFERS'}")
        return 0 if same else 1
    FIXTURE.write_text(text)
    print(f"{FIXTURE.name}: {FIXTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
