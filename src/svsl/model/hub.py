"""Libraries on the Hugging Face Hub, as `hf:user/name` or `hf:user/name@revision`; needs the extra `hub` when used."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from svsl.errors import SvslError
from svsl.model.version import __version__

PREFIX = "hf:"
LIBRARY_FILE, CONFIG_FILE, CARD_FILE, FIGURES, VIDEO_FILE = (
    "library.safetensors", "config.json", "README.md", "figures", "replay.mp4"
)  # fmt: skip
_USER_AGENT = {"library_name": "svsl", "library_version": __version__}
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def split_name(text: str) -> tuple[str, str | None]:
    """Splits `user/name` or `user/name@revision`, with or without `hf:`, into the repository and the revision."""
    name, at, revision = text.removeprefix(PREFIX).partition("@")
    _check_name(name)
    if at and not revision:
        raise SvslError(f"{text}: expected user/name@revision, with a branch, tag or commit after the @")
    return name, revision or None


def download(name: str, revision: str | None = None) -> Path:
    """Returns the library file of a repository; from the cache if it is there and the Hub cannot be reached.

    Raises:
        SvslError: If there is no such repository, revision or file, or the Hub cannot be reached.
    """
    _check_name(name)
    hub = huggingface_hub_module()
    with _one_line_errors(name, revision):
        return Path(hub.hf_hub_download(name, LIBRARY_FILE, revision=revision, **_USER_AGENT))


def create_repository(name: str, private: bool = False) -> None:
    """Creates a repository unless it exists; says at once if the user may not write to it."""
    _check_name(name)
    hub = huggingface_hub_module()
    if hub.get_token() is None:
        raise SvslError(f"pushing needs a token of the Hub with write access: {_LOG_IN}")
    with _one_line_errors(name):
        hub.HfApi(**_USER_AGENT).create_repo(name, private=private or None, exist_ok=True)


def upload(folder: Path, name: str) -> str:
    """Publishes the files of a folder as one commit to a repository and returns the address of the commit.

    Figures and videos of an earlier push that the folder does not replace are deleted.
    """
    hub = huggingface_hub_module()
    with _one_line_errors(name):
        commit = hub.HfApi(**_USER_AGENT).upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message=f"Library and model card, by svsl {__version__}",
            delete_patterns=[f"{FIGURES}/*", VIDEO_FILE],
        )
    return str(commit.commit_url)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise SvslError(f"{PREFIX}{name}: expected user/name, the name of a repository on the Hub")


def huggingface_hub_module() -> ModuleType:
    """Returns the package of the extra `hub`; says how to install it."""
    try:
        import huggingface_hub
    except ImportError:
        raise SvslError("the Hugging Face Hub needs huggingface_hub: pip install 'svsl[hub]'") from None
    return huggingface_hub


@contextlib.contextmanager
def _one_line_errors(name: str, revision: str | None = None) -> Iterator[None]:
    """Turns the errors of huggingface_hub and of the network into one line each, with a way to fix them."""
    from huggingface_hub import constants, errors
    from huggingface_hub.utils import logging

    where, hub = f"{PREFIX}{name}" + (f"@{revision}" if revision else ""), constants.ENDPOINT
    unreachable = f"{where}: {hub} cannot be reached; check the network and HF_HUB_OFFLINE"
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would log each attempt to connect
    try:
        yield
    except errors.GatedRepoError:
        raise SvslError(f"{where}: its author grants access on request: ask at {hub}/{name}, then {_LOG_IN}") from None
    except errors.RepositoryNotFoundError:
        raise SvslError(
            f"{where}: {hub} has no such repository, or it is private; check the name, or {_LOG_IN}"
        ) from None
    except errors.RevisionNotFoundError:
        raise SvslError(f"{where}: the repository has no such branch, tag or commit; check {hub}/{name}") from None
    except errors.LocalEntryNotFoundError:
        raise SvslError(f"{unreachable}; no copy is in the cache either") from None
    except errors.EntryNotFoundError:
        raise SvslError(
            f"{where}: the repository has no {LIBRARY_FILE}, so it is not a skill library; svsl push makes one"
        ) from None
    except errors.HFValidationError as error:
        raise SvslError(f"{where}: not a name of a repository ({error})") from None
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        if code in (401, 403):
            raise SvslError(f"{where}: your token may not do this; {_LOG_IN}, with write access to {name}") from None
        raise SvslError(f"{where}: {hub} answered {code} ({error.server_message or 'no reason given'})") from None
    except Exception as error:  # of the network: the kinds depend on the version of huggingface_hub
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise SvslError(f"{unreachable} ({type(cause).__name__}: {cause})") from None
    finally:
        logging.set_verbosity(verbosity)
