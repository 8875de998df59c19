#include "allocator/torch/nccl_watch.h"

#include <atomic>
#include <cstddef>

#include "allocator/torch/import_replacements.h"

namespace stalloc {
namespace {

// nccl.h's types, as the calling convention sees them.
using Code = int;  // ncclResult_t
using Communicator = void*;
using Stream = void*;
struct UniqueId {
  char bytes[128];
};
using Config = void*;
using Type = int;
using Operation = int;

UncountedBytes* g_counting_nccl = nullptr;  // set before any of the functions below can be called
std::atomic<int> g_watched_calls{0};        // that are left

enum class CallKind { kMakes, kUses };

template <typename Call>
Code WatchedCall(CallKind kind, Call&& call) noexcept {
  if (kind == CallKind::kMakes) {
    g_watched_calls.store(kWatchedCalls, std::memory_order_relaxed);
  } else if (g_watched_calls.load(std::memory_order_relaxed) <= 0 ||
             g_watched_calls.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    return call();
  }
  return g_counting_nccl->During(UncountedBytes::Cause::kCommunicators, call);
}

template <int kNumber, CallKind kKind, typename Signature>
struct NcclFunction;
template <int kNumber, CallKind kKind, typename... Arguments>
struct NcclFunction<kNumber, kKind, Code(Arguments...)> {
  static inline Code (*real)(Arguments...) = nullptr;
  static Code Ours(Arguments... arguments) {
    return WatchedCall(kKind, [&]() noexcept { return real(arguments...); });
  }
  static void Want(ImportReplacements& imports, const char* symbol) { imports.WantIfImported(symbol, real, &Ours); }
};

void WantMaking(ImportReplacements& imports) {
  NcclFunction<0, CallKind::kMakes, Code(Communicator*, int, UniqueId, int)>::Want(imports, "ncclCommInitRank");
  NcclFunction<1, CallKind::kMakes, Code(Communicator*, int, UniqueId, int, Config)>::Want(imports,
                                                                                           "ncclCommInitRankConfig");
  NcclFunction<2, CallKind::kMakes, Code(Communicator*, int, int, int, UniqueId*, Config)>::Want(
      imports, "ncclCommInitRankScalable");
  NcclFunction<3, CallKind::kMakes, Code(Communicator, int, int, Communicator*, Config)>::Want(imports,
                                                                                               "ncclCommSplit");
  NcclFunction<4, CallKind::kMakes, Code(Communicator, int*, int, Communicator*, Config, int)>::Want(imports,
                                                                                                     "ncclCommShrink");
}

void WantUsing(ImportReplacements& imports) {
  using Reduced = Code(const void*, void*, std::size_t, Type, Operation, Communicator, Stream);
  using Gathered = Code(const void*, void*, std::size_t, Type, Communicator, Stream);
  using Rooted = Code(const void*, void*, std::size_t, Type, int, Communicator, Stream);
  NcclFunction<10, CallKind::kUses, Reduced>::Want(imports, "ncclAllReduce");
  NcclFunction<11, CallKind::kUses, Reduced>::Want(imports, "ncclReduceScatter");
  NcclFunction<12, CallKind::kUses, Gathered>::Want(imports, "ncclAllGather");
  NcclFunction<13, CallKind::kUses, Gathered>::Want(imports, "ncclAlltoAll");
  NcclFunction<14, CallKind::kUses, Rooted>::Want(imports, "ncclBroadcast");
  NcclFunction<15, CallKind::kUses, Code(void*, std::size_t, Type, int, Communicator, Stream)>::Want(imports,
                                                                                                     "ncclBcast");
  NcclFunction<16, CallKind::kUses,
               Code(const void*, void*, std::size_t, Type, Operation, int, Communicator, Stream)>::Want(imports,
                                                                                                        "ncclReduce");
  NcclFunction<17, CallKind::kUses, Code(const void*, std::size_t, Type, int, Communicator, Stream)>::Want(imports,
                                                                                                           "ncclSend");
  NcclFunction<18, CallKind::kUses, Code(void*, std::size_t, Type, int, Communicator, Stream)>::Want(imports,
                                                                                                     "ncclRecv");
  NcclFunction<19, CallKind::kUses, Code()>::Want(imports, "ncclGroupEnd");
}

}  // namespace

Status WatchNccl(UncountedBytes& uncounted) {
  ImportReplacements imports;
  if (Status read = imports.Read("libtorch_cuda.so"); !read.ok()) return read;
  g_counting_nccl = &uncounted;
  WantMaking(imports);
  WantUsing(imports);
  if (imports.empty()) return Error{imports.last().path() + ": imports nothing of NCCL"};
  return imports.Replace();
}

}  // namespace stalloc
