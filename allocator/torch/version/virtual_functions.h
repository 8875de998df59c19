// The virtual functions of torch's CUDAAllocator that not every supported version has, or has with these parameters.
//
// Each one below checks whether the class here has the function, and overrides it then. There are no version
// numbers: a vendor's snapshot from the middle of a minor version is built for as it is. What the native allocator
// alone knows is forwarded; what concerns our blocks is passed to Neutral, in one form for all versions. A function
// that nothing here knows makes tests/torch/test_virtuals.py fail.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "allocator/torch/cuda_history.h"
#include "allocator/torch/version/native_calls.h"

namespace stalloc::version {

// The functions below need this of a derived class.
class Neutral : public Native {
 public:
  explicit Neutral(Native* native) : native_(native) {}

 protected:
  virtual SnapshotInfo TakeSnapshot(MempoolId pool, bool include_traces) = 0;
  virtual void ConfigureHistory(const AllocationHistory::Options& options) = 0;
  // For a block of ours; false: it is the native allocator's.
  virtual bool ContextOfBlock(const void* pointer, AllocationHistory::Context* context) = 0;
  virtual bool AnnotateBlock(AllocationHistory::Entry::Action action, const void* pointer,
                             const std::string& metadata) = 0;
  // Throws where the address is ours.
  virtual void CheckMayAllocateAt(const void* address) = 0;
  // A MemPool was made, or is used by one more.
  virtual void OnPoolMade(c10::DeviceIndex device, MempoolId pool, bool has_own_allocator) = 0;
  virtual void OnPoolNotSplit(c10::DeviceIndex device, MempoolId pool) = 0;
  // A native block as one that came through us.
  virtual c10::DataPtr Adopt(c10::DataPtr block, std::size_t bytes) = 0;

  Native* const native_;  // lives for ever
};

// snapshot: with the flag from 2.11 on.
template <typename Base>
struct SnapshotsOfPools : Base {
  using Base::Base;
  SnapshotInfo snapshot(MempoolId pool) override { return this->TakeSnapshot(pool, true); }
};
template <typename Base>
struct SnapshotsWithoutTraces : Base {
  using Base::Base;
  SnapshotInfo snapshot(MempoolId pool, bool include_traces) override {
    return this->TakeSnapshot(pool, include_traces);
  }
};
template <typename Base>
using Snapshots =
    std::conditional_t<SnapshotsMayLeaveTracesOut<Native>, SnapshotsWithoutTraces<Base>, SnapshotsOfPools<Base>>;

// recordHistory: with the actions to leave out from 2.11 on.
template <typename Base>
struct RecordsAllActions : Base {
  using Base::Base;
  void recordHistory(bool enabled, CreateContextFn gather, std::size_t max_entries, RecordContext when,
                     bool clear) override {
    this->ConfigureHistory({enabled, gather, max_entries, when, clear, {}});
  }
};
template <typename Base>
struct RecordsChosenActions : Base {
  using Base::Base;
  void recordHistory(bool enabled, CreateContextFn gather, std::size_t max_entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override {
    this->ConfigureHistory({enabled, gather, max_entries, when, clear, skip_actions});
  }
};
template <typename Base>
using Histories =
    std::conditional_t<HistoriesMaySkipActions<Native>, RecordsChosenActions<Base>, RecordsAllActions<Base>>;

// createOrIncrefPool: the pool's own allocator is shared from 2.11 on.
template <typename Allocator>
concept SharesPoolAllocators = requires(Allocator& allocator, std::shared_ptr<Native> own) {
  allocator.createOrIncrefPool(c10::DeviceIndex{}, MempoolId{}, own);
};
template <typename Base>
struct BorrowsPoolAllocators : Base {
  using Base::Base;
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId pool, Native* own) override {
    this->native_->createOrIncrefPool(device, pool, own);
    this->OnPoolMade(device, pool, own != nullptr);
  }
};
template <typename Base>
struct OwnsPoolAllocators : Base {
  using Base::Base;
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId pool, std::shared_ptr<Native> own) override {
    const bool has_own = own != nullptr;
    this->native_->createOrIncrefPool(device, pool, std::move(own));
    this->OnPoolMade(device, pool, has_own);
  }
};
template <typename Base>
using PoolCreation =
    std::conditional_t<SharesPoolAllocators<Native>, OwnsPoolAllocators<Base>, BorrowsPoolAllocators<Base>>;

// setUseOnOOM: can be taken back from 2.11 on.
template <typename Allocator>
concept TakesUseOnOomBack = requires(Allocator& allocator) {
  allocator.setUseOnOOM(c10::DeviceIndex{}, MempoolId{}, true);
};
template <typename Base>
struct SetsUseOnOom : Base {
  using Base::Base;
  void setUseOnOOM(c10::DeviceIndex device, MempoolId pool) override { this->native_->setUseOnOOM(device, pool); }
};
template <typename Base>
struct ChoosesUseOnOom : Base {
  using Base::Base;
  void setUseOnOOM(c10::DeviceIndex device, MempoolId pool, bool use) override {
    this->native_->setUseOnOOM(device, pool, use);
  }
};
template <typename Base>
using UseOnOom = std::conditional_t<TakesUseOnOomBack<Native>, ChoosesUseOnOom<Base>, SetsUseOnOom<Base>>;

