"""The ledger of first contacts: what it holds stays, what is added is whole, and pages show it."""

import csv
import gzip
import hashlib
import io
import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.first_contact import page
from foretell.lab.first_contact.__main__ import main
from foretell.lab.first_contact.entry import (
    after_learning,
    append_lines,
    code_version,
    sealed_scores,
)
from foretell.lab.first_contact.ledger import (
    FOLDER,
    Contact,
    Wave,
    add_wave,
    at_most,
    check_entry,
    first_contacts,
    read_wave,
    score_contacts,
    score_fits,
    waves,
)
from foretell.lab.first_contact.page import with_ledger
from tests.surfaces.command import Outcome, foretell

KEPT = {
    "post-training--wave-a": "b14bb5c2954d8d8ae1308fdccf30ff763b0d5effff78b476c7259376af35d48e",
    "serving--wave-a": "1f16cf96c2f795a62c9a4a2b10697d12ff9c68a513b9ba5413bf124200c9fc1b",
    "post-training--wave-b": "6216fb2b30dfa7061a4d69c2f1f9c4f3bb5f522d099285c0ee9d0bd480b501fe",
    "serving--wave-b": "4477c2d5433682fcd8d8c59272408836aae288e883024cfcfef7b783f09f17ab",
    "training--wave-b": "fe9f6a05ad940f2328aedb62b35b98c02895b1f319eb4a2f874b7a5c4eabbf9b",
    "training--wave-a": "e75835a3c91b5f5ca044aeb20d461c70e5b277afef6086aae9603843d1c31976",
}
"""Wave -> SHA-256 of its file, unpacked: these residuals cannot be made again."""
TRAINING = (
    "id,chip_id,n_gpus,framework_id,source,model,layers,hidden,heads,seq_len,global_batch,micro_batch,"
    "score_step_time_s,quality,peak_mem_gb\n"
    "r1,h100-sxm,8,fsdp,a new page,llama,32,4096,32,4096,64,1,6.0,A,40\n"
    "r2,h100-sxm,8,fsdp,BigScience gpt2.md V100-32G,llama,32,4096,32,4096,64,1,5.0,A,\n"
    "r3,h100-sxm,8,fsdp,a new page,llama,32,4096,32,4096,64,1,9.0,C,\n"
    "r4,abacus,8,fsdp,a new page,llama,32,4096,32,4096,64,1,6.0,A,\n"
)
SCORED = (
    "first contact, wave Z, training  at 0123abcd; refused 3 of 500\n"
    "step_s                     rows   480  groups  24  median group  20.0%  mean  25.0%  signed  -3.0%  "
    "over 25 % off  30%  90 % interval holds rows  80%, groups  75%  high/low 1.60\n"
    "step_s moe                 rows    80  groups   4  median group  30.0%  mean  35.0%  signed -13.0%  "
    "over 25 % off  60%  90 % interval holds rows  70%, groups  65%  high/low 1.70\n"
)
ANCHORED = SCORED.replace("training ", "training --anchors 1") + (
    "step_s: one plain factor 10.0%, ours 9.0% over the same 20 groups; ours is worse in 5\n"
)
MEMORY = """first contact, wave Z, memory: of 90 that ran, 88 said so
first contact, wave Z, memory: of 40 that ran out of memory, 37 said so
Brier score of fit_probability 0.050
"""


def contact(
    source: str = "a", measured: float = 2.0, predicted: float = 1.0, **more: object
) -> Contact:
    values = {
        "wave": "w",
        "id": "1",
        "metric": "step_s",
        "seen_before": False,
        "low": 0.5,
        "high": 3.0,
    }
    fixed = {"source": source, "group": source, "measured": measured, "predicted": predicted}
    return Contact(**{**values, **fixed, **more})  # type: ignore[arg-type]


def wave(name: str, *contacts: Contact) -> Wave:
    return Wave(
        kind="training", name=name, date="2030-01-01", commit="0123abcd", table="t.csv", rows=9,
        refused=None, contacts=contacts,
    )  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(TRAINING)
    return path


def validate(table: Path, *flags: str) -> Outcome:
    return foretell("validate", "training", str(table), *flags)


