import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPACETIME_EN_CACHE", str(tmp_path / "cache"))
