"""Files of Hydra's groups beside a configuration, and values that name other keys."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files

ROOT = """
defaults:
  - base
  - model: small
  - override train@training: lora
  - hydra/launcher: submitit
  - data: absent
  - _self_
training:
  micro_batch_size: 2
  seq_length: ${model.longest}
trainer: {devices: 4, max_steps: 9}
"""


def _folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "train").mkdir()
    (tmp_path / "base.yaml").write_text("training: {gradient_accumulation_steps: 8, micro_batch_size: 16}\n")
    (tmp_path / "model" / "small.yaml").write_text("name_or_path: org/Model-2B\nlongest: 2048\n")
    (tmp_path / "train" / "lora.yaml").write_text("lora_r: 32\nlearning_rate: 1e-4\n")
    (tmp_path / "config.yaml").write_text(ROOT)
    return tmp_path / "config.yaml"


def test_groups_beside_a_file_are_put_together(tmp_path: Path) -> None:
    settings = read_training_files((str(_folder(tmp_path)),))
    said = settings.values
    assert (said["model"], said["adapter.rank"], said["accumulate"]) == ("org/Model-2B", 32, 8)
    assert said["micro_batch"] == 2  # the file itself stands where _self_ does
    assert said["seq"] == 2048  # ${model.longest}
    assert "defaults: data/absent (not found beside)" in settings.unread


def test_a_file_that_names_itself_ends(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("defaults: [config]\nmicro_batch_size: 2\nlr: 1e-4\nseq_length: 8\n")
    with pytest.raises(QuestionError, match="deeper than 6 levels"):
        read_training_files((str(file),))


def test_files_elsewhere_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("seq_length: 77\n")
    inner = tmp_path / "conf"
    inner.mkdir()
    (inner / "c.yaml").write_text("defaults: [../secret]\nmicro_batch_size: 2\nlr: 1e-4\ngradient_accumulation_steps: 2\n")
    settings = read_training_files((str(inner / "c.yaml"),))
    assert settings.get("seq") is None
    assert any(line.startswith("defaults: ../secret") for line in settings.unread)
