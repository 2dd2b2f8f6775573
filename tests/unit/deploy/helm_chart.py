"""Render the Helm chart with the program `helm` that a wheel brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "penstock"
HELM = Path(sys.executable).with_name("helm")
SECRET = {
    "PENSTOCK_POSTGRES_URL": "postgresql://penstock:secret@db.example.com/penstock",
    "PENSTOCK_REDIS_URL": "redis://:secret@redis.example.com:6379/0",
    "PENSTOCK_CLICKHOUSE_URL": "http://penstock:secret@clickhouse.example.com:8123/penstock",
}
"""What the Secret of an installation contains."""

Manifest = dict[str, Any]

needs_helm = pytest.mark.skipif(not HELM.exists(), reason="no wheel of helm for this platform")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def render(**values: str) -> list[Manifest]:
    """Return the manifests; `broker__replicas="2"` sets the value `broker.replicas`."""
    options = [f"--set={name.replace('__', '.')}={value}" for name, value in values.items()]
    result = helm("template", "queues", str(CHART), "--set=existingSecret=secrets", *options)
    assert result.returncode == 0, result.stderr
    return [manifest for manifest in yaml.safe_load_all(result.stdout) if manifest]


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [manifest] = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return manifest


def pod_specs(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the pod of every workload, by the name of its container."""
    pods = [m["spec"]["template"]["spec"] for m in manifests if "template" in m.get("spec", {})]
    return {pod["containers"][0]["name"]: pod for pod in pods}


def environment(pod: Manifest) -> dict[str, str]:
    """Return the variables of the container, with those of the Secret."""
    [container] = pod["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "secrets"}}]
    return SECRET | {variable["name"]: variable["value"] for variable in container["env"]}
