"""What a program writes to the hub: a trace sends nothing, with a network or without, and the program goes on.

Who asks (``whoami``) is the hub's to say, where it can be reached with a token.
"""

import functools
import sys
from concurrent.futures import Future
from typing import Any

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.execution.stand_ins.reachable import look_once

# Methods of HfApi that change a repository (huggingface_hub/hf_api.py of 1.x and 2.x); what each gives back is named below.
_COMMITS = ("create_commit", "upload_file", "upload_folder", "delete_file", "delete_folder")
_WRITES = (
    *_COMMITS, "create_repo", "create_branch", "create_tag", "upload_large_folder", "preupload_lfs_files", "delete_repo",
    "delete_branch", "delete_tag", "move_repo", "update_repo_settings", "super_squash_history",
)  # fmt: skip
_USER = "you"


def install(session: Session) -> None:
    """Answer HfApi's writing methods, with one note, and who asks where there is no network or token."""
    when_imported("huggingface_hub.hf_api", functools.partial(_api, session))


def _api(session: Session, module: Any) -> None:
    for name in (*_WRITES, "whoami"):
        if not hasattr(module.HfApi, name):
            continue
        answer = _asked if name == "whoami" else functools.partial(_unsent, name, session)
        setattr(module.HfApi, name, answer(getattr(module.HfApi, name)))
        if hasattr(module, name):  # functions of the module are methods of one object
            setattr(module, name, getattr(module.api, name))
            top = sys.modules.get("huggingface_hub")
            if top is not None and name in vars(top):
                setattr(top, name, getattr(module.api, name))


def _unsent(name: str, session: Session, original: Any) -> Any:
    @functools.wraps(original)
    def call(_: Any, *args: Any, **options: Any) -> Any:
        from huggingface_hub.utils._validators import validate_repo_id

        repository = options.get("repo_id", args[0] if args else None)
        if isinstance(repository, str):
            validate_repo_id(repository)
        session.notes["nothing was sent to the hub"] = None
        given = _given_back(name, str(repository or ""))
        if not options.get("run_as_future"):
            return given
        done: Future[Any] = Future()
        done.set_result(given)
        return done

    return call


def _asked(original: Any) -> Any:
    @functools.wraps(original)
    def call(api: Any, *args: Any, **options: Any) -> Any:
        look_once()
        try:
            return original(api, *args, **options)
        except Exception as failure:
            if not (is_network(failure) or type(failure).__name__ == "LocalTokenNotFoundError"):
                raise
        return {"type": "user", "name": _USER, "fullname": _USER, "orgs": []}

    return call


def _given_back(name: str, repository: str) -> Any:
    from huggingface_hub import CommitInfo, RepoUrl

    whole = f"https://huggingface.co/{repository if '/' in repository else f'{_USER}/{repository}'}"
    if name == "create_repo":
        return RepoUrl(whole)
    if name in _COMMITS:
        oid = "0" * 40
        return CommitInfo(commit_url=f"{whole}/commit/{oid}", commit_message="", commit_description="", oid=oid)
    return None
