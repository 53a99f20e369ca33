"""The manifests of docker/kubernetes are what Kubernetes, Prometheus' operator and Kubeflow take, and fit each other,
the image and the monitoring.

Kinds of Kubernetes itself are held against its schemas (kubernetes-validate, strict: no unknown field); those of the
operator and of Kubeflow against models that were made of their definitions (cloudcoil, kubeflow-trainer-api,
kubeflow-training): what a model does not know gets lost in it. Where `kubectl` is installed, kustomize builds the
folder; else `resolved` does.
"""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import types

import kubernetes_validate
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
KUBERNETES = "1.34"
USER = 10001


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def resolved(folder):
    """(kustomization.yaml, resources) of a kustomization and those that it names; only what ours use is known."""
    kustomization = documents(folder / "kustomization.yaml")[0]
    known = {"apiVersion", "kind", "namespace", "resources", "labels", "images", "configMapGenerator"}
    assert kustomization.keys() <= known
    found = []
    for name in kustomization.get("resources", []):
        place = folder / name
        found += resolved(place)[1] if place.is_dir() else documents(place)
    for row in kustomization.get("configMapGenerator", []):
        files = {pathlib.PurePath(name).name: (folder / name).read_text(encoding="utf-8") for name in row["files"]}
        metadata = {"name": row["name"], "labels": row["options"]["labels"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files})
    for document in found:
        for row in kustomization.get("labels", []):
            assert "includeSelectors" not in row
            for place in (document, pod_template(document) if row.get("includeTemplates") else None):
                if place:
                    place["metadata"].setdefault("labels", {}).update(row["pairs"])
        if "namespace" in kustomization and document["kind"] != "Namespace":
            document["metadata"]["namespace"] = kustomization["namespace"]
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", [])}
    for container in containers(found):
        container["image"] = f"{container['image']}:{tags[container['image']]}" if tags else container["image"]
    return kustomization, found


def pod_template(document):
    """The template of the pods that a document makes, or None."""
    if document["kind"] in ("Deployment", "StatefulSet"):
        return document["spec"]["template"]
    if document["kind"] == "TrainingRuntime":
        return document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    if document["kind"] == "PyTorchJob":
        return document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]  # the workers' is the same
    return None


def containers(found):
    for document in found:
        template = pod_template(document)
        yield from template["spec"]["containers"] if template else []


def build(folder):
    if shutil.which("kubectl") is None:
        return resolved(folder)[1]
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def manifests():
    return build(FOLDER)


@pytest.fixture(scope="module")
def jobs():
    """The documents of Kubeflow's jobs, in place of the service."""
    return [document for path in sorted((FOLDER / "kubeflow").glob("*.yaml")) for document in documents(path)]


