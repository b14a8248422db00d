"""Ensembles that cannot be loaded, each with one fault. The models of their steps are in models/"""

from __future__ import annotations

from typing import Final

__all__ = ["WRONG"]

TEXT: Final = 'input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }'
OUT: Final = 'output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }'


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1) -> str:
    def mapped(side: str, names: dict[str, str]) -> str:
        return " ".join(f'{side} {{ key: "{of_model}" value: "{name}" }}' for of_model, name in names.items())

    named = f'model_name: "{model}"' if model else ""
    maps = f"{mapped('input_map', inputs)} {mapped('output_map', outputs)}"
    return f"step {{ {named} model_version: {version} {maps} }}"


def ensemble(*steps: str, tensors: tuple[str, ...] = (TEXT, OUT), batch: int = 8, more: str = "") -> str:
    scheduling = f"ensemble_scheduling {{ {' '.join(steps)} }}"
    return "\n".join(['platform: "ensemble"', f"max_batch_size: {batch}", *tensors, scheduling, more])


SHOUT: Final = step("shout", {"TEXT": "TEXT"}, {"LOUD": "OUT"})
"""From TEXT to OUT"""

WRONG: Final = {
    "no_model": ensemble(step("none", {"TEXT": "TEXT"}, {"LOUD": "OUT"})),
    "broken_model": ensemble(step("raising", {"X": "TEXT"}, {"Y": "OUT"})),
    "no_such_version": ensemble(step("shout", {"TEXT": "TEXT"}, {"LOUD": "OUT"}, version=7)),
    "unknown_input": ensemble(step("shout", {"NONE": "TEXT"}, {"LOUD": "OUT"})),
    "unknown_output": ensemble(step("shout", {"TEXT": "TEXT"}, {"NONE": "OUT"})),
    "other_type": ensemble(SHOUT, tensors=(TEXT, OUT.replace("STRING", "INT32"))),
    "other_type_between": ensemble(
        step("length", {"TEXT": "TEXT"}, {"LENGTH": "BETWEEN"}), step("shout", {"TEXT": "BETWEEN"}, {"LOUD": "OUT"})
    ),
    "other_shape": ensemble(SHOUT, tensors=(TEXT, OUT.replace("[ 1 ]", "[ 2 ]"))),
    "unmapped_input": ensemble(
        step("add_sub", {"INPUT0": "ONE"}, {"OUTPUT0": "OUT"}),
        tensors=(
            'input { name: "ONE" data_type: TYPE_INT32 dims: [ 4 ] }',
            'output { name: "OUT" data_type: TYPE_INT32 dims: [ 4 ] }',
        ),
    ),
    "unused_input": ensemble(SHOUT, tensors=(TEXT, TEXT.replace("TEXT", "MORE"), OUT)),
    "unmade_output": ensemble(SHOUT, tensors=(TEXT, OUT, OUT.replace("OUT", "MORE"))),
    "unmade_between": ensemble(step("shout", {"TEXT": "LATER"}, {"LOUD": "OUT"})),
    "unused_between": ensemble(SHOUT, step("length", {"TEXT": "TEXT"}, {"LENGTH": "LENGTH"})),
    "made_twice": ensemble(SHOUT, SHOUT),
    "ring": ensemble(SHOUT, step("shout", {"TEXT": "B"}, {"LOUD": "A"}), step("shout", {"TEXT": "A"}, {"LOUD": "B"})),
    "ring_of_steps": ensemble(
        step("length", {"TEXT": "TEXT"}, {"LENGTH": "LENGTH"}),
        step("shout", {"TEXT": "B"}, {"LOUD": "OUT"}),
        step("shout", {"TEXT": "OUT"}, {"LOUD": "B"}),
    ),
    "itself": ensemble(step("wrong_itself", {"TEXT": "TEXT"}, {"OUT": "OUT"})),
    "ring_of_two": ensemble(step("wrong_other_of_two", {"TEXT": "TEXT"}, {"OUT": "OUT"})),
    "other_of_two": ensemble(step("wrong_ring_of_two", {"TEXT": "TEXT"}, {"OUT": "OUT"})),
    "larger_batch": ensemble(SHOUT, batch=16),
    "no_step": ensemble(),
    "no_input_map": ensemble(step("shout", {}, {"LOUD": "OUT"})),
    "no_output_map": ensemble(step("shout", {"TEXT": "TEXT"}, {})),
    "no_model_name": ensemble(step("", {"TEXT": "TEXT"}, {"LOUD": "OUT"})),
    "instances": ensemble(SHOUT, more="instance_group { count: 1 }"),
    "batching": ensemble(SHOUT, more="dynamic_batching { }"),
    "no_scheduling": f'platform: "ensemble"\nmax_batch_size: 8\n{TEXT}\n{OUT}',
    "no_tensors": ensemble(SHOUT, tensors=()),
}
