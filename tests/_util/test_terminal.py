"""Printed names are literal, and numbers complete, however narrow the terminal is."""

import pytest

from spacetime_en._util.progress import progress_bar
from spacetime_en._util.terminal import Terminal

HEAD = ("model", "position\nMSE", "median", "p90")
ROWS = [("set-nonequivariant", "1.2345e-05", "0.1234", "12,345"), ("[/x] $1", "", "1", "2")]


@pytest.fixture
def columns(monkeypatch):
    return lambda count: monkeypatch.setenv("COLUMNS", str(count))


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_table_is_never_cut(capsys, columns, width):
    columns(width)
    Terminal().table(HEAD, ROWS, "MSE")
    out = capsys.readouterr().out
    assert "…" not in out
    for word in ("set-nonequivariant", "1.2345e-05", "0.1234", "12,345", "median", "[/x] $1"):
        assert word in out
    if width < 80:
        assert "model:\nset-nonequivariant\n  position MSE: 1.2345e-05\n  median: 0.1234" in out


@pytest.mark.parametrize("name", ["[/x]", "[bold]", ":smile:", "a[red]b", "\\[x]", "$x$"])
def test_names_are_printed_as_they_are(capsys, name):
    terminal = Terminal()
    terminal.say(name)
    terminal.print(name)
    terminal.table((name, name), [(name, name)], title=name)
    assert capsys.readouterr().out.count(name) == 7


def test_long_names_stay_in_one_piece(capsys, columns):
    columns(40)
    path = "/a/long/path with spaces" * 10
    Terminal().say(f"written: {path}")
    assert path in capsys.readouterr().out


def test_nothing_moves_the_cursor(capsys):
    Terminal().say("a\x1b[2Jb\rc\x07")
    assert capsys.readouterr().out == "a\\x1b[2Jb\\rc\\x07\n"


def test_a_progress_bar_reads_no_markup(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bar("[/x]", 3) as advance:
        advance(3)
    assert "[/x]" in capsys.readouterr().err


def test_no_width_is_an_unknown_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    Terminal().print("here")
    assert capsys.readouterr().out == "here\n"


def test_colours_that_are_forced_make_no_terminal(monkeypatch):
    """Notebooks set FORCE_COLOR: a live line would be printed again and again."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not Terminal().is_terminal
    assert not Terminal(stderr=True).is_terminal
