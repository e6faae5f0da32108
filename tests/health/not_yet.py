"""Programs times hosts that fail on the present package; to be emptied."""

from __future__ import annotations

NOT_YET: set[str] = {
    "a bias that is NaN - by hand",
    "a constraint copies the first weights - by hand",
    "a constraint holds all weights - by hand",
    "a control run that never fits its learner - callback",
    "a rare reward - by hand",
    "a rare reward - fabric",
    "a reward of one sample, once - by hand",
    "a reward of one sample, once - callback",
    "a reward of one sample, once - fabric",
    "a reward that gates - by hand",
    "a reward that gates - fabric",
    "a rule without terms - by hand",
    "advice: a clamp over first weights that are negative - callback",
    "advice: a clamp over first weights that are negative - fabric",
    "advice: a rate that leaves its target - fabric",
    "advice: a reward that is always the same - fabric",
    "advice: a reward that is never negative - fabric",
    "all weights are at a limit - by hand",
    "an ablation with learners to spare - callback",
    "an update that is dropped - by hand",
    "punishment only - by hand",
    "punishment only - fabric",
    "weights and neurons begin anew in each task - callback",
    "weights are NaN from the beginning - by hand",
    "weights become NaN - by hand",
    "weights in bfloat16 - by hand",
}
