"""Ids and texts of `distilld tokenize` against PyPI's tokenizers, token for token: byte-level BPE with the patterns of
GPT-2, Llama 3, Qwen 2 and DeepSeek, and sentencepiece's kind with byte fallback as Llama 2, Mistral and Gemma have it.
The tokenizers are trained here, the strings made from a seed."""

import json
import random
import subprocess
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers")

from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

STRINGS = 2_000  # for each of the tokenizers below

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)

# Letters of many scripts, digits of several, marks, joiners, emoji with modifiers, spaces of all kinds, controls.
RANGES = (
    [(0x20, 0x7E)] * 12
    + [(0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x587), (0x5D0, 0x5EA)]
    + [(0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FE), (0xB85, 0xBB9), (0xE01, 0xE5B), (0x1100, 0x11FF)]
    + [(0x1E00, 0x1FFE), (0x2000, 0x206F), (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2150, 0x218B), (0x2190, 0x23FF)]
    + [(0x2460, 0x24FF), (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFB00, 0xFB06)]
    + [(0xFE00, 0xFE0F), (0xFF01, 0xFFEE), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F)]
    + [(0x1F680, 0x1F6C5), (0x1F900, 0x1F9FF), (0x20000, 0x2A6D6), (0x1F3FB, 0x1F3FF)]
)
PIECES = [
    "the ",
    "It's ",
    "we'LL ",
    "they'Ve",
    "DON'T",
    "'\u017f ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\r\n",
    "\n\n\n",
    " \n ",
    "\u00a0",
    "\u0085",
    "\u180e",
    "\u2003",
    "\u3000",
    "\u200b",
    "\u200d",
    "\ufeff",
    "\u0000",
    "\u0007",
    "\x1b[0m",
    "e\u0301",
    "\u00e9",
    "\ufb01",
    "\u0130",
    "\u1e9e",
    "\u01c5",
    "12345",
    "3.14159",
    "1,000,000",
    "\u0663\u0664",
    "\u2167",
    "\u00bd",
    "0x7fff",
    "def f(x):\n    return x ** 2\n",
    "if (a != b) { c += d->e[0]; }",
    '<div class="a">&nbsp;</div>',
    "https://example.org/a?b=c#d",
    "foo_bar",
    "CamelCase",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "\u4f60\u597d\u4e16\u754c",
    "\u3053\u3093\u306b\u3061\u306f",
    "\uc548\ub155",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u043f\u0440\u0438\u0432\u0435\u0442",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u2581",
    "\u2581\u2581x",
    "<s>",
    "</s>",
    "<|endoftext|>",
    "<|im_start|>user\n",
    "<0x41>",
    "<mask>",
    " <mask> ",
    "a<word>b",
    " <word> ",
    "<word>",
    "...",
    "!!!",
    "--",
    '"quoted"',
    "(parens)",
    "$100",
    "50%",
    "#tag",
    "@name",
    "\\n",
    "\\u0041",
]


def random_string(random_):
    kind = random_.random()
    if kind < 0.15:
        return "".join(random_.choice(PIECES) for _ in range(random_.randint(1, 12)))
    parts = []
    for _ in range(random_.randint(0, 14)):
        if random_.random() < 0.5:
            parts.append(random_.choice(PIECES))
        else:
            low, high = random_.choice(RANGES)
            parts.append("".join(chr(random_.randint(low, high)) for _ in range(random_.randint(1, 6))))
        if random_.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def corpus():
    random_ = random.Random(1)
    words = [
        "the",
        "of",
        "and",
        "house",
        "houses",
        "running",
        "runner",
        "isn't",
        "hello",
        "world",
        "student",
        "teacher",
    ]
    text = [" ".join(random_.choice(words) for _ in range(12)) + "." for _ in range(300)]
    return text + [random_string(random_) for _ in range(1_500)]


def train(tokenizer, *, special=("<|endoftext|>", "<|im_start|>"), alphabet=True, size=900, **options):
    if alphabet:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False, **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(pre_tokenizer, normalizer=None, prefix=False, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tokenizer)


def split_then_bytes(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<word>", single_word=True)])
    return tokenizer


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    ids = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ids, trim_offsets=True)
    return tokenizer


