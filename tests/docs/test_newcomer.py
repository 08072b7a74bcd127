"""What a newcomer does on the first day, from docs/first-tasks.md alone: its commands run as printed, in its order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from okl.client import DEFAULT_URL, Client
from tests.chromium import chromium_browser
from tests.command import environment, left_of
from tests.docs.pages import DOCS, README, ROOT, name_of
from tests.docs.test_examples import fits

PAGE = "first-tasks.md"
MOST_COMMANDS = 2
START_S = 60.0
SHORTENED = {".head(2_000)": ".head(200)", "assert log_loss": "log_loss"}
"""What a notebook of many flights says, and one of too few to learn anything."""

# By the headings of the second level; a comment in a block begins with one sign.
_, *PARTS = re.split(r"^## (.+)$", (DOCS / PAGE).read_text(), flags=re.MULTILINE)
TASKS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
"""What stands below the heading of each."""


class Terminal:
    """One shell, in which each command runs after the one before it."""

    def __init__(self, folder: Path, port: int) -> None:
        tools = folder / "bin"
        tools.mkdir()
        command = tools / "okl"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m service.start "$@"\n')
        command.chmod(0o755)
        (tools / "jupyter").symlink_to(Path(sys.executable).parent / "jupyter")
        shutil.copytree(DOCS / "notebooks", folder / "docs/notebooks")
        shorten(folder / "docs/notebooks/late-labels.ipynb")
        self.url = f"http://127.0.0.1:{port}"
        variables = environment(OKL_PORT=str(port), OKL_URL=self.url, PYTHONPATH=str(DOCS.parent), NO_PROXY="127.0.0.1")
        variables["PATH"] = f"{tools}:{variables['PATH']}"
        self.log = folder / "serve.log"
        # What runs in the background goes on writing.
        self._shell = subprocess.Popen(
            ["bash"], cwd=folder, env=variables, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, commands: str) -> str:
        """What the commands print; each must succeed."""
        stdin, stdout = self._shell.stdin, self._shell.stdout
        assert stdin
        assert stdout
        told = ""
        for line in commands.splitlines():
            quiet = re.sub(r"&$", f">>{self.log} 2>&1 &", line)
            stdin.write(f"{quiet.replace(DEFAULT_URL, self.url)}\necho \x1e$?\n")
            stdin.flush()
            said = ""
            while "\x1e" not in said:
                read = stdout.readline()
                assert read, f"the shell ended at {line}"
                said += read
            printed, _, status = said.rpartition("\x1e")
            assert status.strip() == "0", f"{line}\n{printed}"
            told += printed
        return told

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        with Client(self.url) as client:
            while not client.is_ready():
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.05)

    def close(self) -> None:
        for pid in left_of(self._shell.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.communicate()


def shorten(notebook: Path) -> None:
    """All its flights take ten seconds: tests/docs/test_notebooks.py plays them, and looks at what is printed."""
    text = notebook.read_text()
    for many, few in SHORTENED.items():
        assert text.count(many) == 1
        text = text.replace(many, few)
    notebook.write_text(text)


class Newcomer:
    """Has a terminal and a Python, and reads one page."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.terminal = Terminal(folder, probe.getsockname()[1])
        self.names: dict[str, Any] = {}
        self.printed: list[str] = []
        self.names["print"] = lambda *values: self.printed.append(" ".join(map(str, values)))

    def do(self, task: str) -> str:
        """What the commands of the task print."""
        told = ""
        for language, block in blocks_of(task):
            if language == "python":
                self.printed.clear()
                exec(block.replace(DEFAULT_URL, self.terminal.url), self.names)
                expected = "\n".join(line.lstrip()[2:] for line in block.splitlines() if line.lstrip().startswith("# "))
                assert fits("\n".join(self.printed), expected), f"{task} prints {self.printed}"
                told += "\n".join(self.printed)
            else:
                told += self.terminal.run(block)
                if "okl serve" in block:
                    self.terminal.wait_until_ready()
        return told


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("newcomer")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1")
        found = Newcomer(folder)
        yield found
        if "okl" in found.names:
            found.names["okl"].close()
        found.terminal.close()


def blocks_of(task: str) -> list[tuple[str, str]]:
    """(language, text) of each block of a task."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", TASKS[task], re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_needs_two_commands_at_most(task: str) -> None:
    commands = sum(1 if language == "python" else len(block.splitlines()) for language, block in blocks_of(task))
    assert commands <= MOST_COMMANDS


@pytest.mark.parametrize("page", [README, DOCS / "quickstart.md", DOCS / PAGE], ids=name_of)
def test_a_page_says_how_to_install_what_make_run_does_not(page: Path) -> None:
    text = page.read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    locked = re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    lacking = imported - sys.stdlib_module_names - {"okl", "okl_core", *locked}
    told = " ".join(re.findall(r"pip install ([^`#\n]+)", text)).split()
    assert lacking <= set(told)


def opened(url: str) -> str:
    """The text of a page in Chromium."""
    with chromium_browser() as browser:
        page = browser.new_page()
        page.goto(url)
        page.wait_for_selector(".plot canvas")
        return page.inner_text("body")


def test_the_tasks_of_the_first_day(newcomer: Newcomer) -> None:
    told = {}
    for task in TASKS:
        told[task] = newcomer.do(task)
        if task == "Browser":
            (url,) = re.findall(r"http://\S+/page", TASKS["Browser"])
            told[task] = opened(url.replace(DEFAULT_URL, newcomer.terminal.url))
    assert "comparator" in told["Fix a wrong spec"]
    assert {"auto", "aioli"} <= set(told["Compare two learners"].split())
    assert "rooms" in told["Browser"]
    # Who has the key sees the sessions; who has none is let in no more.
    assert "rooms" in told["Keys"]
    assert httpx.get(f"{newcomer.terminal.url}/sessions", trust_env=False).status_code == 401