// From 2.10 on.
template <typename Allocator>
concept KnowsNoSplit = requires(Allocator& allocator) {
  allocator.setNoSplit(c10::DeviceIndex{}, MempoolId{});
};
template <typename Base>
struct ForwardsNoSplit : Base {
  using Base::Base;
  void setNoSplit(c10::DeviceIndex device, MempoolId pool) override {
    this->native_->setNoSplit(device, pool);
    this->OnPoolNotSplit(device, pool);
  }
};
template <typename Base>
using NoSplit = std::conditional_t<KnowsNoSplit<Native>, ForwardsNoSplit<Base>, Base>;

template <typename Base>
struct ForwardsUserMetadata : Base {
  using Base::Base;
  void setUserMetadata(const std::string& metadata) override { this->native_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return this->native_->getUserMetadata(); }
};
template <typename Base>
using UserMetadata = std::conditional_t<HasUserMetadata<Native>, ForwardsUserMetadata<Base>, Base>;

template <typename Allocator>
concept TellsMemoryInfo = requires(Allocator& allocator) {
  allocator.getMemoryInfo(c10::DeviceIndex{});
};
template <typename Base>
struct ForwardsMemoryInfo : Base {
  using Base::Base;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return this->native_->getMemoryInfo(device);
  }
};
template <typename Base>
using MemoryInfo = std::conditional_t<TellsMemoryInfo<Native>, ForwardsMemoryInfo<Base>, Base>;

template <typename Allocator>
concept TellsSegmentSizes = requires(Allocator& allocator) {
  allocator.getExpandableSegmentSizes(c10::DeviceIndex{});
};
template <typename Base>
struct ForwardsSegmentSizes : Base {
  using Base::Base;
  auto getExpandableSegmentSizes(c10::DeviceIndex device)
      -> decltype(std::declval<Base&>().getExpandableSegmentSizes(device)) override {
    return this->native_->getExpandableSegmentSizes(device);
  }
};
template <typename Base>
using SegmentSizes = std::conditional_t<TellsSegmentSizes<Native>, ForwardsSegmentSizes<Base>, Base>;

// From 2.12 on.
template <typename Allocator>
concept TellsOomRejections = requires(Allocator& allocator) {
  allocator.attachOomRejectionObserver({});
};
template <typename Base>
struct ForwardsOomRejections : Base {
  using Base::Base;
  void attachOomRejectionObserver(
      std::function<void(std::int64_t, std::size_t, std::size_t, std::size_t)> observer) override {
    this->native_->attachOomRejectionObserver(std::move(observer));
  }
};
template <typename Base>
using OomRejections = std::conditional_t<TellsOomRejections<Native>, ForwardsOomRejections<Base>, Base>;

template <typename Allocator>
concept TellsContexts = requires(Allocator& allocator) {
  allocator.getContextForPointer(nullptr);
};
template <typename Base>
struct AnswersContexts : Base {
  using Base::Base;
  AllocationHistory::Context getContextForPointer(const void* pointer) override {
    AllocationHistory::Context context;
    return this->ContextOfBlock(pointer, &context) ? context : this->native_->getContextForPointer(pointer);
  }
};
template <typename Base>
using Contexts = std::conditional_t<TellsContexts<Native>, AnswersContexts<Base>, Base>;

// From 2.13 on. By these the native allocator knows that it must not free while it is out of memory.
template <typename Allocator>
concept HearsOfCaptures = requires(Allocator& allocator) {
  allocator.markCaptureBegin(c10::DeviceIndex{});
};
template <typename Base>
struct ForwardsCaptures : Base {
  using Base::Base;
  void markCaptureBegin(c10::DeviceIndex device) override { this->native_->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { this->native_->markCaptureEnd(device); }
};
template <typename Base>
using Captures = std::conditional_t<HearsOfCaptures<Native>, ForwardsCaptures<Base>, Base>;

// The arena places blocks itself: an address of its own is refused.
template <typename Allocator>
concept AllocatesAtAddresses = requires(Allocator& allocator) {
  allocator.allocateWithAddress(0, nullptr);
};
template <typename Base>
struct AllocatesNativeAddresses : Base {
  using Base::Base;
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) override {
    this->CheckMayAllocateAt(address);
    return this->Adopt(this->native_->allocateWithAddress(bytes, address), bytes);
  }
};
template <typename Base>
using ChosenAddresses = std::conditional_t<AllocatesAtAddresses<Native>, AllocatesNativeAddresses<Base>, Base>;

// From 2.14 on.
template <typename Allocator>
concept Annotates = requires(Allocator& allocator) {
  allocator.annotateMemory(nullptr, std::string());
};
template <typename Base, typename Entry = AllocationHistory::Entry>
struct AnswersAnnotations : Base {
  using Base::Base;
  bool supportsUserMetadata() override { return this->native_->supportsUserMetadata(); }
  void annotateMemory(const void* pointer, const std::string& metadata) override {
    if (!this->AnnotateBlock(Entry::ANNOTATE, pointer, metadata)) {
      this->native_->annotateMemory(pointer, metadata);
    }
  }
};
template <typename Base>
using Annotations = std::conditional_t<Annotates<Native>, AnswersAnnotations<Base>, Base>;

template <template <typename> typename... Parts>
struct Chain;
template <>
struct Chain<> {
  using Type = Neutral;
};
template <template <typename> typename First, template <typename> typename... Rest>
struct Chain<First, Rest...> {
  using Type = First<typename Chain<Rest...>::Type>;
};

using AllParts = Chain<Snapshots, Histories, PoolCreation, UseOnOom, NoSplit, UserMetadata, MemoryInfo, SegmentSizes,
                       OomRejections, Contexts, Captures, ChosenAddresses, Annotations>::Type;

class VirtualFunctions : public AllParts {
 public:
  using AllParts::AllParts;
};

}  // namespace stalloc::version