def one(found, kind, name):
    matches = [d for d in found if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(matches) == 1, f"{len(matches)} documents are the {kind} {name}"
    return matches[0]


def lost(given, kept, path=""):
    """What a model left out of a document: paths."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name not in kept:
                yield f"{path}/{name}"
            else:
                yield from lost(value, kept[name], f"{path}/{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, (value, copied) in enumerate(zip(given, kept, strict=True)):
            yield from lost(value, copied, f"{path}/{index}")
    elif given != kept:
        yield path


def check(document):
    """Raises, or returns the paths that the document's kind does not have."""
    # Imported here: each process of pytest collects this file, and these take seconds.
    from cloudcoil.models.prometheus_operator import v1 as operator
    from kubeflow import training
    from kubeflow_trainer_api import models as kubeflow

    kind, version = document["kind"], document["apiVersion"]
    if version.startswith("trainer.kubeflow.org/"):
        assert version == "trainer.kubeflow.org/v1alpha1"
        return list(lost(document, getattr(kubeflow, f"TrainerV1alpha1{kind}").from_dict(document).to_dict()))
    if version.startswith("kubeflow.org/"):
        assert version == "kubeflow.org/v1"
        client = training.ApiClient()
        kept = client.deserialize(types.SimpleNamespace(data=json.dumps(document)), f"KubeflowOrgV1{kind}")
        return list(lost(document, client.sanitize_for_serialization(kept)))
    if version.startswith("monitoring.coreos.com/"):
        assert version == "monitoring.coreos.com/v1"
        kept = getattr(operator, kind).model_validate(copy.deepcopy(document))
        return list(lost(document, kept.model_dump(by_alias=True, exclude_unset=True, mode="json")))
    kubernetes_validate.validate(document, KUBERNETES, strict=True)
    return []


def test_every_document_is_of_its_kind(manifests, jobs):
    for document in manifests + jobs:
        assert check(document) == [], f"{document['kind']} {document['metadata']['name']}"
    kinds = {document["kind"] for document in manifests + jobs}
    assert kinds >= {
        *("Namespace", "Deployment", "Service", "PersistentVolumeClaim", "StatefulSet", "NetworkPolicy", "ConfigMap"),
        *("ServiceMonitor", "PrometheusRule", "TrainingRuntime", "TrainJob", "PyTorchJob"),
    }


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("Deployment", "distilld", lambda d: d["spec"].update(replica=1)),
        ("StatefulSet", "distilld-teacher", lambda d: d["spec"].pop("selector")),
        ("NetworkPolicy", "distilld", lambda d: d["spec"].update(policyTypes="Ingress")),
        ("ServiceMonitor", "distilld", lambda d: d["spec"]["endpoints"][0].update(intervall="15s")),
        ("PrometheusRule", "distilld", lambda d: d["spec"]["groups"][0]["rules"][0].update(alerts="A")),
        ("TrainingRuntime", "distilld", lambda d: d["spec"]["template"]["spec"]["replicatedJobs"][0].update(jobs=1)),
        ("TrainJob", "first-student", lambda d: d["spec"]["trainer"].update(comand=["a"])),
        ("PyTorchJob", "two-ranks", lambda d: d["spec"]["pytorchReplicaSpecs"]["Worker"].update(replica=1)),
        ("PyTorchJob", "two-ranks", lambda d: pod_template(d)["spec"].update(container=[])),
    ],
)
def test_the_check_finds_what_is_wrong(manifests, jobs, kind, name, change):
    document = copy.deepcopy(one(manifests + jobs, kind, name))
    assert check(document) == []
    change(document)
    try:
        found = check(document)
    except kubernetes_validate.ValidationError as error:
        found = [str(error)]
    assert found


def test_what_stands_for_kustomize_does_as_it_does(manifests):
    def by_name(found):
        return {(document["kind"], document["metadata"]["name"]): document for document in found}

    assert by_name(resolved(FOLDER)[1]) == by_name(manifests)


