"""Staged training: shallow first, then stacked deeper by copying the layers that were learnt.

Time and money are those of the two phases, and nobody disputes them. What the tokens of the shallow
phase are worth is disputed. Gong et al., 2019, stacked BERT after 30 % of its steps and found the
quality of full training; Du et al., 2024, reached the loss of 300 B tokens with 194 B on a 7B
model. Kaddour et al., 2023 ("No train no gain"), found that with equal budgets and a learning rate
that decays to the end, stacking gains little or nothing. So the loss is a range: at best every
token counts as if the model had been deep all the time, at worst only the compute counts.
"""

from __future__ import annotations

from modelyard.errors import InputError
from modelyard.plan.answer import Plan
from modelyard.plan.knowledge import Knowledge
from modelyard.plan.request import Request
from modelyard.plan.ways.pricing import between, loss_of, of_model, price, unlimited
from modelyard.plan.ways.way import Way, WayName, added, keeps_limits, scaled_by
from modelyard.spec.model import Model, ModelKind
from modelyard.spec.rescaled import scaled
from modelyard.units import format_count

SOURCE = (
    "Gong et al. 2019: same quality after 30 % shallow steps; Du et al. 2024: 35 % fewer tokens; "
    "disputed by Kaddour et al. 2023: no gain over a fully decayed schedule"
)
#: share of the tokens on which the shallow model trains (Gong et al., 2019: 30 %)
USUAL_SHARE = 0.3
#: shares tried until the limits hold; beyond half nobody has shown that it works
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)


def stage(request: Request, knowledge: Knowledge, asked: Plan | None) -> Way | None:
    """Half of the layers first; None for models that cannot be halved or fit nowhere."""
    model = request.model
    shallow = _halved(model)
    if shallow is None or asked is None:
        return None
    free = unlimited(request)
    first, second = price(of_model(free, shallow), knowledge), price(free, knowledge)
    if first is None or second is None:
        return None
    limited = any(
        limit is not None for limit in (request.limits.deadline_seconds, request.limits.budget_usd)
    )
    way = None
    for share in SHARES if limited else (USUAL_SHARE,):
        way = _staged(request, knowledge, shallow, (first, second), share)
        if way.keeps:
            break
    return way


def _staged(
    request: Request,
    knowledge: Knowledge,
    shallow: Model,
    phases: tuple[Plan, Plan],
    share: float,
) -> Way:
    first, second = phases
    model, tokens = request.model, request.tokens
    seconds = added(scaled_by(first.run_seconds, share), scaled_by(second.run_seconds, 1.0 - share))
    usd = None
    if first.usd is not None and second.usd is not None:
        usd = added(scaled_by(first.usd, share), scaled_by(second.usd, 1.0 - share))
    compute = 1.0 - share * (1.0 - shallow.active_parameters / model.active_parameters)
    loss = between(
        loss_of(request, knowledge, model, tokens),
        loss_of(request, knowledge, model, tokens * compute),
    )
    saved = 1.0 - seconds.value / second.run_seconds.value
    return Way(
        name=WayName.STAGE,
        model=model,
        tokens=tokens,
        seconds=seconds,
        usd=usd,
        loss=loss,
        kind=second.pool.kind,
        devices=second.devices,
        layout=second.layout,
        keeps=keeps_limits(request.limits, seconds, usd, loss),
        changes=f"{shallow.all_layers} layers for {format_count(tokens * share)} tokens, then "
        f"{model.all_layers} for {format_count(tokens * (1.0 - share))}",
        why=f"{saved:.0%} less time than at full depth, where the shallow phase counts fully; "
        f"at worst the run is worth {compute:.0%} of its tokens",
        source=SOURCE,
    )


def _halved(model: Model) -> Model | None:
    layers = model.layers // 2
    decoder = model.decoder_layers // 2
    try:
        if model.kind is ModelKind.ENCODER_DECODER:
            return scaled(model, layers=layers, decoder_layers=decoder)
        return scaled(model, layers=layers) if layers else None
    except InputError:
        # One shared block has no half.
        return None
