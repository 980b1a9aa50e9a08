"""A chat template that does not end, or makes too much, is refused within its limits."""

from __future__ import annotations

import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import octavo
from octavo.chat import MAX_SECONDS, ChatTemplate
from octavo.errors import InvalidArgumentError

MESSAGES = [{"role": "user", "content": "hello"}, {"role": "user", "content": "there"}]


class _NoTokenizer:
    chat_template = None
    special_tokens: dict[str, str] = {}  # noqa: RUF012


def render(source: str, **kwargs: Any) -> str:
    return ChatTemplate(_NoTokenizer(), source).render(MESSAGES, **kwargs)  # type: ignore[arg-type]


def repeated(what: str, start: str = "'ab'", last: str = "ns.s", times: int = 99) -> str:
    loop = f"{{% for i in range({times}) %}}{{% set ns.s = {what} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(s={start}) %}}{loop}{{{{ {last} }}}}"


ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "output": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "block": "{% set x %}{% for i in range(99999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}{% endset %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filters": "{{ ([range(99999)] * 99999)|map('sum')|sum }}",
}
TOO_MUCH = {
    "times": "{{ 'a' * 10**9 }}",
    "list times": "{{ [1] * 10**9 }}",
    "format": "{{ '%0999999999d' % 1 }}",
    "format argument": "{{ '%*d' % (10**9, 1) }}",
    "format mapping": "{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}",
    "center filter": "{{ messages|map('string')|join|center(10**9) }}",
    "indent filter": "{{ 'x'|indent(10**9, true) }}",
    "tojson indent": "{{ messages|tojson(indent=10**9) }}",
    "join": "{{ (['a' * 1000000] * 1000)|join }}",
    "join attribute": "{{ ([namespace(s='a' * 1000000)] * 1000)|join(attribute='s') }}",
    "batch": "{{ ([namespace(s='a' * 1000000)] * 99999)|map(attribute='s')|batch(99999)|first|string }}",
    "varargs": "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(*range(99999)|map('string')|map('center', 999)) }}",
    "join method": "{{ ('a' * 1000000).join(['a'] * 1000) }}",
    "center method": "{{ 'x'.center(10**9) }}",
    "rjust method": "{{ 'x'.rjust(10**9) }}",
    "zfill method": "{{ 'x'.zfill(10**9) }}",
    "expandtabs": "{{ ('\t' * 1000000).expandtabs(1000000) }}",
    "translate": "{{ ('a' * 1000000).translate({97: 'b' * 1000}) }}",
    "rfind": "{{ ('x' * 1000000).rfind('b' + 'x' * 500000) }}",
    "strip": "{{ ('x' * 1000000).strip('b' * 500000 + 'x') }}",
    "trim": "{{ ('x' * 1000000)|trim('b' * 500000 + 'x') }}",
    "str.format": "{{ '{:>999999999}'.format(1) }}",
    "str.format argument": "{{ '{:{w}}'.format(1, w=10**9) }}",
    "to_bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "power": "{{ 7 ** (10 ** 9) }}",
    "round": "{{ 5|round(-1000000000) }}",
    "batch width": "{{ [1]|batch(10**9, 'x')|list }}",
    "sum of lists": "{{ ([range(99999)|list] * 99999)|sum(start=[]) }}",
    "strftime": "{{ strftime_now('%999999999d') }}",
    "output": "{% set s = 'a' * 1000000 %}{% for i in range(9999) %}{{ s }}{% endfor %}",
    "doubling ~": repeated("ns.s ~ ns.s"),
    "doubling +": repeated("ns.s + ns.s"),
    "doubling filter": repeated("ns.s|replace('a', 'aa')"),
    "doubling method": repeated("ns.s.replace('a', 'aa')"),
    "doubling list +": repeated("ns.s + ns.s", "[1]"),
    "doubling lists": repeated("[ns.s, ns.s]", "[1]"),
    "doubling maps": repeated("{'a': ns.s, 'b': ns.s}", "{}", "ns.s|tojson"),
    "doubling dict": repeated("dict(a=ns.s, b=ns.s)", "{}", "ns.s|tojson"),
    "doubling views": repeated("{'a': ns.s.items(), 'b': ns.s.items()}", "{'a': 1}"),
    "deep tuples": repeated("(ns.s,)", "(1,)", "{ns.s: 1}", 99999),
    "many kept": "{{ range(99999)|map('string')|map('center', 1000000)|list|length }}",
}
TAKE_LONGEST = {"batch", "varargs", "doubling list +", "doubling views"}


@pytest.mark.slow
@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_template_that_does_not_end_is_ended(source: str) -> None:
    began = time.thread_time()
    with pytest.raises(
        InvalidArgumentError, match=r"chat template (took more than 2 s|made more than \d+ char)"
    ):
        render(source)
    assert time.thread_time() - began < MAX_SECONDS + 1


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=name, marks=[pytest.mark.slow] if name in TAKE_LONGEST else [])
        for name, source in TOO_MUCH.items()
    ],
)
def test_what_would_make_too_much_is_refused_before_it_is_made(source: str) -> None:
    began, before = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        InvalidArgumentError,
        match=r"chat template (made|read|used|searched|nested) .*(limit|at most|possible)",
    ):
        render(source)
    assert time.thread_time() - began < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700 * 1024


def test_an_interrupted_thread_goes_on_unharmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.chat.MAX_SECONDS", 0.1)
    template = ChatTemplate(_NoTokenizer(), "{% if tools %}" + ENDLESS["loops"] + "{% endif %}fine")  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="took more than"):
                pool.submit(template.render, MESSAGES, tools=[{}]).result()
            assert pool.submit(template.render, MESSAGES).result() == "fine"


def test_the_watchdog_rests_when_nothing_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.templating.watchdog._IDLE_TICKS", 4)
    assert render("{{ messages|length }}") == "2"
    deadline = time.monotonic() + 60
    while any(t.name == "octavo-watchdog" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_chat_refuses_them(llm: octavo.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.chat.MAX_SECONDS", 0.1)
    for source in (ENDLESS["loops"], TOO_MUCH["times"]):
        with pytest.raises(InvalidArgumentError, match="the chat template"):
            llm.chat(MESSAGES, chat_template=source)
