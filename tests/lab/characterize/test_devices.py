"""A device that is not the one predicted is told."""

from pathlib import Path

import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.lab.characterize.run import characterize, device_note, same_device

H100 = {"chip": "NVIDIA H100 80GB HBM3"}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("h100-sxm", True),
        ("NVIDIA A100-SXM4-80GB", False),
        ("AMD EPYC", False),
    ],
)
def test_names_of_devices(name: str, same: bool) -> None:
    assert same_device(catalogue_chip("h100-sxm"), name) is same


def test_another_device_is_a_warning() -> None:
    assert device_note("h100-sxm", "auto", [H100]) == ""
    assert "AMD EPYC" in device_note("h100-sxm", "auto", [H100, {"chip": "AMD EPYC"}])
    assert "the CPU of this machine" in device_note("dgx-h100", "cpu")
    assert device_note("dgx-h100", "auto") == ""
    assert device_note("", "cpu") == ""


def test_a_dry_run_says_so(tmp_path: Path) -> None:
    text = (
        "[run]\ndevice = 'cpu'\nsystem = 'h100-sxm'\n[base]\nseq_len = 64\nmodel = 'tiny'\n"
        "[vary]\nplan = ['zero0']\n[model.tiny]\nhidden = 64\nlayers = 2\nheads = 4\nffn = 128\nvocab = 256\n"
    )
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    assert characterize(path, dry_run=True).note.startswith("warning:")
    path.write_text(text.replace("'cpu'", "'auto'"))
    assert characterize(path, dry_run=True).note == ""