class TestStoredWaves:
    def test_what_was_met_is_kept_to_the_letter(self) -> None:
        for name, digest in KEPT.items():
            content = gzip.decompress((FOLDER / f"{name}.csv.gz").read_bytes())
            assert hashlib.sha256(content).hexdigest() == digest, f"{name} was changed"

    @pytest.mark.parametrize(
        ("kind", "rows", "known"),
        [("training", 544, 1216), ("serving", 9592, 94), ("post-training", 208, 154)],
    )
    def test_first_contacts_are_apart_from_known_sources(
        self, kind: str, rows: int, known: int
    ) -> None:
        assert len(first_contacts(kind)) == rows
        assert not any(one.seen_before for one in first_contacts(kind))
        assert len(first_contacts(kind, seen_before=True)) == rows + known

    def test_training_has_46_sources_and_few_rows_of_each_where_asked(self) -> None:
        few = first_contacts("training", most=15)
        counts = Counter((one.source, one.metric) for one in few)
        assert len({source for source, _ in counts}) == 46
        assert max(counts.values()) == 15
        assert set(few) <= set(first_contacts("training"))

    def test_aggregates_in_a_file_are_those_of_its_rows(self) -> None:
        for path in sorted(FOLDER.glob("*.csv.gz")):
            head = json.loads(
                gzip.decompress(path.read_bytes()).partition(b"\n")[0].removeprefix(b"# ")
            )
            stored = read_wave(path)
            now = [score.to_dict() for score in stored.scores]
            assert head["scores"] == [
                {key: new[key] for key in old} for old, new in zip(head["scores"], now, strict=True)
            ]
            assert path.name == f"{stored.kind}--{stored.name}.csv.gz"

    def test_the_rows_are_those_of_the_predictions(self, data_dir: Path) -> None:
        for kind in ("training", "serving", "post-training"):
            file = data_dir / "contact" / f"{kind.replace('-', '_')}_bae3d72c.csv"
            if not file.is_file():
                pytest.skip("the data has no first contacts")
            with file.open(newline="") as lines:
                rows = list(csv.DictReader(lines))
            found = {w.name: w for w in waves(kind)}["wave-a"].contacts
            for row, one in zip(rows, found, strict=True):
                assert (row["id"], row["source"], row["metric"]) == (one.id, one.source, one.metric)
                assert (row["seen_before"] == "yes") == one.seen_before
                theirs = [float(row[name]) for name in ("measured", "predicted", "low", "high")]
                assert [one.measured, one.predicted, one.low, one.high] == pytest.approx(
                    theirs, rel=6e-5
                )


class TestScores:
    def test_sources_count_alike(self) -> None:
        rows = [contact("a", 1.0), *(contact("b", 2.0) for _ in range(9)), contact("c", 4.0)]
        score = score_contacts(rows)
        assert score is not None
        assert (score.sources, score.rows) == (3, 11)
        assert score.median_source == 0.5  # of 0, 0.5 and 0.75
        assert score.far_off == pytest.approx(10 / 11, abs=1e-4)
        assert score.inside_rows == pytest.approx(10 / 11, abs=1e-4)
        assert score.inside_sources == pytest.approx(2 / 3, abs=1e-4)
        assert score.high_over_low == 6.0

    def test_fits_are_counted(self) -> None:
        chances = ((1.0, 0.9), (1.0, 0.2), (0.0, 0.6), (0.0, 0.1))
        rows = [
            contact(metric="fit_probability", measured=m, predicted=p, low=None, high=None)
            for m, p in chances
        ]
        found = score_fits(rows)
        assert found is not None
        assert (found.ran, found.ran_predicted_not) == (2, 1)
        assert (found.out_of_memory, found.out_of_memory_predicted_to_fit) == (2, 1)
        assert found.brier == pytest.approx((0.01 + 0.64 + 0.36 + 0.01) / 4)
        assert score_contacts(rows) is None

    def test_log_error_is_of_measured_over_predicted(self) -> None:
        assert contact(measured=2.0, predicted=1.0).log_error == pytest.approx(math.log(2.0))
        assert math.isnan(contact(measured=0.0).log_error)

    def test_at_most_keeps_the_order_and_spreads(self) -> None:
        rows = [contact("a", id=str(n)) for n in range(10)] + [contact("b", id="b")]
        assert [one.id for one in at_most(rows, 5)] == ["0", "2", "4", "6", "8", "b"]


