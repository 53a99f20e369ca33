"""docker/: what compose.yaml and the Dockerfile name is there, and the demonstration of compose.yaml does what it says.

The image itself is built and run by scripts/check-docker.sh, which takes a quarter of an hour: here only where
DISTILLD_TEST_DOCKER is set and there is an engine.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
import yaml
from compose_spec import PyCompose
from support import jobs, stand_in_engine
from support.documents import blocks_of
from support.own_network import own_network
from support.processes import PATIENCE, Process
from support.prometheus import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
DEMO_LINES = 42


def version():
    return re.search(r"project\(distilld VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def load_compose(name):
    return yaml.safe_load(stand_in_engine.interpolated((DOCKER / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def compose():
    return load_compose("compose.yaml")


def host_port(url):
    return re.fullmatch(r"(?:http://)?([\w.-]+):(\d+)", url).groups()


def listens(service):
    """Port that a service of our own image listens on."""
    return service["command"][service["command"].index("--listen") + 1].rpartition(":")[2]


def read_compose(name):
    # As JSON, for what stands behind << has been put in.
    return PyCompose.from_json(json.dumps(load_compose(name)))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml"])
def test_compose_files_are_of_the_specification(name):
    read_compose(name).validate()


def test_what_is_not_of_the_specification_is_found(compose):
    for wrong in ({"comand": ["serve"]}, {"volumes": {"a": 1}}, {"depends_on": {"teacher": {"condition": "is_up"}}}):
        changed = {**compose, "services": {**compose["services"], "x": {"image": "x:1", **wrong}}}
        with pytest.raises(ValueError):
            PyCompose.from_json(json.dumps(changed)).validate()


def test_what_compose_mounts_is_there(compose):
    for name, service in compose["services"].items():
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            assert target.startswith("/")
            if source.startswith((".", "/")):
                assert (DOCKER / source).exists(), f"{name}: there is no {source}"
            else:
                assert source in compose["volumes"], f"{name}: {source} is no volume"
        for needed, row in service.get("depends_on", {}).items():
            other = compose["services"][needed]
            if row["condition"] == "service_healthy":
                assert "test" in other["healthcheck"]
    used = {volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert compose["volumes"].keys() <= used


def test_each_finds_the_other_under_a_name_that_it_answers_to(compose):
    services = compose["services"]
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
    for job in scraped["scrape_configs"]:
        host, port = host_port(job["static_configs"][0]["targets"][0])
        assert listens(services[host]) == port
    job = json.loads((DOCKER / "demo" / "job.json").read_text())
    host, port = host_port(job["teacher"]["endpoints"][0])
    assert listens(services[host]) == port
    for name in ("teacher", "distilld"):
        # Requests under a name that is not given are refused.
        command = services[name]["command"]
        assert command[command.index("--host") + 1] == name
    assert f"http://127.0.0.1:{listens(services['teacher'])}" in services["teacher"]["healthcheck"]["test"]
    assert services["distilld"]["ports"] == [f"127.0.0.1:{listens(services['distilld'])}:8500"]
    # Without a healthcheck of its own it has the image's, which asks the default port.
    assert "healthcheck" not in services["distilld"] and listens(services["distilld"]) == "8500"
    assert services["grafana"]["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"


def test_grafana_and_prometheus_find_what_is_mounted(compose):
    def mounted(service, path):
        for volume in compose["services"][service]["volumes"]:
            source, target, *_ = volume.split(":")
            if source.startswith(".") and path.startswith(target):
                return DOCKER / source / path[len(target) :].lstrip("/")
        raise AssertionError(f"{path} is not mounted in {service}")

    config = mounted("prometheus", compose["services"]["prometheus"]["command"][0].removeprefix("--config.file="))
    for path in yaml.safe_load(config.read_text())["rule_files"]:
        assert mounted("prometheus", path).is_file()
    provider = yaml.safe_load(mounted("grafana", "/etc/grafana/provisioning/dashboards/distilld.yaml").read_text())
    assert list(mounted("grafana", provider["providers"][0]["options"]["path"]).glob("*.json"))


def test_prometheus_takes_its_configuration():
    checked = subprocess.run(
        [program("promtool"), "check", "config", "--syntax-only", DOCKER / "prometheus.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_images_have_tags_and_ours_is_of_this_version(compose):
    images = [service["image"] for service in compose["services"].values()]
    images += re.findall(r"^ARG BASE_IMAGE=(\S+)", DOCKERFILE, re.MULTILINE)
    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d[\w.-]*", image), f"{image}: a tag that stays is wanted"
    ours = {image for image in images if image.startswith("distilld:")}
    assert ours == {f"distilld:{version()}"}
    assert re.findall(r"^ARG VERSION=(\S+)", DOCKERFILE, re.MULTILINE) == [version()]


def test_the_dockerfile_has_what_setup_installs():
    """Its packages are some of setup.sh's, and its libtorch is setup.sh's."""
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    known = " ".join(re.findall(r"^(?:page_)?packages=\((.*?)\)", setup, re.MULTILINE | re.DOTALL)).split()
    build_stage = DOCKERFILE[DOCKERFILE.index(" AS build\n") :]
    named = re.search(r"--no-install-recommends(.*?)\n[A-Z]", build_stage, re.DOTALL).group(1).replace("\\", "").split()
    assert len(named) > 10 and set(named) <= set(known)
    torch = re.search(r"^torch_version=(\S+)", setup, re.MULTILINE).group(1)
    assert re.findall(r"^ARG TORCH_VERSION=(\S+)", DOCKERFILE, re.MULTILINE) == [torch]


def test_the_build_gets_what_it_needs_and_nothing_else():
    """What .dockerignore lets through is what CMake reads."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for path in allowed:
        assert (ROOT / path).exists(), f".dockerignore: there is no {path}"
    folders = re.findall(r"^add_subdirectory\((\w+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert set(folders) <= set(allowed)
    read = re.findall(r"install\((?:FILES|DIRECTORY) ([^)]*?) DESTINATION", install_rules())
    named = [word.split("/")[0] for row in read for word in row.split() if "$" not in word]
    assert named and set(named) <= {path.split("/")[0] for path in allowed}


def install_rules():
    return (ROOT / "cmake" / "DistilldInstall.cmake").read_text(encoding="utf-8")


def short(spec, folder, steps):
    """A spec of the demonstration with the volumes below `folder`."""
    made = json.loads((DOCKER / "demo" / spec).read_text().replace("/models/", f"{folder}/"))
    made["training"]["max_steps"] = steps
    return made


def test_the_demonstration_makes_a_teacher_and_distils_from_it(distilld, tmp_path):
    texts = tmp_path / "a text.md", tmp_path / "b.txt"
    odd = 'A "quoted" word,\tC:\\path\\n — and “others”.\x07'
    texts[0].write_text("\n\n".join([odd, *jobs.text_lines(DEMO_LINES * 20)]))
    texts[1].write_text("\n\n".join("\n".join(jobs.text_lines(8, seed)) for seed in range(DEMO_LINES)))
    models = tmp_path / "models"
    teacher = jobs.write_spec(tmp_path / "teacher.json", short("teacher.json", models, steps=8))
    made = Process(
        [DOCKER / "demo" / "make-teacher.sh", teacher, models / "data", models / "teacher", *texts],
        tmp_path / "make-teacher",
        env={"PATH": f"{distilld.folder}:{os.environ['PATH']}"},
    ).expect(0)
    assert "weights sha256" in made.out
    rows = [
        json.loads(line)["text"]
        for name in ("train", "eval")
        for line in (models / "data" / f"{name}.jsonl").read_text().splitlines()
    ]
    assert len(rows) > 12 and odd.replace("\x07", "") in rows[0]

    def words(documents):
        return sorted(word for document in documents for word in document.replace("\x07", "").split())

    assert words(rows) == words(text.read_text() for text in texts), "nothing is lost, nothing is made up"

    url = distilld.teacher(models / "teacher").url
    job = short("job.json", models, steps=4)
    job["teacher"]["endpoints"] = [url]
    job["output"] = str(tmp_path / "student")
    distilld.run("run", jobs.write_spec(tmp_path / "job.json", job))


@pytest.fixture
def documented(programs, teacher_folder, text_data, tmp_path):
    """Runs blocks of docs/docker.md with the programs in the place of containers, in a folder like the repository."""
    network = own_network()
    if not network:
        pytest.skip("no network namespace can be made here")
    home = tmp_path / "stand-in"
    root = home / "root"
    for folder in (home, tmp_path / "bin", tmp_path / "models"):
        folder.mkdir()
    (tmp_path / "bin" / "docker").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in_engine.__file__}" "$@"\n')
    (tmp_path / "bin" / "docker").chmod(0o755)
    shutil.copytree(DOCKER, tmp_path / "docker")
    shutil.copytree(ROOT / "grafana" / "rules", tmp_path / "grafana" / "rules")
    for name in ("demo/job.json", "demo/teacher.json", "prometheus.yaml"):
        text = (tmp_path / "docker" / name).read_text().replace("15s", "1s")
        (tmp_path / "docker" / name).write_text(stand_in_engine.contained(text, root))
    shutil.copy(text_data, tmp_path / "models" / "train.jsonl")
    path = f"{tmp_path / 'bin'}:{programs.resolve()}:{pathlib.Path(program('prometheus')).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DISTILLD_STAND_IN": str(home)}
    blocks = [block for block in blocks_of((ROOT / "docs" / "docker.md").read_text()) if "docker" in block.text]

    def run(*lines):
        """Lines of a script; a word with an @ stands for the block that holds what follows it."""
        script = ["set -ex"]
        for line in lines:
            found = [block.text for block in blocks if line[1:] in block.text] if line.startswith("@") else [line]
            assert len(found) == 1, f"{line}: {len(found)} blocks of docs/docker.md"
            script.append(stand_in_engine.contained(found[0], root))
        command = [*network, "bash", "-c", "\n".join(script)]
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, timeout=2 * PATIENCE, check=False, **options)
        finally:
            for file in home.glob("*.pid"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(file.read_text()), signal.SIGKILL)
        logs = "".join(f"\n--- {log.name}\n{log.read_text()[-2000:]}" for log in home.glob("*.log"))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
        return done.stdout + done.stderr

    run.folder = tmp_path
    run.teacher = teacher_folder
    return run


