"""A plain PyTorch loop with an honest account. Run it, kill it, run it again: `python plain_loop.py my-run`."""

import hashlib
import sys

import torch
from safetensors.torch import load_file, save_file

from ledger.recorder import LiveState, RunRecorder, SessionPlan, describe_environment, digest_arrays
from ledger.records import DataIdentities, Position, Recipe

model, rate, target, cursor = torch.nn.Linear(8, 1), 0.1, 200, {"corpus": Position(0, 0)}
corpus = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))  # 8 microbatches of 8 samples
identity = DataIdentities(train=hashlib.sha256(corpus.numpy()).hexdigest(), validation=None)
recipe = Recipe(classes={"run.target_step": "operational"}, config={"run": {"target_step": target}, "rate": rate})

with RunRecorder(sys.argv[1]) as recorder:
    if recorder.is_completed:
        sys.exit(print("this run is complete"))
    if parent := recorder.latest_checkpoint():
        cursor = parent.manifest.cursor
        model.load_state_dict(load_file(parent.folder / "model.safetensors"))
    plan = SessionPlan(name="plain loop", recipe=recipe, environment=describe_environment(packages=["torch"]),
                       data=identity, cursor=cursor, tokens_per_microbatch=8, parent=parent,
                       start="auto" if recorder.has_sessions else "fresh")
    live = {name: value.numpy() for name, value in model.state_dict().items()}  # views of the weights, not copies
    recorder.start(plan, capture=lambda: LiveState(model=digest_arrays(live), optimizer=None))
    while recorder.step < target:
        epoch, place = divmod(recorder.step, len(corpus) // 8)
        batch = corpus[place * 8 :][:8]
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        cursor = {"corpus": Position(epoch, place * 8 + 8) if place < 7 else Position(epoch + 1, 0)}
        recorder.microbatch(tokens=8, digest=hashlib.sha256(batch.numpy()).digest(), cursor=cursor)
        torch._foreach_sub_([weight.data for weight in model.parameters()], gradients, alpha=rate)
        recorder.updated(loss=loss.item(), grad_norm=torch.nn.utils.get_total_norm(gradients).item(), lr={"all": rate})
        if recorder.step % 50 == 0:
            with recorder.checkpoint("final" if recorder.step == target else "interval") as folder:
                save_file(model.state_dict(), folder / "model.safetensors", metadata=recorder.tensor_metadata())
