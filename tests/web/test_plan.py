"""The page of the planner over real HTTP: answers, mistakes, and jobs that come of it."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest

from modelyard.errors import InputError
from modelyard.plan.launch.yard_job import yard_job
from modelyard.planner.door import plan
from modelyard.spec.cluster import Cluster, Node
from modelyard.spec.job import parse_job
from modelyard.web.plan_form import FIELDS, Form, own_devices, question, remedies
from modelyard.web.plan_job import PLAIN, plain_text

from ..control.live import LiveYard, command_job
from .conftest import Visitor, token_of

HOSTILE = '"><img src=x onerror=alert(1)>'
SMALL = {"model": "gpt2", "devices": "8xA100", "tokens": "100M"}


def page(visitor: Visitor, path: str = "/plan", **fields: str) -> str:
    seen = visitor.get(f"{path}?{urlencode(fields)}")
    assert seen.status == 200, seen.text
    return seen.text


def draft_of(text: str) -> dict[str, str]:
    """The fields of the form of a job that is not submitted yet."""
    written = re.search(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)
    id = re.search(r'name="id" value="([0-9a-f]+)"', text)
    assert written
    assert id
    return {"text": html.unescape(written.group(1)), "id": id.group(1), "do": "submit"}


def test_a_question_is_answered_with_tables_and_pictures(admin: Visitor) -> None:
    text = page(admin, **SMALL)
    for words in (
        "The best plan",
        "Bound by",
        "Plans, best first",
        "Memory of the fullest device",
        "Where a step goes",
        "Cost against time",
        "yard plan gpt2 --devices 8xA100 --tokens 100M",
    ):
        assert words in text, words
    assert text.count("<circle") > 3
    assert "rank=2" in text


def test_the_page_keeps_everything_out_that_a_strict_policy_forbids(admin: Visitor) -> None:
    text = page(admin, **SMALL)
    assert " style=" not in text
    assert "<script>" not in text


def test_every_mistake_stands_beside_its_field(admin: Visitor) -> None:
    text = page(admin, model="gpt3000", devices="8xH10o", tokens="-3", deadline="x", batch="y")
    for name in ("model", "devices", "tokens", "deadline", "batch"):
        assert f'aria-describedby="p-{name}"' in text, name


def test_limits_that_no_plan_keeps_are_answered_with_what_helps(admin: Visitor) -> None:
    text = page(admin, model="llama2-70b", devices="8xA100", tokens="1T", deadline="1d")
    assert "No plan keeps the limits" in text
    assert "What would help" in text


def test_changes_that_help_are_links_that_do() -> None:
    form = Form.of({"model": "llama2-7b", "devices": "8xA100", "tokens": "1B", "deadline": "1h"})
    model, options = question(form)
    answer = plan(model, **options)
    found = [one for one in remedies(answer, form) if one.address]
    assert found
    for one in found:
        fields = dict(re.findall(r"(\w+)=([^&]+)", one.address))
        better, changed = question(Form.of(fields))
        assert plan(better, **changed).plans, one


def test_nothing_on_the_server_is_read_for_whoever_asks(
    admin: Visitor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("secret")
    (folder / "config.json").write_text('{"model_type": "gpt2", "secret": 1}')
    (folder / "cluster.yaml").write_text("nodes: [{name: hidden, devices: 8, device: A100}]")
    for model in (str(folder), str(folder / "config.json"), "/etc/passwd", "../../etc"):
        assert 'id="p-model"' in page(admin, **{**SMALL, "model": model})
    for devices in (str(folder / "cluster.yaml"), "/etc/passwd", "8xA100/../x", "fat-tree:4"):
        assert 'id="p-devices"' in page(admin, **{**SMALL, "devices": devices})


@pytest.mark.parametrize("name", FIELDS)
def test_whatever_is_written_stays_text(admin: Visitor, name: str) -> None:
    for words in (HOSTILE, "\x00", "9" * 299, "1e999", "💥", "{{7*7}}", "'\"--"):
        text = page(admin, **{**SMALL, name: words})
        assert "<img" not in text


def test_steps_are_another_way_to_write_tokens() -> None:
    asked = {"model": "gpt2", "devices": "8xA100", "batch": "64", "sequence": "1k", "steps": "10k"}
    assert question(Form.of(asked))[1]["tokens"] == 10_000 * 64 * 1_000
    in_tokens = {**asked, "batch": "1M tokens"}
    assert question(Form.of(in_tokens))[1]["tokens"] == 10_000 * 1_000_000
    for wrong in ({"tokens": "1B"}, {"batch": ""}, {"steps": "many"}):
        with pytest.raises(InputError, match="steps"):
            question(Form.of({**asked, **wrong}))


def test_a_yard_offers_its_own_devices_where_they_are_known() -> None:
    def node(name: str, kind: str, devices: int) -> Node:
        return Node(name=name, kind=kind, devices=devices)

    nodes = (node("a", "H100", 8), node("b", "H100", 8), node("c", "T4", 4), node("d", "T4", 2))
    assert own_devices(Cluster(nodes=nodes)) == "2x8xH100+6xT4"
    assert own_devices(Cluster(nodes=(node("a", "generic", 2),))) == ""


def test_a_plan_becomes_a_job_file_that_the_yard_understands() -> None:
    for devices in ("32xA100", "1xA100", "8xV100"):
        answer = plan("gpt2", devices=devices, tokens="100M")
        for one in answer.plans:
            spec = parse_job(yard_job(one, answer.request, "/data/x").files["job.yaml"])
            assert spec.train is not None
            assert spec.devices.max == one.devices
            assert spec.devices.min % spec.train.parallel.places == 0


def test_a_plan_is_offered_as_a_job_with_its_outlook(admin: Visitor) -> None:
    text = page(admin, "/plan/job", **SMALL, data="/data/book", rank="1")
    assert "model: &#34;gpt2&#34;" in text
    # This yard has other devices: that is said before anybody submits it.
    assert "No node has A100" in text
    assert admin.get(f"/plan/job?{urlencode({**SMALL, 'rank': '9999'})}").status == 400


def test_a_small_job_is_written_checked_and_submitted(yard: LiveYard, red: Visitor) -> None:
    text = page(red, "/plan/job", plain="1", data="/nowhere", name="from-the-page", steps="5")
    assert "Starts" in text
    fields = draft_of(text)
    assert 'name: "from-the-page"' in fields["text"]
    seen = red.post("/plan/job", fields)
    assert seen.status == 303
    job = seen.headers["location"].removeprefix("/jobs/")
    assert yard.client.job(job)["tenant"] == "red"
    # Who presses twice submits once.
    assert red.post("/plan/job", fields).headers["location"] == f"/jobs/{job}"
    yard.client.cancel(job)


def test_what_was_edited_is_checked_again(red: Visitor) -> None:
    fields = draft_of(page(red, "/plan/job", plain="1", data="/nowhere"))
    edited = {**fields, "do": "check", "text": command_job("edited", "true", devices=99)}
    seen = red.post("/plan/job", edited)
    assert seen.status == 200
    assert "the yard has 4" in seen.text
    assert fields["id"] in seen.text
    refused = red.post("/plan/job", {**edited, "do": "submit"})
    assert refused.status == 400
    assert "the yard has 4" in refused.text


def test_a_viewer_is_offered_no_submission_and_refused_one(onlooker: Visitor) -> None:
    text = page(onlooker, "/plan/job", plain="1", data="/nowhere")
    assert 'value="submit"' not in text
    seen = onlooker.post("/plan/job", draft_of(text))
    assert seen.status == 400
    assert "is a viewer" in seen.text


def test_jobs_of_other_tenants_are_refused(yard: LiveYard, red: Visitor) -> None:
    text = command_job("not-mine", "true", more="tenant: blue\n")
    seen = red.post("/plan/job", {"text": text, "id": "0123456789ab", "do": "submit"})
    assert seen.status == 400
    assert "may not submit jobs of tenant" in html.unescape(seen.text)
    # Nor does an id that is another tenant's tell anything of its job.
    other = yard.client.submit_text(command_job("not-for-red", "sleep 60", more="tenant: blue\n"))
    fields = {"text": command_job("mine", "true"), "id": str(other["id"]), "do": "submit"}
    taken = red.post("/plan/job", fields)
    assert taken.status == 409
    assert "not-for-red" not in taken.text
    yard.client.cancel(str(other["id"]))


def test_forms_of_other_sites_and_strangers_submit_nothing(address: str, red: Visitor) -> None:
    fields = {"text": command_job("x", "true"), "id": "0123456789ab", "do": "submit"}
    assert red.post("/plan/job", fields, Origin="https://elsewhere.example").status == 403
    assert Visitor(address).post("/plan/job", fields).status == 401
    for path in ("/plan", "/plan/job"):
        assert Visitor(address).get(path).status == 303


def test_too_much_is_refused(red: Visitor) -> None:
    fields = {"text": "#" * 600_000, "id": "0123456789ab", "do": "submit"}
    assert red.post("/plan/job", fields).status == 413


def test_the_plain_form_writes_text_whatever_is_in_it() -> None:
    assert parse_job(plain_text({**PLAIN, "data": "/data"})).steps == 200
    for words in ("a: b\n- c", "}{", "1\ncommand: [rm]", '"', "\\", "💥"):
        for name in PLAIN:
            try:
                spec = parse_job(plain_text({**PLAIN, "data": "/data", name: words}))
            except InputError:
                continue
            assert spec.command is None


def test_a_new_token_sees_its_own_tenant(yard: LiveYard, address: str) -> None:
    visitor = Visitor(address).log_in(token_of(yard, tenant="green"))
    assert 'value="submit"' in page(visitor, "/plan/job", plain="1", data="/nowhere")