def llama3():
    tokenizer = byte_level(split_then_bytes(LLAMA3))
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(content))
    begin = tokenizer.token_to_id("<|im_start|>")
    template = processors.TemplateProcessing("<|im_start|> $A", special_tokens=[("<|im_start|>", begin)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2():
    tokenizer = byte_level(split_then_bytes(QWEN2), normalizers.NFC())
    tokenizer.add_tokens([AddedToken("\u00e9<mask>", normalized=True), AddedToken("<word>", rstrip=True)])
    return tokenizer


def gpt4o():
    return byte_level(split_then_bytes(GPT4O))


def deepseek():
    return byte_level(split_then_bytes(*DEEPSEEK))


def starcoder():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def falcon():
    steps = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    steps += [pre_tokenizers.Digits(individual_digits=False)]
    return byte_level(pre_tokenizers.Sequence([steps[0], steps[2], steps[1]]), normalizers.NFKC())


BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def sentencepiece(normalizer, pre_tokenizer, decoder, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    special = ("<unk>", "<s>", "</s>")
    train(tokenizer, special=special + BYTES, alphabet=False, size=900, limit_alphabet=120, **options)
    content = json.loads(tokenizer.to_str())
    # As converted models have them: the bytes are tokens of the model alone.
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def legacy_decoder(strip=True):
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return sentencepiece(normalizer, None, legacy_decoder())


def mistral():
    pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    return sentencepiece(None, pre_tokenizer, legacy_decoder())


def metaspace():
    pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    return sentencepiece(None, pre_tokenizer, decoders.Metaspace(replacement="\u2581", prepend_scheme="always"))


def gemma():
    pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return sentencepiece(normalizers.Replace(" ", "\u2581"), pre_tokenizer, legacy_decoder(strip=False))


def lowercase():
    steps = [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    return train(tokenizer, special=("<unk>",), alphabet=False, limit_alphabet=150)


MAKERS = [
    gpt2,
    roberta,
    llama3,
    qwen2,
    gpt4o,
    deepseek,
    starcoder,
    falcon,
    llama2,
    mistral,
    metaspace,
    gemma,
    lowercase,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_ids_and_texts_are_those_of_tokenizers(make, programs, tmp_path):
    reference = make()
    reference.save(str(tmp_path / "tokenizer.json"))
    random_ = random.Random(make.__name__)
    texts = [random_string(random_) for _ in range(STRINGS)]
    if make in (falcon, lowercase):  # Punctuation and StripAccents ask tables of Unicode 8
        assigned = unicodedata.ucd_3_2_0.category
        texts = ["".join(letter for letter in text if assigned(letter) != "Cn") for text in texts]
    done = subprocess.run(
        [programs / "distilld-tokenizer-probe", "lines", tmp_path],
        input="".join(json.dumps(text) + "\n" for text in texts).encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    wanted = [reference.encode(text).ids for text in texts]
    spoken = [reference.decode(ids, skip_special_tokens=False) for ids in wanted]
    assert len(answers) == len(texts)
    for name, want, have in (("ids", wanted, [a[0] for a in answers]), ("text", spoken, [a[1] for a in answers])):
        wrong = [number for number in range(len(texts)) if want[number] != have[number]]
        first = [(texts[n], want[n], have[n]) for n in wrong[:1]]
        assert not wrong, f"{name}: {len(wrong)} of {len(texts)} differ; first: {first}"


def test_lines_at_the_command_line(programs, tmp_path):
    reference = llama3()
    reference.save(str(tmp_path / "tokenizer.json"))
    texts = ["The house isn't running.", "", "caf\u00e9 <|im_start|>", "\u4f60\u597d"]
    tokenize = [programs / "distilld", "tokenize", tmp_path]
    run = {"capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(tokenize, input="".join(text + "\n" for text in texts), **run)
    assert done.returncode == 0, done.stderr
    ids = [json.loads(line) for line in done.stdout.splitlines()]
    assert ids == [reference.encode(text).ids for text in texts]
    back = subprocess.run([*tokenize, "--decode"], input=done.stdout, **run)
    assert back.stdout.splitlines() == ["<|im_start|>" + text for text in texts]
    for line in ("{}", "[1, -1]", "[100000000]", "hello"):
        refused = subprocess.run([*tokenize, "--decode"], input=f"[1]\n{line}\n", **run)
        assert refused.returncode == 2
        assert refused.stderr.startswith("distilld tokenize: line 2 is not a JSON array of ids")
