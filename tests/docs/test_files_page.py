"""The files of docs/files.md are read as they stand there."""

import re
from pathlib import Path

import foretell


def test_the_examples_are_a_model_and_a_system(root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "files.md").read_text(encoding="utf-8")
    model, system = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "model.toml").write_text(model)
    (tmp_path / "system.toml").write_text(system)
    answer = foretell.estimate(
        tmp_path / "model.toml",
        system=tmp_path / "system.toml",
        gpus=16,
        plan="zero1 mbs8",
        seq_len=1024,
    )
    assert answer.fits == "yes"
    assert (answer.model, answer.system) == ("small", "my-cluster")
