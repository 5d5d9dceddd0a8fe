"""Runs that a doctor may look at, made up."""

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.diagnose.observations import DataFacts, HeldOutOverlap, Observations
from cutaway.runs.summary import History

FALLING = [6.0, 4.0, 3.0, 2.4, 2.1, 2.0, 1.95, 1.93, 1.92, 1.92]
VALID = [3.1, 2.3, 2.15, 2.13, 2.125]
FACTS = DataFacts(
    train_examples=1000,
    valid_examples=1000,
    valid_answers=20_000,
    padding=0.03,
    unknown=0.0,
    overlaps={"valid": HeldOutOverlap(0, 1000), "test": HeldOutOverlap(0, 1000)},
    answer_entropy=6.0,
    lower_cased=0.0,
    tokenized=0.0,
    subwords=0.0,
)
SAMPLE = {"given": "The cat sleeps.", "written": "Le chat dort.", "right": "Le chat dort."}
OTHER = {"given": "A dog runs.", "written": "Un chien court.", "right": "Un chien court."}
CLASSES = ModelConfig(family="encoder", head="classes", vocab_size=1000, n_classes=4)
LANGUAGE = ModelConfig(family="decoder", vocab_size=1000)


def make_observations(
    nll=FALLING, valid=VALID, data=FACTS, model=None, train=None, scores=None, rows=None, samples=None, kept="", **more
) -> Observations:
    """A run of 1,000 steps in which nothing is wrong, but for what is given."""
    model = model or ModelConfig(vocab_size=1000)
    files = {"train": ("a.de", "a.en")} if model.task == "translation" else {"train": ("a.tsv",)}
    files["valid"] = tuple(name.replace("a.", "b.") for name in files["train"])
    train = TrainConfig(**{"steps": 1000, "warmup": 100, "schedule": "inverse_sqrt", "lr": 1e-3, **(train or {})})
    config = Config(model=model, data=DataConfig(**{**files, **more.pop("settings", {})}), train=train)
    step_rows = [
        {
            "step": round((i + 1) * 1000 / len(nll)), "loss": x, "nll": x, "nll_spread": 0.05 * x, "lr": 1e-3,
            "gradient_norm": 0.7, "clipped": 0.1, "tokens": round((i + 1) * 1_000_000 / len(nll)), "epochs": i + 1,
            "skipped": 0, "seconds": 10.0 * (i + 1), "waiting": 0.1 * (i + 1), **more,
        }
        for i, x in enumerate(nll)
    ]  # fmt: skip
    for row in step_rows:
        row.update({k: v for k, v in (rows or {}).items() if not isinstance(v, list)})
    for name, values in (rows or {}).items():
        if isinstance(values, list):
            for row, value in zip(step_rows, values, strict=True):
                row[name] = value
    validations = [
        {
            "step": round((i + 1) * 1000 / len(valid)), "valid_loss": x, "valid_accuracy": 0.6,
            "samples": [SAMPLE, OTHER] if samples is None else samples,
        }
        for i, x in enumerate(valid)
    ]  # fmt: skip
    return Observations(config, History.of([*step_rows, *validations]), data, scores or {}, kept)
