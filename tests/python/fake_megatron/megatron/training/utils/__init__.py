from megatron.core.package_info import before

if before(0, 18):  # a plain module there

    def report_memory(name):
        print(f"[Rank 0] {name} memory (MB) | allocated: 1.00", flush=True)

else:
    from megatron.training.utils.common_utils import report_memory as report_memory
