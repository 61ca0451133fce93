"""Which rank a process is: by what torch.distributed is told, or by its arguments, and by nothing else."""

from inferdbg.cli.members import Rank, of_server, rank_of
from inferdbg.probes.roles import CORE, FRONT_END, WORKER
from inferdbg.probes.servers import FoundServer, Member

ENVIRON = b"HOME=/root\0RANK=2\0WORLD_SIZE=4\0MASTER_ADDR=127.0.0.1\0MASTER_PORT=29500\0HF_TOKEN=hf_secret\0"


def test_a_rank_is_read_from_the_environment() -> None:
    assert rank_of(ENVIRON, (), 1) == Rank("2", "127.0.0.1:29500", 4)
    assert rank_of(ENVIRON.replace(b"WORLD_SIZE=4", b"WORLD_SIZE=x"), (), 1) == Rank("2", "127.0.0.1:29500", None)


def test_a_rank_is_read_from_the_arguments() -> None:
    assert rank_of(b"", ("python", "train.py", "--rank", "3"), 7) == Rank("3", "children of 7")
    assert rank_of(b"", ("python", "train.py", "--local-rank=1"), 7) == Rank("1", "children of 7")


def test_what_is_no_number_is_no_rank() -> None:
    assert rank_of(ENVIRON.replace(b"RANK=2", b"RANK=\xff"), (), 1) is None
    assert rank_of(b"RANK=99999999\0", ("x", "--rank"), 1) is None
    assert rank_of(b"LOCAL_RANK=1\0", (), 1) is None


def test_workers_of_one_data_parallel_rank_are_one_job() -> None:
    members = [Member(1, "vllm", FRONT_END), Member(2, "VLLM::EngineCore", CORE, "DP0")]
    members += [Member(3 + at, "VLLM::Worker", WORKER, f"DP{at // 2} TP{at % 2}") for at in range(4)]
    seats = of_server(FoundServer("vllm", tuple(members), 0)).seats
    assert [(seat.role, seat.rank, seat.job) for seat in seats[2:]] == [
        ("worker", "DP0 TP0", "vllm DP0"),
        ("worker", "DP0 TP1", "vllm DP0"),
        ("worker", "DP1 TP0", "vllm DP1"),
        ("worker", "DP1 TP1", "vllm DP1"),
    ]
    assert [seat.job for seat in seats[:2]] == [None, None]


def test_of_sglang_the_engine_cores_shard_the_model() -> None:
    members = [Member(1 + at, "sglang::scheduler", CORE, f"TP{at}") for at in range(2)]
    assert [seat.job for seat in of_server(FoundServer("sglang", tuple(members), 0)).seats] == ["sglang", "sglang"]
