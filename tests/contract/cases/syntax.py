"""What is no JSON."""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import PARSE, Case, Code, Http


def cut(text: str) -> Http:
    return Http(text.encode())


SYNTAX_CASES: Final = [
    Case(f"JSON {text!r}", cut(text), Code.INTERNAL, f"{PARSE}{reason} at {offset}")
    for text, reason, offset in (
        (" ", "The document is empty.", 1),
        ("]", "The document is empty.", 0),
        ("{", "Missing a name for object member.", 1),
        ("{,}", "Missing a name for object member.", 1),
        ("{a:1}", "Missing a name for object member.", 1),
        ("{'a':1}", "Missing a name for object member.", 1),
        ('{"a":1,}', "Missing a name for object member.", 7),
        ('{"a"', "Missing a colon after a name of object member.", 4),
        ('{"a" 1}', "Missing a colon after a name of object member.", 5),
        ('{"a":', "Invalid value.", 5),
        ('{"a":}', "Invalid value.", 5),
        ('{"a":tRue}', "Invalid value.", 6),
        ('{"a":+1}', "Invalid value.", 5),
        ('{"a":.5}', "Invalid value.", 5),
        ('{"a":-}', "Invalid value.", 6),
        ('{"a":nan}', "Invalid value.", 6),
        ("// note", "Invalid value.", 0),
        ('{"a":1', "Missing a comma or '}' after an object member.", 6),
        ('{"a":1 "b":2}', "Missing a comma or '}' after an object member.", 7),
        ('{"a":1]', "Missing a comma or '}' after an object member.", 6),
        ('{"a":01}', "Missing a comma or '}' after an object member.", 6),
        ('{"inputs":[1 2]}', "Missing a comma or ']' after an array element.", 13),
        ('{"a":[1,2}', "Missing a comma or ']' after an array element.", 9),
        ("[1,]", "Invalid value.", 3),
        ("[,1]", "Invalid value.", 1),
        ("[", "Invalid value.", 1),
        ("{}x", "The document root must not be followed by other values.", 2),
        ("{} {}", "The document root must not be followed by other values.", 3),
        ('{"a":"b', "Missing a closing quotation mark in string.", 7),
        ('{"a":"b\0c"}', "Missing a closing quotation mark in string.", 7),
        ('{"a":"\\x"}', "Invalid escape character in string.", 6),
        ('{"a":"\\u12G4"}', "Incorrect hex digit after \\u escape in string.", 6),
        ('{"a":"\\ud800"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"\\ud800\\u0041"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"\\udc00"}', "The surrogate pair in string is invalid.", 6),
        ('{"a":"b\x01"}', "Invalid encoding in string.", 7),
        ('{"a":1e400}', "Number too big to be stored in double.", 5),
        ('{"a":1.}', "Miss fraction part in number.", 7),
        ('{"a":1e}', "Miss exponent in number.", 7),
        ('{"a":1e+}', "Miss exponent in number.", 8),
    )
]
