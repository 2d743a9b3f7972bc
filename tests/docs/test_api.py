"""docs/api.md is what the docstrings say."""

import importlib.util
from pathlib import Path

import foretell

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.page()
    assert tool.PAGE.read_text(encoding="utf-8") == page, "run python tools/api_reference.py"
    for name in tool.public():
        assert f"## {name}\n" in page
        assert getattr(foretell, name).__doc__
    for record in tool.records_of([foretell.estimate, foretell.serve, foretell.size]):
        texts = tool.field_texts(record)
        assert all(texts.get(name) for name in record.__dataclass_fields__), record
