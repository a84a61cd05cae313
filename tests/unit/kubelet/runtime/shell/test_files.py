"""The files of an emulated container: paths, links, what may be written and how much."""

import pytest

from kubelet.runtime.shell.files import (
    ENTRY_BYTES,
    LINKS_MAX,
    Directory,
    File,
    FileError,
    FileSystem,
    Link,
    Quota,
    normal,
    walk,
)


@pytest.fixture
def files():
    made = FileSystem(Quota(10_000))
    made.now_s = 7.0
    made.make_directory("/d/e", with_parents=True)
    made.write("/d/f", b"one")
    return made


@pytest.mark.parametrize(
    ("path", "found"),
    [("/a/./b//c", "/a/b/c"), ("../x", "/x"), ("b", "/d/b"), ("/a/../../b/..", "/"), (".", "/d"), ("", "/d")],
)
def test_a_path_is_seen_from_its_directory_and_never_leaves_the_root(path, found):
    assert normal(path, "/d") == found


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda f: f.read("/none"), "No such file or directory"),
        (lambda f: f.read("/none/f"), "No such file or directory"),
        (lambda f: f.read("/d/f/x"), "Not a directory"),
        (lambda f: f.read("/d"), "Is a directory"),
        (lambda f: f.directory("/d/f"), "Not a directory"),
        (lambda f: f.directory("/none"), "No such file or directory"),
        (lambda f: f.open("/d"), "Is a directory"),
        (lambda f: f.open("/"), "Is a directory"),
        (lambda f: f.make_directory("/d"), "File exists"),
        (lambda f: f.make_directory("/d/f"), "File exists"),
        (lambda f: f.make_directory("/"), "File exists"),
        (lambda f: f.link("/d/f", "/x"), "File exists"),
        (lambda f: f.remove("/none"), "No such file or directory"),
        (lambda f: f.remove("/d"), "Is a directory"),
        (lambda f: f.remove("/", recursively=True), "Device or resource busy"),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_words_of_strerror(files, act, error):
    with pytest.raises(FileError, match=f"^{error}$"):
        act(files)


def test_links_lead_to_files_and_directories_from_where_they_stand(files):
    files.link("/d/near", "f")
    files.link("/far", "/d")
    files.link("/far2", "d/../d/e/..")

    assert files.read("/d/near") == b"one"
    assert [files.read(f"/{name}/f") for name in ("far", "far2")] == [b"one", b"one"]
    assert files.entry("/far", follows=False) == Link("/d", 7.0)
    assert files.is_directory("/far")
    assert not files.is_directory("/d/near")
    assert files.read("/d/e/../f") == b"one"


def test_links_that_lead_to_themselves_or_nowhere_are_not_followed_for_ever(files):
    files.link("/loop", "/loop")
    files.link("/nowhere", "/none")

    with pytest.raises(FileError, match="Too many levels of symbolic links"):
        files.read("/loop")
    assert (files.exists("/loop"), files.exists("/nowhere"), files.is_directory("/nowhere")) == (False, False, False)


def test_a_chain_of_as_many_links_as_there_may_be_is_followed(files):
    for number in range(LINKS_MAX + 1):
        files.put(f"/l{number}", Link(f"/l{number - 1}" if number else "/d/f"))

    assert files.read(f"/l{LINKS_MAX - 1}") == b"one"
    assert not files.exists(f"/l{LINKS_MAX}")


def test_a_link_is_removed_and_what_it_leads_to_stays(files):
    files.link("/far", "/d/f")
    files.remove("/far")

    assert (files.exists("/far"), files.read("/d/f")) == (False, b"one")


def test_a_file_is_emptied_when_it_is_opened_unless_it_is_appended_to(files):
    files.now_s = 9.0
    files.extend(files.open("/d/f", appends=True), b" two")
    appended = files.read("/d/f")
    files.write("/d/f", b"new", mode=0o600)

    assert appended == b"one two"
    assert files.entry("/d/f") == File(bytearray(b"new"), 0o600, 9.0)


def test_all_that_is_written_counts_until_it_is_removed():
    files = FileSystem(Quota(10 * ENTRY_BYTES))
    left = [files.quota.left]
    acts = (
        lambda: files.make_directory("/d"),
        lambda: files.write("/d/f", b"x" * 100),
        lambda: files.link("/d/l", "f"),
        lambda: files.write("/d/f", b"y" * 30),
        lambda: files.remove("/d", recursively=True),
    )
    for act in acts:
        act()
        left.append(files.quota.left)

    used = [left[0] - each for each in left]
    assert used == [0, ENTRY_BYTES, 2 * ENTRY_BYTES + 100, 3 * ENTRY_BYTES + 100, 3 * ENTRY_BYTES + 30, 0]


def test_a_full_quota_refuses_what_is_written_and_what_is_made():
    files = FileSystem(Quota(ENTRY_BYTES + 10))
    files.write("/f", b"x" * 10)

    for act in (
        lambda: files.write("/f", b"x" * 11),
        lambda: files.make_directory("/d"),
        lambda: files.link("/l", "f"),
    ):
        with pytest.raises(FileError, match="No space left on device"):
            act()
    files.write("/f", b"y" * 10)
    assert files.read("/f") == b"y" * 10


def test_nothing_below_a_read_only_directory_changes(files):
    files.mount("/config", Directory({"k": File(bytearray(b"v")), "d": Directory()}, is_read_only=True))

    for act in (
        lambda: files.write("/config/k", b"x"), lambda: files.write("/config/d/new", b"x"),
        lambda: files.make_directory("/config/n"), lambda: files.link("/config/l", "k"), lambda: files.remove("/config/k"),
    ):  # fmt: skip
        with pytest.raises(FileError, match="Read-only file system"):
            act()
    assert files.read("/config/k") == b"v"


def test_a_mounted_directory_covers_what_was_there_and_cannot_be_removed(files):
    files.mount("/d/f/deep", Directory({"x": File(bytearray(b"1"))}))
    files.mount("/", Directory())

    assert files.read("/d/f/deep/x") == b"1"
    for path in ("/d/f/deep", "/d"):
        with pytest.raises(FileError, match="Device or resource busy"):
            files.remove(path, recursively=True)
    files.remove("/d/f/deep/x")
    assert files.directory("/d/f/deep").entries == {}


def test_what_is_put_counts_against_no_quota_and_goes_below_no_file(files):
    left = files.quota.left
    files.put("/etc/deep/hosts", File(bytearray(b"hosts")))
    files.put("/d/f/x", File())

    assert (files.read("/etc/deep/hosts"), files.quota.left) == (b"hosts", left)
    assert files.read("/d/f") == b"one"


def test_a_walk_has_everything_below_in_order_of_names_and_directories_before_what_they_have(files):
    files.write("/d/e/g", b"")
    files.write("/d/a", b"")

    assert [path for path, _ in walk(files.directory("/d"))] == ["a", "e", "e/g", "f"]
    assert [path for path, _ in walk(files.directory("/d/e"), "top")] == ["top/g"]