def test_the_image_is_of_this_version(manifests, jobs):
    version = re.search(r"project\(distilld VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    images = {container["image"] for container in containers(manifests + jobs)}
    images.add(one(jobs, "TrainJob", "first-student")["spec"]["trainer"]["image"])
    assert images == {f"distilld:{version}"}


def test_pods_are_as_the_image_is_made(manifests, jobs):
    """Not root, nothing of the root file system written, no more rights than the `restricted` standard leaves."""
    for document in manifests + jobs:
        template = pod_template(document)
        if template is None:
            continue
        pod = template["spec"]
        security = pod["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == USER and security["fsGroup"] == USER
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            assert "/tmp" in mounts and mounts["/models"]["readOnly"]
            assert {mount["name"] for mount in mounts.values()} <= {volume["name"] for volume in pod["volumes"]}


def test_names_and_ports_lead_somewhere(manifests, jobs):
    everything = manifests + jobs
    claims = {d["metadata"]["name"] for d in manifests if d["kind"] == "PersistentVolumeClaim"}
    maps = {d["metadata"]["name"] for d in everything if d["kind"] == "ConfigMap"}
    pods = [template for template in map(pod_template, everything) if template]
    ports = {
        template["metadata"]["labels"]["app.kubernetes.io/name"]: {
            port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])
        }
        for template in pods
    }
    for template in pods:
        for volume in template["spec"]["volumes"]:
            assert volume.get("persistentVolumeClaim", {"claimName": min(claims)})["claimName"] in claims
            assert volume.get("configMap", {"name": min(maps)})["name"] in maps
        for container in template["spec"]["containers"]:
            own = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container.get(probe, {"httpGet": {"port": "http"}})["httpGet"]["port"] in own | {"http"}
    # Services and policies choose pods that are there, and ports that those have.
    for service in (d for d in manifests if d["kind"] == "Service"):
        selected = service["spec"]["selector"]["app.kubernetes.io/name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports[selected]
    labels = [template["metadata"]["labels"] for template in pods]

    def chooses(selector):
        return any(selector.get("matchLabels", {}).items() <= one.items() for one in labels)

    for policy in (d for d in manifests if d["kind"] == "NetworkPolicy"):
        assert chooses(policy["spec"]["podSelector"])
        for row in policy["spec"]["ingress"] + policy["spec"]["egress"]:
            for peer in row.get("from", []) + row.get("to", []):
                assert "namespaceSelector" in peer or chooses(peer["podSelector"])
    stateful = one(manifests, "StatefulSet", "distilld-teacher")
    assert one(manifests, "Service", stateful["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


def test_the_teacher_lets_in_who_asks_it(manifests, jobs):
    policy = one(manifests, "NetworkPolicy", "distilld-teacher")["spec"]
    peers = [peer["podSelector"]["matchLabels"] for peer in policy["ingress"][0]["from"] if "podSelector" in peer]
    for document in (one(manifests, "Deployment", "distilld"), *(d for d in jobs if pod_template(d))):
        labels = pod_template(document)["metadata"]["labels"]
        assert any(peer.items() <= labels.items() for peer in peers)


def test_the_ranks_of_a_job_fit_each_other_and_the_spec(jobs):
    """The master alone has number 0, and the operator knows its container by its name."""
    roles = one(jobs, "PyTorchJob", "two-ranks")["spec"]["pytorchReplicaSpecs"]
    assert roles.keys() == {"Master", "Worker"} and roles["Master"]["replicas"] == 1
    assert roles["Master"]["template"] == roles["Worker"]["template"]
    assert [container["name"] for container in roles["Master"]["template"]["spec"]["containers"]] == ["pytorch"]
    ranks = sum(role["replicas"] for role in roles.values())
    training = json.loads(one(jobs, "ConfigMap", "two-ranks")["data"]["job.json"])["training"]
    assert training["gradient_groups"] % ranks == 0 and training["micro_batches"] >= ranks


def test_a_grace_period_is_longer_than_a_stop_takes(manifests):
    """The service has ended by its drain timeout (server/settings)."""
    header = (ROOT / "server" / "settings" / "service_settings.hpp").read_text()
    drain = int(re.search(r"drain_timeout\{std::chrono::seconds\((\d+)\)\}", header).group(1))
    service = pod_template(one(manifests, "Deployment", "distilld"))["spec"]
    assert drain + 10 <= service["terminationGracePeriodSeconds"]


def test_monitoring_finds_services_by_the_names_that_the_rules_know(manifests):
    monitor = one(manifests, "ServiceMonitor", "distilld")["spec"]
    (row,) = monitor["selector"]["matchExpressions"]
    jobs = []
    for service in (d for d in manifests if d["kind"] == "Service"):
        assert service["metadata"]["labels"][row["key"]] in row["values"]
        assert {port["name"] for port in service["spec"]["ports"]} == {monitor["endpoints"][0]["port"]}
        jobs.append(service["metadata"]["name"])
    rules = documents(ROOT / "grafana" / "rules" / "distilld.yaml")[0]
    down = next(rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "DistilldDown")
    assert f'job=~"{"|".join(sorted(jobs))}"' in down["expr"]
    assert one(manifests, "PrometheusRule", "distilld")["spec"] == rules


def test_the_rules_have_one_source():
    script = FOLDER / "make_prometheus_rule.py"
    done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_dashboards_come_along(manifests):
    found = one(manifests, "ConfigMap", "distilld-dashboards")
    assert found["data"] == {path.name: path.read_text() for path in (ROOT / "grafana" / "dashboards").glob("*.json")}
