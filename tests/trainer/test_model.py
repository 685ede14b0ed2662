from __future__ import annotations

import pytest
import torch

from tests.trainer.tiny import tiny_config
from trainer.config import ModelConfig
from trainer.model.attention import Attention, rotary_table, rotate
from trainer.model.decoder import Decoder, parameter_counts


def _config(**changes) -> ModelConfig:
    return ModelConfig(vocabulary=50, width=32, layers=2, heads=4, kv_heads=2, hidden=48).model_copy(
        update=changes
    )


def test_no_position_sees_a_later_one():
    torch.manual_seed(0)
    model = Decoder(_config(), sequence=12)
    tokens = torch.randint(0, 50, (2, 12))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 50
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_order_matters_to_attention():
    torch.manual_seed(0)
    model = Decoder(_config(layers=1), sequence=8)
    tokens = torch.tensor([[1, 2, 3, 4]])
    swapped = torch.tensor([[2, 1, 3, 4]])
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1])


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_queries_have_their_shapes(kv_heads):
    attention = Attention(width=32, heads=4, kv_heads=kv_heads)
    cosine, sine = rotary_table(positions=6, head_size=8, theta=10_000.0)
    assert attention(torch.randn(3, 6, 32), cosine, sine).shape == (3, 6, 32)
    assert attention.input.weight.shape == (32 + 2 * kv_heads * 8, 32)


def test_grouped_queries_equal_repeated_keys_and_values():
    torch.manual_seed(0)
    grouped, plain = (Attention(width=32, heads=4, kv_heads=count) for count in (2, 4))
    queries, keys, values = torch.split(grouped.input.weight.detach(), [32, 16, 16])
    repeated = [part.view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32) for part in (keys, values)]
    with torch.no_grad():
        plain.input.weight.copy_(torch.cat((queries, *repeated)))
        plain.output.weight.copy_(grouped.output.weight)
    cosine, sine = rotary_table(positions=6, head_size=8, theta=10_000.0)
    hidden = torch.randn(3, 6, 32)
    torch.testing.assert_close(grouped(hidden, cosine, sine), plain(hidden, cosine, sine))


def test_rotary_products_depend_on_distance_alone():
    cosine, sine = rotary_table(positions=20, head_size=8, theta=100.0)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(at: int, other: int) -> float:
        turned = rotate(query, cosine[at], sine[at])
        return (turned * rotate(key, cosine[other], sine[other])).sum().item()

    assert product(3, 1) == pytest.approx(product(17, 15), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-5)


def test_the_gradient_of_a_rotation_is_the_rotation_back():
    cosine, sine = (table.double() for table in rotary_table(positions=5, head_size=6, theta=100.0))
    heads = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: rotate(given, cosine, sine), heads)
    torch.testing.assert_close(rotate(rotate(heads, cosine, sine), cosine, -sine), heads)


def test_counts_name_every_trainable_parameter_once():
    model = Decoder(_config(), sequence=8)
    counts = parameter_counts(model)
    assert counts == {
        "embedding": 50 * 32,
        "norms": (2 * 2 + 1) * 32,
        "attention": 2 * (32 * 64 + 32 * 32),
        "feed_forward": 2 * (3 * 32 * 48),
    }
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())


def test_an_untied_head_counts_on_its_own():
    assert parameter_counts(Decoder(_config(tied=False), sequence=8))["head"] == 50 * 32


def test_fresh_logits_are_near_uniform(dataset):
    torch.manual_seed(0)
    config = tiny_config(dataset).model
    model = Decoder(config.model_copy(update={"vocabulary": 50}), sequence=16)
    loss = torch.nn.functional.cross_entropy(
        model(torch.randint(0, 50, (4, 16))).flatten(0, 1), torch.randint(0, 50, (64,))
    )
    assert loss.item() == pytest.approx(torch.log(torch.tensor(50.0)).item(), abs=0.2)
