"""Calls before they are sent, and answers that are not what they should be."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.errors import InvalidValue, SchemaMismatch, TooLarge, UnknownReply
from dockwork.store import calls, operator_calls
from dockwork.store.beats import decode_beat, encode_beat
from dockwork.store.calls import Claimant
from dockwork.store.connections import pack, pack_call
from dockwork.store.protocol import (
    Failure,
    Heartbeat,
    Lease,
    NewJob,
    Outcome,
    Owner,
    Put,
    QueueConfig,
    RevokeCause,
    Settlement,
    WorkerState,
)
from dockwork.store.texts import (
    FAILURE_BYTES,
    LOG_LINES,
    PROGRESS_BYTES,
    REASON_BYTES,
    cut,
    decode_failure,
    encode_failure,
    fit,
    fit_log_line,
    fit_progress,
)

KEYS = QueueKeys(QueueName("shop", "mail"))
LEASE = Lease(job_id="a", epoch=1796000000000000)
WHO = Claimant(Owner(pod="p", boot="b"), 3, 2, "run", ("t", "t@h"))


def a_job(**more: Any) -> NewJob:
    return NewJob(**{"id": "a", "type": "t", "envelope": b"{}", **more})


def test_a_plain_job_has_no_options_and_a_wish_each_its_own() -> None:
    assert calls.job_options(a_job()) == ""
    full = a_job(
        priority=-3, due_in_ms=5, expires_in_ms=6, max_attempts=7, max_deliveries=8, timeout_ms=9, keep="1,2,3",
        scheduled_for_ms=10,
    )  # fmt: skip
    assert calls.job_options(full) == "p=-3;since=5;x=6;mr=7;mv=8;to=9;kp=1,2,3;sf=10"
    assert calls.job_options(a_job(due_at_ms=4, due_in_ms=5)) == "at=4"


def test_a_concurrency_key_travels_as_a_hash_with_its_own_number() -> None:
    assert calls.job_options(a_job(concurrency_key="account 7")) == f"k={calls.key_hash('account 7')}"
    assert calls.job_options(a_job(concurrency_key="x;y=1", per_key=3)) == f"k={calls.key_hash('x;y=1')};kl=3"
    assert len(calls.key_hash("x")) == 20


@pytest.mark.parametrize(
    "wrong", [{"id": "a b"}, {"type": ""}, {"type": "x" * 65}, {"priority": 101}, {"due_in_ms": -1}]
)
def test_a_job_that_would_not_survive_in_redis_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        calls.enqueue(KEYS, [a_job(**wrong)])


def test_an_outcome_is_a_letter_and_one_more_for_each_value() -> None:
    def words(**more: Any) -> list[Any]:
        return calls.settlement_args(Settlement(lease=LEASE, **more))[2:]

    assert words(outcome=Outcome.COMPLETED, started_ms=5) == [5, "c"]
    assert words(outcome=Outcome.COMPLETED, result=b"1", progress=b"2") == [0, "cRG", b"1", b"2"]
    assert words(outcome=Outcome.COMPLETED, result_dropped=99) == [0, "cD", 99]
    assert words(outcome=Outcome.COMPLETED, result=b"x" * 1_048_577) == [0, "cD", 1_048_577]
    assert words(outcome=Outcome.RETRY, delay_ms=7, reason="r" * 80) == [0, "rLW", 7, "r" * 64]
    assert words(outcome=Outcome.PARKED, park_type="t@h") == [0, "pP", "t@h"]
    with pytest.raises(InvalidValue, match="park_type"):
        words(outcome=Outcome.PARKED)


def test_what_completed_and_leaves_nothing_travels_as_a_settlement_that_says_so() -> None:
    leases = [Lease(job_id=f"j{n}", epoch=1796000000000000 + n // 2) for n in range(5)]
    retried = Settlement(lease=LEASE, outcome=Outcome.RETRY, delay_ms=5)
    done = [(lease, 1000 + n % 2) for n, lease in enumerate(leases)]
    spelt = [Settlement(lease=lease, outcome=Outcome.COMPLETED, started_ms=at) for lease, at in done]

    short, long = calls.settle(KEYS, WHO, [retried], done), calls.settle(KEYS, WHO, [retried, *spelt])

    assert pack_call(short) == pack_call(long)
    assert short.job_ids == long.job_ids == ["a", "j0", "j1", "j2", "j3", "j4"]


def test_calls_are_bounded() -> None:
    with pytest.raises(InvalidValue, match="leases: expected at most 500"):
        calls.start(KEYS, [LEASE] * 501)
    with pytest.raises(InvalidValue, match="settlements: expected at most 500"):
        calls.settle(KEYS, WHO, [Settlement(lease=LEASE, outcome=Outcome.COMPLETED)] * 501)
    with pytest.raises(InvalidValue, match="slots: expected 0 to 500"):
        calls.claim(KEYS, Claimant(Owner(pod="p", boot="b"), 1, 501, "run"))
    with pytest.raises(TooLarge):
        calls.checkpoint(KEYS, LEASE, b"x" * 1_048_577)


@pytest.mark.covers("RT-062")
def test_many_jobs_go_in_chunks_by_number_and_by_bytes() -> None:
    def sizes(*lengths: int) -> list[int]:
        jobs = [a_job(envelope=b"x" * length) for length in lengths]
        return [len(batch) for batch in calls.enqueue_batches(jobs)]

    assert sizes(*[10] * 600) == [256, 256, 88]
    assert sizes(600_000, 600_000, 10) == [1, 2]
    assert sizes(2_000_000, 10) == [1, 1]
    assert sizes(10) == [1]


@pytest.mark.parametrize(
    "reply",
    [
        [],
        None,
        b"ok",
        [b"no"],
        [b"ok"],
        [b"ok", b"x", None, 0, b"", 0, b""],
        [b"ok", b"1", None, 0, b"", 0, b"", [b"t"]],
    ],
)
def test_an_answer_that_makes_no_sense_names_its_script(reply: Any) -> None:
    with pytest.raises(UnknownReply, match="script claim: unknown reply"):
        calls.claim(KEYS, WHO).read(reply)


def test_an_unknown_answer_shows_no_payload() -> None:
    with pytest.raises(UnknownReply) as unknown:
        calls.claim(KEYS, WHO).read([b"what", b"secret" * 10, [b"secret" * 10]])

    assert "secret" not in str(unknown.value)


@pytest.mark.covers("RT-042")
def test_another_schema_version_is_named() -> None:
    with pytest.raises(SchemaMismatch, match="stored schema version 2; this version of dockwork reads 1"):
        calls.claim(KEYS, WHO).read([b"schema", b"2"])


def test_a_command_is_packed_with_sizes_in_bytes() -> None:
    assert (
        pack(["SET", "ä", b"\x00\r\n", -7])
        == b"*4\r\n$3\r\nSET\r\n$2\r\n\xc3\xa4\r\n$3\r\n\x00\r\n\r\n$2\r\n-7\r\n"
    )


def test_a_call_is_packed_with_its_keys_and_arguments_the_same_each_time() -> None:
    call = calls.start(KEYS, [LEASE])
    first, again = pack_call(call), pack_call(calls.start(KEYS, [LEASE]))

    assert first == again
    assert first.startswith(b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n")
    assert b"$1\r\n1\r\n$19\r\ndw:{shop/mail}:meta\r\n" in first
    assert first.endswith(b"$1\r\na\r\n$16\r\n1796000000000000\r\n")


@pytest.mark.covers("RT-065")
def test_a_cluster_is_sent_every_key_of_a_call() -> None:
    packed = pack_call(calls.start(KEYS, [LEASE]), every_key=True)

    assert packed.startswith(b"*9\r\n$7\r\nEVALSHA\r\n$40\r\n")
    assert b"$1\r\n4\r\n$19\r\ndw:{shop/mail}:meta\r\n" in packed
    assert b"$17\r\ndw:{shop/mail}:j:\r\n" in packed


def test_a_heartbeat_survives_and_newer_fields_are_passed_over() -> None:
    beat = Heartbeat(
        owner="p/b", pod="p", slots=4, busy=0, state=WorkerState.QUIESCED, quiesce_token="tok", jobs=(("a", 1, 2),),
        types=("t", "u"), schemas={"t": "abc"}, rss_bytes=5,
    )  # fmt: skip
    stored = b"1796000000000 " + encode_beat(beat)

    back = decode_beat(stored.replace(b'"slots"', b'"newer":[1],"slots"'))

    assert back.beat_ms == 1796000000000
    assert encode_beat(back) == encode_beat(beat)
    assert (back.jobs, back.types, back.schemas, back.state) == (
        beat.jobs,
        beat.types,
        beat.schemas,
        beat.state,
    )


@pytest.mark.covers("RT-138")
@pytest.mark.parametrize("filler", ["x", "ü", "\n", '"', "\x00", "\ud800"])
def test_a_failure_is_cut_to_8_kib_whatever_it_holds(filler: str) -> None:
    failure = Failure(
        error_class=filler * 9000, message=filler * 20_000, trace=filler * 50_000, worker=filler * 9000
    )

    stored = encode_failure(failure)

    assert len(stored) <= FAILURE_BYTES
    assert "[cut]" in decode_failure(stored).trace


def test_a_failure_that_fits_stays_whole() -> None:
    failure = Failure(error_class="E", message="m\n", trace="t", worker="w", at_ms=5)

    assert decode_failure(encode_failure(failure)) == failure


@pytest.mark.covers("RT-138")
def test_texts_are_cut_on_a_character_with_a_mark() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("ü" * 10, 15) == "üüü... [cut]"
    assert len(fit_progress(b'"' + "\u20ac".encode() * 30_000 + b'"')) <= PROGRESS_BYTES
    assert len(fit_progress(b'"' + "\u20ac".encode() * 3000 + b'"', 4096)) <= 4096
    assert fit_progress(b"0.5") == b"0.5"
    assert fit_log_line("a\nb\rc") == b"a b c"
    lines = calls.log(KEYS, LEASE, [str(n) for n in range(250)]).args[2]
    assert isinstance(lines, bytes)
    assert len(lines.split(b"\n")) == LOG_LINES


def test_an_unknown_limit_of_retention_is_refused() -> None:
    with pytest.raises(InvalidValue, match="keep: expected completed_age_ms"):
        operator_calls.configure(KEYS, QueueConfig(keep={"completed": 1}), None)


@pytest.mark.covers("RT-138")
def test_a_free_text_with_half_a_surrogate_pair_can_be_sent() -> None:
    bad = "caf\udce9"
    failure = Failure(error_class=bad, message=bad, trace=bad, worker=bad, at_ms=1)
    settlement = Settlement(
        lease=LEASE, outcome=Outcome.DEAD, started_ms=1, reason=bad + "\u00e9" * 64, failure=failure
    )

    sent = [
        pack_call(calls.settle(KEYS, WHO, [settlement])),
        pack_call(calls.requeue(KEYS, [LEASE], Put.FRONT, bad)),
        pack_call(calls.log(KEYS, LEASE, [bad])),
        pack_call(operator_calls.revoke(KEYS, "p/b", RevokeCause.DIED, bad, 0)),
    ]

    assert all(b"caf?" in each for each in sent)
    assert fit(bad + "\u00e9" * 64, REASON_BYTES) == "caf?" + "\u00e9" * 30
    with pytest.raises(InvalidValue, match="type: expected 1 to 64 bytes of UTF-8"):
        calls.enqueue(KEYS, [a_job(type=bad)])
