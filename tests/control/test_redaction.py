"""Planted secrets of many forms: none is found again."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.control.bundle.redaction import REMOVED, Redactor, secret_name

LETTERS = string.ascii_letters + string.digits
SECRETS = st.text(LETTERS + "-_+/=.~!$%*", min_size=10, max_size=60).filter(
    lambda word: sum(letter in LETTERS for letter in word) >= 8 and REMOVED not in word
)
PLANTED = [
    "postgresql://yard:{}@db.example/yard",
    "s3://key:{}@bucket/path and more",
    "Authorization: Bearer {}",
    '{{"authorization": "Basic {}"}}',
    "AWS_SECRET_ACCESS_KEY={}",
    "export HF_TOKEN={}; python train.py",
    '"YARD_TOKEN": "{}"',
    "password: {}",
    "db_password = '{}'",
    "yard up --backup-passphrase {}",
    "tool --api-key={} run",
    "MODELYARD_JOB_TOKEN: {}",
    "https://host/path?x=1&access_key={}",
    "Set-Cookie: {}",
]
FORMED = [
    "yard_{}",
    "AKIA{}",
    "hf_{}",
    "ghp_{}",
    "sk-{}",
    "eyJ{}.eyJ{}.sig",
]


@pytest.mark.parametrize("form", PLANTED)
@given(secret=SECRETS)
def test_what_stands_behind_a_telling_name_is_removed(form: str, secret: str) -> None:
    assert secret not in Redactor().text(f"before {form.format(secret)}\nafter")


@pytest.mark.parametrize("form", FORMED)
@given(secret=st.text(string.ascii_uppercase + string.digits, min_size=24, max_size=60))
def test_what_looks_like_a_secret_is_removed(form: str, secret: str) -> None:
    assert secret not in Redactor().text(f"it said {form.format(secret, secret)} and went on")


@given(secret=SECRETS, around=st.text(max_size=30))
def test_what_is_known_is_removed_wherever_it_stands(secret: str, around: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.text(f"{around}{secret}{around}").replace(REMOVED, "")
    found = json.dumps(redactor.value({"spec": [{"command": ["x", f"a{secret}b"]}]}))
    assert secret not in found.replace(REMOVED, "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
    )
)
def test_whatever_json_carries_stays_json(value: object) -> None:
    json.dumps(Redactor(["secretive"]).value(value))


def test_keys_and_private_keys() -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
    assert "IBAAKC" not in Redactor().text(f"x\n{pem}\ny")
    found = Redactor().value({"environment": {"DB_PASSWORD": "hunter2", "DEPTH": "3"}, "pwd": 42})
    assert found == {"environment": {"DB_PASSWORD": REMOVED, "DEPTH": "3"}, "pwd": REMOVED}


@pytest.mark.parametrize(
    "harmless",
    [
        "tokens: 10B",
        "tokenizer: bytes",
        "state: waiting, reason: submitted",
        "http://127.0.0.1:7700/v1/jobs",
        "ran 3m12s on node0 at 12:30:05",
        "postgresql://yard@db/yard",
    ],
)
def test_what_is_no_secret_stays(harmless: str) -> None:
    assert Redactor().text(harmless) == harmless


def test_names() -> None:
    assert all(map(secret_name, ("HF_TOKEN", "aws_secret_access_key", "PGPASSWORD", "api-key")))
    assert not any(map(secret_name, ("tokens", "tokenizer", "keys", "steps", "max_tokens")))
