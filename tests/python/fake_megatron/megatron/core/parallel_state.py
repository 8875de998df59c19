import os


def get_data_parallel_rank() -> int:
    return int(os.environ.get("FAKE_DATA_PARALLEL_RANK", "0"))
