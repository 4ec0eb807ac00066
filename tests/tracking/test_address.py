from pathlib import Path

import pytest

from dpprof.tracking.view import server, ui_command


@pytest.mark.parametrize(
    ("store", "address"),
    [
        ("https://mlflow.example.org/", "https://mlflow.example.org"),
        ("http://me:secret@host:8080/ml", "http://host:8080/ml"),
        ("sqlite:///mlflow.db", "http://127.0.0.1:5000"),
        ("postgresql+psycopg2://me:secret@host/db", "http://127.0.0.1:5000"),
        ("databricks", None),
    ],
)
def test_the_address_of_a_stores_ui(store: str, address: str | None) -> None:
    assert server(store) == address


def test_the_command_names_a_store_that_is_not_mlflows_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ui_command("sqlite:///mlflow.db") == ui_command(f"sqlite:///{tmp_path}/mlflow.db") == "mlflow ui"
    elsewhere = "sqlite:////data/my runs/mlflow.db"
    assert ui_command(elsewhere) == f"mlflow ui --backend-store-uri '{elsewhere}'"
    assert ui_command("mysql://me:secret@host/db") == 'mlflow ui --backend-store-uri "$MLFLOW_TRACKING_URI"'
    assert ui_command("http://host:5000") is None


def test_the_command_is_one_that_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "mlflow").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    assert ui_command("sqlite:///mlflow.db") == ".venv/bin/mlflow ui"
