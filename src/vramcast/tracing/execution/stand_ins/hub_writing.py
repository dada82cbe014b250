"""What a program writes to the hub: without a network, and without a token, nothing is sent, and the program goes on.

Only a line that was not made is answered; what the hub itself says (no such place, no access) is the program's own to hear.
"""

import functools
import sys
from typing import Any

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.reachable import look_once

# Methods of HfApi that change a repository (huggingface_hub/hf_api.py of 1.x and 2.x); what each gives back is named below.
_WRITES = ("create_repo", "create_branch", "create_tag", "create_commit", "upload_file", "upload_folder", "upload_large_folder")
_USER = "you"


def install(session: Session) -> None:
    """Answer HfApi's writing methods where they find no network, with one note."""
    when_imported("huggingface_hub.hf_api", functools.partial(_api, session))


def _api(session: Session, module: Any) -> None:
    for name in (*_WRITES, "whoami"):
        if not hasattr(module.HfApi, name):
            continue
        setattr(module.HfApi, name, _unsent(getattr(module.HfApi, name), name, session))
        if hasattr(module, name):  # functions of the module are methods of one object
            setattr(module, name, getattr(module.api, name))
            top = sys.modules.get("huggingface_hub")
            if top is not None and name in vars(top):
                setattr(top, name, getattr(module.api, name))


def _unsent(original: Any, name: str, session: Session) -> Any:
    @functools.wraps(original)
    def call(api: Any, *args: Any, **options: Any) -> Any:
        look_once()
        try:
            return original(api, *args, **options)
        except Exception as failure:
            if not (is_network(failure) or _has_no_token(failure)):
                raise
        session.notes["nothing was sent to the hub"] = None
        return _given_back(name, str(options.get("repo_id", args[0] if args else "")))

    return call


def _has_no_token(failure: Exception) -> bool:
    return type(failure).__name__ == "LocalTokenNotFoundError"


def _given_back(name: str, repository: str) -> Any:
    from huggingface_hub import RepoUrl

    if name == "whoami":
        return {"type": "user", "name": _USER, "fullname": _USER, "orgs": []}
    if name == "create_repo":
        whole = repository if "/" in repository else f"{_USER}/{repository}"
        return RepoUrl(f"https://huggingface.co/{whole}")
    return None
