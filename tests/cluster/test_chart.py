"""The charts, rendered by Helm and shown to a real API server."""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import dockwork
from dockwork_operator.models.crds import KINDS
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import parse_queue
from dockwork_operator.models.rbac import OWN, WATCHED, Grant
from dockwork_operator.settings import Settings
from support.api_requests import Api
from support.apiserver import ApiServer
from support.helm import CHART, CRD_CHART, ROOT, helm, objects, only, render, rendered

Json = dict[str, Any]

OWN_SECRET = {"redis": {"enabled": True, "existingSecret": "my-password"}}
EVERYTHING: Json = {
    "watchNamespaces": ["shop", "mail"],
    "replicaCount": 3,
    "image": {"repository": "registry.example/op", "digest": "sha256:" + "a" * 64},
    "runtimeImage": {"repository": "registry.example/run", "tag": "1"},
    "imagePullSecrets": [{"name": "pull"}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
    "operator": {"tickSeconds": 0.5, "maxQPS": 50, "maxConcurrentRollouts": 1, "logLevel": "debug"},
    "defaultRedis": {"secretName": "redis-of-ours", "caKey": "ca.crt"},
    "rbac": {"create": True, "secretNames": ["other-redis", "redis-of-ours"], "userRoles": True},
    "serviceAccount": {"create": True, "name": "robot", "annotations": {"a": "b"}},
    "redis": {
        "enabled": True,
        "maxMemory": "512mb",
        "persistence": {"size": "1Gi", "storageClass": "fast"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "image": {"pullPolicy": "Always"},
    },
    "networkPolicy": {"enabled": True},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "post"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "priorityClassName": "system-cluster-critical",
}
COMBINATIONS: dict[str, Json] = {
    "as it comes": {},
    "with its own Redis": {"redis": {"enabled": True}},
    "named namespaces": {"watchNamespaces": ["shop", "mail"], "redis": {"enabled": True}},
    "whole cluster": {"watchNamespaces": ["*"]},
    "whole cluster, own password": {"watchNamespaces": ["*"], **OWN_SECRET},
    "least": {
        "replicaCount": 1,
        "networkPolicy": {"enabled": False},
        "rbac": {"create": False, "userRoles": False},
        "serviceAccount": {"create": False, "name": "made-elsewhere"},
        "podDisruptionBudget": {"enabled": False},
    },
    "everything": EVERYTHING,
}

#: A development version runs the images that `make images` builds.
IMAGE_TAG = "dev" if "dev" in dockwork.__version__ else dockwork.__version__


def grants_of(role: Json) -> list[Json]:
    rules: list[Json] = role["rules"]
    return rules


def as_rule(grant: Grant, names: list[str]) -> Json:
    rule: Json = {"apiGroups": [grant.group], "resources": list(grant.resources), "verbs": list(grant.verbs)}
    return {**rule, "resourceNames": names} if grant.named else rule


@pytest.fixture(scope="module")
def system(api: Api, shop: str) -> str:
    """The namespaces of the combinations, all restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in ("dockwork-system", "mail"):
        made = api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert made.code == 201, made.message
    assert api.ask("PATCH", f"/api/v1/namespaces/{shop}", {"metadata": {"labels": labels}},
                   kind="application/merge-patch+json").code == 200  # fmt: skip
    return "dockwork-system"


# --- every documented combination (OP-332) -----------------------------------------------------------------


@pytest.mark.covers("OP-332", "OP-311", "OP-330", "OP-307")
@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_api_server_accepts_what_is_rendered(
    name: str, server: ApiServer, api: Api, system: str, tmp_path: Path
) -> None:
    done = render(tmp_path, COMBINATIONS[name], namespace=system)
    assert done.returncode == 0, done.stderr
    server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=done.stdout)
    made = objects(done.stdout)
    assert not [each["kind"] for each in made if "Webhook" in each["kind"] or "Certificate" in each["kind"]]
    assert not [each for each in made if each.get("type") == "kubernetes.io/tls"]
    pods = list(pods_of(made))
    assert pods
    for namespace, pod in pods:
        answer = api.ask(
            "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", pod
        )
        assert answer.code == 201, answer.message


def pods_of(made: list[Json]) -> Iterator[tuple[str, Json]]:
    """Every pod that the objects are or would make."""
    for each in made:
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
        if each["kind"] in ("Deployment", "StatefulSet"):
            template = each["spec"]["template"]
            spec = {**template["spec"]}
            mounted = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())}
            spec["volumes"] = spec["volumes"] + [{"name": claim, "emptyDir": {}} for claim in sorted(mounted)]
            # Priority classes are the cluster's.
            spec.pop("priorityClassName", None)
            metadata = {**template["metadata"], "name": f"{name}-0"}
            yield namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        elif each["kind"] == "Pod":
            yield namespace, each


@pytest.mark.covers("OP-332")
@pytest.mark.parametrize("chart", [CHART, CRD_CHART], ids=["dockwork", "dockwork-crds"])
def test_helm_lint_finds_nothing(chart: Path, tmp_path: Path) -> None:
    done = helm("lint", "--strict", "--quiet", chart, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.covers("OP-332")
@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"replicas": 2}, "replicas"),
        ({"redis": {"enable": True}}, "enable"),
        ({"operator": {"tickSecond": 1}}, "tickSecond"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"replicaCount": 0}, "replicaCount"),
        ({"watchNamespaces": "shop"}, "watchNamespaces"),
        ({"watchNamespaces": ["Shop"]}, "watchNamespaces"),
        ({"operator": {"logLevel": "loud"}}, "logLevel"),
        ({"operator": {"tickSeconds": 0.1}}, "tickSeconds"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"defaultRedis": {"secretName": ""}}, "secretName"),
        ({"redis": {"maxMemory": "1 GB"}}, "maxMemory"),
        ({"api": {"enabled": True}}, "api"),
    ],
)
def test_an_unknown_key_or_a_wrong_type_is_refused_by_name(values: Json, names: str, tmp_path: Path) -> None:
    done = render(tmp_path, values)
    assert done.returncode != 0
    assert names in done.stderr
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))


def test_the_schema_knows_every_value_and_the_defaults_pass() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(defaults, schema)
    assert set(defaults) == set(schema["properties"]) - {"global"}
    for name, value in defaults.items():
        if isinstance(value, dict) and schema["properties"][name].get("additionalProperties") is False:
            known = set(schema["properties"][name]["properties"])
            assert set(value) <= known, name
            assert known - set(value) <= {"claims"}, name


def test_the_charts_are_of_the_package_s_version() -> None:
    for chart in (CHART, CRD_CHART):
        meta = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert meta["appVersion"] == dockwork.__version__
        assert meta["version"] == dockwork.__version__.replace(".dev", "-dev")


# --- values (OP-330) ---------------------------------------------------------------------------------------


@pytest.mark.covers("OP-330")
def test_the_defaults_are_as_documented(tmp_path: Path) -> None:
    made = rendered(tmp_path)
    deployment = only(made, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    (operator,) = deployment["spec"]["template"]["spec"]["containers"]
    assert operator["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "384Mi"},
    }
    assert operator["command"] == ["dockwork-operator", "run"]
    assert operator["image"] == f"dockwork-operator:{IMAGE_TAG}"
    variables = {entry["name"]: entry.get("value") for entry in operator["env"]}
    assert variables == {
        "DOCKWORK_WATCH_NAMESPACES": "dockwork-system",
        "POD_NAMESPACE": None,
        "POD_NAME": None,
        "DOCKWORK_LEASE_NAME": "dockwork-operator",
        "DOCKWORK_DEFAULT_REDIS_SECRET": "dockwork-redis",
        "DOCKWORK_DEFAULT_REDIS_URL_KEY": "url",
        "DOCKWORK_DEFAULT_REDIS_CA_KEY": "",
        "DOCKWORK_TICK_SECONDS": "2",
        "DOCKWORK_MAX_QPS": "20",
        "DOCKWORK_MAX_CONCURRENT_ROLLOUTS": "5",
        "DOCKWORK_LOG_LEVEL": "info",
    }
    assert operator["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert operator["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert only(made, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert only(made, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    assert [each for each in made if each["kind"] in ("StatefulSet", "Secret")] == []


@pytest.mark.covers("OP-330")
def test_the_operator_reads_every_variable_that_the_chart_sets(tmp_path: Path) -> None:
    deployment = only(rendered(tmp_path, EVERYTHING), "Deployment")
    (operator,) = deployment["spec"]["template"]["spec"]["containers"]
    assert operator["image"] == "registry.example/op@sha256:" + "a" * 64
    environ = {entry["name"]: entry["value"] for entry in operator["env"] if "value" in entry}
    settings = Settings.from_environ(environ)
    assert settings.namespaces == ("shop", "mail")
    assert (settings.redis_secret, settings.redis_url_key, settings.redis_ca_key) == (
        "redis-of-ours",
        "url",
        "ca.crt",
    )
    assert settings.tick.total_seconds() == 0.5
    assert settings.requests_per_second == 50
    assert settings.max_concurrent_rollouts == 1
    assert settings.log_level == "debug"
    assert settings.lease_name == "dockwork-operator"
    assert Settings.from_environ({"DOCKWORK_WATCH_NAMESPACES": "*"}).cluster_wide
    everywhere = only(rendered(tmp_path, {"watchNamespaces": ["*"]}), "Deployment")
    (operator,) = everywhere["spec"]["template"]["spec"]["containers"]
    assert {"name": "DOCKWORK_WATCH_NAMESPACES", "value": "*"} in operator["env"]


@pytest.mark.covers("OP-330")
def test_one_replica_has_no_budget_that_would_block_a_drain(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"replicaCount": 1})
    assert [each for each in made if each["kind"] == "PodDisruptionBudget"] == []


@pytest.mark.covers("OP-330")
def test_the_redis_keeps_what_it_is_given(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"watchNamespaces": ["shop"], "redis": {"enabled": True, "maxMemory": "1gb"}})
    conf = only(made, "ConfigMap", "dockwork-redis")["data"]["redis.conf"]
    for line in ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction", "maxmemory 1gb"):
        assert line in conf.splitlines()
    redis = only(made, "StatefulSet")
    assert redis["spec"]["replicas"] == 1
    (claim,) = redis["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "8Gi"
    policy = only(made, "NetworkPolicy", "dockwork-redis")
    (rule,) = policy["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["shop", "dockwork-system"]


# --- the password (OP-330, OP-336) -------------------------------------------------------------------------


def secret_of(made: list[Json], name: str, namespace: str, key: str) -> str:
    data = only(made, "Secret", name, namespace)["data"]
    return base64.b64decode(data[key]).decode()


@pytest.mark.covers("OP-330")
def test_a_password_is_made_and_its_url_is_in_each_watched_namespace(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"watchNamespaces": ["shop", "mail"], "redis": {"enabled": True}})
    password = secret_of(made, "dockwork-redis-password", "dockwork-system", "password")
    assert len(password) == 40
    for namespace in ("shop", "mail"):
        url = secret_of(made, "dockwork-redis", namespace, "url")
        assert url == f"redis://:{password}@dockwork-redis.dockwork-system.svc:6379/0"
    again = rendered(tmp_path, {"watchNamespaces": ["shop"], "redis": {"enabled": True}})
    assert secret_of(again, "dockwork-redis-password", "dockwork-system", "password") != password
    # It stands in Secrets alone: no argument, no variable, no ConfigMap shows it.
    others = [each for each in made if each["kind"] != "Secret"]
    assert password not in json.dumps(others)


@pytest.mark.covers("OP-330")
def test_an_upgrade_keeps_the_password(server: ApiServer, api: Api, namespace: str, tmp_path: Path) -> None:
    known = {
        "metadata": {
            "name": "dockwork-redis-password",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": "dockwork",
                "meta.helm.sh/release-namespace": namespace,
            },
        },
        "stringData": {"password": "kept-over-upgrades"},
    }
    assert api.ask("POST", f"/api/v1/namespaces/{namespace}/secrets", known).code == 201
    done = helm(
        *("install", "dockwork", CHART, "-n", namespace, "--dry-run=server", "--set", "redis.enabled=true"),
        *("--set", "rbac.userRoles=false", "-o", "json"),
        folder=tmp_path,
        kubeconfig=server.kubeconfig,
    )
    assert done.returncode == 0, done.stderr
    made = objects(json.loads(done.stdout)["manifest"])
    assert secret_of(made, "dockwork-redis-password", namespace, "password") == "kept-over-upgrades"
    assert "kept-over-upgrades@dockwork-redis" in secret_of(made, "dockwork-redis", namespace, "url")


@pytest.mark.covers("OP-336")
def test_a_password_of_the_user_s_wins_and_nothing_is_generated(tmp_path: Path) -> None:
    first, second = (render(tmp_path, {**OWN_SECRET, "watchNamespaces": ["shop"]}).stdout for _ in range(2))
    assert first == second
    made = objects(first)
    assert [each for each in made if each["kind"] == "Secret"] == []
    redis = json.dumps(only(made, "StatefulSet"))
    assert redis.count("my-password") == 2
    assert "dockwork-redis-password" not in redis


@pytest.mark.covers("OP-336")
def test_a_generated_password_for_the_whole_cluster_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = render(tmp_path, {"watchNamespaces": ["*"], "redis": {"enabled": True}})
    assert done.returncode != 0
    assert "list the namespaces, or set redis.existingSecret" in done.stderr


def test_a_star_among_names_is_refused(tmp_path: Path) -> None:
    done = render(tmp_path, {"watchNamespaces": ["*", "shop"]})
    assert done.returncode != 0
    assert "goes alone" in done.stderr


# --- CRDs (OP-331) -----------------------------------------------------------------------------------------


@pytest.mark.covers("OP-331")
def test_missing_crds_are_named_with_the_remedy(tmp_path: Path) -> None:
    done = render(tmp_path, kinds=())
    assert done.returncode != 0
    assert "The custom resource Queue of dockwork.dev/v1alpha1 is missing" in done.stderr
    assert "kubectl apply --server-side -f crds/crds.yaml" in done.stderr
    half = render(tmp_path, kinds=("dockwork.dev/v1alpha1/Queue",))
    assert "The custom resource CronJob of dockwork.dev/v1alpha1 is missing" in half.stderr


@pytest.mark.covers("OP-331")
def test_old_crds_are_named_with_the_remedy(
    server: ApiServer, api: Api, namespace: str, tmp_path: Path
) -> None:
    def install() -> tuple[int, str]:
        done = helm(
            *("install", "dockwork", CHART, "-n", namespace, "--dry-run=server"),
            folder=tmp_path,
            kubeconfig=server.kubeconfig,
        )
        return done.returncode, done.stderr

    assert install()[0] == 0
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.dockwork.dev"
    merge = "application/merge-patch+json"
    note = "dockwork.dev/schema-revision"
    api.ask("PATCH", crd, {"metadata": {"annotations": {note: None}}}, kind=merge)
    try:
        code, said = install()
    finally:
        api.ask("PATCH", crd, {"metadata": {"annotations": {note: "1"}}}, kind=merge)
    assert code != 0
    assert "queues.dockwork.dev in this cluster is old" in said
    assert "Upgrade the chart dockwork-crds" in said


@pytest.mark.covers("OP-331")
def test_the_crd_chart_installs_the_same_crds_and_keeps_them(server: ApiServer, tmp_path: Path) -> None:
    made = rendered(tmp_path, chart=CRD_CHART, release="dockwork-crds")
    plain = {
        each["metadata"]["name"]: each for each in yaml.safe_load_all((ROOT / "crds/crds.yaml").read_text())
    }
    assert (
        {each["metadata"]["name"] for each in made}
        == set(plain)
        == {f"{k.plural}.dockwork.dev" for k in KINDS}
    )
    for each in made:
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert each["spec"] == plain[each["metadata"]["name"]]["spec"]
        assert "conversion" not in each["spec"]
    server.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
        input=yaml.safe_dump_all(made),
    )
    assert not (CHART / "crds").exists()


# --- RBAC (OP-310, OP-311) ---------------------------------------------------------------------------------


@pytest.mark.covers("OP-310", "OP-311")
def test_namespaced_mode_is_a_role_in_each_namespace_and_no_clusterrole_for_the_operator(
    tmp_path: Path,
) -> None:
    made = rendered(tmp_path, {"watchNamespaces": ["shop", "mail"], "rbac": {"secretNames": ["other"]}})
    wanted = [as_rule(grant, ["dockwork-redis", "other"]) for grant in WATCHED]
    for namespace in ("shop", "mail"):
        assert grants_of(only(made, "Role", "dockwork", namespace)) == wanted
        binding = only(made, "RoleBinding", "dockwork", namespace)
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "dockwork", "namespace": "dockwork-system"}
        ]
    own = only(made, "Role", "dockwork-lease", "dockwork-system")
    assert grants_of(own) == [as_rule(grant, ["dockwork-operator"]) for grant in OWN]
    assert [each for each in made if each["kind"] == "ClusterRoleBinding"] == []
    assert {each["metadata"]["name"] for each in made if each["kind"] == "ClusterRole"} == {
        "dockwork-system-dockwork-view",
        "dockwork-system-dockwork-edit",
    }


@pytest.mark.covers("OP-310", "OP-311")
def test_cluster_mode_is_one_clusterrole_of_the_same_rules(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"watchNamespaces": ["*"]})
    assert grants_of(only(made, "ClusterRole", "dockwork-system-dockwork")) == [
        as_rule(g, ["dockwork-redis"]) for g in WATCHED
    ]
    assert only(made, "ClusterRoleBinding")["subjects"][0]["name"] == "dockwork"
    roles = {each["metadata"]["name"] for each in made if each["kind"] == "Role"}
    assert roles == {"dockwork-lease", "dockwork-selftest"}


MAY = [
    ("get list watch create patch delete", "dockwork.dev", "queues"),
    ("get list watch", "dockwork.dev", "queuecronjobs"),
    ("patch", "dockwork.dev", "queues/status"),
    ("patch", "dockwork.dev", "queuecronjobs/status"),
    ("update", "dockwork.dev", "queues/finalizers"),
    ("get list watch create patch delete", "apps", "deployments"),
    ("get update", "apps", "deployments/scale"),
    ("get list watch create patch delete", "policy", "poddisruptionbudgets"),
    ("get list watch create patch delete", "networking.k8s.io", "networkpolicies"),
    ("get list watch patch", "", "pods"),
    ("create patch", "", "events"),
]
MAY_NOT = [
    ("list watch create update patch delete", "", "secrets"),
    ("get list watch create update patch delete", "", "serviceaccounts"),
    ("create delete update", "", "pods"),
    ("create", "", "pods/exec"),
    ("create update patch delete", "dockwork.dev", "queuecronjobs"),
    ("get list", "", "namespaces"),
    ("get list", "", "nodes"),
    ("create patch", "rbac.authorization.k8s.io", "roles"),
    ("get list", "apiextensions.k8s.io", "customresourcedefinitions"),
]


@pytest.mark.covers("OP-310", "OP-311")
def test_the_operator_s_account_may_what_the_table_says_and_no_more(
    server: ApiServer, api: Api, namespace: str, tmp_path: Path
) -> None:
    other = f"{namespace}-other"
    assert api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": other}}).code == 201
    made = rendered(
        tmp_path, {"watchNamespaces": [namespace], "rbac": {"userRoles": False}}, namespace=namespace
    )
    roles = [each for each in made if each["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
    server.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(roles))

    def may(verb: str, group: str, resource: str, *, where: str = namespace, name: str = "") -> bool:
        kind, _, sub = resource.partition("/")
        asked = {
            "namespace": where,
            "verb": verb,
            "group": group,
            "resource": kind,
            "subresource": sub,
            "name": name,
        }
        review = {
            "spec": {"user": f"system:serviceaccount:{namespace}:dockwork", "resourceAttributes": asked}
        }
        answer = api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer.body["status"]["allowed"])

    for verbs, group, resource in MAY:
        for verb in verbs.split():
            assert may(verb, group, resource), (verb, resource)
            assert not may(verb, group, resource, where=other), (verb, resource, "elsewhere")
    for verbs, group, resource in MAY_NOT:
        for verb in verbs.split():
            assert not may(verb, group, resource), (verb, resource)
    assert may("get", "", "secrets", name="dockwork-redis")
    assert not may("get", "", "secrets", name="somebody-s")
    assert not may("get", "", "secrets")
    lease = "coordination.k8s.io"
    assert may("create", lease, "leases")
    assert may("update", lease, "leases", name="dockwork-operator")
    assert not may("update", lease, "leases", name="kube-scheduler")


@pytest.mark.covers("OP-311")
def test_two_releases_of_one_name_share_nothing_in_the_cluster(tmp_path: Path) -> None:
    def cluster_wide(namespace: str) -> set[str]:
        made = rendered(tmp_path, {"watchNamespaces": ["*"]}, namespace=namespace)
        return {each["metadata"]["name"] for each in made if each["kind"].startswith("Cluster")}

    assert len(cluster_wide("one")) == 3
    assert not cluster_wide("one") & cluster_wide("two")


def test_users_with_view_see_and_with_edit_change_what_is_theirs(tmp_path: Path) -> None:
    made = rendered(tmp_path)
    view = only(made, "ClusterRole", "dockwork-system-dockwork-view")
    edit = only(made, "ClusterRole", "dockwork-system-dockwork-edit")
    to = "rbac.authorization.k8s.io/aggregate-to-"
    assert {label for label in view["metadata"]["labels"] if label.startswith(to)} == {
        f"{to}view",
        f"{to}edit",
        f"{to}admin",
    }
    assert {label for label in edit["metadata"]["labels"] if label.startswith(to)} == {
        f"{to}edit",
        f"{to}admin",
    }
    for role in (view, edit):
        assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {"dockwork.dev"}
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {word for rule in edit["rules"] for word in rule["resources"]} == {
        "queues",
        "queuecronjobs",
        "queues/scale",
    }


# --- helm test (OP-333) ------------------------------------------------------------------------------------


def test_the_self_test_asks_for_a_queue_that_is_accepted(api: Api, shop: str, tmp_path: Path) -> None:
    made = rendered(tmp_path, {"watchNamespaces": ["shop"], "imagePullSecrets": [{"name": "pull"}]})
    scripts = only(made, "ConfigMap", "dockwork-selftest", "shop")["data"]
    pod = only(made, "Pod", "dockwork-selftest", "shop")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    environ = {entry["name"]: entry["value"] for entry in container["env"]}
    program: Json = {"__name__": "selftest"}
    exec(compile(scripts["selftest.py"], "selftest.py", "exec"), program)
    program["os"] = type("os", (), {"environ": environ})
    queue = program["manifest"]("selftest-0")
    queue["metadata"]["namespace"] = "shop"
    answer = api.create(queue, dry_run=True)
    assert answer.code == 201, answer.message
    assert not isinstance(parse_queue(queue), Refused)
    assert queue["spec"]["worker"]["podTemplate"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert queue["spec"]["worker"]["image"] == f"dockwork-runtime:{IMAGE_TAG}"
    ast.parse(scripts["selftest_app.py"])


def test_the_self_test_may_do_what_it_does_and_leaves_nothing(tmp_path: Path) -> None:
    made = rendered(tmp_path)
    parts = [each for each in made if each["metadata"]["name"] == "dockwork-selftest"]
    assert {each["kind"] for each in parts} == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Pod"}
    for each in parts:
        assert each["metadata"]["annotations"]["helm.sh/hook"] == "test"
        policy = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded"
    assert grants_of(only(parts, "Role")) == [
        {"apiGroups": ["dockwork.dev"], "resources": ["queues"], "verbs": ["create", "get", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
