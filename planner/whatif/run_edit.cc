#include "planner/whatif/run_edit.h"

#include <algorithm>
#include <cmath>

namespace stalloc::planner {
namespace {

bool IsPass(PhaseKind kind) {
  return kind == PhaseKind::kUnmarked || kind == PhaseKind::kForward || kind == PhaseKind::kBackward ||
         kind == PhaseKind::kForwardBackward;
}

Bytes SizeOf(std::uint32_t block, const RunEdit& edit, const std::vector<Bytes>& sizes) {
  if (block < sizes.size()) return sizes[block];
  const ExtraBlock& extra = edit.extras[block - sizes.size()];
  return extra.like == kNone ? BlockBytes(extra.bytes) : sizes[extra.like];
}

// What is live, in all and by whether a pass has made it.
class Live {
 public:
  Live(const RunEdit& edit, const std::vector<Bytes>& sizes, const std::vector<bool>& in_pass)
      : edit_(edit), sizes_(sizes), in_pass_(in_pass), present_(sizes.size() + edit.extras.size()) {}

  void Make(std::uint32_t block, std::uint64_t event) {
    if (present_[block]) return;
    present_[block] = true;
    const Bytes bytes = SizeOf(block, edit_, sizes_);
    Of(block) += bytes;
    peak_.pool = std::max(peak_.pool, pool_);
    peak_.outside_pool = std::max(peak_.outside_pool, outside_);
    if (pool_ + outside_ <= peak_.live) return;
    peak_.live = pool_ + outside_;
    peak_.event = event;
  }
  void Drop(std::uint32_t block) {
    if (!present_[block]) return;
    present_[block] = false;
    Of(block) -= SizeOf(block, edit_, sizes_);
  }
  [[nodiscard]] const EditedPeak& peak() const { return peak_; }

 private:
  Bytes& Of(std::uint32_t block) { return block >= in_pass_.size() || in_pass_[block] ? pool_ : outside_; }

  const RunEdit& edit_;
  const std::vector<Bytes>& sizes_;
  const std::vector<bool>& in_pass_;
  std::vector<bool> present_;
  Bytes pool_ = 0;
  Bytes outside_ = 0;
  EditedPeak peak_;
};

// Writes the events of an edited run, numbering what is allocated anew.
class EditedTrace {
 public:
  EditedTrace(const Trace& trace, const DeviceTrace& device, const RunEdit& edit, const std::vector<Bytes>& sizes)
      : trace_(trace), device_(device), edit_(edit), sizes_(sizes), staying_(device.allocations.size()) {
    for (const std::uint32_t block : edit.staying) staying_[block] = true;
    block_at_.resize(trace.allocations, kNone);
    for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
      block_at_[trace.events[device.allocations[i].event].allocation] = i;
    }
    now_.resize(trace.allocations + edit.extras.size(), kGone);
    first_.resize(trace.allocations, kGone);
  }

  Trace Take() {
    result_ = trace_;
    result_.events.clear();
    result_.layer_inputs.clear();
    for (Mark& mark : result_.marks) {
      if (mark.kind == MarkKind::kLayer) mark.chunk = 0;
    }
    result_.allocations = 0;
    auto next = edit_.actions.begin();
    for (std::size_t event = 0; event < trace_.events.size(); ++event) {
      for (; next != edit_.actions.end() && next->event <= event; ++next) Act(*next, trace_.events[event]);
      Copy(trace_.events[event]);
    }
    for (NamedTensor& tensor : result_.tensors) tensor.allocation = first_[tensor.allocation];
    return std::move(result_);
  }

 private:
  static constexpr std::uint64_t kGone = ~std::uint64_t{0};

  // For a block, its place in now_: traced blocks by their number in the file.
  [[nodiscard]] std::size_t PlaceOf(std::uint32_t block) const {
    const std::size_t count = device_.allocations.size();
    return block < count ? trace_.events[device_.allocations[block].event].allocation
                         : trace_.allocations + (block - count);
  }
  [[nodiscard]] Bytes RequestOf(std::uint32_t block) const {
    const std::size_t count = device_.allocations.size();
    if (block >= count) {
      const ExtraBlock& extra = edit_.extras[block - count];
      return extra.like == kNone ? extra.bytes : RequestOf(extra.like);
    }
    return sizes_.empty() ? device_.allocations[block].requested() : sizes_[block];
  }
  [[nodiscard]] std::uint32_t StreamOf(std::uint32_t block) const {
    const std::size_t count = device_.allocations.size();
    if (block < count) return device_.allocations[block].stream;
    const std::uint32_t like = edit_.extras[block - count].like;
    return like == kNone ? device_.allocations.front().stream : device_.allocations[like].stream;
  }

