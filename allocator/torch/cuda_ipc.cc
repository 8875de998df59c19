#include "allocator/torch/cuda_ipc.h"

#include <c10/util/Exception.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace stalloc {
namespace {

using version::SegmentFormat;

constexpr char kExpandableSegment = 'e';

struct Header {
  std::int32_t process = 0;
  std::int32_t zero = 0;  // torch compares whole texts
  std::uint64_t handle_bytes = 0;
  std::uint64_t handles = 0;
};
static_assert(sizeof(Header) == 24 && offsetof(Header, handle_bytes) == 8 && offsetof(Header, handles) == 16);

// What follows the header where the text says what its handles are.
struct HandleType {
  std::int32_t type = 1;  // POSIX file descriptors
  std::int32_t zero = 0;
};
static_assert(sizeof(HandleType) == 8);

template <typename Value>
void Append(std::string& text, const Value& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Numbers of the system, for headers that are older than the calls (2020).
constexpr long kPidfdOpen = 434;
constexpr long kPidfdGetfd = 438;

// Containers forbid the call by which receivers get descriptors, unless they have CAP_SYS_PTRACE. A process that may
// not even request one of its own has receivers that may not, either: better an error here than there. 0: it may.
int AskForADescriptor() {
  const int process = static_cast<int>(syscall(kPidfdOpen, getpid(), 0));
  if (process < 0) return errno;
  const int descriptor = static_cast<int>(syscall(kPidfdGetfd, process, process, 0));
  const int error = descriptor < 0 ? errno : 0;
  if (descriptor >= 0) close(descriptor);
  close(process);
  return error;
}

Result<ExportedBlock> Export(const DeviceRuntime& runtime, const void* pointer) {
  Result<ExportedBlock> block = runtime.Export(pointer);
  static const int refused = AskForADescriptor();
  if (!block.ok() || refused == 0) return block;
  return Error{std::string("the system refuses pidfd_getfd (") + std::strerror(refused) +
               "), by which a receiver gets memory of expandable segments, so also set "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"};
}

[[noreturn]] void Refuse(const DeviceRuntime& runtime, c10::DeviceIndex device, std::string_view why) {
  const bool planned = !runtime.exact();
  TORCH_CHECK(
      false, "stalloc: a tensor in ", planned ? "the planned arena" : "the heap of an exact trace",
      " of cuda:", static_cast<int>(device), " cannot be shared with another process (CUDA IPC): ", why,
      ". Allocate what is to be shared inside `with torch.cuda.use_mem_pool(pool):`, where `pool = "
      "torch.cuda.MemPool()` and `pool.snapshot()` came before: from then on PyTorch's own allocator serves it; or ",
      planned ? "run with STALLOC_MODE=Torch." : "trace with STALLOC_TRACE_FAST_MODE=1.");
}

}  // namespace

std::string SharedSegment(SegmentFormat format, std::int32_t process, const Arena::Exported& chunks) {
  std::string text{static_cast<char>(format), kExpandableSegment};
  Append(text, Header{process, 0, chunks.chunk_bytes, chunks.descriptors.size()});
  if (format == SegmentFormat::kTyped) Append(text, HandleType{});
  for (const std::int32_t descriptor : chunks.descriptors) Append(text, descriptor);
  return text;
}

c10::cuda::CUDACachingAllocator::ShareableHandle ShareBlock(const DeviceRuntime& runtime, c10::DeviceIndex device,
                                                            const void* pointer) {
  const SegmentFormat format = version::FormatOfSegments();
  if (format == SegmentFormat::kUnknown) {
    Refuse(runtime, device, "this torch is newer than this stalloc, which does not know how it writes shared segments");
  }
  const Result<ExportedBlock> block = Export(runtime, pointer);
  if (!block.ok()) Refuse(runtime, device, block.error());
  return {static_cast<std::ptrdiff_t>(block.value().offset), SharedSegment(format, getpid(), block.value().chunks)};
}

}  // namespace stalloc
