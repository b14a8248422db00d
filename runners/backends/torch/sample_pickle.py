"""
What the pickle of sample inputs names. PyTorch calls what it finds there, and knows more than tensors need: one of them
makes memory of any size.
"""

import io
import pickletools
import re

from ...errors import ConfigInvalid
from ...zip_files import opened_zip, read_record

__all__ = ["names_tensors_alone"]

_MOST_BYTES = 4 * 1024 * 1024
"""A tensor takes a hundred"""
_OF_TENSORS = re.compile(
    r"collections OrderedDict|torch Size|torch \w+Storage|torch\.storage UntypedStorage|torch [a-z]\w*"
    r"|torch\._utils _rebuild_(tensor_v[23]|parameter)|torch\.serialization _get_layout"
)
_CALLS = frozenset({"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"})
"""Others than the one by which tensors are made"""


def names_tensors_alone(samples: bytes, subject: str) -> bool:
    """Whether nothing but tensors, and what holds them, is made of `samples`, an archive that PyTorch wrote"""
    with opened_zip(io.BytesIO(samples), subject) as archive:
        found = [record for record in archive.infolist() if record.filename.rpartition("/")[2] == "data.pkl"]
        if len(found) != 1:
            return False
        if found[0].file_size > _MOST_BYTES:
            raise ConfigInvalid(f"{subject} names more than {_MOST_BYTES} bytes of values")
        text = read_record(archive, found[0].filename)
    return all(
        opcode.name not in _CALLS and (opcode.name != "GLOBAL" or bool(_OF_TENSORS.fullmatch(str(named))))
        for opcode, named, _ in pickletools.genops(text)
    )
