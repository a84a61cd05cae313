"""The one table of what a command in an emulated container does."""

import io
import math
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet.runtime.shell.files import Directory, File, FileError, FileSystem, Quota
from kubelet.runtime.shell.programs import PROGRAMS, run

ENVIRONMENT = {"PATH": "/bin", "HOME": "/root", "GREETING": "good  day", "EMPTY": ""}


@pytest.fixture
def files():
    made = FileSystem()
    made.make_directory("/tmp")
    made.write("/etc-hosts", b"one\ntwo\nthree\n")
    return made


def shell(line, files=None, stdin=b""):
    return run(["sh", "-c", line], ENVIRONMENT, files, stdin, wall_s=1_767_323_045.0, hostname="p1")


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("echo hi", "hi\n"),
        ("echo -n a; echo b", "ab\n"),
        ("echo -e 'a\\tb'", "a\tb\n"),
        ("echo $GREETING", "good day\n"),
        ('echo "$GREETING"', "good  day\n"),
        ("echo '$GREETING'", "$GREETING\n"),
        ("echo ${GREETING}s ${NONE:-none} ${EMPTY:-e} ${EMPTY-kept} ${HOME:+set}", "good days none e set\n"),
        ("echo $(echo a; echo b) `echo c`", "a b c\n"),
        ("A=1; A=2 env | grep ^A; echo $A", "A=2\n1\n"),
        ("export B=x; printenv B", "x\n"),
        ("false || echo no; true && echo yes; ! true; echo $?", "no\nyes\n1\n"),
        ("(cd /tmp; pwd; exit 4); echo $? $(pwd)", "/tmp\n4 /\n"),
        ("for i in 1 2; do for j in a b; do echo $i$j; done; done", "1a\n1b\n2a\n2b\n"),
        ("if [ 2 -lt 10 ]; then echo less; elif true; then echo no; else echo never; fi", "less\n"),
        ("if test -f /none; then echo a; elif test -d /tmp; then echo d; fi", "d\n"),
        ("i=0; until [ $i = xxx ]; do i=$(printf '%sx' $i | tail -c +1 | grep -c x); i=xxx; done; echo $i", "xxx\n"),
        ("cat /etc-hosts | wc -l; wc -lwc < /etc-hosts", "3\n        3         3        14\n"),
        ("head -n 1 /etc-hosts; head -2 /etc-hosts | tail -n 1; tail -c+9 /etc-hosts", "one\ntwo\nthree\n"),
        ("echo a > /tmp/f; echo b >> /tmp/f; cat /tmp/f", "a\nb\n"),
        ("echo a | cat - /etc-hosts", "a\none\ntwo\nthree\n"),
        ("cat /none /etc-hosts 2>/dev/null; echo $?", "one\ntwo\nthree\n1\n"),
        ("env | cat /dev/null /proc/self/environ | tail -c 7", "EMPTY=\0"),
        ("echo a > /dev/null; echo b > /dev/stdout; echo c > /proc/1/fd/1", "b\nc\n"),
        ("ls /none 2>/dev/null; echo $?; ls /none 2>&1", "1\nls: /none: No such file or directory\n"),
        ("mkdir -p /tmp/a/b; touch /tmp/a/f; ls /tmp/a; rm -r /tmp/a; ls /tmp", "b\nf\n"),
        ("touch /tmp/x1 /tmp/x2; cd /tmp; echo x* y*", "x1 x2 y*\n"),
        ("printf '%s=%03d\\n' a 7 b 8", "a=007\nb=008\n"),
        (
            "date; date -u +%Y-%m-%dT%H:%M:%S; date +%s",
            "Fri Jan  2 03:04:05 UTC 2026\n2026-01-02T03:04:05\n1767323045\n",
        ),
        ("hostname; whoami; id", "p1\nroot\nuid=0(root) gid=0(root) groups=0(root)\n"),
        ("echo a b | while read x y; do echo $y $x; done", "b a\n"),
        ("echo 'a # b' # c", "a # b\n"),
        ("{ echo a; echo b; } | cat", "a\nb\n"),
        ("seq 3 | grep -v 2", "1\n3\n"),
        ("which sh nope; command -v ls", "/bin/sh\n/bin/ls\n"),
        ('sh -c \'echo "$0" "$@"\' zero one "two 2"', "zero one two 2\n"),
        ("echo $UNSET | cat; echo end", "\nend\n"),
    ],
)
def test_a_line_writes_what_a_shell_would_have_it_write(line, output, files):
    assert shell(line, files).output.decode() == output


@pytest.mark.parametrize(
    ("line", "code", "seconds"),
    [
        ("exit 3", 3, 0.0),
        ("sleep 2; sleep 500ms; exit 257", 1, 2.5),
        ("true", 0, 0.0),
        ("false", 1, 0.0),
        ("false; true", 0, 0.0),
        ("sleep 1 && false && sleep 5", 1, 1.0),
        ("sleep infinity", None, math.inf),
        ("while true; do sleep 5; done", None, math.inf),
        ("sh -c 'exit 7'", 7, 0.0),
        ("echo 'open", 2, 0.0),
        ("if true; then", 2, 0.0),
        ("cat /none", 1, 0.0),
    ],
)
def test_a_command_ends_with_its_code_after_its_time(line, code, seconds):
    outcome = shell(line)
    assert (outcome.exit_code, outcome.seconds, outcome.unknown) == (code, seconds, ())


