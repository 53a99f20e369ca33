"""The byte tokenizer's files give Hugging Face's tokenizers the very ids that distilld uses."""

import json
import random
import subprocess

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

END = "<|endoftext|>"

TEXTS = {
    "empty": "",
    "ascii": "The quick brown fox jumps over the lazy dog.",
    "leading and trailing spaces": "  two before, three after   ",
    "only spaces": "     ",
    "line ends": "unix\nwindows\r\nmac\rform\ffeed\vtab\t",
    "many newlines": "\n\n\n\r\n\r\n",
    "zero bytes": "\0a\0\0b\0",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x80\x85\x9f",
    "every latin-1 character": "".join(map(chr, range(256))),
    "contractions and digits": "I'll've don't 12345 3.14159 1,000,000",
    "cjk": "日本語のテキスト。中文文本，한국어 문장.",
    "right to left": "שלום عليكم ‏x‎",
    "emoji": "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 😀",
    "combining marks": "e\u0301 a\u0308\u0323 \u1100\u1161\u11a8 Z\u0351\u036b\u0343",
    "compatibility forms": "ﬁ ﬂ ½ ① Ａ \u212b \u00c5 A\u030a",
    "other spaces": "\u00a0\u2003\u200b\u3000\ufeff",
    "alphabet of the byte level": "ĠĊĀĿŀŁŃÿ",
    "beyond the basic plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎 \U0010ffff \ufffd \uffff",
    "end of text alone": END,
    "end of text inside": f"one{END}two",
    "end of text and spaces": f" a {END} b {END}",
    "end of text twice": END + END,
    "nearly end of text": "<|endoftext| > <|endoftext|<|endoftext|> <|EndOfText|> <|endoftext|",
    "json": '{"text": "\\u00e9\\n", "ids": [1, 2]}',
}


def random_text(seed):
    source = random.Random(seed)
    pieces = []
    for _ in range(400):
        kind = source.random()
        if kind < 0.05:
            pieces.append(END)
        elif kind < 0.1:
            pieces.append(END[: source.randrange(len(END))])
        elif kind < 0.6:
            pieces.append(chr(source.randrange(0x250)))
        else:
            point = source.randrange(0x110000)
            pieces.append(chr(point) if not 0xD800 <= point < 0xE000 else " ")
    return "".join(pieces)


TEXTS.update({f"random {seed}": random_text(seed) for seed in range(8)})


@pytest.fixture(scope="module")
def folder(programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([programs / "distilld-tokenizer-probe", "write", path], check=True)
    return path


@pytest.fixture(scope="module")
def encode(programs, folder):
    def run(text):
        probe = [programs / "distilld-tokenizer-probe", "encode", folder]
        return json.loads(subprocess.run(probe, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout)

    return run


@pytest.fixture(scope="module")
def decode(programs, folder):
    def run(ids):
        probe = [programs / "distilld-tokenizer-probe", "decode", folder]
        listed = " ".join(map(str, ids)).encode()
        return subprocess.run(probe, input=listed, stdout=subprocess.PIPE, check=True).stdout.decode()

    return run


@pytest.fixture(scope="module")
def tokenizers_tokenizer(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def transformers_tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", TEXTS)
def test_ids_are_those_of_hugging_face(name, encode, decode, tokenizers_tokenizer, transformers_tokenizer):
    text = TEXTS[name]
    ids = encode(text)
    assert tokenizers_tokenizer.encode(text).ids == ids
    assert transformers_tokenizer(text)["input_ids"] == ids
    assert decode(ids) == text
    assert tokenizers_tokenizer.decode(ids, skip_special_tokens=False) == text
    assert transformers_tokenizer.decode(ids) == text


def test_ids_are_bytes(encode):
    text = TEXTS["emoji"]
    assert encode(text) == list(text.encode())


def test_vocabulary_and_special_tokens(tokenizers_tokenizer, transformers_tokenizer):
    assert tokenizers_tokenizer.get_vocab_size() == 257
    assert len(transformers_tokenizer) == 257
    assert transformers_tokenizer.eos_token == END
    assert transformers_tokenizer.eos_token_id == 256
    assert transformers_tokenizer.decode([97, 256], skip_special_tokens=True) == "a"


def test_a_folder_saved_by_transformers_is_still_understood(programs, transformers_tokenizer, tmp_path_factory, encode):
    saved = tmp_path_factory.mktemp("saved")
    transformers_tokenizer.save_pretrained(saved)
    text = TEXTS["end of text and spaces"]
    probe = [programs / "distilld-tokenizer-probe", "encode", saved]
    done = subprocess.run(probe, input=text.encode(), stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == encode(text)


TRUNCATION = {"max_length": 8, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}

# What is put in the place of a part of a whole tokenizer.json, and what the error must name.
UNKNOWN_PARTS = {
    "normalizer": ({"normalizer": {"type": "BertNormalizer"}}, ["normalizer", "BertNormalizer"]),
    "normalizer in a sequence": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}},
        ["normalizer", "Nmt"],
    ),
    "normalizer without a type": ({"normalizer": {"form": "NFC"}}, ["normalizer", "form"]),
    "pre_tokenizer": ({"pre_tokenizer": {"type": "UnicodeScripts"}}, ["pre_tokenizer", "UnicodeScripts"]),
    "pre_tokenizer in a sequence": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}]}},
        ["pre_tokenizer", "BertPreTokenizer"],
    ),
    "a regular expression": (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}},
        ["regular expression", "(a"],
    ),
    "decoder": ({"decoder": {"type": "CTC"}}, ["decoder", "CTC"]),
    "decoder in a sequence": ({"decoder": {"type": "Sequence", "decoders": [{"type": "X"}]}}, ["decoder", '"X"']),
    "post_processor": ({"post_processor": {"type": "BertProcessing"}}, ["post_processor", "BertProcessing"]),
    "model": ({"model": {"type": "Unigram", "vocab": []}}, ["model.type", "Unigram"]),
    "no model": ({"model": None}, ["model"]),
    "a vocabulary that is a list": ({"model": {"type": "BPE", "vocab": [], "merges": []}}, ["model.vocab"]),
    "an id twice": ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, ["model.vocab", "id 0"]),
    "a merge of nobody": (
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a z"]}},
        ["model.merges", "a z"],
    ),
    "added_tokens": ({"added_tokens": [{"id": "0", "content": "x"}]}, ["added_tokens", '"0"']),
    "truncation": ({"truncation": TRUNCATION}, ["truncation"]),
}


@pytest.mark.parametrize("name", UNKNOWN_PARTS)
def test_a_part_that_is_not_known_is_refused_by_name(programs, folder, tmp_path, name):
    """Else text would become other ids than those that the model was trained on."""
    changes, words = UNKNOWN_PARTS[name]
    whole = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**whole, **changes}))
    done = subprocess.run(
        [programs / "distilld", "tokenize", tmp_path],
        input="a\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert f"{tmp_path}/tokenizer.json" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_another_tokenizer_is_refused_by_name(programs, tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}}')
    done = subprocess.run(
        [programs / "distilld-tokenizer-probe", "encode", tmp_path], input=b"a", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"WordPiece" in done.stderr
