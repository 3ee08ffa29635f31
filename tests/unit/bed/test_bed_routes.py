"""Which way a machine takes, and what is said when there is none."""

from __future__ import annotations

import dataclasses

import pytest

from bed.clusters import LOCAL_ADDITIONS, kind_config
from bed.errors import BedError
from bed.places import ROOT
from bed.routes import Facts, Route, choose_route

NOTHING = Facts(
    docker_works=False,
    node_image_at_hand=False,
    has_go=False,
    has_tools=False,
    is_root=False,
    is_linux=False,
    is_debian=False,
)


def facts(**seen: bool) -> Facts:
    return dataclasses.replace(NOTHING, **seen)


def test_docker_with_the_public_image_needs_no_root_and_no_debian() -> None:
    assert choose_route(facts(docker_works=True, node_image_at_hand=True, has_tools=True)) is Route.PUBLIC
    assert choose_route(facts(docker_works=True, node_image_at_hand=True, has_go=True)) is Route.PUBLIC


def test_the_public_image_is_preferred_where_both_ways_are_open() -> None:
    everything = Facts(**{field.name: True for field in dataclasses.fields(Facts)})
    assert choose_route(everything) is Route.PUBLIC


@pytest.mark.parametrize("docker_works", [True, False])
def test_without_a_registry_a_debian_with_root_and_go_builds_its_own(docker_works: bool) -> None:
    seen = facts(docker_works=docker_works, has_go=True, is_root=True, is_linux=True, is_debian=True)
    assert choose_route(seen) is Route.LOCAL


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ("is_root", "this process is not root"),
        ("is_debian", "this is not Debian 12"),
        ("is_linux", "this is not Linux"),
        ("has_go", "go was not found"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(lacking: str, words: str) -> None:
    seen = {"has_go": True, "is_root": True, "is_linux": True, "is_debian": True, lacking: False}
    with pytest.raises(BedError, match=rf"no Docker daemon answers; .*: {words}\n  remedy: start Docker"):
        choose_route(facts(**seen))


def test_a_docker_without_a_registry_is_told_from_no_docker() -> None:
    with pytest.raises(BedError, match="Docker works, but the public node image could not be pulled"):
        choose_route(facts(docker_works=True, has_go=True))


def test_docker_without_any_tool_names_the_tools() -> None:
    with pytest.raises(BedError, match="neither go nor the programs kind, kubectl and helm"):
        choose_route(facts(docker_works=True, node_image_at_hand=True))


def test_the_public_route_takes_the_checkouts_configuration_as_it_is() -> None:
    text = (ROOT / "kind-config.yaml").read_text()
    assert kind_config(text, Route.PUBLIC) == text


def test_the_local_route_adds_what_its_node_image_needs() -> None:
    text = (ROOT / "kind-config.yaml").read_text()
    assert kind_config(text, Route.LOCAL) == text + LOCAL_ADDITIONS
    assert text.count("- role: worker") == 2
    assert text.count("- role: control-plane") == 1


def test_a_configuration_that_would_say_something_twice_is_refused() -> None:
    with pytest.raises(BedError, match="the key networking is the bed's"):
        kind_config("kind: Cluster\nnetworking: {}\n", Route.LOCAL)
