"""Small byte-level BPE tokenizers in the style of two families, trained on given lines."""

import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What begins a text, what ends it, how many digits are a word, and whether a text is composed first.
STYLES = {
    "llama-3": {"begin": "<|begin_of_text|>", "end": "<|end_of_text|>", "digits": r"\p{N}{1,3}", "composes": False},
    "qwen-2.5": {"begin": None, "end": "<|endoftext|>", "digits": r"\p{N}", "composes": True},
}


def write_tokenizer(folder, style, lines, size):
    """Returns the tokenizer that the folder has."""
    form = STYLES[style]
    tokenizer = Tokenizer(models.BPE())
    if form["composes"]:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LETTERS + form["digits"] + REST), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token in (form["begin"], form["end"]) if token]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size - len(special), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if form["begin"]:
        begins = (form["begin"], tokenizer.token_to_id(form["begin"]))
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{form['begin']} $A", pair=f"{form['begin']} $A {form['begin']} $B", special_tokens=[begins]
                ),
            ]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": form["begin"], "eos_token": form["end"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


def write_spaced_tokenizer(folder, lines, size):
    """In Llama 2's style: spaces are written U+2581, with one before each text, and bytes stand in for characters that
    it does not know."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    space = "\u2581"
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    stripped = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), stripped]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special[:3], initial_alphabet=[space], max_token_length=8, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    content = json.loads(tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {token: len(vocabulary) + place for place, token in enumerate(special[3:])}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


def token_bytes(tokenizer):
    """[id]: what the token stands for."""
    table = json.loads(tokenizer.to_str())
    added = {token["id"]: token["content"].encode() for token in table["added_tokens"]}
    characters = bytes_of_characters()
    made = [b""] * tokenizer.get_vocab_size()
    for token, number in tokenizer.get_vocab().items():
        made[number] = added.get(number) or bytes(characters[c] for c in token)
    return made


def bytes_of_characters():
    """GPT-2's printable characters for bytes, the other way round."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}
