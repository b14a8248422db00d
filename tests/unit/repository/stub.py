"""Writes runners/repository/messages.pyi from the descriptors: python -m tests.unit.repository.stub"""

from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from runners.repository import messages

STUB = Path(messages.__file__).with_suffix(".pyi")
PLAIN = {
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_STRING: "str",
}


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name.removeprefix("inference."))
    return PLAIN.get(field.cpp_type, "int")


def _attribute(field: FieldDescriptor) -> tuple[str, str]:
    """What reading the attribute gives, and what the constructor takes"""
    item = field.message_type
    if item is not None and item.GetOptions().map_entry:
        key, value = _type(item.fields_by_name["key"]), _type(item.fields_by_name["value"])
        kind = "MessageMap" if item.fields_by_name["value"].message_type else "ScalarMap"
        return f"{kind}[{key}, {value}]", f"Mapping[{key}, {value}]"
    name = _type(field)
    if field.is_repeated:
        kind = "RepeatedCompositeFieldContainer" if item else "RepeatedScalarFieldContainer"
        return f"{kind}[{name}]", f"Iterable[{name}]"
    return name, name


def _enum(enum: EnumDescriptor, indent: str) -> Iterator[str]:
    yield f"{indent}{enum.name}: EnumTypeWrapper"
    yield from (f"{indent}{value.name}: int" for value in enum.values)


def _class(message: Descriptor, indent: str = "") -> Iterator[str]:
    yield f"{indent}class {message.name}(Message):"
    inner = indent + "    "
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _class(nested, inner)
    for enum in message.enum_types:
        yield from _enum(enum, inner)
    arguments = []
    for field in message.fields:
        if iskeyword(field.name):
            continue
        gives, takes = _attribute(field)
        arguments.append(f"{field.name}: {takes} = ...")
        if field.message_type is not None or field.is_repeated:
            yield f"{inner}@property"
            yield f"{inner}def {field.name}(self) -> {gives}: ..."
        else:
            yield f"{inner}{field.name}: {gives}"
    yield f"{inner}def __init__({', '.join(['self', *(['*'] if arguments else []), *arguments])}) -> None: ..."


def text() -> str:
    file = messages.ModelConfig.DESCRIPTOR.file
    lines = [
        "# Generated from the descriptors of tritonclient by tests/unit/repository/stub.py: do not edit.",
        "from collections.abc import Iterable, Mapping",
        "from google.protobuf.internal.containers import MessageMap, RepeatedCompositeFieldContainer",
        "from google.protobuf.internal.containers import RepeatedScalarFieldContainer, ScalarMap",
        "from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper",
        "from google.protobuf.message import Message",
        "",
    ]
    for enum in file.enum_types_by_name.values():
        lines += _enum(enum, "")
    for message in file.message_types_by_name.values():
        lines += _class(message)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(text())
