"""Which rank a process is: by what torch.distributed is told, or by its arguments, and by nothing else."""

from inferdbg.cli.members import Rank, rank_of

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
