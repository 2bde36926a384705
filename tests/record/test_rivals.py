from __future__ import annotations

import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.record.rivals import RIVALS_FILE, Rivals, load_rivals, write_rivals


def test_what_is_written_is_read(tmp_path):
    assert load_rivals(tmp_path) is None
    rivals = Rivals({"a": 0.25, "b": 0.5})
    write_rivals(tmp_path, rivals)
    assert load_rivals(tmp_path) == rivals and rivals.worst == 0.25
    write_rivals(tmp_path, Rivals({}))
    assert load_rivals(tmp_path) is None
    write_rivals(tmp_path, Rivals({}, 0.3))
    assert load_rivals(tmp_path) == Rivals({}, 0.3)
    (tmp_path / RIVALS_FILE).write_text('{"alone": {"a": 0.5}}')  # of an earlier version
    assert load_rivals(tmp_path) == Rivals({"a": 0.5})


@pytest.mark.parametrize(
    "damaged",
    [
        "", "[]", "{}", '{"alone": 3}', '{"alone": {"a": null}}', '{"alone": {"a": 1.5}}',
        '{"alone": {}, "largest_class": 1.5}', '{"alone": {}, "largest_class": "many"}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, damaged):
    (tmp_path / RIVALS_FILE).write_text(damaged)
    with pytest.raises(ConfigError, match=RIVALS_FILE):
        load_rivals(tmp_path)
