"""The Arrow schema of every table, with its version.

A reader of an older part finds null in columns that came later; a column is
never renamed or given another type.
"""

import pyarrow as pa

SCHEMA_VERSION = 1

_ID = pa.string()
_STEP = pa.int64()
_KEYS = [("run_id", _ID), ("step", _STEP)]
_ROUND = ("round", pa.int32())
_FILE = pa.struct([("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("sha256", pa.string())])


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(columns, metadata={"foreroll.schema_version": str(SCHEMA_VERSION)})


PROMPTS = _schema(
    ("dataset", _ID),
    ("position", pa.int64()),
    ("prompt_id", _ID),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("text", pa.string()),
    ("answer", pa.string()),
    ("reward", pa.string()),
    ("system", pa.string()),
    ("instruction", pa.string()),
    ("tags", pa.string()),
)

EMBEDDINGS = _schema(("prompt_id", _ID), ("embedding", pa.list_(pa.float32())))

FORECASTS = _schema(
    *_KEYS,
    ("prompt_id", _ID),
    ("predictor", pa.string()),
    ("p_success", pa.float32()),
    ("p_sd", pa.float32()),
    ("expected_tokens", pa.float32()),
)

ACQUISITIONS = _schema(
    *_KEYS,
    _ROUND,
    ("prompt_id", _ID),
    ("utility", pa.float32()),
    ("diversity", pa.float32()),
    ("propensity", pa.float64()),
    ("decision", pa.string()),
    ("rank", pa.int32()),
)

TOKENS = _schema(
    *_KEYS,
    _ROUND,
    ("group_id", _ID),
    ("sample", pa.int32()),
    ("prompt_token_ids", pa.list_(pa.int32())),
    ("token_ids", pa.list_(pa.int32())),
    ("logprobs", pa.list_(pa.float32())),
    ("finish_reason", pa.string()),
    ("policy_version", pa.int64()),
)

ROLLOUTS = _schema(
    *_KEYS,
    _ROUND,
    ("prompt_id", _ID),
    ("group_id", _ID),
    ("sample", pa.int32()),
    ("attempt", pa.int32()),
    ("policy_version", pa.int64()),
    ("engine", pa.string()),
    ("response", pa.string()),
    ("prompt_tokens", pa.int32()),
    ("response_tokens", pa.int32()),
    ("finish_reason", pa.string()),
    ("sampling", pa.string()),
)

REWARDS = _schema(
    *_KEYS,
    _ROUND,
    ("group_id", _ID),
    ("sample", pa.int32()),
    ("reward", pa.float64()),
    ("success", pa.bool_()),
    ("reward_status", pa.string()),
    ("reward_parts", pa.string()),
    ("admitted", pa.bool_()),
    ("reject_reason", pa.string()),
)

UPDATES = _schema(
    *_KEYS,
    ("policy_version", pa.int64()),
    ("loss", pa.float64()),
    ("kl", pa.float64()),
    ("entropy", pa.float64()),
    ("grad_norm", pa.float64()),
    ("clip_fraction", pa.float64()),
    ("lr", pa.float64()),
    ("tokens", pa.int64()),
    ("groups", pa.int32()),
    ("informative_groups", pa.int32()),
    ("skipped", pa.string()),
    ("logprob_gap", pa.float64()),
    ("importance_mean", pa.float64()),
    ("importance_capped", pa.float64()),
    ("engine_drift", pa.float64()),
    ("engine_drift_max", pa.float64()),
)

PREDICTOR_UPDATES = _schema(
    *_KEYS,
    ("predictor", pa.string()),
    ("groups", pa.int32()),
    ("spearman", pa.float64()),
    ("brier", pa.float64()),
    ("nll", pa.float64()),
    ("ece", pa.float64()),
    ("loss_parts", pa.string()),
)

EVALUATIONS = _schema(
    *_KEYS,
    ("prompts", pa.string()),
    ("prompt_id", _ID),
    ("samples", pa.int32()),
    ("successes", pa.int32()),
    ("tokens", pa.int64()),
)

STEPS = _schema(
    *_KEYS,
    ("epoch", pa.int64()),
    ("committed_at", pa.timestamp("us", tz="UTC")),
    ("policy_version", pa.int64()),
    ("rounds", pa.int32()),
    ("candidates", pa.int64()),
    ("groups", pa.int32()),
    ("informative_groups", pa.int32()),
    ("rollouts", pa.int64()),
    ("successes", pa.int64()),
    ("prompt_tokens", pa.int64()),
    ("response_tokens", pa.int64()),
    ("predict_seconds", pa.float64()),
    ("acquire_seconds", pa.float64()),
    ("generate_seconds", pa.float64()),
    ("score_seconds", pa.float64()),
    ("update_policy_seconds", pa.float64()),
    ("update_predictor_seconds", pa.float64()),
    ("evaluate_seconds", pa.float64()),
    ("files", pa.list_(_FILE)),
    ("versions", pa.string()),
)

PAST = _schema(
    *_KEYS,
    ("prompt_id", _ID),
    ("successes", pa.int64()),
    ("valid", pa.int64()),
    ("mean_tokens", pa.float64()),
)
"""Groups with a valid rollout, as forecasters learn from them."""

HISTORY = {
    "forecasts": FORECASTS,
    "acquisitions": ACQUISITIONS,
    "tokens": TOKENS,
    "rollouts": ROLLOUTS,
    "rewards": REWARDS,
    "updates": UPDATES,
    "predictor_updates": PREDICTOR_UPDATES,
    "evaluations": EVALUATIONS,
    "steps": STEPS,
}
"""Tables below `history/`, in the order in which a step writes them; `steps` is the commit record."""
