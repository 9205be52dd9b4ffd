"""What is asked and told around a deploy names what it is about, and what to do."""

from dataclasses import replace

import pytest

from gpuplan.domain.deployment import ContainerRole, Member
from gpuplan.domain.events import At, Phase, PhaseStarted
from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.document import text_of
from gpuplan.present.run_progress import NOTHING_YET, advanced
from gpuplan.present.run_texts import (
    agreement_text,
    leaving_text,
    needs_person,
    refused_text,
    replaces_words,
    running_words,
    runs_text,
    take_back_text,
    trust_text,
    worth_repeating,
)
from tests.unit.deploying.specs import native

OLD = Member(host="h100-a", container="old", role=ContainerRole.SINGLE, state="running")
FACT = Fact(code="GP815", severity=Severity.WARNING, subject={}, figures={"silent": ("h9: off",)})
LOADING = advanced(NOTHING_YET, [At(at=0, event=PhaseStarted(phase=Phase.LOAD, awaits=""))])


def test_an_agreement_has_warnings_and_every_step() -> None:
    text = text_of(agreement_text(native(), (OLD,), (FACT,), 80))
    assert "[GP815]" in text
    assert "stops h100-a:old" in text
    assert "stop old, which runs now, and set it aside" in text
    assert text.index("[GP815]") < text.index("Steps")


def test_facts_worth_repeating_are_repeated_once() -> None:
    told = replace(FACT, severity=Severity.INFO)
    assert worth_repeating((FACT, told, FACT)) == (FACT,)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((), ""),
        ((OLD,), "stops 1 container that runs now"),
        ((OLD, OLD), "stops 2 containers that run now"),
        ((replace(OLD, state="exited"),), "replaces 1 container"),
    ],
)
def test_what_stops_for_it(members: tuple[Member, ...], words: str) -> None:
    assert replaces_words(members) == words


def test_a_refusal_is_its_findings_or_its_message() -> None:
    assert "the fleet changed" in text_of(refused_text("the fleet changed", (FACT,), "", None, None, 80))
    text = text_of(refused_text("", (), "one\ntwo", "do this", None, 80))
    assert text == "one\ntwo\nhint: do this"


def test_questions_name_the_deploy() -> None:
    assert "one, two are being deployed." in text_of(leaving_text(["one", "two"], 80))
    assert "Take back the deploy of q?" in text_of(take_back_text("q", False, 80))
    assert "already" in text_of(take_back_text("q", True, 80))
    assert "SHA256:x" in text_of(trust_text("h", "ssh-rsa", "SHA256:x", 80))
    assert "q: was not deployed" in text_of(runs_text([("q", NOTHING_YET, True)], 80))
    assert "q: load" in text_of(runs_text([("q", LOADING, False)], 80))


def test_the_header_names_the_first() -> None:
    assert running_words([]) == ""
    assert running_words([("q", LOADING)]) == "deploying q: load"
    assert running_words([("q", LOADING), ("r", NOTHING_YET)]) == "deploying q: load and 1 more"


def test_who_had_nobody_to_ask_is_told_what_helps() -> None:
    assert needs_person("error: h1: its key is unknown: h1 shows x") is not None
    assert "ssh-add" in str(needs_person("the key needs its passphrase"))
    assert needs_person("error: out of memory") is None
