"""Published predictors: numbered versions that never change, and what `@best` means."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.catalog import query
from storage.errors import StoreError
from storage.files import file_digest
from storage.layout import Layout
from storage.promotions import promotions
from storage.registry import (
    Version,
    damaged_predictors,
    predictor_names,
    promote,
    publish,
    read_version,
    resolve,
    version_digest,
    versions,
)
from storage.schemas import PAST
from tests.storage.processes import CAN_BE_REFUSED, WITHOUT_OVERRIDE, hear, output, say, start
from tests.storage.small_registry import make_version


def test_a_version_reads_back_as_it_was_published(layout: Layout) -> None:
    version = make_version(rate=0.25)
    assert publish(layout, "base", version) == 1
    assert damaged_predictors(layout) == []
    found = read_version(layout, "base", 1)
    assert found.past.equals(version.past) and (found.scores, found.lineage) == (version.scores, version.lineage)
    assert set(found.state) == {"alpha", "counts"}
    for name, array in version.state.items():
        assert found.state[name].dtype == array.dtype and np.array_equal(found.state[name], array)
    assert {name: found.config[name] for name in version.config} == version.config
    assert found.config["published_at"].startswith("20")


def test_a_version_without_history_and_without_state_can_be_published(layout: Layout) -> None:
    lineage: dict[str, Any] = {"runs": {}, "datasets": {}}
    empty = Version({"predictor": {}}, lineage, scores={}, state={}, past=PAST.empty_table())
    publish(layout, "base", empty)
    found = read_version(layout, "base", 1)
    assert found.state == {} and found.past.equals(PAST.empty_table())


def test_versions_are_numbered_and_earlier_ones_stay_as_they_are(layout: Layout) -> None:
    assert publish(layout, "base", make_version()) == 1
    folder = layout.predictor_version("base", 1)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == {"state.safetensors", "config.json", "lineage.json", "scores.json", "past.parquet"}
    assert [publish(layout, "base", make_version()) for _ in range(10)] == list(range(2, 12))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert publish(layout, "other", make_version()) == 1
    assert versions(layout, "base") == list(range(1, 12))
    assert predictor_names(layout) == ["base", "other"]


def test_a_reference_means_a_number(layout: Layout) -> None:
    for _ in range(11):
        publish(layout, "base", make_version())
    promote(layout, "base", 3, "first try")
    promote(layout, "base", 2, "Brier 0.180 against 0.190")
    assert [resolve(layout, f"base{at}")[1] for at in ("", "@latest", "@best", "@7", "@11")] == [11, 11, 2, 7, 11]
    assert resolve(layout, "base@best")[0] == "base"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nobody", "no predictor 'nobody' is published in {root}; it has: base, other"),
        ("base@9", "predictor base has no version 9 in {root}; it has: 1, 2"),
        ("base@0", "predictor base has no version 0 in {root}; it has: 1, 2"),
        ("base@", "predictor 'base@': after the @ comes the number of a version, latest or best"),
        ("base@newest", "predictor 'base@newest': after the @ comes the number of a version, latest or best"),
        ("other@best", "predictor other has no @best, because no version was promoted; it has: 1"),
        ("base@best", "predictor base has no @best, because all that were promoted are gone; it has: 1, 2"),
        ("../escape", "predictor name '../escape' is not allowed: use up to 64 of a-z, 0-9, '.', '_' and '-', "
                      "beginning with a letter or digit"),
    ],
)  # fmt: skip
def test_a_reference_that_means_nothing_is_refused(layout: Layout, reference: str, message: str) -> None:
    for name in ("base", "base", "base", "other"):
        publish(layout, name, make_version())
    promote(layout, "base", 3, "best so far")
    shutil.rmtree(layout.predictor_version("base", 3))
    with pytest.raises(StoreError) as refused:
        resolve(layout, reference)
    assert str(refused.value) == message.format(root=layout.root)


def test_promotions_are_logged_with_reason_and_time(layout: Layout) -> None:
    publish(layout, "base", make_version())
    assert promotions(layout, "base") == []
    promote(layout, "base", 1, "besser\nals nichts: ρ = .83")
    promote(layout, "base", 1, "again")
    log = promotions(layout, "base")
    assert [(line.version, line.reason) for line in log] == [(1, "besser\nals nichts: ρ = .83"), (1, "again")]
    assert log == sorted(log, key=lambda line: line.promoted_at)
    with pytest.raises(StoreError, match="predictor base has no version 2"):
        promote(layout, "base", 2, "not there")


def test_a_damaged_log_of_promotions_is_named_with_its_line(layout: Layout) -> None:
    publish(layout, "base", make_version())
    promote(layout, "base", 1, "because")
    path = layout.promotions("base")
    path.write_bytes(path.read_bytes() + b'{"version": 1, \xff')
    assert damaged_predictors(layout) == [("predictors/base/promotions.jsonl", "damaged")]
    for refused in (lambda: resolve(layout, "base@best"), lambda: promote(layout, "base", 1, "again")):
        with pytest.raises(StoreError, match=r"promotions\.jsonl: line 2 is damaged \(.*\): mend or delete the line"):
            refused()
    shutil.move(layout.predictor_version("base", 1), layout.root / "1")
    assert damaged_predictors(layout) == [("predictors/base/promotions.jsonl", "damaged")]
    shutil.move(layout.root / "1", layout.predictor_version("base", 1))
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert resolve(layout, "base@best") == ("base", 1) and damaged_predictors(layout) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"version": "1", "reason": "r", "promoted_at": "now"}',
        b'{"version": null, "reason": "r", "promoted_at": "now"}',
        b'{"version": 1.0, "reason": "r", "promoted_at": "now"}',
        b'{"version": true, "reason": "r", "promoted_at": "now"}',
        b'{"version": 0, "reason": "r", "promoted_at": "now"}',
        b'{"version": 1, "reason": 5, "promoted_at": "now"}',
        b'{"version": 1, "reason": "r"}',
        b'[1, "r", "now"]',
    ],
)
def test_a_promotion_of_other_types_is_damage(layout: Layout, line: bytes) -> None:
    publish(layout, "base", make_version())
    layout.promotions("base").write_bytes(b"\n" + line + b"\n")
    assert damaged_predictors(layout) == [("predictors/base/promotions.jsonl", "damaged")]
    for refused in (lambda: resolve(layout, "base@best"), lambda: publish(layout, "base", make_version())):
        with pytest.raises(StoreError, match=r"promotions\.jsonl: line 2 is damaged"):
            refused()
    assert versions(layout, "base") == [1]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[]"),
        ("config.json", '{"predictor": "mopps", "files": {}}'),
        ("config.json", '{"predictor": {"name": "mopps"}, "files": {}}'),
        ("lineage.json", '{"runs": {}}'),
        ("lineage.json", "[]"),
        ("scores.json", "[]"),
    ],
)
def test_a_version_whose_files_do_not_say_what_they_have_to_is_damaged(
    layout: Layout, file: str, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        publish(layout, "base", make_version())
    folder = layout.predictor_version("base", 2)
    (folder / file).write_text(content)
    if file != "config.json":  # as if it had been published so
        config = json.loads((folder / "config.json").read_text())
        config["files"][file] = file_digest(folder / file)
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StoreError, match="version 2 of predictor base is damaged"):
        read_version(layout, "base", 2)
    assert [row["version"] for row in rows(layout, "select version from predictors")] == [1]
    assert "version 2 of predictor base is damaged" in caplog.text


def test_best_is_the_last_promoted_version_that_is_there_and_a_promoted_number_is_not_given_again(
    layout: Layout,
) -> None:
    for number in (1, 2, 3):
        assert publish(layout, "base", make_version()) == number
        promote(layout, "base", number, "better")
    shutil.rmtree(layout.predictor_version("base", 3))
    assert resolve(layout, "base@best") == ("base", 2)
    assert publish(layout, "base", make_version()) == 4
    assert resolve(layout, "base@best") == ("base", 2)


@pytest.mark.parametrize("file", ["state.safetensors", "past.parquet", "lineage.json", "scores.json", "config.json"])
@pytest.mark.parametrize("damage", ["flip", "tear", "delete"])
def test_a_damaged_version_is_named(layout: Layout, file: str, damage: str) -> None:
    publish(layout, "base", make_version())
    path = layout.predictor_version("base", 1) / file
    data = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "tear":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(data[:1] + bytes([data[1] ^ 0xFF]) + data[2:])
    assert damaged_predictors(layout) == [("predictors/base/1", "damaged")]
    with pytest.raises(StoreError, match=r"^version 1 of predictor base is damaged \(.*\): restore or delete /.*"):
        read_version(layout, "base", 1)


def test_the_digest_tells_a_version_from_another_of_the_same_number(layout: Layout) -> None:
    publish(layout, "base", make_version())
    before = version_digest(layout, "base", 1)
    assert version_digest(layout, "base", 1) == before
    shutil.rmtree(layout.predictor_version("base", 1))
    publish(layout, "base", make_version(rate=0.75))
    assert version_digest(layout, "base", 1) != before


def test_publishers_at_once_get_a_version_each(layout: Layout) -> None:
    racers = [start("publish_when_told", layout.root, 20) for _ in range(2)]
    assert [hear(racer) for racer in racers] == ["ready", "ready"]
    for racer in racers:
        say(racer, "go")
    numbers = [[int(line) for line in output(racer)] for racer in racers]
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 41)) == versions(layout, "base")
    for racer, mine in zip(racers, numbers, strict=True):
        assert {read_version(layout, "base", number).lineage["pid"] for number in mine} == {racer.pid}


def test_a_publisher_that_is_killed_leaves_no_half_version_and_the_next_one_cleans_up(layout: Layout) -> None:
    publish(layout, "base", make_version())
    folder = layout.predictor("base")
    for calls in (1, 6):  # syncs the first file; syncs the folder, before it gets its name
        publisher = start("publish_and_die", layout.root, calls)
        publisher.communicate()
        assert publisher.returncode == -signal.SIGKILL
        assert versions(layout, "base") == [1] and resolve(layout, "base") == ("base", 1)
        assert len(list(folder.glob(".2.*.tmp"))) == 1
    assert publish(layout, "base", make_version(rate=0.75)) == 2
    assert read_version(layout, "base", 2).scores == {"brier": 0.75}
    assert sorted(path.name for path in folder.iterdir()) == [".guard", "1", "2"]


def rows(layout: Layout, sql: str) -> list[dict[str, Any]]:
    return query(layout, sql).to_pylist()


def test_the_view_has_a_row_a_version(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    assert rows(layout, "select * from predictors") == []
    for name in ("base", "base", "other"):
        publish(layout, name, make_version(rate=0.25))
    promote(layout, "base", 2, "because")
    promote(layout, "base", 1, "on second thoughts")
    found = rows(
        layout,
        "select name, version, predictor, best, promotion_reason, scores->>'brier' as brier, "
        "lineage->'runs'->'first'->>'step' as step, promoted_at >= published_at as later from predictors order by all",
    )
    constants = {"predictor": "mopps", "brier": "0.25", "step": "3"}
    assert found == [
        {
            "name": "base",
            "version": 1,
            "best": True,
            "promotion_reason": "on second thoughts",
            "later": True,
            **constants,
        },
        {"name": "base", "version": 2, "best": False, "promotion_reason": "because", "later": True, **constants},
        {"name": "other", "version": 1, "best": False, "promotion_reason": None, "later": None, **constants},
    ]
    (layout.predictor_version("base", 2) / "scores.json").write_text("{")
    layout.promotions("base").write_text("[")
    assert [row["version"] for row in rows(layout, "select version from predictors where not best")] == [1, 1]
    assert "version 2 of predictor base is damaged" in caplog.text and "promotions.jsonl" in caplog.text


def test_what_lies_beside_the_versions_is_no_version(layout: Layout) -> None:
    publish(layout, "base", make_version())
    for name in ("007", "2.old", "x"):
        (layout.predictor("base") / name).mkdir()
    Path(layout.predictors() / ".trash").mkdir()
    (layout.predictors() / "empty").mkdir()
    assert versions(layout, "base") == [1]
    assert predictor_names(layout) == ["base"]
    assert rows(layout, "select name, version from predictors") == [{"name": "base", "version": 1}]


@pytest.mark.skipif(not CAN_BE_REFUSED, reason="needs setpriv to give up root's rights")
def test_what_a_killed_publisher_left_and_cannot_be_deleted_is_one_clear_line(layout: Layout) -> None:
    leftover = layout.predictor("base") / ".1.7-ab.tmp"
    leftover.mkdir(parents=True)
    layout.predictor_guard("base").touch()
    layout.predictor("base").chmod(0o555)
    assert output(start("publish_read_only", layout.root, before=WITHOUT_OVERRIDE)) == [
        f"cannot write {leftover}: Permission denied: make it writable, or use another --store"
    ]
