"""The claims of the pages: quoted correctly, and in agreement with stored results."""

import json
from pathlib import Path

import pytest

from benchmarks import claims as module
from benchmarks.claims import (
    STATISTICS,
    Source,
    Workshop,
    judge,
    look_up,
    main,
    read_claims,
    show,
    unclaimed,
    within,
)
from spacetime_en import InputError

SOURCES, CLAIMS = read_claims()


def test_pages_say_what_is_quoted_and_stored_results_agree():
    verdicts = [judge(claim, SOURCES, Workshop()) for claim in CLAIMS]
    wrong = [show(verdict) for verdict in verdicts if verdict.word in ("OUTSIDE", "NOT SAID")]
    assert not wrong, "\n".join(wrong)
    assert sum(verdict.word == "ok" for verdict in verdicts) > len(CLAIMS) / 3


def test_no_row_of_the_readmes_tables_is_without_a_claim():
    assert unclaimed(CLAIMS, "README.md") == []


def test_every_source_is_asked_for_something():
    assert set(SOURCES) == {name for claim in CLAIMS for name in claim.sources if name}


@pytest.mark.parametrize(
    ("found", "said", "spread", "holds"),
    [
        (796_058, "796,058", "", True),
        (796_059, "796,058", "", False),
        (3.1449, "3.14", "", True),
        (3.1451, "3.14", "", False),
        (1.84e-5, "1.8e-5", "", True),
        (1.86e-5, "1.8e-5", "", False),
        (105.0, "100", "5 %", True),
        (106.0, "100", "5 %", False),
        (1.1e-6, "6e-06", "x20", True),
        (2e-4, "6e-06", "x20", False),
        (2.0, "1", "any", True),
    ],
)
def test_a_number_holds_within_rounding_or_the_stated_spread(found, said, spread, holds):
    assert within(found, said, spread) is holds


def test_numbers_are_found_by_keys_places_and_values():
    document = {"rows": [{"n": 5, "what": "a, b", "x": 1.5}, {"n": 6, "what": "a, b", "x": 2}]}
    assert look_up(document, "rows.1.x") == look_up(document, "rows.n=6&what=a, b.x") == 2
    for path in ("rows.what=a, b.x", "rows.n=7.x", "rows", "rows.0.y"):
        with pytest.raises(InputError, match="expected one number"):
            look_up(document, path)


def test_statistics_of_several_files():
    values = [1.0, 2.0, 6.0]
    taken = {name: STATISTICS[name](values) for name in ("mean", "min", "max", "#1")}
    assert taken == {"mean": 3, "min": 1, "max": 6, "#1": 2}
    assert STATISTICS["se"](values) == pytest.approx(STATISTICS["sd"](values) / 3**0.5)


CLAIMED = """
[source.stored]
stored = "x*.json"
at = "mse"
[source.run]
run = ["python -c 'print(1)'", "python -c 'print(dict(a=2))'"]
[source.elsewhere]
run = ["python -c 'print(1)'"]
needs = ["NOT_SET_ANYWHERE"]
[[claim]]
page = "README.md"
says = "it has {1.50} and {3}; {7}"
from = ["stored", "run", ""]
find = ["mean", "a", ""]
by = "long"
[[claim]]
page = "README.md"
says = "the **other** {4}"
from = "elsewhere"
"""


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """A repository with one page, two seeds and the claims above."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("Yes,\nit has **1.50** and\n3; 7.\n\n| a | 2.5 |\n")
    (tmp_path / "docs" / "more.md").write_text("the *other* 4")
    for seed, mean in enumerate((1.4, 1.6)):
        (tmp_path / f"x{seed}.json").write_text(json.dumps({"mse": {"mean": mean}}))
    (tmp_path / "docs" / "claims.toml").write_text(CLAIMED)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "FILE", tmp_path / "docs" / "claims.toml")
    module.pages.cache_clear()
    yield tmp_path
    module.pages.cache_clear()


def judged(folder: Path, workshop: Workshop):
    sources, claims = read_claims(folder / "docs" / "claims.toml")
    return claims, [judge(claim, sources, workshop) for claim in claims]


def test_a_quotation_on_another_page_says_so(repository):
    claims, (first, second) = judged(repository, Workshop())
    assert first.word == "ok"  # the stored number; the others are not looked for
    assert first.found == (1.5, "takes longer than a second", "not kept")
    assert second.word == "NOT SAID"
    assert "is said by docs/more.md" in show(second)
    assert unclaimed(claims, "README.md") == ["| a | 2.5 |"]


def test_commands_are_run_and_what_is_outside_fails(repository, monkeypatch, capsys):
    monkeypatch.setattr(
        Workshop, "run", lambda self, command: self.folder and "{'a': 2}".replace("'", '"')
    )
    _, (first, second) = judged(repository, Workshop(repository))
    assert first.outside == (1,)
    assert "OUTSIDE" in show(first)
    assert second.found == ("NOT_SET_ANYWHERE is not set",)
    assert main([]) == 1
    assert "1 OUTSIDE, 1 NOT SAID" in capsys.readouterr().out


def test_a_command_runs_once_in_its_folder(tmp_path):
    workshop = Workshop(tmp_path)
    command = 'python -c \'open("a", "a").write("x"); print(3)\''
    assert workshop.run(command) == workshop.run(command) == "3\n"
    assert (tmp_path / "a").read_text() == "x"
    source = Source("one", run=("python -c 'raise ValueError(5)'",))
    with pytest.raises(module.UncheckedError, match="failed: ValueError: 5"):
        source.documents(workshop)


def test_a_command_that_fails_is_no_success(repository):
    text = CLAIMED.replace("print(dict(a=2))", "raise ValueError(5)")
    (repository / "docs" / "claims.toml").write_text(text)
    _, (first, _) = judged(repository, Workshop(repository))
    assert first.word == "FAILED"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"elsewhere"', '"nowhere"', "unknown: nowhere"),
        ('find = ["mean", "a", ""]', 'find = ["mean"]', "expected 3 of them, found 1"),
        ('by = "long"', 'by = "long"\nspread = "about"', "expected 5 %"),
        ('stored = "x*.json"', "", "expected either stored or run"),
    ],
)
def test_a_claim_that_says_too_little_is_refused(repository, old, new, message):
    (repository / "docs" / "claims.toml").write_text(CLAIMED.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_claims(repository / "docs" / "claims.toml")
