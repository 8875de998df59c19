#include "allocator/runtime/block_watch.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "allocator/base/mutex.h"

namespace stalloc {
namespace {

Address AddressOf(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }
unsigned long long Wide(std::uint64_t number) noexcept { return number; }

}  // namespace

void BlockWatch::SetArena(Address base, Bytes bytes) {
  const LockGuard lock(mutex_);
  arena_base_ = base;
  arena_bytes_ = bytes;
  filled_ = MappedArray<std::uint64_t>(bytes / kBlockAlignment / 64 + 1);
}

// Blocks --------------------------------------------------------------------------------------------------------------

void BlockWatch::Allocated(const void* pointer, Bytes requested, StreamHandle stream, Place place) noexcept {
  if (place == Place::kExact) return;
  const LockGuard lock(mutex_);
  const Address begin = AddressOf(pointer);
  const Bytes bytes = BlockBytes(requested);
  if (place == Place::kArena) {
    AskAboutFreed({begin, requested, stream, now_, begin, frees_, false}, bytes);
    SetFilled(begin, bytes, false);
  }
  const bool wants_tail = bytes > requested;
  const bool has_tail = wants_tail && memory_.Fill(begin + requested, bytes - requested, stream);
  if (wants_tail && !has_tail) ++counts_.unchecked;
  if (!has_tail && place != Place::kArena) return;
  blocks_.Insert(begin, {requested, stream, now_, place == Place::kArena, has_tail, false});
}

void BlockWatch::Freeing(const void* pointer, std::optional<StreamHandle> current) noexcept {
  const LockGuard lock(mutex_);
  const Address begin = AddressOf(pointer);
  const std::optional<Block> block = blocks_.Erase(begin);
  if (!block.has_value()) return;
  const Bytes bytes = BlockBytes(block->requested);
  if (block->has_tail) {
    const Address end = begin + block->requested;
    AskAbout({begin, block->requested, block->stream, block->moment, end, frees_, true}, begin + bytes - end);
  }
  if (!block->in_arena) return;
  freed_[frees_++ % kLastFreed] = {begin, block->requested, now_};
  const bool in_order = !memory_.HasStreams() || (!block->shared && current == block->stream);
  if (in_order && memory_.Fill(begin, bytes, block->stream)) {
    SetFilled(begin, bytes, true);
  } else {
    ++counts_.unchecked;
  }
}

void BlockWatch::Forget(const void* pointer) noexcept {
  const LockGuard lock(mutex_);
  (void)blocks_.Erase(AddressOf(pointer));
  ++counts_.unchecked;
}

void BlockWatch::StreamRecorded(const void* pointer) noexcept {
  const LockGuard lock(mutex_);
  if (Block* block = blocks_.Find(AddressOf(pointer)); block != nullptr) block->shared = true;
}

void BlockWatch::BeforeUnmap(Address address, Bytes bytes) noexcept {
  const LockGuard lock(mutex_);
  SetFilled(address, bytes, false);
}

void BlockWatch::SetFilled(Address begin, Bytes bytes, bool filled) noexcept {
  const Address offset = begin - arena_base_;
  if (offset >= arena_bytes_) return;
  const std::uint64_t end = (offset + bytes) / kBlockAlignment;
  for (std::uint64_t granule = offset / kBlockAlignment; granule < end;) {
    const std::uint64_t in_word = std::min(end - granule, 64 - granule % 64);
    const std::uint64_t bits = ~std::uint64_t{0} >> (64 - in_word) << granule % 64;
    std::uint64_t& word = filled_[granule / 64];
    word = filled ? word | bits : word & ~bits;
    granule += in_word;
  }
}

std::uint64_t BlockWatch::EndOfRun(std::uint64_t granule, std::uint64_t end, bool filled) const noexcept {
  while (granule < end) {
    const std::uint64_t word = filled_[granule / 64] >> granule % 64;
    const auto alike = static_cast<std::uint64_t>(filled ? std::countr_one(word) : std::countr_zero(word));
    const std::uint64_t in_word = 64 - granule % 64;
    granule += std::min(alike, in_word);
    if (alike < in_word) break;
  }
  return std::min(granule, end);
}

// Questions -----------------------------------------------------------------------------------------------------------

void BlockWatch::AskAbout(const Question& question, Bytes bytes) noexcept {
  if (queried_ - answered_ >= WatchMemory::kMostTickets / 2) TakeAnswers();
  const auto ticket = static_cast<std::uint32_t>(queried_ % WatchMemory::kMostTickets);
  if (queried_ - answered_ >= WatchMemory::kMostTickets ||
      !memory_.Query(ticket, question.begin, bytes, question.stream)) {
    ++counts_.unchecked;
    return;
  }
  questions_[ticket] = question;
  ++queried_;
  ++(question.tail ? counts_.tails : counts_.freed);
}

// About those of the block's bytes that were filled when they were freed, a question for each run of them.
void BlockWatch::AskAboutFreed(const Question& question, Bytes bytes) noexcept {
  const Address offset = question.begin - arena_base_;
  if (offset >= arena_bytes_) return;
  const std::uint64_t end = (offset + bytes) / kBlockAlignment;
  for (std::uint64_t granule = offset / kBlockAlignment; granule < end;) {
    const std::uint64_t first = granule;
    granule = EndOfRun(granule, end, true);
    if (granule > first) {
      Question run = question;
      run.begin = arena_base_ + first * kBlockAlignment;
      AskAbout(run, (granule - first) * kBlockAlignment);
    }
    granule = EndOfRun(granule, end, false);
  }
}

void BlockWatch::TakeAnswers() noexcept {
  for (; answered_ < queried_; ++answered_) {
    const auto ticket = static_cast<std::uint32_t>(answered_ % WatchMemory::kMostTickets);
    WatchMemory::Answer answer;
    if (!memory_.Answered(ticket, &answer)) return;
    if (answer.changed) Report(questions_[ticket], answer);
  }
}

WatchCounts BlockWatch::Counts() noexcept {
  const LockGuard lock(mutex_);
  TakeAnswers();
  WatchCounts counts = counts_;
  counts.open = queried_ - answered_;
  return counts;
}

// Findings ------------------------------------------------------------------------------------------------------------

void BlockWatch::Report(const Question& question, const WatchMemory::Answer& answer) noexcept {
  ++counts_.findings;
  if (!lines_.Pass()) return;
  question.tail ? ReportTail(question, answer) : ReportFreed(question, answer);
}

void BlockWatch::ReportTail(const Question& question, const WatchMemory::Answer& answer) noexcept {
  Log(LogSeverity::kWarning,
      "device %d: watch: a write beyond the end of the block of %llu bytes at 0x%llx (stream %llu, allocated in %s, "
      "freed by %s): its byte %llu has 0x%02x, expected 0x%02x (time %llu)",
      device_, Wide(question.requested), Wide(question.block), Wide(question.stream), Text(question.moment).text,
      Text(now_).text, Wide(question.requested + answer.offset), answer.found, WatchMemory::kPattern,
      Wide(counts_.findings));
}

void BlockWatch::ReportFreed(const Question& question, const WatchMemory::Answer& answer) noexcept {
  const Address address = question.begin + answer.offset;
  const Freed* const owner = LastOwner(address, question.frees);
  char of[128] = "";
  if (owner != nullptr) {
    std::snprintf(of, sizeof(of), " byte %llu of the block of %llu bytes at 0x%llx, freed in %s,",
                  Wide(address - owner->block), Wide(owner->requested), Wide(owner->block), Text(owner->moment).text);
  }
  Log(LogSeverity::kWarning,
      "device %d: watch: a write into freed memory at 0x%llx:%s has 0x%02x, expected 0x%02x; found when %llu bytes at "
      "0x%llx were given out (stream %llu, %s) (time %llu)",
      device_, Wide(address), of, answer.found, WatchMemory::kPattern, Wide(question.requested), Wide(question.block),
      Wide(question.stream), Text(question.moment).text, Wide(counts_.findings));
}

// For the frees before the question's; null if that was too long ago.
const BlockWatch::Freed* BlockWatch::LastOwner(Address address, std::uint64_t frees) const noexcept {
  const std::uint64_t oldest = frees_ - std::min(frees_, kLastFreed);
  for (std::uint64_t number = frees; number > oldest; --number) {
    const Freed& freed = freed_[(number - 1) % kLastFreed];
    if (address - freed.block < BlockBytes(freed.requested)) return &freed;
  }
  return nullptr;
}

// Moments -------------------------------------------------------------------------------------------------------------

void BlockWatch::OnMark(const Mark& mark) noexcept {
  const LockGuard lock(mutex_);
  TakeAnswers();
  if (mark.edge != MarkEdge::kBegin || mark.kind == MarkKind::kLayer) return;
  if (mark.kind == MarkKind::kIteration) now_.iteration = mark.index;
  now_ = {now_.iteration, mark.index, mark.kind, mark.pass};
}

BlockWatch::MomentText BlockWatch::Text(const Moment& moment) noexcept {
  constexpr const char* kPasses[] = {"", "F", "B", "W", "FB", "pass"};
  MomentText text{};
  char part[32] = "";
  if (moment.kind == MarkKind::kMicrobatch) {
    std::snprintf(part, sizeof(part), ", %s %d", kPasses[static_cast<std::size_t>(moment.pass)], moment.index);
  } else if (moment.kind != MarkKind::kIteration && moment.kind != MarkKind::kInit) {
    std::snprintf(part, sizeof(part), ", %s", MarkKindName(moment.kind));
  }
  if (moment.iteration < 0) {
    std::snprintf(text.text, sizeof(text.text), "the set-up%s", part);
  } else {
    std::snprintf(text.text, sizeof(text.text), "iteration %d%s", moment.iteration, part);
  }
  return text;
}

}  // namespace stalloc
