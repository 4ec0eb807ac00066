from pathlib import Path

import pytest

from dpprof.drive.launch import child

EVENTS = "low 0\nhigh 3\nmax 7\noom 5\noom_kill 2\noom_group_kill 9\n"
VMSTAT = "nr_free_pages 100\noom_kill 11\npgfault 12\n"
NESTED = {
    "cgroup": "1:name=systemd:/y\n0::/user.slice/a:b.scope\n",
    "fs/user.slice/a:b.scope/memory.events": EVENTS,
    "fs/memory.events": "oom_kill 100\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (NESTED | {"vmstat": VMSTAT}, (2, 11)),
        ({"cgroup": "0::/\n", "fs/memory.events": EVENTS}, (2, 0)),
        ({"fs/memory.events": EVENTS}, (2, 0)),
        ({}, (0, 0)),
        ({"cgroup": "nonsense\n", "fs/memory.events": "oom_kill many\n", "vmstat": "pages 100\n"}, (0, 0)),
    ],
)
def test_counts(
    files: dict[str, str], expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with no other file."""
    for name, place in (("_VMSTAT", "vmstat"), ("_OWN_CGROUP", "cgroup"), ("_CGROUP_ROOT", "fs")):
        monkeypatch.setattr(child, name, tmp_path / place)
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    assert child.oom_kill_counts() == expected
