"""tools/render_chat.py: conversations become ids with loss on what the assistant says, by chat templates of several
kinds and by a server that has vLLM's /tokenize."""

import contextlib
import gzip
import http.server
import importlib.util
import io
import json
import pathlib
import shlex
import subprocess
import sys
import threading
import types

import pytest
from support import jobs

transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "render_chat.py"
sys.path.insert(0, str(TOOL.parent))  # where its other module lies
NO_LOSS = -100
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|begin|>", "<|head|>", "<|/head|>", "<|eot|>"]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}"
    "GENERATION{{ message.content + '<|im_end|>' }}ENDGENERATION{% else %}{{ message.content + '<|im_end|>' }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_MARKED = CHATML.replace("ENDGENERATION", "{% endgeneration %}").replace("GENERATION", "{% generation %}")
CHATML_PLAIN = CHATML.replace("ENDGENERATION", "").replace("GENERATION", "")
LLAMA3 = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ '<|head|>' + message.role + '<|/head|>\n\n' "
    "+ message.content | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
)
SYSTEM_DEFAULT = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}" + CHATML_PLAIN
)
# What the assistant thought is left out of all turns but the last, as in Qwen 3.
FORGETFUL = CHATML_PLAIN.replace(
    "{{ message.content + '<|im_end|>' }}{% else %}",
    "{{ (message.content if loop.last else message.content.split('</think>')[-1]) + '<|im_end|>' }}{% else %}",
)
NO_END = "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"