def test_what_is_not_in_the_table_ends_with_127_and_says_that_containers_are_emulated():
    outcome = shell("curl -s example.com")
    assert outcome.exit_code == 127
    first, second = outcome.errors.decode().splitlines()
    assert first == "sh: curl: not found"
    assert "containers are emulated" in second
    assert outcome.unknown == ("curl",)
    assert run(["nginx", "-g", "daemon off;"]).exit_code == 127


def test_output_is_dated_by_the_time_that_has_passed_until_then():
    outcome = shell("echo a; sleep 3; echo b >&2; sleep 2")
    assert [(each.after_s, each.stream, each.data) for each in outcome.written] == [(0.0, 1, b"a\n"), (3.0, 2, b"b\n")]
    assert len(run(["sh", "-c", "while true; do echo x; sleep 10; done"], until_s=35.0).written) == 4


@pytest.mark.parametrize("device", ["/dev/stderr", "/proc/1/fd/2"])
def test_what_is_written_to_the_devices_of_errors_is_an_error(device):
    outcome = shell(f"echo a > {device}; echo b >> {device}")
    assert (outcome.output, outcome.errors) == (b"", b"a\nb\n")


def test_a_script_comes_in_on_standard_input():
    outcome = run(["sh"], ENVIRONMENT, FileSystem(), b"for i in a b\ndo\n echo $i\ndone\nexit 5\necho never\n")
    assert (outcome.output, outcome.exit_code) == (b"a\nb\n", 5)


def test_cat_writes_what_it_reads(files):
    assert shell("cat > /tmp/in", files, b"x" * 100_000).exit_code == 0
    assert files.read("/tmp/in") == b"x" * 100_000


def test_what_is_read_only_stays_as_it_is(files):
    files.mount("/config", Directory({"key": File(bytearray(b"v"))}, is_read_only=True))
    outcome = shell("echo x > /config/key; rm /config/key; mkdir /config/d; cat /config/key", files)
    assert outcome.output == b"v"
    assert outcome.errors.count(b"Read-only file system") == 3


def test_a_disk_is_full_when_it_is_full():
    files = FileSystem(Quota(1000))
    outcome = shell("seq 1000 > /big; echo $?", files)
    assert b"No space left on device" in outcome.errors
    shell("rm /big", files)
    assert shell("echo ok > /small; cat /small", files).output == b"ok\n"
    assert files.quota.left <= 1000


def test_tar_carries_directories_files_and_links_there_and_back(files):
    shell("mkdir -p /tmp/d/e; echo one > /tmp/d/f; echo two > /tmp/d/e/g; ln -s f /tmp/d/l", files)
    packed = run(["tar", "cf", "-", "/tmp/d"], ENVIRONMENT, files)
    assert packed.errors == b"tar: removing leading '/' from member names\n"
    with tarfile.open(fileobj=io.BytesIO(packed.output)) as archive:
        assert archive.getnames() == ["tmp/d", "tmp/d/e", "tmp/d/e/g", "tmp/d/f", "tmp/d/l"]
    other = FileSystem()
    other.make_directory("/in")
    # What follows the end of an archive is not waited for.
    outcome = run(["tar", "-xmf", "-", "-C", "/in"], ENVIRONMENT, other, packed.output)
    assert (outcome.exit_code, outcome.errors) == (0, b"")
    assert other.read("/in/tmp/d/e/g") == b"two\n"
    assert other.read("/in/tmp/d/l") == b"one\n"


@pytest.mark.parametrize("data", [b"", b"x" * 511, b"x" * 2000, b"\xff" * 600])
def test_tar_refuses_what_is_no_archive(data):
    assert run(["tar", "xf", "-"], ENVIRONMENT, FileSystem(), data).exit_code == 1


def test_an_archive_cannot_leave_its_directory():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("../../etc/passwd")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    files = FileSystem()
    files.make_directory("/in")
    run(["tar", "xf", "-", "-C", "/in"], ENVIRONMENT, files, buffer.getvalue())
    assert files.read("/in/etc/passwd") == b"x"


def test_links_in_a_circle_are_refused():
    files = FileSystem()
    files.link("/a", "/b")
    files.link("/b", "/a")
    with pytest.raises(FileError, match="Too many levels"):
        files.read("/a")


def test_a_name_is_not_its_own_caller_for_ever():
    assert shell("echo $(sh -c 'echo $(echo deep)')").output == b"deep\n"


@given(st.text(alphabet="ab $'\"\\;|&<>(){}`!#*\n=~-x0", max_size=40))
def test_whatever_line_comes_it_ends_with_a_code(line):
    outcome = run(["sh", "-c", line], ENVIRONMENT, FileSystem())
    assert outcome.exit_code is None or 0 <= outcome.exit_code <= 255


@given(st.sampled_from(sorted(PROGRAMS)), st.lists(st.text(alphabet="-abcfnx01./[]=!+%s ", max_size=6), max_size=4))
def test_whatever_words_come_a_program_ends_with_a_code(name, words):
    outcome = run([name, *words], ENVIRONMENT, FileSystem(), b"some\ninput\n")
    assert outcome.exit_code is None or 0 <= outcome.exit_code <= 255
