"""Text that tokenizers have been seen to disagree on."""

# ruff: noqa: RUF001 - the letters are meant

from __future__ import annotations

import random

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "   leading and trailing   ",
    "a\tb\t\tc\n\n\n d\r\n e",
    "1 12 123 1234 12345 3.14159 0x1F 1,000,000 ٣٤٥ ½ ²",
    "It's we'll THEY'RE I'D don’t o'clock '' 's",
    "def f(x: int) -> int:\n    return x ** 2  # комментарий\n\n\tif x:\n\t\tpass\n",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    " <|im_end|> x<|endoftext|><|endoftext|>y <|im_ end|> <|im_end |>",
    "日本語のテキスト、中文文本。한국어 텍스트",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u00e9 ﬁ \u200b\u200d\ufeff",
    "naïve café Straße ΑΒΓ абв عربى हिन्दी ไทย",
    "!!!???...;;;---___***  \u00a0 \u3000 \u2028",
    "x" * 300 + " " * 70 + "\n" * 9,
    "http://example.com/a?b=c&d=%20#frag user@example.org {'k': [1, 2]} \\n \\u0041",
    "\x00\x01\x7f\x80\x9f\ud7ff\ue000\uffff\U0010ffff",
]

# What the families' patterns treat each in their own way.
FAMILY_TEXTS = [
    "CamelCase XMLHttpRequest aBcD ÀÉÎ straßeNAME ǅ ǅungla ʰmodifier",
    "I'VE i'll WE'RE you'D 'tis ''s ’s x'y'z",
    "1 12 123 1234 12345 123456 1234567 12.345.678 1e10 Ⅷ ⅷ ①② ៣៤៥",
    "path/to/file.py\n//comment\r\n/// a/b /*x*/ -->\n",
    "e\u0301tude re\u0301sume\u0301 A\u030a ﷺ ㎏ ﬀ ½",
    "हिन्दी में क्षत्रिय বাংলা தமிழ் ಕನ್ನಡ ภาษาไทย ខ្មែរ",
    "tabs\t\tand  \t mixed \n \n\n  \r\n\t\n end   ",
    "   \n   def f():\n        return {'a': [1,2,3]}  # ok\n\n\n",
    "😀😃 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ✊🏿 ☕️x",
    "漢字かなカナ한글 混ぜ123混ぜ ABC漢字",
    "(a)[b]{c}<d>«e»“f”—g…h·i•j £5 €6 ¥7 50% #1 @x",
]


def random_texts(count: int, seed: int) -> list[str]:
    """Strings over alphabets that mix scripts, digits, spaces and control tokens."""
    rng = random.Random(seed)
    pieces = [
        *"abzA Z09 \n\t.,'<|>_-",
        "  ",
        "é",
        "中",
        "😀",
        "\u200d",
        "𝒳",
        "<|im_end|>",
        "im_",
        "'s",
        "\r\n",
        "١",
    ]
    out = []
    for _ in range(count):
        if rng.random() < 0.5:
            out.append("".join(rng.choice(pieces) for _ in range(rng.randrange(60))))
        else:
            points = [rng.randrange(0x20, 0x2FFF) for _ in range(rng.randrange(40))]
            out.append("".join(map(chr, points)))
    return out