def test_the_first_commands_of_the_page_start_a_service_that_has_data(documented):
    printed = documented("@docker build", "@docker cp", "@run /job.json")
    assert "listening on http://0.0.0.0:8500" in (documented.folder / "stand-in" / "distilld.log").read_text()
    assert re.search(r"state +succeeded", printed)
    assert (documented.folder / "taken" / "model.safetensors").is_file()
    alone = documented.folder / "stand-in" / "volumes" / "artifacts" / "alone"
    assert jobs.sha256(alone / "model.safetensors") == jobs.sha256(documented.folder / "taken" / "model.safetensors")


UP = "curl -sG http://127.0.0.1:9090/api/v1/query --data-urlencode 'query=up{job=\"distilld\"}'"


def until(value):
    return f"until {UP} | grep -q ',\"{value}\"\\]'; do sleep 0.2; done"


def test_a_teacher_from_elsewhere_and_keys(documented):
    """A folder from elsewhere is served as it is; Prometheus reads the metrics before and after there are keys."""
    shutil.copytree(
        documented.teacher, documented.folder / "my-teacher", ignore=shutil.ignore_patterns("distilld.json")
    )
    (documented.folder / "my-data").mkdir()
    for name in ("train.jsonl", "eval.jsonl"):
        shutil.copy(documented.folder / "models" / "train.jsonl", documented.folder / "my-data" / name)
    job = documented.folder / "docker" / "demo" / "job.json"
    fewer = {"/training/max_steps": 2, "/training/threads": 1}
    jobs.write_spec(job, jobs.changed(json.loads(job.read_text()), fewer))
    printed = documented(
        "@cp -R /from",
        "until docker exec distilld distilld healthcheck; do sleep 0.2; done",
        "curl -s --json @docker/demo/job.json http://127.0.0.1:8500/v1/jobs | tee answer.json",
        'distilld jobs watch "$(jq -r .id answer.json)"',
        "docker compose -f docker/compose.yaml cp distilld:/artifacts/demo-student .",
        until(1),
        # As the page tells people who have others ask the service.
        "sed -i 's/, --insecure//' docker/compose.yaml",
        "@keys add prometheus",
        "until docker exec distilld distilld healthcheck; do sleep 0.2; done",
        "test \"$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8500/metrics)\" = 401",
        until(1),
        # And without its key it would not do.
        "unset DISTILLD_METRICS_KEY_FILE",
        "docker compose -f docker/compose.yaml up --detach",
        until(0),
    )
    assert "is a model already and is used" in printed
    assert re.search(r"state +succeeded", printed)
    assert (documented.folder / "demo-student" / "model.safetensors").is_file()
    models = documented.folder / "stand-in" / "volumes" / "distilld_models"
    assert jobs.sha256(models / "teacher" / "model.safetensors") == jobs.sha256(
        documented.teacher / "model.safetensors"
    )


