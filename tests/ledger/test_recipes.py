"""Recipes compared leaf by leaf."""

from __future__ import annotations

import pytest

from ledger.recipes import identity_sha256, leaf_values, recipe_differences
from ledger.records.documents import LeafClass, Recipe
from ledger.storage.documents import document_bytes, parse_document

CLASSES: dict[str, LeafClass] = {
    "model.width": "identity",
    "run.target_step": "operational",
    "run.name": "volatile",
}


def recipe(*, classes=CLASSES, **config) -> Recipe:
    base = {"model": {"width": 64}, "run": {"target_step": 10, "name": "a"}}
    return Recipe(config=base | config, classes=classes)


def test_leaves_are_dotted_paths():
    assert leaf_values(recipe(empty={}, plain=[1, {"a": 2}])) == {
        "model.width": 64,
        "run.target_step": 10,
        "run.name": "a",
        "empty": {},
        "plain": [1, {"a": 2}],
    }


def test_a_classified_mapping_is_one_leaf():
    whole: dict[str, LeafClass] = {"schedule": "identity"}
    assert leaf_values(recipe(schedule={"name": "constant"}, classes=whole))["schedule"] == {
        "name": "constant"
    }


def test_differences_name_field_values_and_class_in_path_order():
    after = recipe(model={"width": 128}, run={"target_step": 20, "name": "b"})
    found = recipe_differences(recipe(), after)
    assert [(each.field, each.before, each.after, each.leaf_class) for each in found] == [
        ("model.width", 64, 128, "identity"),
        ("run.name", "a", "b", "volatile"),
        ("run.target_step", 10, 20, "operational"),
    ]
    assert str(found[0]) == "model.width: 64 -> 128"


def test_a_leaf_that_appears_or_disappears_is_a_difference_even_if_null():
    found = recipe_differences(recipe(), recipe(extra=None))
    assert [(each.field, each.before, each.after) for each in found] == [("extra", None, None)]
    assert [each.field for each in recipe_differences(recipe(extra=None), recipe())] == ["extra"]


@pytest.mark.parametrize(("one", "other", "same"), [(1, 1.0, True), (1, True, False), (0, False, False)])
def test_values_are_compared_as_they_are_stored(one, other, same):
    found = recipe_differences(recipe(x=one), recipe(x=other))
    assert (found == []) is same


def test_a_leaf_without_a_class_counts_as_identity():
    (found,) = recipe_differences(recipe(x=1), recipe(x=2))
    assert found.leaf_class == "identity"


def test_the_stricter_class_of_two_counts():
    loose: dict[str, LeafClass] = CLASSES | {"model.width": "volatile"}
    for before, after in ((CLASSES, loose), (loose, CLASSES)):
        (found,) = recipe_differences(recipe(classes=before), recipe(model={"width": 1}, classes=after))
        assert found.leaf_class == "identity"


def test_identity_follows_identity_leaves_only():
    same = recipe(run={"target_step": 99, "name": "z"})
    assert identity_sha256(same) == identity_sha256(recipe())
    assert identity_sha256(recipe(model={"width": 65})) != identity_sha256(recipe())


def test_identity_survives_a_trip_through_a_file():
    original = recipe(rate=1.0, tiny=1e-7)
    read = parse_document(document_bytes(original), Recipe, path="recipe.json")
    assert identity_sha256(read) == identity_sha256(original)
    assert recipe_differences(read, original) == []