TALK = [
    {"role": "user", "content": "How many legs has a spider?"},
    {"role": "assistant", "content": "Eight legs.\n\nReally: eight."},
    {"role": "user", "content": "And \u4e16\u754c \U0001f44d?"},
    {"role": "assistant", "content": " Two."},
]


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*jobs.text_lines(200), "spider legs eight really assistant user\n\n" * 9], trainer)
    path = tmp_path_factory.mktemp("trained") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def folder(tokenizer_file, tmp_path):
    """Makes a tokenizer's folder with a chat template."""

    def make(template):
        made = tmp_path / "tokenizer"
        made.mkdir(exist_ok=True)
        (made / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
        special = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
        special["additional_special_tokens"] = SPECIAL
        (made / "tokenizer_config.json").write_text(json.dumps({**special, "chat_template": template}))
        return made

    return make


def load_tool():
    spec = importlib.util.spec_from_file_location("render_chat", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments, code=0):
    """In this process: each start of transformers takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    ended = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["render_chat.py", *map(str, arguments)])
        try:
            load_tool().main()
        except SystemExit as error:  # a text is written to stderr, and is code 1
            ended = 1
            print(error.code, file=err)
    assert ended == code, out.getvalue() + err.getvalue()
    return types.SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())


def render(folder, lines, tmp_path, *flags):
    """The documents that come of the lines."""
    source, target = jobs.write_jsonl(tmp_path / "chat.jsonl", lines), tmp_path / "ids.jsonl"
    run("--tokenizer", folder, *flags, source, target)
    return [json.loads(line) for line in target.read_text().splitlines()]


def refusal(folder, lines, tmp_path, *flags):
    source, target = jobs.write_jsonl(tmp_path / "chat.jsonl", lines), tmp_path / "ids.jsonl"
    done = run("--tokenizer", folder, *flags, source, target, code=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chat.jsonl", "tokenizer"], "something was left there"
    return done.stderr.replace(str(source), "chat.jsonl")


def learnt(folder, document):
    """The texts of the stretches that carry loss."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stretches, before = [], False
    for token, label in zip(document["input_ids"], document["labels"], strict=True):
        assert label in (token, NO_LOSS)
        if label != NO_LOSS:
            stretches[-1:] = [*stretches[-1:], []][-2:] if not before else [stretches[-1]]
            stretches[-1].append(token)
        before = label != NO_LOSS
    return [tokenizer.decode(stretch) for stretch in stretches]


def test_an_answer_is_what_its_turn_adds_as_the_template_itself_would_mark_it(folder, tmp_path):
    marked = render(folder(CHATML_MARKED), [{"messages": TALK}], tmp_path)
    assert learnt(folder(CHATML_MARKED), marked[0]) == ["Eight legs.\n\nReally: eight.<|im_end|>", " Two.<|im_end|>"]
    assert render(folder(CHATML_PLAIN), [{"messages": TALK}], tmp_path) == marked


@pytest.mark.parametrize(
    ("template", "answers"),
    [
        (LLAMA3, ["Eight legs.\n\nReally: eight.<|eot|>", "Two.<|eot|>"]),
        (SYSTEM_DEFAULT, ["Eight legs.\n\nReally: eight.<|im_end|>", " Two.<|im_end|>"]),
        (NO_END, ["assistant: Eight legs.\n\nReally: eight.\n", "assistant:  Two.\n"]),
    ],
    ids=["llama3", "system default", "no end"],
)
def test_ids_are_those_of_transformers_and_answers_are_learnt(template, answers, folder, tmp_path):
    (made,) = render(folder(template), [{"messages": TALK}], tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert made["input_ids"] == tokenizer.apply_chat_template(TALK, tokenize=True, return_dict=True)["input_ids"]
    assert learnt(tmp_path / "tokenizer", made) == answers


def test_prompt_and_completion_of_turns_and_what_is_to_be_learnt(folder, tmp_path):
    for template in (CHATML_MARKED, LLAMA3):
        made = folder(template)
        end = "<|im_end|>" if template == CHATML_MARKED else "<|eot|>"
        (pair,) = render(made, [{"prompt": TALK[:3], "completion": TALK[3:], "teacher": "math"}], tmp_path)
        assert [text.strip() for text in learnt(made, pair)] == ["Two." + end]
        assert pair["teacher"] == "math"
        (last,) = render(made, [{"messages": TALK}], tmp_path, "--learn", "last")
        assert last["labels"] == pair["labels"] and last["input_ids"] == pair["input_ids"]
        (every,) = render(made, [{"messages": TALK}], tmp_path, "--learn", "all")
        assert every == {"input_ids": pair["input_ids"]}


def test_prompts_of_rollouts_end_where_the_answer_begins(folder, tmp_path):
    rows = [
        {"messages": TALK[:3]},
        {"messages": TALK},
        {"prompt": TALK[:3]},
        {"prompt": TALK[:3], "completion": TALK[3:]},
    ]
    rows.append({"instruction": "And?", "input": "", "system": "Be brief."})
    made = folder(CHATML_PLAIN)
    assert "has no turn before its answer" in refusal(made, [{"messages": TALK[1:2]}], tmp_path, "--prompts")
    *same, alpaca = render(made, rows, tmp_path, "--prompts")
    tokenizer = transformers.AutoTokenizer.from_pretrained(made)
    ids = tokenizer.apply_chat_template(TALK[:3], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert same == [{"input_ids": ids}] * 4
    assert tokenizer.decode(alpaca["input_ids"]).endswith("And?<|im_end|>\n<|im_start|>assistant\n")


def test_another_prompt_of_the_teacher_is_rendered_too(folder, tmp_path):
    told = [{"role": "system", "content": "Be brief."}, *TALK[:3]]
    made = folder(CHATML_PLAIN)
    (pair,) = render(made, [{"prompt": TALK[:3], "completion": TALK[3:], "teacher_prompt": told}], tmp_path)
    (plain,) = render(made, [{"prompt": TALK[:3], "completion": TALK[3:]}], tmp_path)
    (other,) = render(made, [{"prompt": told, "completion": TALK[3:]}], tmp_path)
    assert pair == {**plain, "teacher_input_ids": other["input_ids"]}
    assert other["input_ids"] != plain["input_ids"]


def sharegpt(*turns):
    return {"conversations": [{"from": who, "value": value} for who, value in turns]}


def test_rows_of_sharegpt_and_alpaca_are_rendered_as_the_messages_that_they_stand_for(folder, tmp_path):
    said = [("system", "Be brief."), ("human", "One?"), ("gpt", "1."), ("user", "Two?"), ("assistant", "2.")]
    alpaca = {"instruction": "Two?", "input": "", "output": "2."}
    history = {"system": "Be brief.", "history": [["One?", "1."]]}
    rows = [sharegpt(*said), {**sharegpt(*said[1:]), "system": "Be brief."}, {**alpaca, **history}, alpaca]
    rows.append({**alpaca, "input": "In digits.", "history": None, "teacher": "math"})

    def talk(*contents):
        roles = (
            ("user", "assistant", "user", "assistant") if len(contents) < 5 else ("system", *("user", "assistant") * 2)
        )
        return {"messages": [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]}

    whole = talk("Be brief.", "One?", "1.", "Two?", "2.")
    stand_for = [whole, whole, whole, talk("Two?", "2."), {**talk("Two?\n\nIn digits.", "2."), "teacher": "math"}]
    made = folder(CHATML_PLAIN)
    assert render(made, rows, tmp_path) == render(made, stand_for, tmp_path)
    copied = {**alpaca, "text": "Two? 2."}
    assert render(made, [copied], tmp_path) == [copied], "a form of distilld's own goes before"


def test_a_template_that_rewrites_earlier_turns_is_refused(folder, tmp_path):
    thinks = [*TALK[:1], {"role": "assistant", "content": "hm</think>Eight."}, *TALK[2:]]
    said = refusal(folder(FORGETFUL), [{"messages": TALK}, {"messages": thinks}], tmp_path)
    assert said.startswith("render_chat: chat.jsonl:2: turn 1: what the template makes of the conversation up to here")
    (made,) = render(folder(FORGETFUL), [{"messages": thinks}], tmp_path, "--learn", "last")
    assert learnt(tmp_path / "tokenizer", made) == [" Two.<|im_end|>"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"messages": "hello"}, '"messages" is not a list'),
        ({"messages": [{"content": "hello"}]}, 'turn 0 is not an object with a "role"'),
        ({"messages": TALK[:1]}, 'has no turn of the role "assistant"'),
        ({"prompt": TALK[:1], "completion": "Eight."}, "are to be both lists of turns"),
        ({"messages": TALK, "teacher_prompt": TALK[:1]}, '"teacher_prompt" is to be a list of turns, beside "prompt"'),
        ({"messages": [{"role": "user"}, TALK[1]]}, "cannot be rendered: "),
        ({"conversations": "hello"}, '"conversations" is not a list of turns'),
        ({"conversations": [{"from": "human"}]}, 'turn 0 is not an object with texts "from" and "value"'),
        (sharegpt(("human", "One?"), ("bing", "1.")), 'turn 1 is from "bing", expected one of human, gpt, system, '),
        ({"instruction": "One?"}, '"instruction", "input" and "output" are to be texts'),
        ({"instruction": "One?", "input": 1, "output": "1."}, '"instruction", "input" and "output" are to be texts'),
        ({"instruction": "One?", "output": "1.", "history": [["a"]]}, '"history" is not a list of pairs'),
        (["hello"], "is not a JSON object"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value[:20],
)
def test_a_bad_line_is_named_or_left_out(line, message, folder, tmp_path):
    made = folder(CHATML_PLAIN)
    said = refusal(made, [{"messages": TALK}, line], tmp_path)
    assert said.startswith("render_chat: chat.jsonl:2: ") and message in said
    assert len(render(made, [line, {"messages": TALK}, line], tmp_path, "--skip-bad")) == 1


def test_packed_files_and_other_lines_go_through(folder, tmp_path):
    made = folder(CHATML_PLAIN)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl.gz"
    one.write_text('\ufeff{"text": "hello"}\n\n' + json.dumps({"messages": TALK}) + "\n")
    two.write_bytes(gzip.compress(json.dumps({"messages": TALK}).encode()))
    for target, unpack in (("out.gz", ["gzip", "-dc"]), ("out.zst", ["zstd", "-dc"]), ("out.jsonl", ["cat"])):
        said = run("--tokenizer", made, one, two, tmp_path / target)
        text = subprocess.run([*unpack, tmp_path / target], capture_output=True, check=True).stdout.decode()
        lines = [json.loads(line) for line in text.splitlines()]
        assert lines[0] == {"text": "hello"} and lines[1] == lines[2] and len(lines) == 3
        assert said.stdout.startswith("2 conversations, ")
    packed = tmp_path / "out.zst"
    again = run("--tokenizer", made, packed, tmp_path / "again.jsonl")
    assert again.stdout.startswith("0 conversations") and (tmp_path / "again.jsonl").read_text() == text
    packed.write_bytes(packed.read_bytes()[:-9])
    assert "zstd" in run("--tokenizer", made, packed, tmp_path / "again.jsonl", code=1).stderr


class TokenizeServer(http.server.BaseHTTPRequestHandler):
    """What vLLM's /tokenize does with messages."""

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.questions.append(question)
        if self.headers.get("Authorization") != "Bearer secret":
            return self.answer(401, {"error": "Unauthorized"})
        try:
            ids = self.server.tokenizer.apply_chat_template(
                question["messages"],
                tokenize=True,
                return_dict=True,
                add_generation_prompt=question.get("add_generation_prompt", True),
            )["input_ids"]
        except Exception as error:
            return self.answer(400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
        self.answer(200, {"count": len(ids), "max_model_len": 512, "tokens": ids, "token_strs": None})

    def answer(self, status, body):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(folder, monkeypatch):
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenizeServer)
    made.tokenizer = transformers.AutoTokenizer.from_pretrained(folder(CHATML_PLAIN))
    made.questions = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    monkeypatch.setenv("TEACHER_KEY", "secret")
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_renders_as_its_template_does(server, folder, tmp_path):
    url = f"http://127.0.0.1:{server.server_port}/tokenize"
    ask = ["--tokenize-url", url, "--model", "teacher", "--api-key-env", "TEACHER_KEY"]
    source = jobs.write_jsonl(tmp_path / "chat.jsonl", [{"messages": TALK}, {"messages": TALK[:2]}] * 30)
    run(*ask, source, tmp_path / "ids.jsonl")
    have = [json.loads(line) for line in (tmp_path / "ids.jsonl").read_text().splitlines()]
    made = folder(CHATML_PLAIN)
    local = render(made, [{"messages": TALK}, {"messages": TALK[:2]}] * 30, tmp_path)
    assert [one["input_ids"] for one in have] == [one["input_ids"] for one in local]
    assert learnt(made, have[0]) == ["Eight legs.\n\nReally: eight.<|im_end|>\n", " Two.<|im_end|>\n"]
    assert {question["model"] for question in server.questions} == {"teacher"}
    run(*ask, "--prompts", source, tmp_path / "prompts.jsonl")
    of_server = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert of_server == render(made, [{"messages": TALK}, {"messages": TALK[:2]}] * 30, tmp_path, "--prompts")

    bad = jobs.write_jsonl(tmp_path / "bad.jsonl", [{"messages": TALK}, {"messages": [{"role": "user"}, TALK[1]]}])
    said = run(*ask, bad, tmp_path / "none.jsonl", code=1).stderr
    assert said.startswith(f"render_chat: {bad}:2: {url} refused it: ")
    assert f"{url}: status 401" in run("--tokenize-url", url, source, tmp_path / "none.jsonl", code=1).stderr
    gone = "http://127.0.0.1:9/tokenize"
    assert f"{gone}: " in run("--tokenize-url", gone, source, tmp_path / "none.jsonl", code=1).stderr
    assert not (tmp_path / "none.jsonl").exists()


def test_the_error_of_an_unrendered_file_names_the_command_that_renders_it(folder, distilld, tmp_path):
    data = jobs.write_jsonl(tmp_path / "chat.jsonl", [{"messages": TALK}] * 8)
    spec = jobs.changed(
        jobs.base_spec(data, tmp_path / "out", steps=2),
        {"/student/config": jobs.llama_config(32, 512), "/student/tokenizer": str(folder(CHATML_PLAIN))},
    )
    refused = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    said = refused.out + refused.err
    assert f"/dataset/train: {data}:1: is a conversation; convert it to tokens with a chat template first" in said
    command = shlex.split(said[said.index("python3 ") : said.index(" (docs/data.md)")])
    done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    spec["dataset"]["train"] = command[-1]
    distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))


