"""Run a command as another user or in a terminal; a kubelet starts this program in the command's place.

python -I -S start_command.py USER GROUP TERMINAL DIRECTORY WORD…

USER and GROUP are numbers or empty, TERMINAL is 1 where standard input is to be the controlling terminal. A
process of its own does this because the kubelet may not fork: threads of gRPC do not survive it. Imports
nothing of keplab.
"""

import fcntl
import os
import sys
import termios

NOT_FOUND, NOT_RUN = 127, 126


def main(user: str, group: str, terminal: str, directory: str, *words: str) -> int:
    """Run the command in this process; return an exit code when it cannot be run, and write why to standard error."""
    quoted = f'"{words[0]}"'
    try:
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if user or group:
            os.setgroups([])
        if group:
            os.setresgid(int(group), int(group), int(group))
        if user:
            os.setresuid(int(user), int(user), int(user))
    except PermissionError as error:
        who = f"runAsUser {user or 'as it is'}, runAsGroup {group or 'as it is'}"
        return _refuse(f"exec: {quoted}: {who}: {error.strerror}; the kubelet runs as user {os.getuid()}", NOT_RUN)
    try:
        if directory:
            os.chdir(directory)
    except OSError as error:
        return _refuse(f"exec: {quoted}: workDir {directory}: {error.strerror}", NOT_RUN)
    # By hand: the library's own search imports more, which the new user may not be able to read.
    folders = [""] if "/" in words[0] else os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    why = ""
    for folder in folders:
        try:
            os.execv(os.path.join(folder or ".", words[0]), words)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            why = why or str(error.strerror)
    if why:
        return _refuse(f"exec: {quoted}: {why}", NOT_RUN)
    return _refuse(f"exec: {quoted}: executable file not found in $PATH", NOT_FOUND)


def _refuse(text: str, code: int) -> int:
    os.write(2, f"{text}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