  void Act(const EditAction& action, const TraceEvent& at) {
    const std::size_t place = PlaceOf(action.block);
    if (action.makes == (now_[place] != kGone)) return;
    TraceEvent event;
    event.thread = at.thread;
    event.time_ns = at.time_ns;
    if (action.makes) {
      event.kind = EventKind::kAlloc;
      event.device = device_.device;
      event.bytes = RequestOf(action.block);
      event.stream = StreamOf(action.block);
      event.flags = kAllocRecomputed;
      event.allocation = now_[place] = result_.allocations++;
    } else {
      event.kind = EventKind::kFree;
      event.allocation = now_[place];
      now_[place] = kGone;
    }
    result_.events.push_back(event);
  }

  void Copy(TraceEvent event) {
    if (event.kind == EventKind::kHeld) return;
    if (event.kind == EventKind::kMark) {
      result_.events.push_back(event);
      return;
    }
    std::uint64_t& now = now_[event.allocation];
    const std::uint32_t block = block_at_[event.allocation];
    if (event.kind == EventKind::kAlloc) {
      first_[event.allocation] = now = result_.allocations++;
      if (block != kNone && !sizes_.empty() && sizes_[block] != device_.allocations[block].bytes) {
        event.bytes = sizes_[block];
      }
      if (!sizes_.empty()) event.address = 0;  // blocks of other sizes lie elsewhere
    }
    if (now == kGone || (event.kind == EventKind::kFree && block != kNone && staying_[block])) return;
    event.allocation = now;
    if (event.kind == EventKind::kFree) now = kGone;
    result_.events.push_back(event);
  }

  const Trace& trace_;
  const DeviceTrace& device_;
  const RunEdit& edit_;
  const std::vector<Bytes>& sizes_;
  std::vector<bool> staying_;            // by allocation of the device
  std::vector<std::uint32_t> block_at_;  // by allocation of the file; kNone: of another device
  std::vector<std::uint64_t> now_;       // by allocation of the file, then extras: its number in the result
  std::vector<std::uint64_t> first_;     // by allocation of the file: the number under which it came
  Trace result_;
};

}  // namespace

void RunEdit::Sort() {
  std::stable_sort(actions.begin(), actions.end(),
                   [](const EditAction& a, const EditAction& b) { return a.event < b.event; });
}

std::vector<Bytes> TracedSizes(const DeviceFacts& facts) {
  std::vector<Bytes> sizes;
  sizes.reserve(facts.device.allocations.size());
  for (const Allocation& allocation : facts.device.allocations) sizes.push_back(allocation.bytes);
  return sizes;
}

std::vector<Bytes> SizesAt(const std::vector<BlockPart>& parts, double scale) {
  std::vector<Bytes> sizes;
  sizes.reserve(parts.size());
  for (const BlockPart& part : parts) {
    sizes.push_back(BlockBytes(static_cast<Bytes>(std::llround(std::max(part.At(scale), 1.0)))));
  }
  return sizes;
}

EditPlayer::EditPlayer(const DeviceFacts& facts) {
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) steps_.push_back(step);
  in_pass_.reserve(facts.blocks.size());
  for (std::size_t i = 0; i < facts.blocks.size(); ++i) {
    in_pass_.push_back(facts.device.allocations[i].freed() && IsPass(facts.phases.spans()[facts.blocks[i].phase].kind));
  }
}

EditedPeak EditPlayer::Play(const RunEdit& edit, const std::vector<Bytes>& sizes) const {
  std::vector<bool> staying(sizes.size());
  for (const std::uint32_t block : edit.staying) staying[block] = true;
  Live live(edit, sizes, in_pass_);
  auto next = edit.actions.begin();
  for (const SweepStep& step : steps_) {
    for (; next != edit.actions.end() && next->event <= step.event; ++next) {
      next->makes ? live.Make(next->block, step.event) : live.Drop(next->block);
    }
    if (!step.is_free) {
      live.Make(step.allocation, step.event);
    } else if (!staying[step.allocation]) {
      live.Drop(step.allocation);
    }
  }
  return live.peak();
}

Trace EditTrace(const Trace& trace, const DeviceTrace& device, const RunEdit& edit, const std::vector<Bytes>& sizes) {
  return EditedTrace(trace, device, edit, sizes).Take();
}

}  // namespace stalloc::planner