def test_a_template_from_elsewhere_reaches_the_student(distilld, folder, tmp_path):
    made = folder(None)
    template = tmp_path / "template.jinja"
    template.write_text(CHATML_PLAIN)
    source, ids = jobs.write_jsonl(tmp_path / "chat.jsonl", [{"messages": TALK}] * 8), tmp_path / "ids.jsonl"
    told = run("--tokenizer", made, "--chat-template", template, source, ids)
    assert "--save-tokenizer DIR" in told.stderr, "it is said how the student gets the template"
    kept = tmp_path / "kept"
    told = run("--tokenizer", made, "--chat-template", template, "--save-tokenizer", kept, source, ids)
    assert "--save-tokenizer" not in told.stderr
    assert (kept / "tokenizer.json").read_bytes() == (made / "tokenizer.json").read_bytes()
    spec = jobs.changed(
        jobs.base_spec(ids, tmp_path / "student", 2),
        {"/student/config": jobs.llama_config(16, 406), "/student/tokenizer": str(kept)},
    )
    distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))
    student = transformers.AutoTokenizer.from_pretrained(tmp_path / "student")
    said = student.apply_chat_template(TALK[:1], tokenize=False, add_generation_prompt=True)
    assert said == "<|im_start|>user\nHow many legs has a spider?<|im_end|>\n<|im_start|>assistant\n"


def test_without_transformers_it_says_what_to_install(tmp_path):
    chat = jobs.write_jsonl(tmp_path / "chat.jsonl", [{"messages": TALK}])
    # -S: without the packages that are installed.
    command = [sys.executable, "-S", TOOL, "--tokenizer", tmp_path, chat, tmp_path / "out.jsonl"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1
    assert said.stderr == (
        "render_chat: the Python package transformers is missing: pip install transformers, or give --tokenize-url "
        "of a server\n"
    )
