"""Atomic file writes: each file is written to a temporary name in the same folder, then renamed."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from svsl.errors import SvslError

_HEADER = "svsl"
_CHECKSUM = "sha256"  # in the header; files of older versions have none


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the content of `path` atomically: after a crash it holds either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # the name the user knows, not the temporary one
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Removes temporary files left by a process that was killed while writing `path`."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[np.generic]], header: Mapping[str, object]) -> None:
    """Writes named arrays and a JSON header with a checksum as a safetensors file; same content, same bytes."""
    # A single metadata entry, because safetensors writes several in arbitrary order. Arrays are copied to C order,
    # because safetensors silently writes others incorrectly.
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    checked = {**header, _CHECKSUM: _checksum(copies, header)}
    write_bytes(path, save(copies, {_HEADER: json.dumps(checked, sort_keys=True)}))


def read_safetensors(path: Path, kind: str) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Reads the arrays and the header of a file written by `write_safetensors`; `kind` names it in errors.

    Raises:
        SvslError: If the file is missing, cannot be read, or is damaged: its content does not match its checksum.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = parse_json((file.metadata() or {}).get(_HEADER, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise SvslError(f"{path}: no such {kind}") from None
    except (OSError, SafetensorError, ValueError) as error:
        raise SvslError(f"{path}: not a readable {kind} ({error})") from None
    if not isinstance(header, dict):
        raise SvslError(f"{path}: not a readable {kind} (its header is not a JSON object)")
    checksum = header.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(arrays, header):
        raise SvslError(f"{path}: a damaged {kind}, its content does not match its checksum; use a copy of the file")
    return arrays, header


def parse_json(text: str | bytes) -> Any:
    """Returns a JSON value; anything that is none, or is nested too deeply to be read, is a `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _checksum(arrays: Mapping[str, NDArray[np.generic]], header: Mapping[str, object]) -> str:
    """Returns the SHA-256 of a header and of names, types, shapes and bytes of arrays."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
