"""LG4: checkpoints."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["CHECKPOINT_RULES"]

CHECKPOINT_RULES: Final = (
    Rule(
        id="LG401",
        title="every logged checkpoint exists or was pruned",
        severities=("error", "warning", "hint"),
        meaning="Each checkpoint event's folder is there, complete, with the manifest it names, or a pruned "
        "event of that manifest says that retention removed it. A complete one without an event is an orphan "
        "(warning): the process was killed between the rename and the event. One that was pruned and is still "
        "there is a hint.",
        causes="Files were removed or moved by hand; a copy of the run is partial; the manifest was edited.",
        advice="Restore the folder from a copy. An orphan is usable: its pin on the log vouches for it.",
    ),
    Rule(
        id="LG402",
        title="checkpoint files match their digests",
        severities=("error",),
        meaning="Every file has the size that the manifest states; with --rehash also every file's and "
        "every tensor's SHA-256.",
        causes="Bytes damaged on disk or in transfer; a file was replaced.",
        advice="Restore the file, or resume from another checkpoint by naming it.",
    ),
    Rule(
        id="LG403",
        title="folder, manifest, trainer.json and event agree",
        severities=("error",),
        meaning="The folder's name, manifest.json, trainer.json and the checkpoint event state the same "
        "counters, cursor, data_chain, state digests, run, session, recipe and data; kind and bytes agree, and the "
        "digests are those of the train event just before, where it states any. The tensors hold the parameters that "
        "the run states of its model and of its optimizer's groups.",
        causes="A folder was renamed or copied; parameters of one step were saved with the state of another.",
        advice="Do not resume from it. Look at what differs; the event on the log is the more trustworthy "
        "side.",
    ),
    Rule(
        id="LG404",
        title="the optimizer's own step is the run's",
        severities=("error", "hint"),
        meaning="In each group of the optimizer's partition the greatest `step` that optimizer.safetensors keeps of a "
        "parameter equals the checkpoint's `step`. Parameters that lag behind (no gradient reached them in some "
        "updates) are listed in a hint. Tensors are named `group/parameter/field`; a file that names them otherwise "
        "is not checked. A group that keeps no step (Muon) is not applicable.",
        causes="The optimizer moved on an attempt that was counted as skipped, or did not where `step` did; its state "
        "was not restored on a resume; it is of another checkpoint.",
        advice="Count a step only where the optimizer was called, and restore its state. Bias correction depends on "
        "this number: do not resume from the checkpoint.",
    ),
    Rule(
        id="LG405",
        title="no tensor is non-finite",
        severities=("error",),
        meaning="With --rehash every floating-point tensor of a checkpoint is read, bf16 and fp16 included, and "
        "holds finite numbers only.",
        causes="The run had diverged when the checkpoint was taken; a buffer was never initialised.",
        advice="Resume from an earlier checkpoint by naming it; look for the first non-finite update (LG207).",
    ),
    Rule(
        id="LG406",
        title="nothing foreign lies in the run",
        severities=("error", "warning"),
        meaning="Under checkpoints/ there are complete checkpoints, under recipes/ and environments/ files whose "
        "name is their digest, under evaluations/ evaluations, and in the run folder what belongs to a run; each "
        "a regular file or a folder, no link and no pipe. What claims something of the run, although no rule "
        "believes it, must not contradict it: verdict.json and waivers.json can be read, a kept verdict states the "
        "totals of the log up to its head and is what its findings amount to, an evaluation is of this run and of its "
        "checkpoint's step. (A lock or a parent that the log does not name is a warning, and so are a kept verdict "
        "that no longer holds and an evaluation of a checkpoint that nothing else tells of.) Anything else is "
        "an error: it could be mistaken for a record. Our own temporary names are warnings "
        "(left by a crash; none while a writer is at work), and so is a log with a second name (a hard link).",
        causes="A save was killed (temporary name); someone copied files in; a folder without a manifest.",
        advice="Move foreign files out of the run: text for people belongs in logs/. Temporary ones are never read "
        "and can be removed.",
    ),
    Rule(
        id="LG407",
        title="the tensor files are of one moment",
        severities=("error",),
        meaning="Model and optimizer files carry step, session and seq in their metadata: the manifest's step and "
        "session, and the same in all files. A file that carries none is not compared. With --rehash, where "
        "optimizer.safetensors keeps the exact weights of a model in fewer bits, as `group/parameter/master` (float32 "
        "or float64, of the parameter's shape), each parameter equals them rounded to its type, to nearest and ties "
        "to even; others are listed as not checked.",
        causes="Parameters of one step were saved with the optimizer of another, or a file was copied in from "
        "another checkpoint; master weights were made anew of the rounded ones, or not written back.",
        advice="Do not resume from it; take another checkpoint by naming it.",
    ),
    Rule(
        id="LG408",
        title="the files hold the live state",
        severities=("error",),
        meaning="The tensors of model.safetensors and of optimizer.safetensors, as the manifest describes them, make "
        "up the digests of model and optimizer that the loop took of its live objects (whether the bytes are those of "
        "the manifest is LG402). A loop that hashes its tensors under other names than it saves them is not checked: "
        "that is assumed where no checkpoint of the run matches and the optimizer's file is not named "
        "`group/parameter/field`.",
        causes="The state moved between its capture and the save; averaged, cast or stale weights were saved; a file "
        "was replaced and the manifest with it.",
        advice="Do not resume from it: what it holds is not what was trained. Save the objects that were hashed, under "
        "the same names, before anything else touches them.",
    ),
)
