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

from transformers import GenerationConfig, GPT2Config, LlamaConfig, MinistralConfig, MistralConfig

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/nn/hf_config_keys.json"
# A Mistral with layer_types is read as a Ministral.
FAMILIES = {"gpt2": [GPT2Config], "llama": [LlamaConfig], "mistral": [MistralConfig, MinistralConfig]}


def keys_of(configuration_class):
    configuration = configuration_class()
    keys = {field.name: getattr(configuration, field.name) for field in dataclasses.fields(configuration)}
    keys |= {name: getattr(configuration, name) for name in configuration.attribute_map}
    keys |= configuration.to_dict()
    keys |= GenerationConfig._get_default_generation_params()
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
    text = json.dumps(fixture, indent=1, default=str) + "\n"
    if options.check:
        same = json.loads(FIXTURE.read_text())["families"] == json.loads(text)["families"]
        print(f"{FIXTURE.name}: {'as computed here' if same else 'DIFFERS'}")
        return 0 if same else 1
    FIXTURE.write_text(text)
    print(f"{FIXTURE.name}: {FIXTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
