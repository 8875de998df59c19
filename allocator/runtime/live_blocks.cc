#include "allocator/runtime/live_blocks.h"

#include <algorithm>

#include "allocator/base/mutex.h"
#include "proto/model/pass_name.h"

namespace stalloc {
namespace {

constexpr std::uint64_t kInIteration = 1;
constexpr unsigned kPhaseShift = 1;
constexpr unsigned kLayerShift = 12;
constexpr unsigned kIterationShift = 32;
constexpr std::uint64_t kPhaseBits = 0x7ffu;
constexpr std::uint64_t kLayerBits = 0xfffffu;

std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

std::string MicrobatchText(const Mark& mark) {
  if (mark.edge == MarkEdge::kEnd) return "between";
  std::string text = std::string(PassName(mark.pass)) + " " + std::to_string(mark.index);
  if (mark.chunk != 0) text += " chunk " + std::to_string(mark.chunk);
  return text;
}

}  // namespace

std::uint64_t LiveBlocks::Texts::Number(const std::string& text, std::uint64_t most) {
  if (text.empty()) return 0;
  const auto found = numbers.find(text);
  if (found != numbers.end()) return found->second;
  if (texts.size() >= most) return 0;
  texts.push_back(text);
  return numbers[text] = texts.size() - 1;
}

void LiveBlocks::Enter(const std::string& phase) {
  open_layers_.clear();
  const std::uint64_t kept = present() & ~(kPhaseBits << kPhaseShift | kLayerBits << kLayerShift);
  place_.store(kept | phases_.Number(phase, kMostPhases) << kPhaseShift, std::memory_order_relaxed);
}

void LiveBlocks::OnMark(const Mark& mark) {
  const LockGuard lock(texts_);
  const bool begins = mark.edge == MarkEdge::kBegin;
  if (mark.kind == MarkKind::kFence) {
    if (begins && fences_++ == 0) {
      before_fence_ = present() >> kPhaseShift & kPhaseBits;
      Enter("fence");
    } else if (!begins && fences_ > 0 && --fences_ == 0) {
      Enter(phases_.texts[before_fence_]);
    }
    return;
  }
  if (fences_ > 0 && mark.kind != MarkKind::kLayer) return;
  if (mark.kind == MarkKind::kIteration && begins) {
    place_.store(std::uint64_t{static_cast<std::uint32_t>(mark.index)} << kIterationShift | kInIteration,
                 std::memory_order_relaxed);
    open_layers_.clear();
  } else if (mark.kind == MarkKind::kMicrobatch) {
    Enter(MicrobatchText(mark));
  } else if (mark.kind == MarkKind::kOptimizer) {
    Enter(begins ? "optimizer" : "after the optimizer");
  } else if (mark.kind == MarkKind::kLayer) {
    const std::uint64_t layer = layers_.Number(mark.name, kMostLayers);
    if (begins) {
      if (open_layers_.size() < kMostOpen) open_layers_.push_back(layer);
    } else if (const auto open = std::find(open_layers_.rbegin(), open_layers_.rend(), layer);
               open != open_layers_.rend()) {
      open_layers_.erase(open.base() - 1, open_layers_.end());
    }
    const std::uint64_t inner = open_layers_.empty() ? 0 : open_layers_.back();
    place_.store((present() & ~(kLayerBits << kLayerShift)) | inner << kLayerShift, std::memory_order_relaxed);
  }
}

void LiveBlocks::Add(const void* pointer, Bytes requested, StreamHandle stream, BlockSource source) noexcept {
  const std::uint64_t address = KeyOf(pointer);
  const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  Shard& shard = shards_[IndexOf(address)];
  const LockGuard lock(shard.mutex);
  shard.blocks.Insert(address, {address, requested, stream, number, present(), source});
}

void LiveBlocks::Remove(const void* pointer) noexcept {
  Shard& shard = shards_[IndexOf(KeyOf(pointer))];
  const LockGuard lock(shard.mutex);
  shard.blocks.Erase(KeyOf(pointer));
}

bool LiveBlocks::Find(std::uint64_t address, Block* block) const noexcept {
  const Shard& shard = shards_[IndexOf(address)];
  const LockGuard lock(shard.mutex);
  const Block* const found = shard.blocks.Find(address);
  if (found != nullptr) *block = *found;
  return found != nullptr;
}

std::size_t LiveBlocks::CopyOwn(std::uint64_t address, Bytes bytes, std::span<Block> blocks) const noexcept {
  std::size_t count = 0;
  for (const Shard& shard : shards_) {
    const LockGuard lock(shard.mutex);
    shard.blocks.ForEach([&](std::uint64_t, const Block& block) {
      if (block.source == BlockSource::kUpstream || block.address - address < bytes) return;
      if (count < blocks.size()) blocks[count] = block;
      ++count;
    });
  }
  return count;
}

LiveBlocks::Place LiveBlocks::PlaceOf(std::uint64_t place) const noexcept {
  const LockGuard lock(texts_);
  return {(place & kInIteration) != 0, static_cast<std::int32_t>(place >> kIterationShift),
          phases_.texts[place >> kPhaseShift & kPhaseBits].c_str(),
          layers_.texts[place >> kLayerShift & kLayerBits].c_str()};
}

}  // namespace stalloc
