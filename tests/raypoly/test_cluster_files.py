"""The files for clusters name what exists: our pins, KubeRay's fields, our keys, commands and variables."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from raypoly.cli import app
from raypoly.core import settings
from raypoly.core.config_keys import config_keys

ROOT = Path(__file__).resolve().parents[2]
RAYJOB = ROOT / "configs" / "kuberay" / "rayjob.yaml"
PAGE = (ROOT / "docs" / "cluster.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
(RAY,) = re.findall(r"ray\[[^]]*]==([\d.]+)", " ".join(PROJECT["optional-dependencies"]["train"]))

FIELDS = """
RayJobSpec: activeDeadlineSeconds backoffLimit metadata clusterSelector submitterConfig submitterPodTemplate managedBy
    deletionStrategy entrypoint runtimeEnvYAML jobId submissionMode entrypointResources entrypointNumCpus
    entrypointNumGpus ttlSecondsAfterFinished preRunningDeadlineSeconds shutdownAfterJobFinishes suspend
    rayClusterSpec=RayClusterSpec
RayClusterSpec: upgradeStrategy suspend managedBy headServiceAnnotations enableInTreeAutoscaling
    gcsFaultToleranceOptions historyServerOptions networkPolicy tlsOptions rayVersion authOptions=AuthOptions
    autoscalerOptions=AutoscalerOptions headGroupSpec=HeadGroupSpec workerGroupSpecs=WorkerGroupSpec
AuthOptions: mode secretName enableK8sTokenAuth
AutoscalerOptions: resources image imagePullPolicy securityContext idleTimeoutSeconds upscalingMode version env envFrom
    volumeMounts
HeadGroupSpec: headService enableIngress ingressOptions resources labels rayStartParams serviceType template=PodTemplate
WorkerGroupSpec: suspend groupName replicas minReplicas maxReplicas idleTimeoutSeconds priority resources labels
    rayStartParams scaleStrategy numOfHosts template=PodTemplate
PodTemplate: metadata spec=PodSpec
PodSpec: securityContext=PodSecurity containers=Container volumes=Volume
PodSecurity: fsGroup
Container: name image env ports volumeMounts securityContext=Security resources=Resources
Security: seccompProfile allowPrivilegeEscalation capabilities
Resources: requests limits
Volume: name persistentVolumeClaim emptyDir
"""
"""The fields of each type, and the type below one where it is checked too. Of KubeRay all that 1.7 documents for
ray.io/v1 (docs.ray.io, "KubeRay CRD API reference", which is made from ray-operator/apis/ray/v1); of Kubernetes those
that the file uses."""
DOCUMENTED = {
    kind: dict((*field.split("="), "")[:2] for field in fields.split())
    for kind, fields in re.findall(r"^(\w+): ((?:.|\n    )*)", FIELDS, re.M)
}


def unknown_fields(value: Any, kind: str, path: str = "") -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        for name, below in item.items():
            if name not in DOCUMENTED[kind]:
                yield f"{path}.{name}"
            elif DOCUMENTED[kind][name]:
                yield from unknown_fields(below, DOCUMENTED[kind][name], f"{path}.{name}")


@pytest.fixture(scope="module")
def rayjob() -> dict[str, Any]:
    claim, job = yaml.safe_load_all(RAYJOB.read_text())
    assert (claim["kind"], job["kind"], job["apiVersion"]) == ("PersistentVolumeClaim", "RayJob", "ray.io/v1")
    spec: dict[str, Any] = job["spec"]
    return spec


def pods(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The pod specs by their group; the head's is named `head`."""
    groups = {"head": cluster["headGroupSpec"]} | {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    return {name: group["template"]["spec"] for name, group in groups.items()}


def test_the_rayjob_has_only_fields_that_kuberay_documents(rayjob: dict[str, Any]) -> None:
    assert list(unknown_fields(rayjob, "RayJobSpec")) == []
    planted = rayjob | {"rayClusterSpec": rayjob["rayClusterSpec"] | {"authoptions": {}}}
    assert list(unknown_fields(planted, "RayJobSpec")) == [".rayClusterSpec.authoptions"]


def test_the_rayjobs_command_is_one_that_a_run_takes(rayjob: dict[str, Any]) -> None:
    python, _, module, option, config, *overrides = shlex.split(rayjob["entrypoint"])
    assert (python, module, option) == ("python", "raypoly.train", "--config")
    chosen = settings.load(str(ROOT / Path(config).relative_to("/opt/raypoly")), overrides, lambda text: None)
    assert chosen.model.path, "the warm start needs a CPU on the head, which has none"


def test_the_rayjob_places_the_sandbox_the_secret_and_the_volume(rayjob: dict[str, Any]) -> None:
    cluster = rayjob["rayClusterSpec"]
    assert cluster["authOptions"]["mode"] == "token"
    head, scorers = cluster["headGroupSpec"], cluster["workerGroupSpecs"][1]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert scorers["minReplicas"] == 0 < scorers["maxReplicas"]
    assert all(isinstance(text, str) for group in (head, scorers) for text in group["rayStartParams"].values())
    for name, pod in pods(cluster).items():
        (container,) = pod["containers"]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert ("OPENAI_API_KEY" in variables) == (name == "head"), "programs run beside the others"
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        ours = ("RAYPOLY_RUNS", "RAYPOLY_CACHE", "HF_HOME")
        assert all(str(variables[variable]).startswith("/shared/") for variable in ours)
        if name != "head":
            assert container["securityContext"]["seccompProfile"] == {"type": "Unconfined"}


def test_images_are_of_the_pinned_ray_and_python(rayjob: dict[str, Any]) -> None:
    python = re.findall(r">=3\.(\d+)", PROJECT["requires-python"])
    docker = yaml.safe_load((ROOT / "cluster.yaml").read_text())["docker"]
    bases = re.findall(r"^FROM (\S+)$", (ROOT / "Dockerfile").read_text(), re.M)
    for image in (*bases, docker["head_image"], docker["worker_image"]):
        assert re.fullmatch(rf"rayproject/ray:{re.escape(RAY)}-py3{python[0]}-(cpu|gpu)", image), image
    assert len(bases) == 1
    assert rayjob["rayClusterSpec"]["rayVersion"] == RAY


def test_the_dockerfile_installs_what_pyproject_and_constraints_say() -> None:
    """It names no version of a package itself, and its default build is an extra."""
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"[=~]=\s*\d", text)
    builds = set(re.findall(r"\b(\w+)\) torch=", text))
    assert builds == {"cpu", "cuda"} <= PROJECT["optional-dependencies"].keys()
    assert re.findall(r"ARG BUILD=(\w+)", text)[0] in builds
    assert '--override constraints/overrides.txt --editable ".[train,$BUILD]"' in text
    copied = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "constraints", "raypoly", "actors", "workflows", "configs"} <= set(copied)


