"""A chat template that does not end, in a server: refused, while others are answered; the process ends in time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import octavo_serve

HELLO = {"role": "user", "content": "hello"}
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
TOO_MUCH = {
    "a": "{{ 'a' * 10**9 }}",
    "b": "{{ '%0999999999d' % 1 }}",
    "c": "{{ messages|map('string')|join|center(10**9) }}",
    "d": "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "e": "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "f": "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False], ids=["busy when stopped", "answered"])
def test_a_template_that_does_not_end(tmp_path: Path, stop: bool) -> None:
    template = tmp_path / "slow.jinja"
    cases = "".join(
        f"{{% if messages[0].content == '{name}' %}}{source}{{% endif %}}"
        for name, source in TOO_MUCH.items()
    )
    template.write_text(
        f"{{% if messages|length > 1 %}}{ENDLESS}{{% endif %}}{cases}{{{{ messages[0].content }}}}"
    )
    with (
        octavo_serve("--chat-template", str(template), "--shutdown-timeout", "1") as served,
        ThreadPoolExecutor(6) as pool,
    ):
        pending = [pool.submit(served.chat, messages=[HELLO, HELLO]) for _ in range(6)]
        time.sleep(0.3)
        began = time.monotonic()
        assert served.complete(max_tokens=1)[0] == 200
        assert time.monotonic() - began < 2.5
        if stop:
            return
        for answer in pending:
            status, body = answer.result()
            assert status == 400
            assert "the chat template took more than 2 s" in body["error"]["message"]
        for name in TOO_MUCH:
            status, body = served.chat(messages=[{"role": "user", "content": name}])
            assert status == 400 and "the chat template" in body["error"]["message"]
        assert served.chat(messages=[HELLO], max_tokens=1)[0] == 200