@pytest.mark.parametrize(("words", "code"), [("serve --listen x", 1), ("teacher /models/t", 1), ("run /job.json", 0)])
def test_the_health_of_what_is_no_server_is_that_it_runs(words, code, tmp_path):
    """The image's healthcheck, with the words of process 1 in a file and an unhealthy server."""
    check = json.loads(re.search(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE).group(1))
    (tmp_path / "cmdline").write_bytes("\0".join(["tini", "--", "distilld", *words.split(), ""]).encode())
    (tmp_path / "distilld").write_text('#!/bin/sh\ntest "$1" = healthcheck && exit 1\n')
    (tmp_path / "distilld").chmod(0o755)
    script = check[2].replace("/proc/1/cmdline", str(tmp_path / "cmdline"))
    assert script != check[2]
    done = subprocess.run(["sh", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False)
    assert done.returncode == code


def engine():
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        return True
    return bool(shutil.which("podman") or shutil.which("buildah"))


@pytest.mark.skipif("DISTILLD_TEST_DOCKER" not in os.environ, reason="a quarter of an hour: set DISTILLD_TEST_DOCKER")
@pytest.mark.skipif(not engine(), reason="no Docker engine, podman or buildah here")
def test_the_image_runs_a_job():
    done = subprocess.run([ROOT / "scripts" / "check-docker.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
