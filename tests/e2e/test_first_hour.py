"""The first hour of a new user, by the documented commands and with default settings: a job with curl, a spec from
`spec init` on conversations, a store that is filled in part, and the student in other people's programs."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from support import jobs
from support.documents import blocks_of
from support.processes import wait_until
from support.rest import Rest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QUESTION = {"role": "user", "content": "Where does the old ship turn?"}


def test_a_job_with_curl(distilld, teacher_folder, text_data, tmp_path):
    """README, "A job with curl"."""
    page = [block for block in blocks_of((ROOT / "README.md").read_text()) if "job.json <<" in block.text]
    job = json.loads(re.search(r"<<'END'\n(.*?)\nEND\n", page[0].text, re.DOTALL).group(1))
    teacher = distilld.teacher(teacher_folder)
    service = distilld.service(tmp_path / "service", cwd=tmp_path)
    (tmp_path / "teacher").symlink_to(teacher_folder)
    (tmp_path / "data").mkdir()
    for name in ("train.jsonl", "eval.jsonl"):
        (tmp_path / "data" / name).symlink_to(text_data)
    job["teacher"]["endpoints"] = [teacher.url]
    rest = Rest(service.url)
    made = rest.submit(job)
    watched = distilld.run("jobs", "watch", made, "--server", service.url).out
    shown = watched.replace("-", " ")
    assert re.search(r"\bKD\b", shown) and "cross entropy" in shown, f"losses are called what they are: {watched}"
    assert "nats/token" in shown
    done = rest.job(made)
    assert done["state"] == "succeeded" and (tmp_path / "student" / "model.safetensors").is_file()
    # The same job once more is done already, and that is said.
    again = rest.submit(job)
    watched = distilld.run("jobs", "watch", again, "--server", service.url).out
    assert "were done before: nothing left to train" in watched, watched
    assert rest.job(again)["weights_sha256"] == done["weights_sha256"]


@pytest.fixture(scope="module")
def chat(tmp_path_factory, distilld_session):
    """A folder with a small model without a chat template in base/, another one in teacher/, and conversations."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("chat")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_start|>", "<|im_end|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(jobs.text_lines(200), trainer)
    (folder / "tokenizer").mkdir()
    made.save(str(folder / "tokenizer" / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    jobs.write_jsonl(folder / "tokenizer" / "tokenizer_config.json", [config])
    jobs.write_text_data(folder / "text.jsonl", 40)
    for name, steps, seed in (("base", 3, 1), ("teacher", 12, 2)):
        changes = {"/student/config": jobs.llama_config(32, 400), "/student/tokenizer": str(folder / "tokenizer")}
        spec = jobs.base_spec(folder / "text.jsonl", folder / name, steps)
        spec = jobs.changed(spec, {**changes, "/training/seed": seed, "/training/learning_rate": 1e-2})
        distilld_session.run("run", jobs.write_spec(folder / f"{name}.json", spec))
    talks = ([QUESTION, {"role": "assistant", "content": line}] for line in jobs.text_lines(86, seed=4))
    jobs.write_jsonl(folder / "chat.jsonl", ({"messages": talk} for talk in talks))
    (folder / "chatml.jinja").write_text(CHATML)
    return folder


def uncommented(spec, *names):
    """The spec as people edit it: `// ` is taken away in front of fields, and of the blocks that they stand in."""
    for name in names:
        indent = re.search(rf'^( *)// ((?:  // )?)"{name}":', spec, re.MULTILINE)
        assert indent, f"spec init has no {name}"
        space = indent.group(1)
        if re.search(rf'^{space}// "{name}": {{$', spec, re.MULTILINE):
            block = re.search(rf'^{space}// "{name}": {{\n(?:{space}//.*\n)*?{space}// }},?$', spec, re.MULTILINE)
            text = re.sub(rf"^{space}// ?", space, block.group(), flags=re.MULTILINE)
            spec = spec.replace(block.group(), text)
        else:
            spec = re.sub(rf'^{space}// "{name}":', f'{space}"{name}":', spec, count=1, flags=re.MULTILINE)
    return spec


def weights(folder, part):
    """The numbers of the tensors whose names hold `part`."""
    found = jobs.safetensors_entries(folder / "adapter_model.safetensors")
    return [raw for name, (_, _, raw) in found.items() if part in name]


def test_lora_on_conversations_from_spec_init_to_an_answer(chat, distilld, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(chat)
    teacher = distilld.teacher(chat / "teacher")
    flags = ["--model", "base", "--data", "chat.jsonl", "--eval", "chat.jsonl", "--output", "lora"]
    spec = distilld.run("spec", "init", *flags, "--teacher-endpoint", teacher.url).out
    file = chat / "spec.json"
    # One field or block after the other is let in, and nothing else is touched.
    spec = uncommented(spec, "lora", "r", "merge", "temperature", "resume")
    file.write_text(spec)

    # What `run` would refuse at once, `check` does, by the same command that mends it.
    checked = distilld.run("spec", "check", file, code=2)
    said = checked.out + checked.err
    assert "/dataset/train" in said and "is a conversation" in said
    command = shlex.split(said[said.index("python3 ") :].splitlines()[0].split(" (docs")[0])
    rendering = [sys.executable, ROOT / "tools" / "render_chat.py", *command[2:]]
    refused = subprocess.run(rendering, capture_output=True, text=True, check=False)
    assert "has no chat template; --chat-template FILE gives one" in refused.stderr
    template = ["--chat-template", "chatml.jinja", "--save-tokenizer", "with-template"]
    subprocess.run([*rendering, *template], check=True, capture_output=True)
    spec = spec.replace('"chat.jsonl"', f'"{command[-1]}"')
    spec = re.sub(r'"tokenizer": [^,\n]*', '"tokenizer": "with-template"', uncommented(spec, "tokenizer"))
    file.write_text(spec)
    distilld.run("spec", "check", file)

    done = distilld.run("run", file).out
    steps = int(re.search(r"finished (\d+) step", done).group(1))
    assert steps >= 8, f"an epoch of 86 conversations is more than {steps} steps\n{done}"
    learned = weights(chat / "lora", "lora_B")
    assert learned and all(any(raw) for raw in learned), "what was to be learnt has changed"
    last = done.strip().splitlines()[-1]
    assert f"the adapter is in {chat / 'lora'} (docs/use-the-student.md)" in last

    # The commands of the last line, and a chat with the template that the data were rendered with.
    serve, _, ask = last.partition("; try: ")[2].partition(" and curl ")
    assert serve == f"distilld teacher {chat / 'lora'}"
    url = distilld.teacher(chat / "lora").url
    asked = shlex.split(ask.replace("http://127.0.0.1:8600", url))
    answer = subprocess.run(["curl", "-s", *asked], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout)["usage"]["completion_tokens"] > 0, answer.stdout
    wish = json.dumps({"messages": [QUESTION], "max_tokens": 4})
    answer = subprocess.run(
        ["curl", "-s", url + "/v1/chat/completions", "-d", wish], capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout)["choices"][0]["message"]["role"] == "assistant", answer.stdout


def test_a_store_that_is_filled_in_part(distilld, teacher_folder, text_data, tmp_path):
    teacher = distilld.teacher(teacher_folder)
    store = tmp_path / "filled"
    beside = jobs.distil_spec(text_data, tmp_path / "beside", teacher.url, steps=4)
    beside["teacher"]["store"] = str(store)
    distilld.run("run", jobs.write_spec(tmp_path / "beside.json", beside))

    # The same job without its teacher: each row that it needs is there.
    alone = jobs.changed(beside, {"/teacher/endpoints": None, "/teacher/max_concurrent": None, "/output": "alone"})
    file = jobs.write_spec(tmp_path / "alone.json", alone)
    done = distilld.run("run", file, cwd=tmp_path)
    for name in ("beside", "alone"):
        assert (tmp_path / name / "model.safetensors").is_file(), done.describe()
    assert jobs.sha256(tmp_path / "beside" / "model.safetensors") == jobs.sha256(
        tmp_path / "alone" / "model.safetensors"
    )

    # What is there is counted, and is not called whole.
    inspected = distilld.run("store", "inspect", store).out
    assert re.search(r"\b32\b", inspected), inspected
    verified = distilld.run("store", "verify", store).out
    assert "incomplete" in verified and "whole: 0" not in verified
    assert len(verified.splitlines()) < 10, "not a line for each row"

    # A longer one says once what is missing and what to run; the command lets it end.
    longer = jobs.changed(alone, {"/training/max_steps": None, "/training/epochs": 1, "/output": "longer"})
    reader = distilld.start("run", jobs.write_spec(tmp_path / "longer.json", longer), cwd=tmp_path)
    said = reader.wait_for_line(r"waiting: (.*distilld generate .*)").group(1)
    assert str(store) in said and re.search(r"\d+ of \d+ rows", said)
    wait_until(lambda: reader.out.count("\n") > 0, "its words")
    command = re.search(r"distilld generate SPEC (--store \S+)", said)
    assert command, said
    distilld.run("generate", tmp_path / "beside.json", *shlex.split(command.group(1).rstrip(";,.")), cwd=tmp_path)
    reader.expect(0)
    assert reader.out.count("waiting:") <= 2, reader.out
    assert "incomplete" not in distilld.run("store", "verify", store).out


def test_readers_come_before_the_writer(distilld, teacher_folder, text_data, tmp_path):
    """A student that finds no store yet learns from it while it is written."""
    teacher = distilld.teacher(teacher_folder)
    spec = jobs.distil_spec(text_data, tmp_path / "student", teacher.url, steps=6)
    spec["student"]["tokenizer"] = str(teacher_folder)
    answers = {"kind": "generate", "teacher": {**spec["teacher"], "store": "answers"}, "dataset": spec["dataset"]}
    answers["student"] = {"tokenizer": str(teacher_folder)}
    alone = jobs.changed(spec, {"/teacher/endpoints": None, "/teacher/max_concurrent": None})
    alone["teacher"]["store"] = "answers"
    reader = distilld.start("run", jobs.write_spec(tmp_path / "student.json", alone), cwd=tmp_path)
    reader.wait_for_line("waiting: there is no store in")
    distilld.run("run", jobs.write_spec(tmp_path / "answers.json", answers), cwd=tmp_path)
    reader.expect(0)
    assert (tmp_path / "student" / "model.safetensors").is_file()
    # Somebody's model is no store, and nobody waits for it.
    alone = jobs.changed(alone, {"/teacher/store": str(teacher_folder), "/output": "never"})
    refused = distilld.run("run", jobs.write_spec(tmp_path / "never.json", alone), code=1, cwd=tmp_path, seconds=30)
    assert re.search(r"is (not a|no) store", refused.out + refused.err), refused.describe()
