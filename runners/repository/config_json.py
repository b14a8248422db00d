"""A configuration as JSON, as Triton prints it: original field names, all plain fields, 64-bit integers as numbers"""

from typing import Any

from google.protobuf.message import Message

__all__ = ["to_plain"]


def to_plain(message: Message) -> dict[str, Any]:
    """Every field without presence, and those with presence that are set"""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            item = field.message_type.fields_by_name["value"]
            plain[field.name] = {_key(key): _value(item, entry) for key, entry in sorted(value.items())}
        elif field.is_repeated:
            plain[field.name] = [_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            plain[field.name] = _value(field, value)
    return plain


def _key(key: str | float) -> str:
    return str(key)


def _value(field: Any, value: Any) -> Any:  # noqa: ANN401 - protobuf values have no common type
    if field.message_type is not None:
        return to_plain(value)
    return field.enum_type.values_by_number[value].name if field.enum_type is not None else value
