"""The Helm chart, rendered by Helm: Kubernetes accepts the manifests, Penstock the settings."""

from __future__ import annotations

import json

import kubernetes_validate
import pytest

from penstock.config import load_settings
from penstock.listen_address import check_listen_address
from tests.unit.deploy.commands import resolve_command
from tests.unit.deploy.helm_chart import CHART, environment, find, helm, needs_helm, pod_specs, render

pytestmark = needs_helm

VARIANTS: dict[str, dict[str, str]] = {
    "defaults": {},
    "journal and hpa": {"broker__journal__enabled": "true", "broker__autoscaling__kind": "hpa"},
    "keda": {"broker__autoscaling__kind": "keda", "broker__autoscaling__triggers[0].type": "cpu"},
    "ingress": {
        "ingress__enabled": "true",
        "ingress__host": "queues.example.com",
        "ingress__tlsSecret": "tls",
    },
    "monitored": {"serviceMonitor__enabled": "true", "serviceMonitor__labels.release": "prometheus"},
    "closed network": {
        "networkPolicy__ingressFrom[0].podSelector.matchLabels.app": "shop",
        "networkPolicy__egressTo[0].ipBlock.cidr": "10.0.0.0/8",
    },
    "Spark on Kubernetes": {"pipeline__sparkMaster": "k8s://https://kubernetes.default.svc:443"},
    "brokers alone": {
        "pipeline__enabled": "false",
        "alerts__enabled": "false",
        "migration__enabled": "false",
    },
}
CUSTOM_KINDS = {"ScaledObject", "ServiceMonitor"}
"""Kinds of operators, whose schemas the package does not have."""


def test_helm_lint_finds_nothing() -> None:
    result = helm("lint", "--strict", str(CHART), "--set=existingSecret=secrets")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("variant", "version"), [("defaults", "1.27"), *((name, "1.37") for name in VARIANTS)]
)
def test_kubernetes_accepts_every_manifest(variant: str, version: str) -> None:
    for manifest in render(**VARIANTS[variant]):
        if manifest["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_every_pod_runs_a_command_of_penstock_with_valid_settings() -> None:
    pods = pod_specs(render(**VARIANTS["ingress"], pipeline__sparkMaster="spark://spark:7077"))
    assert set(pods) == {"broker", "pipeline", "alerts", "migrate"}
    for pod in pods.values():
        resolve_command(pod["containers"][0]["args"])
        check_listen_address(load_settings(environment(pod)))
    broker = load_settings(environment(pods["broker"]))
    assert {"queues-broker.default.svc", "queues.example.com"} <= set(broker.allowed_hosts.split(","))
    assert load_settings(environment(pods["pipeline"])).spark_master == "spark://spark:7077"


def test_spark_reads_its_settings_from_the_values() -> None:
    master = VARIANTS["Spark on Kubernetes"]
    manifests = render(**master, **{"pipeline__sparkSettings.spark\\.driver\\.port": "9000"})
    lines = find(manifests, "ConfigMap", "queues-pipeline-spark")["data"]["spark-defaults.conf"].splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    assert settings["spark.driver.port"] == "9000", "a value replaces a default"
    assert settings["spark.driver.host"] == "queues-pipeline.default.svc"
    assert settings["spark.kubernetes.driver.pod.name"] == "queues-pipeline-0"
    pod = pod_specs(manifests)["pipeline"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "spark"]
    assert volume["configMap"] == {"name": "queues-pipeline-spark"}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert environment(pod)["SPARK_CONF_DIR"] == mounts["spark"]
    [subject] = find(manifests, "RoleBinding", "queues-pipeline")["subjects"]
    assert subject["name"] == pod["serviceAccountName"]


def test_every_pod_is_restricted() -> None:
    for name, pod in pod_specs(render()).items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        # A Service named "penstock" would set PENSTOCK_PORT to a URL.
        assert pod["enableServiceLinks"] is False, name
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/var/lib/penstock"}, (
            name
        )


def test_the_grace_period_is_longer_than_drain_and_shutdown() -> None:
    pod = pod_specs(render(broker__drainSeconds="20"))["broker"]
    drain_s = load_settings(environment(pod)).drain_s
    assert drain_s == 20
    assert pod["terminationGracePeriodSeconds"] >= drain_s + 25
    probe = pod["containers"][0]["readinessProbe"]
    assert probe["httpGet"]["path"] == "/health/ready"
    assert drain_s > probe["periodSeconds"] * probe["failureThreshold"]
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/health/live"


def test_a_journal_has_a_volume_that_outlives_the_pod() -> None:
    without = render()
    find(without, "Deployment", "queues-broker")
    assert load_settings(environment(pod_specs(without)["broker"])).journal_mb == 0
    stored = find(render(broker__journal__enabled="true"), "StatefulSet", "queues-broker")["spec"]
    pod = stored["template"]["spec"]
    assert load_settings(environment(pod)).journal_mb == 256
    assert [claim["metadata"]["name"] for claim in stored["volumeClaimTemplates"]] == ["home"]
    assert "home" not in {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_an_autoscaler_owns_the_number_of_brokers(kind: str) -> None:
    values = VARIANTS["keda"] | {"broker__autoscaling__kind": kind}
    manifests = render(**values)
    assert "replicas" not in find(manifests, "Deployment", "queues-broker")["spec"]
    scaler = find(
        manifests, {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[kind], "queues-broker"
    )
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "Deployment"


def test_services_budget_and_policies_select_the_pods_of_the_brokers() -> None:
    manifests = render(**VARIANTS["monitored"])
    labels = find(manifests, "Deployment", "queues-broker")["spec"]["template"]["metadata"]["labels"]
    service = find(manifests, "Service", "queues-broker")
    monitor = find(manifests, "ServiceMonitor", "queues-broker")["spec"]
    selectors = [
        service["spec"]["selector"],
        find(manifests, "PodDisruptionBudget", "queues-broker")["spec"]["selector"]["matchLabels"],
        find(manifests, "NetworkPolicy", "queues-broker")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector["app.kubernetes.io/component"] == "broker"
        assert selector.items() <= labels.items()
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("existingSecret=", "existingSecret is required"),
        ("broker.replica=2", "replica"),
        ("broker.shutdownSeconds=10", "shutdownSeconds"),
        ("broker.autoscaling.kind=vpa", "kind"),
        ("settings.PENSTOCK_PORT=80", "PENSTOCK_PORT"),
        ("ingress.enabled=true", "ingress.host is required"),
    ],
)
def test_helm_refuses_wrong_values(option: str, reason: str) -> None:
    result = helm("template", "queues", str(CHART), "--set=existingSecret=secrets", f"--set={option}")
    assert result.returncode != 0
    assert reason in result.stderr


def test_the_schema_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    shown = helm("show", "values", str(CHART))
    assert all(f"\n{name}:" in shown.stdout for name in schema["properties"] if name != "global")
