"""Texts that are hard for a tokenizer, from a fixed seed."""

from __future__ import annotations

import random
import unicodedata

SPACES = list(" \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2002\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000")
LETTERS = {  # separated by spaces
    "latin": "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C X Y Z é ß ẞ ñ Å \u212b ø ı İ ſ ŉ ﬁ ﬄ ǆ ậ ṩ ǭ",
    "words": "the The small cat sleeps cats' don't we'll I'M it'S they'RE he'D 'ſ xyzzy Stone. moon, low lowest unaffordable",
    "french": "l'arbre L’arbre est grand. « Ça va ? » naïve café œuvre",
    "greek": "α β γ Σ σ ς Ω \u2126 ΐ ᾳ ὈΔΥΣΣΕΎΣ",
    "cyrillic": "а б в г д Ё ё й Й слово",
    "hebrew": "שָׁלוֹם א ב \ufb1d \ufb2c",
    "arabic": "مرحبا ﷺ ا ل لا أ ٣ ۴ ، ؟",
    "indic": "नमस्ते क्ष \u0958 \u095c বাংলা ো தமிழ் ১ ।",
    "thai": "สวัสดี ำ ก ๓",
    "hangul": "한국어 각 가 \u1100\u1161 \u1100\u1161\u11a8 \uac00\u11a7 \uac00\u11a8 ㄱ ﾡ",
    "cjk": "漢字 猫 日本語 が か\u3099 パ ﾊﾟ ｶﾞ ㍿ ㌀ 。 、 \uf900 \U00020000 \U0002f800 々 〇",
    "wide": "Ｆｕｌｌ ① ½ Ⅳ ² ª 𝔘 𝟘 𝒜 \U0001d15e ™ № ℃ ﬀ … ‥ ㎏",
    "digits": "0 1 2 3 4 5 6 7 8 9 1234567890 007 3.14 1,000,000 ٣٤ १२ 1e-5 0x1F",
    "ties": "a b c ab ba abc cab x xy y xyx",
    "punctuation": ". , ; : ! ? … \" ' ’ « » ( ) [ ] { } < > / \\ | @ # $ % ^ & * _ - + = ~ ` § ¿ ¡ ‘ “ ” – — ・ ※ ‿ ᙭ ... ?!",
    "pieces": "-- :// </ <0x41> <0xE2> ## ▁ ▁▁ Ġ Ċ Ã© ⁇ \ufffd",
    "emoji": "🙂 👨\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👍🏽 🇫🇷 🇫 1\ufe0f\u20e3 ❤\ufe0f ❤ 🧑🏿\u200d🚀 🏴\U000e0067\U000e0062\U000e007f 🧿 \U0001fae8",
}
MARKS = (
    "\u0300\u0301\u0302\u0303\u0308\u030a\u0316\u0323\u0327\u0328\u0331\u0334\u0338\u0344\u0345\u0360\u05b4\u05bc\u064b\u0651"
    "\u0312\u033d\u093c\u0941\u09be\u0bbe\u0dcf\u0e38\u0e48\u0f71\u0f72\u20dd\u20e3\u3099\u309a\U0001d165"
)
PIECES = {
    **{kind: pieces.split(" ") for kind, pieces in LETTERS.items()},
    "spaces": SPACES,
    "runs": ["  ", " " * 7, "\n\n", "\r\n", " \n ", "\t\t"],
    "invisible": list("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\xad\u034f\u061c\u180e\ufffc\ufffd\xb7\ufe0f\ufe0e"),
    "controls": [chr(c) for c in (*range(32), *range(127, 160))],
    "marks": list(MARKS),
}
ASSIGNED = [
    chr(c) for c in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")
]  # in all Unicode versions since 3.2


def hostile_texts(n: int, special: list[str], seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    texts = [
        "", " ", "  ", "\n", "\t ", "\xa0", "\u3000", "\u200b", "\ufeff", "\0", "a", " a", "a ", "  a  ", "a  b", "a\n\nb",
        "The small cat sleeps.", "  The  cat\tsleeps\r\n", "\u0301", "\u0301e", "e\u0301", "e\u0323\u0307", "e\u0307\u0323", "\u0344\u0323",
        "a\u033d\u0301e\u0301", "o\u0312\u0302\u0323", "a\u0323\u0302\u0301", "\u1100\u1161\u0301\u11a8", "<t> <t>  <t>s x<t>", "ababcxyxabc",
        "x" * 3000, "é" * 500, "ab" * 1000, "🙂" * 200, "1" * 400, "." * 300, " " * 500, "a" + "\u0301" * 300, "\u0323\u0307" * 100,
        "漢" * 300, "a" * 101, "a" * 100, "-a" * 200, "\ud800", "a\udfffb", "\udc00\ud800 x", "🙂\ud83d", "\ufeffthe", "the\u00adcat",
    ]  # fmt: skip
    while len(texts) < n:
        kinds = rng.sample(sorted(PIECES), rng.choice([1, 1, 2, 2, 3, 5]))
        pieces = [rng.choice(PIECES[rng.choice(kinds)]) for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 30]))]
        if rng.random() < 0.3:
            pieces.insert(rng.randrange(len(pieces) + 1), "".join(rng.choices(ASSIGNED, k=rng.choice([1, 3, 8]))))
        if rng.random() < 0.25 and special:
            for _ in range(rng.choice([1, 1, 2, 4])):
                pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(special))
        if rng.random() < 0.02:
            pieces.insert(rng.randrange(len(pieces) + 1), chr(rng.randrange(0xD800, 0xE000)))
        joint = rng.choice(["", "", " ", " ", rng.choice(SPACES)])
        texts.append(joint.join(pieces))
    return texts


def well_formed(text: str) -> str:
    """Half a surrogate pair becomes U+FFFD, as in a browser. (The library refuses such texts.)"""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
