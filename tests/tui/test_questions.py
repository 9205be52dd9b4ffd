"""What SSH asks is asked in a dialog; Enter, Escape and an app that is left decline."""

import threading
from collections.abc import Callable

from textual.widgets import Button

from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.questions import AppQuestions
from gpuplan.tui.screens.confirm import AskScreen, PromptScreen
from tests.tui.deploy_apps import until
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown


class Asking:
    """A question in a thread of its own."""

    def __init__(self, question: Callable[[], object]) -> None:
        self.answer: object = "none yet"
        self._question = question
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        self.answer = self._question()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()


def app_with(questions: AppQuestions) -> GpuplanApp:
    app = GpuplanApp(FakeServices())
    app.questions = questions
    return app


async def test_an_unknown_key_is_shown_and_not_trusted_by_enter() -> None:
    questions = AppQuestions()
    app = app_with(questions)
    async with app.run_test(size=(80, 24)) as pilot:
        asked = Asking(lambda: questions.trust_host_key("h[1]", "ssh-ed25519", "SHA256:abc"))
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "The host h[1] is not known." in shown(app)
        assert "SHA256:abc" in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: asked.done)
        assert asked.answer is False
        again = Asking(lambda: questions.trust_host_key("h1", "ssh-ed25519", "SHA256:abc"))
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        app.screen.query_one("#trust", Button).press()
        await until(pilot, lambda: again.done)
        assert again.answer is True


async def test_a_passphrase_is_hidden_and_escape_declines() -> None:
    questions = AppQuestions()
    app = app_with(questions)
    async with app.run_test(size=(80, 24)) as pilot:
        asked = Asking(lambda: questions.passphrase("/home/me/.ssh/[key]"))
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press(*"geheim")
        assert "geheim" not in shown(app)
        assert "/home/me/.ssh/[key]" in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: asked.done)
        assert asked.answer == "geheim"
        declined = Asking(lambda: questions.password("me@h1"))
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press("escape")
        await until(pilot, lambda: declined.done)
        assert declined.answer is None


async def test_questions_come_one_after_the_other() -> None:
    questions = AppQuestions()
    app = app_with(questions)
    async with app.run_test(size=(80, 24)) as pilot:
        first = Asking(lambda: questions.password("me@h1"))
        second = Asking(lambda: questions.password("me@h2"))
        for _ in range(2):
            await until(pilot, lambda: isinstance(app.screen, PromptScreen))
            await pilot.press("escape")
            await pilot.pause()
        await until(pilot, lambda: first.done and second.done)


async def test_leaving_the_app_declines() -> None:
    questions = AppQuestions()
    app = app_with(questions)
    async with app.run_test(size=(80, 24)) as pilot:
        asked = Asking(lambda: questions.trust_host_key("h1", "ssh-ed25519", "SHA256:abc"))
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
    asked._thread.join(5)
    assert asked.answer is False
    assert questions.password("me@h1") is None


def test_without_an_app_nobody_is_asked() -> None:
    assert AppQuestions().trust_host_key("h1", "ssh-ed25519", "SHA256:abc") is False
    assert AppQuestions().passphrase("/k") is None
