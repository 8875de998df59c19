#include "allocator/driver/cuda_watch_memory.h"

#include <algorithm>
#include <utility>

namespace stalloc {
namespace {

// stalloc_find_other(begin, bytes, found): *found becomes the least of itself and offset << 8 | byte, over all bytes
// that are not 0xff. A thread looks at every so-many-th byte, and ends at its first other one.
constexpr const char* kKernel = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry stalloc_find_other(.param .u64 begin_param, .param .u64 bytes_param, .param .u64 found_param)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<12>;

  ld.param.u64 %rd1, [begin_param];
  ld.param.u64 %rd2, [bytes_param];
  ld.param.u64 %rd3, [found_param];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd4, %r1, %r2;
  cvt.u64.u32 %rd5, %r3;
  add.u64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd6, %r4, %r2;
LOOK:
  setp.ge.u64 %p1, %rd4, %rd2;
  @%p1 bra DONE;
  add.u64 %rd7, %rd1, %rd4;
  ld.global.u8 %r5, [%rd7];
  setp.eq.u32 %p2, %r5, 255;
  @%p2 bra NEXT;
  shl.b64 %rd8, %rd4, 8;
  cvt.u64.u32 %rd9, %r5;
  or.b64 %rd10, %rd8, %rd9;
  atom.global.min.u64 %rd11, [%rd3], %rd10;
  bra DONE;
NEXT:
  add.u64 %rd4, %rd4, %rd6;
  bra LOOK;
DONE:
  ret;
}
)";
static_assert(WatchMemory::kPattern == 255, "the kernel has it, too");

constexpr unsigned kThreads = 256;
constexpr Bytes kBytesABlock = 16 * kThreads;  // of threads, before there are more of them
constexpr unsigned kMostBlocks = 1024;
constexpr std::uint64_t kNothing = ~std::uint64_t{0};
constexpr Bytes kAnswerBytes = WatchMemory::kMostTickets * sizeof(std::uint64_t);

}  // namespace

std::unique_ptr<CudaWatchMemory> CudaWatchMemory::Create(const cuda::Api& api, cuda::Context context,
                                                         CudaEvents& events, DriverStatus* status) {
  std::unique_ptr<CudaWatchMemory> memory(new CudaWatchMemory(api, context, events));
  *status = memory->Open();
  return status->ok() ? std::move(memory) : nullptr;
}

// What it takes stays taken for the life of the process, as the device's other parts do.
DriverStatus CudaWatchMemory::Open() noexcept {
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess) return cuda::ToStatus(current.result(), "cuCtxPushCurrent");
  const cuda::RelaxedCaptureScope relaxed(api_);
  cuda::Module module = nullptr;
  if (const cuda::Result result = api_.ModuleLoadData(&module, kKernel); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuModuleLoadData");
  }
  if (const cuda::Result result = api_.ModuleGetFunction(&kernel_, module, "stalloc_find_other");
      result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuModuleGetFunction");
  }
  if (const cuda::Result result = api_.MemAlloc(&found_, kAnswerBytes); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuMemAlloc");
  }
  void* seen = nullptr;
  if (const cuda::Result result = api_.MemAllocHost(&seen, kAnswerBytes); result != cuda::kSuccess) {
    return cuda::ToStatus(result, "cuMemAllocHost");
  }
  seen_ = static_cast<std::uint64_t*>(seen);
  return {};
}

// A thread's own default stream is another one in the thread that frees.
bool CudaWatchMemory::MayUse(StreamHandle stream) noexcept {
  constexpr StreamHandle kPerThreadDefault = 2;
  return stream != kPerThreadDefault && !events_.Capturing(stream);
}

bool CudaWatchMemory::Fill(Address begin, Bytes bytes, StreamHandle stream) noexcept {
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || !MayUse(stream)) return false;
  const cuda::RelaxedCaptureScope relaxed(api_);
  return api_.MemsetD8Async(begin, kPattern, bytes, cuda::ToStream(stream)) == cuda::kSuccess;
}

bool CudaWatchMemory::Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle stream) noexcept {
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || !MayUse(stream)) return false;
  const cuda::RelaxedCaptureScope relaxed(api_);  // the first launch may load the kernel
  cuda::DevicePointer found = found_ + ticket * sizeof(std::uint64_t);
  static_assert(kNothing == 0xffff'ffff'ffff'ffff, "eight bytes of 0xff");
  if (api_.MemsetD8Async(found, 0xff, sizeof(std::uint64_t), cuda::ToStream(stream)) != cuda::kSuccess) return false;
  seen_[ticket] = kNothing;  // should the driver go before the answer comes
  void* parameters[] = {&begin, &bytes, &found};
  const auto blocks = static_cast<unsigned>(std::min<Bytes>(1 + bytes / kBytesABlock, kMostBlocks));
  if (api_.LaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, cuda::ToStream(stream), parameters, nullptr) !=
          cuda::kSuccess ||
      api_.MemcpyDtoHAsync(&seen_[ticket], found, sizeof(std::uint64_t), cuda::ToStream(stream)) != cuda::kSuccess) {
    return false;
  }
  queried_[ticket] = events_.Record(stream);
  return queried_[ticket] != 0;
}

bool CudaWatchMemory::Answered(std::uint32_t ticket, Answer* answer) noexcept {
  if (!events_.Done(queried_[ticket])) return false;
  events_.Recycle(queried_[ticket]);
  const std::uint64_t seen = *static_cast<volatile std::uint64_t*>(&seen_[ticket]);  // written by the device
  *answer = {seen != kNothing, seen >> 8, static_cast<unsigned char>(seen)};
  return true;
}

}  // namespace stalloc