class TestAdding:
    def test_a_wave_is_read_back_as_it_was(self, tmp_path: Path) -> None:
        rows = (contact("a", 2.0), contact("b", 1.25, low=None, high=None, seen_before=True))
        path = add_wave(wave("w", *rows), tmp_path)
        assert read_wave(path) == wave("w", *rows)
        assert [w.name for w in waves("training", tmp_path)] == ["w"]

    def test_a_name_is_used_once(self, tmp_path: Path) -> None:
        path = add_wave(wave("w", contact()), tmp_path)
        before = path.read_bytes()
        with pytest.raises(BadInput, match="met once"):
            add_wave(wave("w", contact(measured=9.0)), tmp_path)
        assert path.read_bytes() == before
        with pytest.raises(BadInput, match="met once"):
            check_entry("training", "wave-a", tmp_path)  # also where another folder is named
        assert check_entry("memory", "wave-a", tmp_path).name == "memory--wave-a.csv.gz"

    @pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a b", "a" * 61])
    def test_other_names_are_refused(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="no name of a wave"):
            check_entry("training", name, tmp_path)

    def test_a_row_that_is_met_twice_counts_as_first_met(self, tmp_path: Path) -> None:
        add_wave(wave("w1", contact(predicted=1.0)), tmp_path)
        add_wave(wave("w2", contact(predicted=2.0), contact(id="2")), tmp_path)
        found = first_contacts("training", folder=tmp_path)
        assert [(one.id, one.predicted) for one in found] == [("1", 1.0), ("2", 1.0)]

    def test_the_version_is_a_commit_or_a_release(self) -> None:
        assert re.fullmatch(r"[0-9a-f]{8}(\+changes)?|\d+\.\d+.*", code_version())


