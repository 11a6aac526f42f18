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
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def split_name(text: str) -> tuple[str, str | None]:
    """Splits `user/name` or `user/name@revision`, with or without `hf:`, into the repository and the revision."""
    name, at, revision = text.removeprefix(PREFIX).partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or (at and not revision):
        raise SvslError(f"{text}: expected user/name or user/name@revision, the name of a repository on the Hub")
    return name, revision or None


def download(name: str, revision: str | None = None) -> Path:
    """Returns the library file of a repository; from the cache if it is there and the Hub cannot be reached.

    Raises:
        SvslError: If there is no such repository, revision or file, or the Hub cannot be reached.
    """
    hub = _huggingface_hub()
    with _one_line_errors(name, revision):
        options = {"revision": revision, "library_name": "svsl", "library_version": __version__}
        return Path(hub.hf_hub_download(name, LIBRARY_FILE, **options))


def upload(folder: Path, name: str, private: bool = False) -> str:
    """Publishes the files of a folder as one commit and returns its address; creates the repository if necessary.

    Figures and videos of an earlier push that the folder does not replace are deleted.
    """
    hub = _huggingface_hub()
    with _one_line_errors(name):
        api = hub.HfApi(library_name="svsl", library_version=__version__)
        api.create_repo(name, private=private or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message=f"Library and model card, by svsl {__version__}",
            delete_patterns=[f"{FIGURES}/*", VIDEO_FILE],
        )
    return str(commit.commit_url)


def require_token() -> None:
    """Rejects a user who has no token, before any work is done."""
    if _huggingface_hub().get_token() is None:
        raise SvslError(f"pushing needs a token of the Hub with write access: {_LOG_IN}")


def _huggingface_hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise SvslError("the Hugging Face Hub needs huggingface_hub: pip install 'svsl[hub]'") from None
    return huggingface_hub


@contextlib.contextmanager
def _one_line_errors(name: str, revision: str | None = None) -> Iterator[None]:
    """Turns the errors of huggingface_hub and of the network into one line each, with a way to fix them."""
    from huggingface_hub import constants, errors

    where, hub = f"{PREFIX}{name}" + (f"@{revision}" if revision else ""), constants.ENDPOINT
    unreachable = f"{where}: {hub} cannot be reached; check the network and HF_HUB_OFFLINE"
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
        raise SvslError(f"{unreachable} ({type(error).__name__}: {error})") from None
