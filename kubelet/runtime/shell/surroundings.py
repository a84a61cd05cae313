"""The context that KWOK's Exec documents give to processes of emulated containers."""

import contextlib

from kubelet.runtime.shell.files import FileError
from kubelet.runtime.shell.interpreter import Context
from services.kwok.kinds.execs import Local


def surround(context: Context, local: Local | None) -> None:
    """Set the variables, the directory and the user of a process, as a document says."""
    if local is None:
        return
    context.environment.update({each.name: each.value for each in local.envs})
    if local.work_dir:
        with contextlib.suppress(FileError):
            if not context.files.exists(local.work_dir):
                context.files.make_directory(local.work_dir, with_parents=True)
        context.cwd = local.work_dir
    user, group = local.security_context.run_as_user, local.security_context.run_as_group
    context.user = (context.user[0] if user is None else user, context.user[1] if group is None else group)