def test_the_nodes_of_ray_up_have_an_image_a_token_and_storage() -> None:
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    for node_type in cluster["available_node_types"].values():
        image = node_type["node_config"]["ImageId"]  # without one Ray takes an image of Ubuntu 18.04
        assert re.fullmatch(r"resolve:ssm:/aws/service/deeplearning/ami/x86_64/.*ubuntu-22\.04/latest/ami-id", image)
    assert cluster["file_mounts"]["/home/ray/.ray/auth_token"] == "~/.ray/auth_token"
    options = " ".join(cluster["docker"]["run_options"])
    variables = dict(re.findall(r"--env (\w+)=(\S+)", options))
    assert variables["RAY_AUTH_MODE"] == "token"
    assert variables["RAYPOLY_RUNS"].startswith("s3://")
    assert int(variables["RAY_JOB_STOP_WAIT_TIME_S"]) > settings.load(None).run.grace_seconds


def test_the_page_names_our_keys_commands_and_variables() -> None:
    text = PAGE + (ROOT / "cluster.yaml").read_text() + RAYJOB.read_text()
    sections = {key.name.partition(".")[0] for key in config_keys()}
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.\w+)[`=]", PAGE))
    assert {"run.grace_seconds", "judge.api_key_file"} <= named <= {key.name for key in config_keys()}
    sources = "".join(path.read_text() for path in (ROOT / "raypoly").rglob("*.py"))
    read = set(re.findall(r'environ\.get\("(\w+)"\)', sources))
    assert {"RAYPOLY_RUNS", "RAYPOLY_CACHE"} <= set(re.findall(r"\bRAYPOLY_\w+", text)) <= read
    commands = set(typer.main.get_command(app).commands)
    assert set(re.findall(r"raypoly ([a-z]+) \.\.\.", PAGE)) <= commands
    assert set(re.findall(r"python -m raypoly\.(\w+)", PAGE)) == {"train"}


def test_the_pages_blocks_are_yaml_and_its_prometheus_reads_rays_list() -> None:
    prometheus, monitor = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.S))
    constants = pytest.importorskip("ray._private.ray_constants")
    (listed,) = prometheus["scrape_configs"][0]["file_sd_configs"][0]["files"]
    assert listed == f"/tmp/ray/{constants.PROMETHEUS_SERVICE_DISCOVERY_FILE}"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for pod in pods(list(yaml.safe_load_all(RAYJOB.read_text()))[1]["spec"]["rayClusterSpec"]).values():
        assert endpoint["port"] in {port["name"] for port in pod["containers"][0]["ports"]}