class TestCommand:
    def test_an_entry_has_every_graded_row(self, table: Path, tmp_path: Path) -> None:
        out = tmp_path / "ledger"
        done = validate(
            table,
            "--first-contact",
            "new",
            "--out",
            str(out),
            "--json",
        )
        assert done.code == 0
        assert "added to the ledger" in done.err
        stored = read_wave(out / "training--new.csv.gz")
        assert (stored.rows, stored.refused, stored.table) == (4, 1, "runs.csv")
        found = {(one.id, one.metric): one for one in stored.contacts}
        assert set(found) == {("r1", "step_s"), ("r2", "step_s"), ("r1", "peak_memory_bytes")}
        assert [found[key, "step_s"].seen_before for key in ("r1", "r2")] == [False, True]
        printed = {p["id"]: p for p in done.json["predictions"]}
        one = found["r1", "step_s"]
        theirs = [printed["r1"][name] for name in ("measured", "predicted", "low", "high")]
        assert [one.measured, one.predicted, one.low, one.high] == pytest.approx(theirs, rel=6e-5)

    def test_a_name_that_is_taken_is_refused_before_anything_is_scored(self, table: Path) -> None:
        done = validate(table, "--first-contact", "wave-a")
        assert (done.code, done.out) == (2, "")
        assert "met once" in done.err
        assert "--after-learning wave-a" in done.err

    @pytest.mark.parametrize(
        "flag",
        [("--anchors", "1"), ("--leave-one-out", "source"), ("--commands",), ("--simulate",)],
    )
    def test_only_plain_predictions_are_first_contacts(
        self, flag: tuple[str, ...], table: Path
    ) -> None:
        done = validate(table, "--first-contact", "new", *flag)
        assert (done.code, done.out) == (2, "")
        assert "not with --first-contact" in done.err

    def test_a_folder_that_cannot_be_written_leaves_the_answer(
        self, table: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "ledger"
        done = validate(
            table,
            "--first-contact",
            "new",
            "--out",
            str(out),
            "--json",
        )
        assert done.code == 2
        assert json.loads(done.out)["rows"] == 4
        assert str(out / "training--new.csv.gz") in done.err
        assert "--out DIR" in done.err

    def test_scores_after_learning_are_added_line_by_line(
        self, table: Path, tmp_path: Path
    ) -> None:
        out = ("--out", str(tmp_path / "ledger"))
        assert validate(table, "--after-learning", "new", *out).code == 2
        validate(table, "--first-contact", "new", *out)
        for _ in range(2):
            assert validate(table, "--after-learning", "new", *out).code == 0
        found = after_learning("training", "new", tmp_path / "ledger")
        assert found is not None
        assert found["scores"] == [
            s.to_dict() for s in waves("training", tmp_path / "ledger")[0].scores
        ]
        assert len((tmp_path / "ledger" / "after_learning.jsonl").read_text().splitlines()) == 2

    def test_memory_has_outcomes_where_the_table_states_them(
        self, table: Path, tmp_path: Path
    ) -> None:
        table.write_text(TRAINING.replace("peak_mem_gb", "outcome").replace(",A,40", ",A,ran"))
        out = tmp_path / "ledger"
        assert (
            foretell(
                "validate", "memory", str(table), "--first-contact", "new", "--out", str(out)
            ).code
            == 0
        )
        found = {one.id: one for one in read_wave(out / "memory--new.csv.gz").contacts}
        assert found["r1"].metric == "fit_probability"
        assert (found["r1"].measured, found["r2"].measured) == (1.0, None)
        assert 0.0 <= found["r1"].predicted <= 1.0


class TestSealedWaves:
    def test_lines_are_kept_and_read(self, tmp_path: Path) -> None:
        file = tmp_path / "sealed.txt"
        append_lines(SCORED + ANCHORED, file)
        append_lines(MEMORY, file)
        plain, anchored, memory = sealed_scores(file)
        assert (plain.wave, plain.kind, plain.commit, plain.given) == (
            "wave Z",
            "training",
            "0123abcd",
            "",
        )
        assert anchored.given == "--anchors 1"
        assert anchored.notes == (ANCHORED.splitlines()[-1],)
        step, mixtures = plain.scores
        assert (step.metric, step.rows, step.sources) == ("step_s", 480, 24)
        figures = (
            step.median_source,
            step.signed,
            step.far_off,
            step.inside_rows,
            step.inside_sources,
        )
        assert figures == pytest.approx((0.2, -0.03, 0.3, 0.8, 0.75))
        assert (step.high_over_low, mixtures.metric) == (1.6, "step_s moe")
        assert memory.notes == tuple(MEMORY.splitlines())
        assert SCORED in file.read_text()

    def test_the_same_lines_twice_and_other_lines_are_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "sealed.txt"
        append_lines(SCORED, file)
        before = file.read_text()
        for text, message in ((SCORED, "already"), ("hello\n", "no line"), ("", "no line")):
            with pytest.raises(BadInput, match=message):
                append_lines(text, file)
        assert file.read_text() == before

    def test_the_command_refuses_what_it_cannot_keep(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
        assert main(["add"]) == 2
        assert "no line `first contact" in capsys.readouterr().err
        assert main(["remove"]) == 2
        assert "usage" in capsys.readouterr().err

    def test_the_last_score_before_rows_are_opened_leads_and_the_first_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "sealed.txt"
        append_lines("DRAFT (uncommitted changes): " + SCORED.replace("20.0%", "55.5%"), file)
        append_lines(SCORED, file)
        append_lines(SCORED.replace("20.0%", "11.1%").replace("0123abcd", "9999ffff"), file)
        monkeypatch.setattr(page, "sealed_scores", lambda: sealed_scores(file))
        readme = page.readme_text()
        assert (
            "(wave Z, by 9999ffff, before its rows were opened): 480 rows of 24 sources; "
            "step time is off by 11.1 %" in readme
        )
        assert "(At the wave's first score, by 0123abcd: step time 20.0 %.)" in readme
        assert "55.5" not in readme
        text = page.sealed_text()
        states = re.findall(r"on [0-9-]+ \(([^)]*)\):", text)
        assert states == ["a draft: no first contact", "first contact", "again"]
        assert "| training: step time moe | 4 | 80 | 30.0% |" in text


class TestPages:
    def test_pages_show_the_ledger_of_today(self, root: Path) -> None:
        for path, text in with_ledger(root).items():
            assert path.read_text() == text, f"{path.name}: python -m foretell.lab.first_contact"

    def test_every_wave_has_its_lines(self, root: Path) -> None:
        text = (root / "docs" / "first-contact.md").read_text()
        for kind in ("training", "serving", "post-training"):
            for one in waves(kind):
                for score in one.scores:
                    assert f"| {score.sources} | {score.rows:,} |" in text
        assert "at most 15 rows a source" in text
        assert "| training, median source | 6.0 % | 13 to 18 % (45 sources of two kinds)" in text

    def test_first_contact_leads(self, root: Path) -> None:
        for name in ("README.md", "docs/accuracy.md"):
            text = (root / name).read_text()
            held_out = "generated: scores" if name == "README.md" else "generated: held-out"
            assert text.index("generated: first contact") < text.index(held_out)
            assert (
                "formulas found with all rows in sight" in text
                or "Formulas were found with all rows in sight" in text
            )
